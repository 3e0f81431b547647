/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/doctor_region.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tool/machine.h"

#define ALL_ACCESS                                                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct ibv_mr *doctor_region_register(struct doctor *d, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(d->e.pd, addr, length, ALL_ACCESS | access);

	/* A device without atomics refuses their right. */
	return mr ? mr : ibv_reg_mr(d->e.pd, addr, length, (ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC) | access);
}

bool doctor_region_make(struct doctor *d, struct doctor_region *r, bool on_demand)
{
	r->length = DOCTOR_REGION_PAGES * (size_t)getpagesize();
	r->addr = machine_map(r->length);
	r->on_demand = on_demand;
	r->mr = !r->addr
			? NULL
			: doctor_region_register(d, r->addr, r->length, on_demand ? IBV_ACCESS_ON_DEMAND : 0);
	return r->mr;
}

bool doctor_region_any(struct doctor *d, struct doctor_region *r, bool on_demand)
{
	if (doctor_region_make(d, r, on_demand))
		return true;
	doctor_region_drop(r);
	return !on_demand && doctor_region_make(d, r, true);
}

void doctor_region_drop(struct doctor_region *r)
{
	int err = errno;

	if (r->mr)
		ibv_dereg_mr(r->mr);
	machine_unmap(r->addr, r->length);
	memset(r, 0, sizeof(*r));
	errno = err;
}

unsigned char doctor_region_pattern(size_t i)
{
	return (unsigned char)(0x80 | ((i * 37 + i / 251) & 0x7f));
}
