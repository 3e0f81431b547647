/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The device of the process, its contexts and protection domains. */
#include "nic/device.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rundown.h"
#include "base/trace.h"
#include "mm/generation.h"
#include "mm/notifier.h"
#include "mm/sigchain.h"
#include "nic/nic.h"

#define NAME_MAX_LEN 31

/* The one device of this process. registry_lock guards the pointer and its refs; it is never taken on the
 * data path. */
static struct lock registry_lock = LOCK_INIT(LOCK_REGISTRY);
static struct nic *_Atomic the_nic;
/* Threads of the application that tell the device of a change to their memory, or of a fork. They take no
 * lock to find it, so it waits for them before it goes: for ever, should a signal handler have left munmap(2)
 * and its like by a jump. Closed while there is no device. */
static struct rundown tellers = { .users = RUNDOWN_CLOSED };

/* --- name
 * ----------------------------------------------------------------------------------------------------------
 */

static bool name_ok(const char *name)
{
	size_t n = strlen(name);

	if (n < 1 || n > NAME_MAX_LEN)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-')
			return false;
	return true;
}

static char device_name[NAME_MAX_LEN + 1];

static void read_name(void)
{
	const char *want = getenv("UNPIN_DEVICE");

	if (want && *want && !name_ok(want)) {
		log_warn("UNPIN_DEVICE must be 1 to %d letters, digits, '_' or '-'; using " NIC_NAME_DEFAULT,
			NAME_MAX_LEN);
		want = NULL;
	}
	strcpy(device_name, want && *want ? want : NIC_NAME_DEFAULT);
}

const char *nic_device_name(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_name);
	return device_name;
}

/* --- fork
 * ----------------------------------------------------------------------------------------------------------
 */

static void after_fork_in_parent(void)
{
	struct nic *nic;

	if (!rundown_enter(&tellers))
		return;
	nic = atomic_load(&the_nic);
	if (nic && nic->generation == generation_now())
		odp_space_forked(nic->odp);
	rundown_leave(&tellers);
}

/* Inherited state is dropped without locks: other threads may have held any of them. */
static void after_fork_in_child(void)
{
	struct nic *nic;

	/* Whoever was inside is not here. */
	atomic_store(&tellers.users, RUNDOWN_CLOSED);
	nic = atomic_exchange(&the_nic, NULL);
	notifier_abandon();
	trace_abandon();
	lock_reinit(&registry_lock, LOCK_REGISTRY);
	if (nic) {
		wire_abandon(nic->wire);
		odp_space_abandon(nic->odp);
	}
}

static void register_fork_handlers(void)
{
	pthread_atfork(NULL, after_fork_in_parent, after_fork_in_child);
}

/* --- the device
 * ---------------------------------------------------------------------------------------------------- */

/* What is really in use, for the segment's readers. */
static void show_notifier(struct nic *nic)
{
	snprintf(nic->seg->notifier, sizeof(nic->seg->notifier), "%s", notifier_name());
}

static void address_space_changed(enum mm_change what, uintptr_t addr, size_t len)
{
	struct nic *nic;

	if (!rundown_enter(&tellers))
		return;
	nic = atomic_load_explicit(&the_nic, memory_order_acquire);
	/* NULL: in a child of a signal handler that interrupted a teller, which left its parent's rundown. */
	if (nic && nic->generation == generation_now()) {
		odp_space_invalidate(nic->odp, addr, len, what == MM_DISCARD ? ODP_DISCARD : ODP_NOTIFIER);
		/* Events were lost, perhaps for good. */
		if (!addr && len > SIZE_MAX / 2)
			show_notifier(nic);
	}
	rundown_leave(&tellers);
}

static void init_locks_and_lists(struct nic *nic)
{
	lock_init(&nic->lock, LOCK_NIC);
	lock_init(&nic->runq_lock, LOCK_RUNQ);
	lock_init(&nic->timer_lock, LOCK_TIMERS);
	lock_init(&nic->rx_pool_lock, LOCK_RX_POOL);
	list_init(&nic->runq);
	list_init(&nic->engine_runq);
	list_init(&nic->timers);
	list_init(&nic->rx_pool);
	list_init(&nic->refused);
	atomic_store(&nic->earliest, UINT64_MAX);
	nic_keys_init(nic);
	nic_qps_init(nic);
}

static int open_space(struct nic *nic)
{
	const struct odp_cfg cfg = {
		.driver_threads = (unsigned)nic->set.value[SETTING_DRIVER_THREADS_ID],
		.mode = nic->set.value[SETTING_FAULT_MODE_ID] == FAULT_MODE_IMPRECISE ? ODP_IMPRECISE
										     : ODP_PRECISE,
		.fault_latency_ns = nic->set.value[SETTING_FAULT_LATENCY_ID],
		.storm_limits = {
			.majors_per_s = (uint32_t)nic->set.value[SETTING_STORM_MAJORS_ID],
			.stall_ppm = (uint32_t)nic->set.value[SETTING_STORM_STALL_ID],
		},
		.storm = &nic->seg->storm,
		.slow = &nic->seg->slow,
		.totals = &nic->seg->odp,
		.step_ns = nic->seg->step_ns,
		.table_bytes = &nic->seg->odp_table_bytes,
		.leaves = &nic->seg->odp_leaves,
	};

	return odp_space_open(&cfg, &nic->odp);
}

static int open_wire(struct nic *nic)
{
	const struct wire_cfg cfg = {
		.device = nic_device_name(),
		.ops = &nic_wire_ops,
		.ctx = nic,
		.counters = &nic->seg->dev,
		.impairment = {
			.loss_ppm = (uint32_t)nic->set.value[SETTING_LOSS_ID],
			.reorder_ppm = (uint32_t)nic->set.value[SETTING_REORDER_ID],
			.delay_ns = nic->set.value[SETTING_DELAY_ID],
			.seed = nic->set.value[SETTING_SEED_ID],
		},
	};

	return wire_open(&cfg, &nic->wire);
}

static void nic_free(struct nic *nic)
{
	struct list *node;

	nic_qps_fini(nic);
	nic_keys_fini(nic);
	free(atomic_load(&nic->rx_spare));
	while ((node = list_pop(&nic->rx_pool)))
		free(container_of(node, struct wire_rx, node));
	free(nic);
}

/* What the person asked for must hold or be refused, so a value that cannot be read opens no device. */
static int load_settings(struct nic *nic)
{
	char why[SETTING_WHY];
	int err = settings_load(&nic->set, why);

	log_enabled(LOG_ERROR); /* a wrong UNPIN_LOG is reported when the device opens */
	if (err)
		log_error("%s cannot be opened: %s", nic_device_name(), why);
	else
		nic->caps = nic_caps_of(&nic->set);
	return err;
}

/* Most programs leave their device open when they end. Before the timeline ends, which a destructor does. */
static void tell_at_exit(void)
{
	struct nic *nic;

	if (!trace_enabled() || !lock_try(&registry_lock))
		return;
	nic = atomic_load(&the_nic);
	if (nic && nic->generation == generation_now())
		nic_usage_tell(nic, clock_ns(), NIC_TELL_END);
	lock_drop(&registry_lock);
}

static void register_exit_handler(void)
{
	atexit(tell_at_exit);
}

/* A timeline that cannot be written is no reason to go without the device. */
static void begin_trace(const struct nic *nic)
{
	const char *path = nic->set.text[SETTING_TRACE_ID];
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err = path ? trace_open(path) : 0;

	if (path && !err)
		pthread_once(&once, register_exit_handler);
	if (err)
		log_warn("no timeline: UNPIN_TRACE=%s: %s", path, strerror(-err));
}

static int nic_make(struct nic **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct nic *nic = calloc(1, sizeof(*nic));
	int err;

	if (!nic)
		return -ENOMEM;
	err = load_settings(nic);
	if (err) {
		free(nic);
		return err;
	}
	pthread_once(&once, register_fork_handlers);
	init_locks_and_lists(nic);
	err = generation_begin();
	if (err)
		goto free;
	nic->generation = generation_now();
	err = nic_segment_create(nic);
	if (err)
		goto free;
	begin_trace(nic);
	err = open_space(nic);
	if (err)
		goto segment;
	err = open_wire(nic);
	if (err)
		goto space;
	err = nic_engine_start(nic);
	if (err)
		goto wire;
	*out = nic;
	return 0;
wire:
	wire_close(nic->wire);
space:
	odp_space_close(nic->odp);
segment:
	trace_close();
	nic_segment_destroy(nic);
free:
	nic_free(nic);
	log_warn("cannot open %s: %s", nic_device_name(), strerror(-err));
	return err;
}

static void nic_unmake(struct nic *nic)
{
	nic_engine_stop(nic);
	/* Its threads first: one may still be telling a queue pair that its fault is over, which asks the
	 * wire. */
	odp_space_close(nic->odp);
	wire_close(nic->wire);
	nic_usage_tell(nic, clock_ns(), NIC_TELL_END);
	trace_close();
	nic_segment_destroy(nic);
	nic_free(nic);
}

/* A child made by a raw clone ran no handler: the generation tells. */
static void drop_inherited(void)
{
	struct nic *nic = atomic_load(&the_nic);

	if (nic && nic->generation != generation_now())
		after_fork_in_child();
}

static int nic_get(struct nic **out)
{
	struct nic *nic;
	int err = 0;

	drop_inherited();
	lock_take(&registry_lock);
	nic = atomic_load(&the_nic);
	if (!nic) {
		err = nic_make(&nic);
		if (!err) {
			atomic_store(&the_nic, nic);
			rundown_open(&tellers);
			notifier_start(nic->set.value[SETTING_NOTIFIER_ID], address_space_changed);
			show_notifier(nic);
		}
	}
	if (!err)
		nic->refs++;
	lock_drop(&registry_lock);
	*out = nic;
	return err;
}

static void nic_put(struct nic *nic)
{
	bool last;

	lock_take(&registry_lock);
	last = --nic->refs == 0;
	if (last) {
		notifier_stop();
		rundown_close(&tellers);
		atomic_store(&the_nic, NULL);
		nic_unmake(nic);
	}
	lock_drop(&registry_lock);
}

/* --- contexts
 * ------------------------------------------------------------------------------------------------------ */

int nic_context_open(struct nic_context **out)
{
	struct nic_context *ctx = calloc(1, sizeof(*ctx));
	int err, cancel;

	if (!ctx)
		return -ENOMEM;
	cancel = cancel_hold();
	err = nic_event_queue_init(&ctx->async);
	if (err)
		goto free;
	/* At every open, not only the first: a raw system call may have taken our place. */
	err = sigchain_install();
	if (!err)
		err = nic_get(&ctx->nic);
	if (err)
		goto queue;
	ctx->generation = ctx->nic->generation;
	atomic_store(&ctx->refs, 1);
	*out = ctx;
	cancel_restore(cancel);
	return 0;
queue:
	nic_event_queue_fini(&ctx->async);
free:
	free(ctx);
	cancel_restore(cancel);
	return err;
}

const struct nic_caps *nic_context_caps(const struct nic_context *ctx)
{
	return &ctx->nic->caps;
}

uint64_t nic_segment_counter(size_t offset)
{
	struct nic *nic;
	uint64_t value = 0;

	if (!rundown_enter(&tellers))
		return 0;
	nic = atomic_load(&the_nic);
	if (nic && nic->generation == generation_now())
		value = atomic_load_explicit(
			(_Atomic uint64_t *)((char *)nic->seg + offset), memory_order_relaxed);
	rundown_leave(&tellers);
	return value;
}

int nic_context_check(const struct nic_context *ctx)
{
	return generation_now() == ctx->generation ? 0 : -EIO;
}

static void discard_objects(struct nic_context *ctx)
{
	struct nic *nic = ctx->nic;
	uint32_t qp_rows, mr_rows;

	lock_take(&nic->lock);
	qp_rows = nic->qp_rows;
	mr_rows = nic->mr_rows;
	lock_drop(&nic->lock);
	for (uint32_t i = 0; i < qp_rows; i++) {
		struct nic_qp *qp = atomic_load(&nic->qp[i]);

		if (qp)
			nic_qp_discard(qp, ctx);
	}
	for (uint32_t i = 0; i < mr_rows; i++) {
		struct nic_mr *mr = atomic_load(&nic->mr[i]);

		/* Those of other contexts may be ending at this moment, and their domains with them. */
		if (mr && atomic_load(&mr->ctx) == ctx)
			nic_mr_discard(mr);
	}
}

void nic_context_ref(struct nic_context *ctx)
{
	atomic_fetch_add(&ctx->refs, 1);
}

bool nic_context_unref(struct nic_context *ctx)
{
	int cancel;

	if (atomic_fetch_sub(&ctx->refs, 1) != 1)
		return false;
	cancel = cancel_hold();
	nic_put(ctx->nic);
	cancel_restore(cancel);
	nic_event_queue_fini(&ctx->async);
	free(ctx);
	return true;
}

bool nic_context_close(struct nic_context *ctx)
{
	if (nic_context_check(ctx))
		return false;
	if (atomic_load(&ctx->refs) > 1)
		discard_objects(ctx);
	return nic_context_unref(ctx);
}

/* --- protection domains
 * -------------------------------------------------------------------------------------------- */

int nic_pd_create(struct nic_context *ctx, struct nic_pd **out)
{
	static _Atomic uint32_t handles;
	struct nic_pd *pd;
	int err = nic_context_check(ctx);

	if (err)
		return err;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	pd->ctx = ctx;
	pd->handle = atomic_fetch_add(&handles, 1) + 1;
	nic_context_ref(ctx);
	atomic_fetch_add_explicit(&ctx->nic->seg->pds, 1, memory_order_relaxed);
	*out = pd;
	return 0;
}

int nic_pd_destroy(struct nic_pd *pd)
{
	struct nic_context *ctx;

	if (nic_context_check(pd->ctx))
		return 0; /* inherited: forgotten, memory is left */
	if (atomic_load(&pd->users))
		return -EBUSY;
	atomic_fetch_sub_explicit(&pd->ctx->nic->seg->pds, 1, memory_order_relaxed);
	ctx = pd->ctx;
	free(pd);
	nic_context_unref(ctx);
	return 0;
}
