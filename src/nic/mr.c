/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/mr.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/capability.h"
#include "base/clock.h"
#include "base/log.h"
#include "mm/page.h"
#include "mm/vma.h"
#include "nic/nic.h"

#ifndef IBV_ACCESS_OPTIONAL_RANGE
#define IBV_ACCESS_OPTIONAL_RANGE 0x3ff00000
#endif

#define ACCESS_WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_KNOWN                                                                                         \
	(ACCESS_WRITES | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |               \
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING)

/* --- the key table
 * ------------------------------------------------------------------------------------------------- */

void nic_keys_init(struct nic *nic)
{
	list_init(&nic->mr_free);
	nic->mr_rows = 1; /* key 0 is nobody's */
}

void nic_keys_fini(struct nic *nic)
{
	for (uint32_t i = 1; i < nic->mr_rows; i++)
		free(atomic_load(&nic->mr[i]));
}

static struct nic_mr *row_make(struct nic *nic)
{
	struct nic_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	mr->nic = nic;
	mr->row = nic->mr_rows;
	atomic_store(&mr->users.users, RUNDOWN_CLOSED);
	atomic_store(&mr->key, mr->row << NIC_KEY_ROW_SHIFT);
	list_init(&mr->free);
	/* Only then may lookups see it. */
	atomic_store(&nic->mr[nic->mr_rows++], mr);
	return mr;
}

/* A free row with a key that has not been used lately, closed to users. */
static struct nic_mr *row_take(struct nic *nic)
{
	struct nic_mr *mr = NULL;
	struct list *node;

	lock_take(&nic->lock);
	if (nic->mr_rows < NIC_KEYS && nic->mr_resting < NIC_KEYS_REST)
		mr = row_make(nic);
	if (!mr && (node = list_pop(&nic->mr_free))) {
		mr = container_of(node, struct nic_mr, free);
		nic->mr_resting--;
	}
	lock_drop(&nic->lock);
	return mr;
}

/* All other variants of the row's key come before this one returns. */
static void key_change(struct nic_mr *mr)
{
	uint32_t key = atomic_load_explicit(&mr->key, memory_order_relaxed);
	uint32_t use = (key & 0xff) | (key >> 24 << 8);

	use++;
	atomic_store(&mr->key, (use >> 8 & 0xff) << 24 | mr->row << NIC_KEY_ROW_SHIFT | (use & 0xff));
}

static void row_give(struct nic_mr *mr)
{
	struct nic *nic = mr->nic;

	key_change(mr);
	lock_take(&nic->lock);
	list_add_tail(&nic->mr_free, &mr->free);
	nic->mr_resting++;
	lock_drop(&nic->lock);
}

/* --- use of a region
 * ----------------------------------------------------------------------------------------------- */

struct nic_mr *nic_mr_enter(struct nic *nic, uint32_t key)
{
	uint32_t row = key >> NIC_KEY_ROW_SHIFT & (NIC_KEYS - 1);
	struct nic_mr *mr = atomic_load_explicit(&nic->mr[row], memory_order_acquire);

	if (!mr || !rundown_enter(&mr->users))
		return NULL;
	if (atomic_load_explicit(&mr->key, memory_order_relaxed) == key)
		return mr;
	rundown_leave(&mr->users);
	return NULL;
}

/* The region behind a key, entered, if it allows the access to [va, va + len). NULL otherwise. */
static struct nic_mr *mr_enter(
	struct nic *nic, struct nic_pd *pd, uint32_t key, uint64_t va, uint64_t len, int access)
{
	struct nic_mr *mr = nic_mr_enter(nic, key);

	if (!mr)
		return NULL;
	if (atomic_load_explicit(&mr->pd, memory_order_relaxed) == pd && (mr->access & access) == access &&
		va >= mr->iova && len <= mr->length && va - mr->iova <= mr->length - len)
		return mr;
	rundown_leave(&mr->users);
	return NULL;
}

int nic_mr_check(struct nic *nic, struct nic_pd *pd, uint32_t key, uint64_t va, uint64_t len, int access)
{
	struct nic_mr *mr = mr_enter(nic, pd, key, va, len, access);

	if (!mr)
		return -EACCES;
	rundown_leave(&mr->users);
	return 0;
}

static enum safecopy_path burst_path(struct nic_burst *b)
{
	if (!b->asked) {
		b->path = b->engine ? SAFECOPY_FIXUP : safecopy_path();
		b->asked = true;
	}
	return b->path;
}

/* An access does not wait: its requester is told to come again. */
static int refuse_for_now(struct nic_mr *mr)
{
	counter_add(&mr->counters->faults_rnr, 1);
	counter_add(&mr->nic->seg->odp.faults_rnr, 1);
	return -EBUSY;
}

/* A region that is being deregistered is an invalid key to whoever still names it. */
static int outcome(struct nic_mr *mr, int err, const struct odp_waiter *w)
{
	if (err == -EINPROGRESS && !w)
		err = refuse_for_now(mr);
	rundown_leave(&mr->users);
	return err == -ECANCELED ? -EACCES : err;
}

int nic_mr_copy_in(struct nic *nic, struct nic_burst *b, struct nic_pd *pd, uint32_t key, uint64_t va,
	const void *buf, uint32_t len, int access, struct odp_waiter *w)
{
	struct nic_mr *mr = mr_enter(nic, pd, key, va, len, access);
	uintptr_t at;
	int err;

	if (!mr)
		return -EACCES;
	at = mr->addr + (va - mr->iova);
	if (mr->on_demand)
		err = odp_copy_in(&mr->region, burst_path(b), at, buf, len, w);
	else
		err = pin_copy_in(mr->pin, burst_path(b), at, buf, len);
	if (!err && !mr->on_demand)
		counter_add(&mr->counters->bytes_in, len);
	if (!err && len)
		usage_note(mr->usage, at, len);
	return outcome(mr, err, w);
}

int nic_mr_copy_out(struct nic *nic, struct nic_burst *b, struct nic_pd *pd, uint32_t key, uint64_t va,
	void *buf, uint32_t len, int access, struct odp_waiter *w)
{
	struct nic_mr *mr = mr_enter(nic, pd, key, va, len, access);
	uintptr_t at;
	int err;

	if (!mr)
		return -EACCES;
	at = mr->addr + (va - mr->iova);
	if (mr->on_demand)
		err = odp_copy_out(&mr->region, burst_path(b), at, buf, len, w);
	else
		err = pin_copy_out(mr->pin, burst_path(b), at, buf, len);
	if (!err && !mr->on_demand)
		counter_add(&mr->counters->bytes_out, len);
	if (!err && len)
		usage_note(mr->usage, at, len);
	return outcome(mr, err, w);
}

int nic_mr_atomic(struct nic *nic, struct nic_burst *b, struct nic_pd *pd, uint32_t key, uint64_t va,
	struct ib_step *step, struct odp_waiter *w)
{
	struct nic_mr *mr;
	enum safecopy_path path;
	uint64_t operand = step->atomic.swap_add;
	uintptr_t at;
	int err;

	if (va & 7)
		return -EINVAL;
	mr = mr_enter(nic, pd, key, va, 8, IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		return -EACCES;
	at = mr->addr + (va - mr->iova);
	path = burst_path(b);
	if (at & 7)
		err = -EINVAL; /* an iova that shifts the alignment: there is no atomic on such a word */
	else if (mr->on_demand)
		err = step->atomic.cmp_swap ? odp_cmp_swap(&mr->region, path, at, step->atomic.compare,
						      operand, &step->orig, w)
					    : odp_fetch_add(&mr->region, path, at, operand, &step->orig, w);
	else
		err = step->atomic.cmp_swap
			      ? pin_cmp_swap(mr->pin, path, at, step->atomic.compare, operand, &step->orig)
			      : pin_fetch_add(mr->pin, path, at, operand, &step->orig);
	if (!err)
		usage_note(mr->usage, at, sizeof(operand));
	return outcome(mr, err, w);
}

/* --- registration
 * -------------------------------------------------------------------------------------------------- */

static bool is_implicit(uint64_t addr, uint64_t length, int access)
{
	return !addr && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND);
}

/* Whether the region is going to be what the application calls on demand, and not just called so. */
static bool is_on_demand(const struct nic *nic, int access)
{
	return (access & IBV_ACCESS_ON_DEMAND) && !nic->caps.pins;
}

/* All of [addr, addr + length) is huge pages. */
static int check_huge(uint64_t addr, uint64_t length)
{
	const size_t small = page_size();
	struct vma vma;

	for (uint64_t at = addr; at < addr + length; at = vma.end) {
		int err = vma_find(at, false, &vma);

		if (err && err != -ENOENT)
			log_warn("IBV_ACCESS_HUGETLB cannot be checked: /proc/self/maps cannot be read (%s)",
				strerror(-err));
		if (err || vma.page_size <= small)
			return -EINVAL;
	}
	return 0;
}

static int check_range(const struct nic *nic, uint64_t addr, uint64_t length, int access)
{
	bool huge = (access & IBV_ACCESS_HUGETLB) && (access & IBV_ACCESS_ON_DEMAND);

	if (is_implicit(addr, length, access)) {
		if (nic->caps.no_implicit)
			return -nic->caps.no_implicit;
		return huge || (access & IBV_ACCESS_ZERO_BASED) ? -EINVAL : 0;
	}
	if (!length || length > NIC_MAX_MR_SIZE || addr + length < addr || addr + length > NIC_MAX_MR_SIZE)
		return -EINVAL;
	return huge ? check_huge(addr, length) : 0;
}

static int check_access(const struct nic *nic, int access)
{
	if (access & ~(ACCESS_KNOWN | IBV_ACCESS_OPTIONAL_RANGE))
		return -EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		!(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (!(access & IBV_ACCESS_ON_DEMAND))
		return 0;
	if (nic->caps.no_on_demand)
		return -nic->caps.no_on_demand;
	if (access & IBV_ACCESS_HUGETLB && nic->caps.no_huge)
		return -nic->caps.no_huge;
	if (access & IBV_ACCESS_ZERO_BASED && nic->caps.no_zero_based)
		return -nic->caps.no_zero_based;
	return 0;
}

/* The application sees ENOMEM; the person in front of it sees why, once. */
static void explain_limit(uint64_t length)
{
	static _Atomic bool told;
	struct rlimit limit;
	bool bound = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;

	if (atomic_exchange(&told, true))
		return;
	if (bound && !has_ipc_lock())
		log_warn("cannot pin %" PRIu64 " KiB: the limit on locked memory is %" PRIu64
			 " KiB (ulimit -l); raise it, or register with IBV_ACCESS_ON_DEMAND",
			length >> 10, (uint64_t)limit.rlim_cur >> 10);
	else
		log_warn("cannot pin %" PRIu64
			 " KiB: memory is short, or a memory cgroup's limit is reached (or, as root of a "
			 "user namespace, that on locked memory); register with IBV_ACCESS_ON_DEMAND",
			length >> 10);
}

/* Fills an empty (closed) row's translation; pin is for a pinned region. */
static void map_in(struct nic_mr *mr, uint64_t addr, uint64_t length, int access, struct pin *pin)
{
	mr->on_demand = is_on_demand(mr->nic, access);
	mr->implicit = is_implicit(addr, length, access);
	mr->addr = addr;
	mr->length = mr->implicit ? NIC_MAX_MR_SIZE : length;
	mr->pin = pin;
	if (!mr->on_demand)
		return;
	mr->region.space = mr->nic->odp;
	mr->region.addr = addr;
	mr->region.len = mr->length;
	mr->region.writable = access & ACCESS_WRITES;
	mr->region.odp = mr->counters;
	odp_region_init(&mr->region);
}

/* The pin that a region with this access needs; none when it is on demand. */
static int pin_for(const struct nic *nic, uint64_t addr, uint64_t length, int access, struct pin **pin)
{
	int err;

	*pin = NULL;
	if (is_on_demand(nic, access))
		return 0;
	err = pin_create(addr, length, access & ACCESS_WRITES, pin);
	if (err == -ENOMEM)
		explain_limit(length);
	return err;
}

/* The caller has closed the rundown, except for on-demand regions, whose parked operations end first. */
static void map_out(struct nic_mr *mr)
{
	rundown_refuse(&mr->users);
	if (mr->on_demand)
		odp_region_fini(&mr->region);
	rundown_close(&mr->users);
	if (!mr->on_demand)
		pin_destroy(mr->pin);
	mr->pin = NULL;
}

static void pinned_gauge(struct nic *nic)
{
	atomic_store_explicit(&nic->seg->pinned_bytes, pin_total(), memory_order_relaxed);
}

static void counters_reset(struct unpin_odp_counters *c)
{
#define X(field, name, what) atomic_store_explicit(&c->field, 0, memory_order_relaxed);
	UNPIN_ODP_COUNTERS(X)
#undef X
}

int nic_mr_create(
	struct nic_pd *pd, uint64_t addr, uint64_t length, uint64_t iova, int access, struct nic_mr **out)
{
	struct nic *nic = pd->ctx->nic;
	uint64_t asked = clock_ns();
	struct nic_mr *mr;
	struct pin *pin;
	int err = nic_context_check(pd->ctx);

	if (!err)
		err = check_access(nic, access);
	if (!err)
		err = check_range(nic, addr, length, access);
	if (err)
		return err;
	if (iova + length < iova || (is_implicit(addr, length, access) && iova))
		return -EINVAL;
	mr = row_take(nic);
	if (!mr)
		return -ENOMEM;
	mr->counters = &nic->seg->region[mr->row].odp;
	counters_reset(mr->counters);
	err = pin_for(mr->nic, addr, length, access, &pin);
	if (err) {
		row_give(mr);
		return err;
	}
	map_in(mr, addr, length, access, pin);
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	mr->discarded = false;
	atomic_store(&mr->pd, pd);
	atomic_store(&mr->ctx, pd->ctx);
	atomic_fetch_add(&pd->users, 1);
	nic_context_ref(pd->ctx);
	atomic_fetch_add_explicit(&nic->seg->mrs, 1, memory_order_relaxed);
	nic_usage_begin(mr, asked);
	nic_segment_region_set(mr, pd->handle);
	pinned_gauge(nic);
	rundown_open(&mr->users);
	*out = mr;
	return 0;
}

void nic_mr_discard(struct nic_mr *mr)
{
	if (mr->discarded)
		return;
	mr->discarded = true;
	nic_segment_region_clear(mr);
	map_out(mr);
	nic_usage_end(mr);
	pinned_gauge(mr->nic);
	atomic_fetch_sub_explicit(&mr->nic->seg->mrs, 1, memory_order_relaxed);
}

void nic_mr_destroy(struct nic_mr *mr)
{
	struct nic_pd *pd = atomic_load(&mr->pd);
	struct nic_context *ctx = pd->ctx;

	if (nic_context_check(ctx))
		return; /* inherited: forgotten, memory is left */
	nic_mr_discard(mr);
	atomic_store(&mr->ctx, NULL);
	atomic_store(&mr->pd, NULL);
	atomic_fetch_sub(&pd->users, 1);
	row_give(mr);
	nic_context_unref(ctx);
}

/* A new translation is made beside the old one, so that a failure leaves the old one standing. */
static int rereg_translation(struct nic_mr *mr, uint64_t addr, uint64_t length, int access)
{
	uint64_t asked = clock_ns();
	struct pin *pin;
	int err = check_range(mr->nic, addr, length, access);

	if (!err)
		err = pin_for(mr->nic, addr, length, access, &pin);
	if (err)
		return err;
	nic_segment_region_clear(mr);
	map_out(mr);
	nic_usage_end(mr);
	counters_reset(mr->counters);
	map_in(mr, addr, length, access, pin);
	nic_usage_begin(mr, asked);
	return 0;
}

int nic_mr_rereg(struct nic_mr *mr, int flags, struct nic_pd *pd, uint64_t addr, uint64_t length, int access,
	int *still_valid)
{
	struct nic_pd *old_pd = atomic_load(&mr->pd);
	const int known =
		IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	int new_access = flags & IBV_REREG_MR_CHANGE_ACCESS ? access : mr->access;
	bool remap;
	int err;

	*still_valid = 1;
	err = nic_context_check(old_pd->ctx);
	if (err)
		return err;
	if (mr->discarded)
		return -EINVAL;
	if (!flags || (flags & ~known) || ((flags & IBV_REREG_MR_CHANGE_PD) && !pd))
		return -EINVAL;
	err = check_access(mr->nic, new_access);
	if (err)
		return err;
	/* Rights that the pin or window was not made for, or the other kind of region, need a new translation
	 * too. */
	remap = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) ||
		((new_access ^ mr->access) & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB)) ||
		((new_access & ACCESS_WRITES) && !(mr->access & ACCESS_WRITES));
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = mr->addr;
		length = mr->implicit ? SIZE_MAX : mr->length;
	}
	if (remap) {
		err = rereg_translation(mr, addr, length, new_access);
		if (err)
			return err;
	} else {
		rundown_close(&mr->users);
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		mr->iova = new_access & IBV_ACCESS_ZERO_BASED ? 0 : addr;
	mr->access = new_access;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_add(&pd->users, 1);
		atomic_store(&mr->pd, pd);
		atomic_fetch_sub(&old_pd->users, 1);
	}
	/* A peer may go on using the key it was given when only rights or the domain change. */
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		key_change(mr);
	nic_segment_region_set(mr, atomic_load(&mr->pd)->handle);
	pinned_gauge(mr->nic);
	rundown_open(&mr->users);
	return 0;
}

void nic_mr_info(const struct nic_mr *mr, struct nic_mr_info *info)
{
	info->addr = mr->addr;
	info->length = mr->implicit ? SIZE_MAX : mr->length;
	info->iova = mr->iova;
	info->key = atomic_load(&mr->key);
	info->access = mr->access;
}
