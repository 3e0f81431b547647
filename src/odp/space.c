/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Opening and closing an address space. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "mm/residency.h"
#include "odp/core.h"

static int check(const struct odp_cfg *cfg)
{
	if (!cfg->driver_threads || cfg->driver_threads > ODP_DRIVERS_MAX)
		return -EINVAL;
	if (cfg->mode != ODP_PRECISE && cfg->mode != ODP_IMPRECISE)
		return -EINVAL;
	/* An hour: what is more is a mistake, and the end of the clock is far. */
	if (cfg->fault_latency_ns > 3600 * NSEC_PER_SEC)
		return -EINVAL;
	return cfg->totals && cfg->storm && cfg->step_ns && cfg->table_bytes && cfg->leaves ? 0 : -EINVAL;
}

/* Of the driver threads a quarter may be at prefetches, so that the others are free for faults. */
static unsigned prefetchers(unsigned threads)
{
	return threads < 8 ? 1 : threads / 4;
}

static int make_tables(struct odp_space *s)
{
	int err = pagetable_init(&s->table, s->cfg.table_bytes, s->cfg.leaves);

	if (err)
		return err;
	err = owners_init(&s->owners);
	if (err)
		pagetable_destroy(&s->table);
	return err;
}

static void destroy_tables(struct odp_space *s)
{
	owners_destroy(&s->owners);
	pagetable_destroy(&s->table);
}

int odp_space_open(const struct odp_cfg *cfg, struct odp_space **out)
{
	struct odp_space *s;
	int err = check(cfg);

	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->cfg = *cfg;
	list_init(&s->regions);
	lock_init(&s->sweep_lock, LOCK_SWEEP);
	atomic_store(&s->swap_on, residency_swap_on(clock_ns()));
	err = make_tables(s);
	if (err)
		goto out_space;
	err = fault_queue_init(&s->faults);
	if (err)
		goto out_tables;
	guard_init(&s->guard, &cfg->storm_limits, cfg->storm, &cfg->totals->faults_major, clock_ns());
	atomic_store(&s->guard.unused, true);
	prefetch_queue_init(&s->prefetches, prefetchers(cfg->driver_threads));
	*out = s;
	return 0;
out_tables:
	destroy_tables(s);
out_space:
	lock_fini(&s->sweep_lock);
	free(s);
	return err;
}

void odp_space_close(struct odp_space *s)
{
	assert(list_empty(&s->regions));
	odp_drivers_stop(s);
	prefetch_queue_destroy(&s->prefetches);
	fault_queue_destroy(&s->faults);
	destroy_tables(s);
	lock_fini(&s->sweep_lock);
	free(s);
}

void odp_space_abandon(struct odp_space *s)
{
	/*
	 * The child has the memory, but neither the threads nor locks in a known state. What is not touched
	 * costs nothing.
	 */
	(void)s;
}
