/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A small region for trying transfers: a few untouched pages, registered pinned or on demand. One thread.
 */
#ifndef UNPIN_TOOL_DOCTOR_REGION_H
#define UNPIN_TOOL_DOCTOR_REGION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

#include "tool/doctor.h"

#define DOCTOR_REGION_PAGES 16

struct doctor_region {
	unsigned char *addr;
	size_t length; /* DOCTOR_REGION_PAGES pages */
	struct ibv_mr *mr;
	bool on_demand;
};

/* Registers memory with every right that the device knows. NULL with errno. access: further flags. */
struct ibv_mr *doctor_region_register(struct doctor *d, void *addr, size_t length, int access);
/* False: neither memory nor region can be had; errno says why. To be dropped in every case. */
bool doctor_region_make(struct doctor *d, struct doctor_region *r, bool on_demand);
/* As doctor_region_make; on demand, too, where pinning is refused. */
bool doctor_region_any(struct doctor *d, struct doctor_region *r, bool on_demand);
/* Harmless when zeroed. Errno is kept. */
void doctor_region_drop(struct doctor_region *r);
/* What the byte at i of a transfer's source is: never 0, and different from its neighbours. */
unsigned char doctor_region_pattern(size_t i);

#endif
