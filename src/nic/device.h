/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device of this process: one struct nic for all contexts that the application opens, made at the first
 * open and unmade at the last close. It owns the wire's slot, the on-demand paging space, the key table and
 * the engine thread.
 *
 * A context is what one ibv_open_device gives: its asynchronous events and its objects.
 *
 * Errors are negative errno values throughout nic/. Every function may be called from any thread; objects
 * follow the verbs' rule that an object is not used while it is being destroyed.
 *
 * Lock order in nic/: device (object lists, keys, numbers) -> queue pair run lock -> poster locks (SQ, RQ) ->
 * CQ -> event queue. The run lock is the only one held across a copy. The locks of odp/ and wire/ come below
 * all of these.
 *
 * Fork: state is stamped with mm's generation; in a child every entry finds an inherited context and answers
 * -EIO.
 */
#ifndef UNPIN_NIC_DEVICE_H
#define UNPIN_NIC_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "nic/caps.h"
#include "nic/event.h"

struct nic;
struct nic_pd;

struct nic_context {
	struct nic *nic;
	struct nic_event_queue async; /* async.fd is the context's async_fd */
	uint64_t generation;
	_Atomic int refs; /* one while open, and one for each PD, CQ, channel, QP and MR */
};

/* The name this process's device has: UNPIN_DEVICE, or "unpin0". Letters, digits, '_', '-', at most 31;
 * anything else is reported once and the default used. */
const char *nic_device_name(void);

/* 0; -EMFILE, -ENOMEM, -EADDRINUSE (no free slot), -EINVAL (a setting that cannot be read), ... with the
 * cause logged. */
int nic_context_open(struct nic_context **out);
/*
 * As ibv_close_device(3): objects still alive are not freed, but their resources are given back, as the
 * kernel does when the last descriptor goes: queue pairs stop, regions are unpinned. They may still be
 * destroyed afterwards; the context, and the device if it is the last one, goes with the last of them. True:
 * it has gone already. An inherited context in a forked child is only forgotten (false).
 */
bool nic_context_close(struct nic_context *ctx);
/* What the device offers, as its settings have it. Valid while the context is, in a forked child too. */
const struct nic_caps *nic_context_caps(const struct nic_context *ctx);
/* -EIO when the context is inherited from a parent process, else 0. */
int nic_context_check(const struct nic_context *ctx);

/*
 * A counter of the exported segment (base/segment.h) by its offset there: the device's since this process
 * opened it; 0 while it is not open. Any thread, without a lock.
 */
uint64_t nic_segment_counter(size_t offset);

int nic_pd_create(struct nic_context *ctx, struct nic_pd **out);
/* -EBUSY while memory regions or queue pairs use it. */
int nic_pd_destroy(struct nic_pd *pd);

#endif
