/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "endpoint.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void frames_init(struct frames *q)
{
	q->head = NULL;
	q->tail = &q->head;
	q->count = 0;
}

void frames_put(struct frames *q, struct frame *f)
{
	f->next = NULL;
	*q->tail = f;
	q->tail = &f->next;
	q->count++;
}

struct frame *frames_get(struct frames *q)
{
	struct frame *f = q->head;

	if (!f)
		return NULL;
	q->head = f->next;
	if (!q->head)
		q->tail = &q->head;
	q->count--;
	return f;
}

static void frames_free(struct frames *q)
{
	for (struct frame *f = frames_get(q); f; f = frames_get(q))
		free(f);
}

struct ib_qp_attr endpoint_attr(void)
{
	return (struct ib_qp_attr){
		.segment = 256,
		.window = 16,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.timeout = 5,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.pkey = 0xffff,
	};
}

void endpoint_init(struct endpoint *e, uint64_t base, uint32_t size, uint32_t max_wr)
{
	struct ib_qp_cfg cfg;

	memset(e, 0, sizeof(*e));
	assert_int_equal(ib_sq_init(&e->sq, max_wr, TEST_SGES, 128), 0);
	e->attr = endpoint_attr();
	e->base = base;
	e->size = size;
	e->rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	e->mem = calloc(1, size);
	e->wcs_max = 64;
	e->wc = malloc(e->wcs_max * sizeof(*e->wc));
	assert_true(e->mem && e->wc);
	frames_init(&e->out);
	for (int i = 0; i < IB_LANES; i++)
		frames_init(&e->in[i]);
	cfg = (struct ib_qp_cfg){ .sq = &e->sq, .counters = &e->counters };
	ib_qp_init(&e->qp, &cfg);
}

void endpoint_fini(struct endpoint *e)
{
	frames_free(&e->out);
	for (int i = 0; i < IB_LANES; i++) {
		frames_free(&e->in[i]);
		free(e->current[i]);
	}
	ib_sq_fini(&e->sq);
	free(e->mem);
	free(e->wc);
}

void endpoint_to(struct endpoint *e, enum ibv_qp_state state, uint64_t now)
{
	static const enum ibv_qp_state path[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	for (size_t i = 0; i < sizeof(path) / sizeof(path[0]) && path[i] <= state; i++)
		if (!ib_qp_is(&e->qp, path[i]))
			ib_qp_modify(&e->qp, path[i], &e->attr, false, now);
	if (!ib_qp_is(&e->qp, state))
		ib_qp_modify(&e->qp, state, &e->attr, false, now);
}

/* Describes [local, +length) in so many pieces, the first ones of odd sizes, one of them empty. */
static uint32_t split(
	const struct endpoint *e, struct ibv_sge *sge, uint32_t local, uint32_t length, unsigned sges)
{
	uint32_t n = 0;

	if (sges > TEST_SGES)
		sges = TEST_SGES;
	while (sges-- > 1) {
		uint32_t piece = n == 1 ? 0 : length / 3;

		sge[n++] = (struct ibv_sge){ .addr = e->base + local, .length = piece, .lkey = TEST_LKEY };
		local += piece;
		length -= piece;
	}
	sge[n++] = (struct ibv_sge){ .addr = e->base + local, .length = length, .lkey = TEST_LKEY };
	return n;
}

bool endpoint_post_send(struct endpoint *e, const struct test_wr *wr)
{
	uint32_t prod = atomic_load(&e->sq.prod);
	struct ib_wqe *wqe = ib_sq_at(&e->sq, prod);

	if (prod - atomic_load(&e->sq.freed) >= e->sq.max_wr)
		return false;
	*wqe = (struct ib_wqe){
		.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.signaled = !wr->unsignaled,
		.solicited = wr->solicited,
		.fence = wr->fence,
		.is_inline = wr->is_inline,
		.imm = wr->imm,
		.rkey = wr->rkey ? wr->rkey : TEST_RKEY,
		.remote_addr = wr->remote,
		.compare_add = wr->compare_add,
		.swap = wr->swap,
		.length = wr->length,
	};
	if (wr->is_inline) {
		wqe->inline_len = (uint16_t)wr->length;
		memcpy(ib_wqe_inline(wqe), e->mem + wr->local, wr->length);
	} else {
		wqe->num_sge = (uint8_t)split(e, wqe->sge, wr->local, wr->length, wr->sges ? wr->sges : 1);
	}
	atomic_store(&e->sq.prod, prod + 1);
	return true;
}

void endpoint_post_recv(struct endpoint *e, uint64_t wr_id, uint32_t local, uint32_t length, unsigned sges)
{
	struct test_recv *r = &e->recv[e->recv_head % 256];

	assert_true(e->recv_head - e->recv_tail < 255);
	r->wr_id = wr_id;
	r->length = length;
	r->num_sge = split(e, r->sge, local, length, sges ? sges : 1);
	e->recv_head++;
	ib_recv_posted(&e->qp);
}

uint32_t endpoint_recvs(const struct endpoint *e)
{
	return e->recv_head - e->recv_tail;
}

/* Memory. Every function returns what nic would report. */

static bool inside(const struct endpoint *e, uint64_t va, uint64_t length)
{
	return va >= e->base && length <= e->size && va - e->base <= e->size - length;
}

static int touch(const struct endpoint *e, uint64_t va, uint64_t length)
{
	uint64_t at = va - e->base;

	if (!inside(e, va, length))
		return -EACCES;
	return at < e->hole_end && at + length > e->hole ? -EFAULT : 0;
}

static int copy_one(struct endpoint *e, uint64_t va, uint8_t *buf, uint32_t n, bool into_memory)
{
	int err = n ? touch(e, va, n) : 0;

	if (err || !n)
		return err;
	if (into_memory)
		memcpy(e->mem + (va - e->base), buf, n);
	else
		memcpy(buf, e->mem + (va - e->base), n);
	return 0;
}

static int copy_local(struct endpoint *e, const struct ib_mem *mem, uint8_t *buf, bool into_memory)
{
	uint64_t total = 0;
	uint32_t skip = mem->local.offset, left = mem->length;
	int err = 0;

	for (uint32_t i = 0; i < mem->local.num; i++)
		total += mem->local.sge[i].length;
	assert_true((uint64_t)skip + left <= total); /* never outside of the list */
	for (uint32_t i = 0; i < mem->local.num && left && !err; i++) {
		const struct ibv_sge *s = &mem->local.sge[i];
		uint32_t from = skip < s->length ? skip : s->length;
		uint32_t n = s->length - from < left ? s->length - from : left;

		if (n && (s->lkey != TEST_LKEY || e->local_refused))
			return -EACCES;
		err = copy_one(e, s->addr + from, buf, n, into_memory);
		skip -= from;
		buf += n;
		left -= n;
	}
	return err;
}

static int check_remote(const struct endpoint *e, const struct ib_mem *mem, int access)
{
	assert_int_equal(mem->kind, IB_MEM_REMOTE);
	assert_true(mem->length > 0 && mem->length <= IB_MAX_MSG);
	if (mem->remote.rkey != TEST_RKEY || (access & ~e->rights))
		return -EACCES;
	return inside(e, mem->remote.va, mem->length) ? 0 : -EACCES;
}

static int copy(struct endpoint *e, const struct ib_step *step, uint8_t *buf, bool into_memory)
{
	const struct ib_mem *mem = &step->mem;
	int err;

	switch (mem->kind) {
	case IB_MEM_NONE:
		assert_int_equal(mem->length, 0);
		return 0;
	case IB_MEM_BUF:
		assert_false(into_memory);
		memcpy(buf, mem->buf, mem->length);
		return 0;
	case IB_MEM_LOCAL:
		assert_int_equal(step->access, into_memory ? IBV_ACCESS_LOCAL_WRITE : 0);
		return copy_local(e, mem, buf, into_memory);
	case IB_MEM_REMOTE:
		assert_int_equal(
			step->access, into_memory ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);
		err = check_remote(e, mem, step->access);
		return err ? err : copy_one(e, mem->remote.va, buf, mem->length, into_memory);
	}
	fail();
	return 0;
}

/* Steps. */

static int do_tx(struct endpoint *e, struct ib_step *step)
{
	uint8_t hdr[IB_HDR_MAX];
	struct frame *f;
	size_t n;
	int err;

	assert_true(step->mem.length <= e->attr.segment);
	f = malloc(sizeof(*f) + step->mem.length);
	assert_non_null(f);
	err = copy(e, step, f->payload, false);
	if (err) {
		free(f);
		return err;
	}
	f->paylen = step->mem.length;
	n = ib_packet_encode(&step->pkt, f->paylen, hdr);
	assert_int_equal(ib_packet_decode(&f->pkt, hdr, n), 0);
	assert_int_equal(n, ib_opcode_table[step->pkt.opcode].hdr_len);
	assert_int_equal(ib_packet_pad(hdr), (4 - f->paylen % 4) % 4);
	frames_put(&e->out, f);
	e->tx++;
	return 0;
}

static int do_scatter(struct endpoint *e, enum ib_lane lane, struct ib_step *step)
{
	struct frame *f = e->current[lane];
	uint8_t *from;

	if (step->src)
		return copy(e, step, (uint8_t *)(uintptr_t)step->src, true);
	assert_non_null(f);
	assert_true((uint64_t)step->pkt_offset + step->mem.length <=
		    f->paylen); /* never outside of the payload */
	from = f->payload + step->pkt_offset;
	return copy(e, step, from, true);
}

static int do_atomic(struct endpoint *e, struct ib_step *step)
{
	uint64_t value;
	int err = check_remote(e, &step->mem, step->access);

	assert_int_equal(step->access, IBV_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(step->mem.length, 8);
	assert_int_equal(step->mem.remote.va & 7, 0);
	if (!err)
		err = touch(e, step->mem.remote.va, 8);
	if (err)
		return err;
	memcpy(&value, e->mem + (step->mem.remote.va - e->base), 8);
	step->orig = value;
	if (!step->atomic.cmp_swap)
		value += step->atomic.swap_add;
	else if (value == step->atomic.compare)
		value = step->atomic.swap_add;
	memcpy(e->mem + (step->mem.remote.va - e->base), &value, 8);
	e->atomics++;
	return 0;
}

static int do_recv(struct endpoint *e, struct ib_step *step)
{
	struct test_recv *r = &e->recv[e->recv_tail % 256];

	if (e->recv_tail == e->recv_head) {
		e->rnr += !ib_qp_is(&e->qp, IBV_QPS_ERR);
		return -ENOENT;
	}
	step->recv = (struct ib_recv){ .wr_id = r->wr_id,
		.sge = r->sge,
		.num_sge = r->num_sge,
		.length = r->length,
		.index = e->recv_tail };
	e->recv_tail++;
	return 0;
}

/* The application polls at once: the WQE is the poster's again, and what it held is garbage from here on. */
static void polled(struct endpoint *e, const struct ib_wc *wc)
{
	uint32_t freed = atomic_load(&e->sq.freed);

	for (; freed != wc->index + 1; freed++)
		memset(ib_sq_at(&e->sq, freed), 0xee, e->sq.stride);
	atomic_store(&e->sq.freed, freed);
}

static int do_cqe(struct endpoint *e, struct ib_step *step)
{
	if (e->wcs == e->wcs_max) {
		e->wcs_max *= 2;
		e->wc = realloc(e->wc, e->wcs_max * sizeof(*e->wc));
		assert_non_null(e->wc);
	}
	e->wc[e->wcs++] = (struct test_wc){ .wc = step->wc, .tx_before = e->tx, .events_before = e->events };
	if (e->on_wc)
		e->on_wc(e, &step->wc);
	return 0;
}

static int do_event(struct endpoint *e, struct ib_step *step)
{
	assert_true(e->events < 64);
	e->event[e->events++] = step->event;
	return 0;
}

/* A page fault in the middle: what was copied before it is there. */
static int not_ready(struct endpoint *e, enum ib_lane lane, struct ib_step *step)
{
	e->deferred++;
	e->rnr++;
	if (step->op == IB_SCATTER && step->mem.length > 1) {
		step->mem.length /= 2;
		do_scatter(e, lane, step);
	}
	return -EBUSY;
}

static int carry_out(struct endpoint *e, enum ib_lane lane, struct ib_step *step)
{
	e->steps++;
	if (step->may_defer) {
		assert_int_equal(lane, IB_RESPONDER);
		if (e->defer && e->defer(e, step))
			return not_ready(e, lane, step);
	}
	switch (step->op) {
	case IB_TX:
		return do_tx(e, step);
	case IB_SCATTER:
		return do_scatter(e, lane, step);
	case IB_CHECK:
		e->checks++;
		return check_remote(e, &step->mem, step->access);
	case IB_ATOMIC:
		return do_atomic(e, step);
	case IB_RECV:
		return do_recv(e, step);
	case IB_CQE:
		return do_cqe(e, step);
	case IB_EVENT:
		return do_event(e, step);
	}
	fail();
	return 0;
}

/* A parked lane stays so until the hook lets it go, or its step is withdrawn. */
static bool is_parked(struct endpoint *e, enum ib_lane lane, const struct ib_step *step)
{
	if (e->park && e->park(e, lane, step)) {
		e->parked[lane] = true;
		e->parked_serial[lane] = step->serial;
		return true;
	}
	e->parked[lane] = false;
	return false;
}

static void lane_idle(struct endpoint *e, enum ib_lane lane)
{
	free(e->current[lane]);
	e->current[lane] = NULL;
}

static bool run_lane(struct endpoint *e, enum ib_lane lane, uint64_t now)
{
	struct ib_step *step;
	bool moved = false;

	for (;;) {
		step = ib_next(&e->qp, lane, now);
		if (!step)
			break;
		if (is_parked(e, lane, step))
			return moved;
		int err = carry_out(e, lane, step);

		if (step->op == IB_CQE && !step->wc.recv) {
			struct ib_wc wc = step->wc;

			ib_done(&e->qp, lane, err, now);
			polled(e, &wc);
		} else {
			ib_done(&e->qp, lane, err, now);
		}
		moved = true;
	}
	e->parked[lane] = false;
	lane_idle(e, lane);
	return moved;
}

static bool feed_lane(struct endpoint *e, enum ib_lane lane, uint64_t now)
{
	struct frame *f = e->current[lane] ? NULL : frames_get(&e->in[lane]);
	int err;

	if (!f)
		return false;
	err = ib_rx(&e->qp, &f->pkt, f->paylen, now);
	if (err) {
		assert_true(err == -ENOTCONN || e->hostile);
		e->dropped++;
		free(f);
		return true;
	}
	e->current[lane] = f;
	if (lane == IB_RESPONDER && ib_asks_what_waits(&e->qp))
		for (f = e->in[lane].head; f && ib_waits(&e->qp, f->pkt.opcode, f->pkt.psn); f = f->next)
			;
	return true;
}

void endpoint_run(struct endpoint *e, uint64_t now)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (unsigned i = 0; i < IB_LANES; i++) {
			enum ib_lane lane = (enum ib_lane)((e->first + i) % IB_LANES);

			moved |= run_lane(e, lane, now);
			if (!e->parked[lane] && feed_lane(e, lane, now)) {
				run_lane(e, lane, now);
				moved = true;
			}
		}
	}
}

void endpoint_give(struct endpoint *e, const struct ib_packet *pkt, const void *payload, uint32_t paylen)
{
	struct frame *f = malloc(sizeof(*f) + paylen);

	assert_non_null(f);
	f->pkt = *pkt;
	f->paylen = paylen;
	if (paylen)
		memcpy(f->payload, payload, paylen);
	frames_put(&e->in[ib_lane_of(pkt->opcode)], f);
}

struct frame *endpoint_take(struct endpoint *e)
{
	return frames_get(&e->out);
}

/* Pairs. */

void pair_init(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	endpoint_init(&p->a, 0x10000000, PAIR_MEM, 64);
	endpoint_init(&p->b, 0x20000000, PAIR_MEM, 64);
	p->a.attr.sq_psn = p->b.attr.rq_psn = 0xfffffe;
	p->b.attr.sq_psn = p->a.attr.rq_psn = 0x000123;
	endpoint_to(&p->a, IBV_QPS_RTS, 0);
	endpoint_to(&p->b, IBV_QPS_RTS, 0);
	p->now = 1000;
}

void pair_fini(struct pair *p)
{
	endpoint_fini(&p->a);
	endpoint_fini(&p->b);
}

static bool carry(struct pair *p, struct endpoint *from, struct endpoint *to)
{
	struct frame *f = endpoint_take(from);

	if (!f)
		return false;
	p->seen++;
	if (p->filter && p->filter(p, from, f))
		free(f);
	else
		frames_put(&to->in[ib_lane_of(f->pkt.opcode)], f);
	return true;
}

void pair_settle(struct pair *p)
{
	bool moved = true;

	while (moved) {
		moved = false;
		endpoint_run(&p->a, p->now);
		endpoint_run(&p->b, p->now);
		while (carry(p, &p->a, &p->b))
			moved = true;
		while (carry(p, &p->b, &p->a))
			moved = true;
	}
}

bool pair_expire(struct pair *p)
{
	uint64_t a = ib_deadline(&p->a.qp), b = ib_deadline(&p->b.qp);
	uint64_t at = a < b ? a : b;

	if (at == UINT64_MAX)
		return false;
	if (at > p->now)
		p->now = at;
	ib_tick(&p->a.qp, p->now);
	ib_tick(&p->b.qp, p->now);
	pair_settle(p);
	return true;
}
