/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The exported segment of this process: made, filled, given up (layout: base/segment.h). */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "mm/interpose.h"
#include "nic/nic.h"

static void name_setting(const struct nic *nic, enum setting_id id, char *name, size_t size)
{
	setting_choice(&settings_table[id], nic->set.value[id], name, size);
}

/* The descriptor of the segment's memory, or a negative errno. */
static int make_file(void)
{
	int fd = fd_move_high(memfd_create(UNPIN_SEGMENT_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING)), err;

	if (fd < 0)
		return log_refused("memfd_create", -errno);
	/* Sparse: only the header and the rows in use take memory. Nobody can resize it under its readers. */
	if (ftruncate(fd, sizeof(struct unpin_segment)) ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		err = log_refused("ftruncate or fcntl(F_ADD_SEALS)", -errno);
		fd_close(fd);
		return err;
	}
	return fd;
}

/* Whether it may be a file. */
static bool may_be_seen(void)
{
	if (fd_size_allowed(sizeof(struct unpin_segment)))
		return true;
	log_warn("unpin stat and unpin top cannot see this process: it may not have files of %zu KiB (ulimit "
		 "-f)",
		sizeof(struct unpin_segment) / 1024);
	return false;
}

int nic_segment_create(struct nic *nic)
{
	struct unpin_segment *seg;
	int fd = -1, err;

	if (may_be_seen() && (fd = make_file()) < 0)
		return fd;
	seg = raw_mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
	if (seg == MAP_FAILED) {
		err = -errno;
		if (fd >= 0)
			fd_close(fd);
		return err;
	}
	raw_madvise(seg, sizeof(*seg), MADV_DONTFORK);
	seg->version = UNPIN_SEGMENT_VERSION;
	seg->header_bytes = offsetof(struct unpin_segment, region);
	seg->total_bytes = sizeof(*seg);
	seg->region_bytes = sizeof(seg->region[0]);
	seg->region_rows = UNPIN_SEGMENT_REGIONS;
	seg->pid = getpid();
	seg->start_ns = clock_ns();
	snprintf(seg->device, sizeof(seg->device), "%s", nic_device_name());
	name_setting(nic, SETTING_NOTIFIER_ID, seg->notifier, sizeof(seg->notifier));
	name_setting(nic, SETTING_PROFILE_ID, seg->profile, sizeof(seg->profile));
	name_setting(nic, SETTING_FAULT_MODE_ID, seg->fault_mode, sizeof(seg->fault_mode));
	name_setting(nic, SETTING_FAULT_REPLY_ID, seg->fault_reply, sizeof(seg->fault_reply));
	atomic_store(&seg->magic, UNPIN_SEGMENT_MAGIC);
	nic->seg = seg;
	nic->seg_fd = fd;
	return 0;
}

void nic_segment_destroy(struct nic *nic)
{
	raw_munmap(nic->seg, sizeof(*nic->seg));
	if (nic->seg_fd >= 0)
		fd_close(nic->seg_fd);
	nic->seg = NULL;
	nic->seg_fd = -1;
}

enum unpin_region_kind nic_segment_region_kind(const struct nic_mr *mr)
{
	return mr->implicit ? UNPIN_REGION_IMPLICIT : mr->on_demand ? UNPIN_REGION_ODP : UNPIN_REGION_PINNED;
}

static void row_begin(struct unpin_segment_region *row)
{
	atomic_fetch_add(&row->sequence, 1);
	atomic_thread_fence(memory_order_release);
}

void nic_segment_region_set(struct nic_mr *mr, uint32_t pd)
{
	struct unpin_segment *seg = mr->nic->seg;
	struct unpin_segment_region *row = &seg->region[mr->row];
	uint32_t key = atomic_load(&mr->key), high = atomic_load(&seg->regions_high);

	row_begin(row);
	atomic_store_explicit(&row->kind, nic_segment_region_kind(mr), memory_order_relaxed);
	atomic_store_explicit(&row->addr, mr->addr, memory_order_relaxed);
	atomic_store_explicit(&row->length, mr->implicit ? SIZE_MAX : mr->length, memory_order_relaxed);
	atomic_store_explicit(&row->iova, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&row->lkey, key, memory_order_relaxed);
	atomic_store_explicit(&row->rkey, key, memory_order_relaxed);
	atomic_store_explicit(&row->access, (uint32_t)mr->access, memory_order_relaxed);
	atomic_store_explicit(&row->pd, pd, memory_order_relaxed);
	atomic_fetch_add(&row->sequence, 1);
	while (high <= mr->row && !atomic_compare_exchange_weak(&seg->regions_high, &high, mr->row + 1))
		;
}

void nic_segment_region_clear(struct nic_mr *mr)
{
	struct unpin_segment_region *row = &mr->nic->seg->region[mr->row];

	row_begin(row);
	atomic_store_explicit(&row->kind, UNPIN_REGION_NONE, memory_order_relaxed);
	atomic_fetch_add(&row->sequence, 1);
}

/* --- queue pairs
 * -------------------------------------------------------------------------------------------------------
 */

static struct unpin_segment_qp *qp_row(const struct nic_qp *qp)
{
	return &qp->nic->seg->qp[qp->num & (UNPIN_SEGMENT_QPS - 1)];
}

static uint32_t lanes_parked(const struct nic_qp *qp)
{
	uint32_t bits = 0;

	for (unsigned l = 0; l < IB_LANES; l++)
		bits |= (uint32_t)qp->lane[l].parked << l;
	return bits;
}

/* What seldom changes, folded: while it is the same, the row needs its two numbers only. */
static uint64_t seldom(const struct nic_qp *qp, uint32_t parked)
{
	return (qp->parkings + qp->ib.retransmits + qp->ib.rnr_naks) << 8 | parked << 4 |
	       (uint32_t)atomic_load_explicit(&qp->ib.state, memory_order_relaxed);
}

#define PUT(field, v) atomic_store_explicit(&row->field, v, memory_order_relaxed)

static void put_all(struct nic_qp *qp, struct unpin_segment_qp *row, uint32_t parked)
{
	PUT(state, (uint32_t)atomic_load_explicit(&qp->ib.state, memory_order_relaxed));
	PUT(parked, parked);
	PUT(parked_since_ns, parked ? qp->parked_ns : 0);
	PUT(parkings, qp->parkings);
	PUT(peer, qp->channel ? qp->attr.dest_qp_num : 0);
	PUT(retransmits, qp->ib.retransmits);
	PUT(rnr_naks, qp->ib.rnr_naks);
	PUT(number, qp->num);
}

void nic_segment_qp_set(struct nic_qp *qp)
{
	struct unpin_segment_qp *row = qp_row(qp);
	uint32_t parked = lanes_parked(qp);
	uint64_t now = seldom(qp, parked);

	PUT(outstanding, atomic_load_explicit(&qp->sq.prod, memory_order_relaxed) - qp->sq.done);
	PUT(receives, atomic_load_explicit(&qp->rq.prod, memory_order_relaxed) - qp->rq.next);
	if (now == qp->noted)
		return;
	qp->noted = now;
	put_all(qp, row, parked);
}

void nic_segment_qp_new(struct nic_qp *qp)
{
	_Atomic uint32_t *high = &qp->nic->seg->qps_high;
	uint32_t row = qp->num & (UNPIN_SEGMENT_QPS - 1), was = atomic_load(high);

	qp->noted = UINT64_MAX;
	nic_segment_qp_set(qp);
	while (was <= row && !atomic_compare_exchange_weak(high, &was, row + 1))
		;
}

void nic_segment_qp_clear(const struct nic_qp *qp)
{
	struct unpin_segment_qp *row = qp_row(qp);

	PUT(number, 0);
}
