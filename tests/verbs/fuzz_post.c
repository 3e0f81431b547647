/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Requests of the fuzzer: lists of work requests, and those of ibv_wr_start(3), most of them good. */
#include <errno.h>
#include <string.h>

#include "fuzz.h"

enum { SGES = 4, LIST = 3 };

struct place {
	uint64_t addr;
	uint32_t length, lkey, rkey;
	bool dead; /* its key is of a region that is gone */
};

/* Somewhere in a region (roomy: most often with all that is behind it), or under the key of one that is gone,
 * or made up. */
static struct place somewhere(struct fuzz_hand *h, bool roomy)
{
	struct fuzz_mr *m = &h->f->mr[fuzz_below(h, FUZZ_MRS)];
	uint32_t most = fuzz_once_in(h, 8) ? 200000 : 3000, off;
	struct place p = { .addr = (uintptr_t)h->f->buf[0] + fuzz_below(h, FUZZ_BUF),
		.length = fuzz_below(h, 100) };

	if (fuzz_once_in(h, 60)) {
		p.lkey = p.rkey = atomic_load(&h->f->dead_key[fuzz_below(h, FUZZ_DEAD_KEYS)]);
		p.dead = p.lkey != 0;
	} else if (fuzz_once_in(h, 300)) {
		p.lkey = p.rkey = fuzz_below(h, UINT32_MAX);
	} else if (!pthread_rwlock_tryrdlock(&m->lock)) {
		if (m->mr) {
			off = fuzz_below(h, (uint32_t)m->mr->length);
			p.addr = (uintptr_t)m->mr->addr + off;
			p.length = (uint32_t)m->mr->length - off;
			if (!roomy || fuzz_once_in(h, 8))
				p.length = fuzz_below(h, most) % (p.length + 1);
			if (fuzz_once_in(h, 200))
				p.length += fuzz_below(h, 100); /* over its end, perhaps */
			p.lkey = m->mr->lkey;
			p.rkey = m->mr->rkey;
		}
		pthread_rwlock_unlock(&m->lock);
	}
	return p;
}

/* Fills the list; says in *flags if a byte of it cannot move. */
static int gather(struct fuzz_hand *h, bool roomy, struct ibv_sge *sge, uint8_t *flags)
{
	int n = (int)fuzz_below(h, fuzz_once_in(h, 30) ? SGES + 1 : 3);

	for (int i = 0; i < n; i++) {
		struct place p = somewhere(h, roomy);

		sge[i] = (struct ibv_sge){ p.addr, p.length, p.lkey };
		if (p.dead && p.length)
			*flags |= BOOK_FAILS;
	}
	return n;
}

/* Receives: a dead key in a list matters only for the bytes that reach it, so only one alone is held to fail.
 */
static void post_recvs(struct fuzz_hand *h, struct fuzz_qp *q)
{
	struct ibv_sge sge[LIST][SGES + 1];
	struct ibv_recv_wr wr[LIST], *bad = NULL;
	uint32_t n = 1 + fuzz_below(h, LIST), posted;
	int err;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t flags = BOOK_COMPLETES;
		int sges = gather(h, true, sge[i], &flags);

		if (sges != 1)
			flags &= (uint8_t)~BOOK_FAILS;
		wr[i] = (struct ibv_recv_wr){ .sg_list = sge[i], .num_sge = sges };
		wr[i].wr_id = life_post(q->life, BOOK_RECV, flags);
		if (!wr[i].wr_id) {
			n = i;
			break;
		}
		if (i)
			wr[i - 1].next = &wr[i];
	}
	if (!n)
		return;
	wr[n - 1].next = NULL;
	err = ibv_post_recv(q->qp, wr, &bad);
	must(!err || err == EINVAL || err == ENOMEM, "ibv_post_recv: %d", err);
	if (!err)
		return;
	for (posted = 0; posted < n && bad != &wr[posted]; posted++)
		;
	must(posted < n, "the request that was refused is not of the list");
	for (; posted < n; posted++)
		life_unpost(wr[posted].wr_id);
}

static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD };

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static uint32_t total(const struct ibv_sge *sge, int n)
{
	uint32_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += sge[i].length;
	return sum;
}

/* What one request names on both sides. */
struct request {
	enum ibv_wr_opcode op;
	unsigned send_flags;
	struct ibv_sge sge[SGES + 1];
	int sges;
	uint64_t remote;
	uint32_t rkey;
	uint8_t flags;
};

static void make_request(struct fuzz_hand *h, const struct fuzz_qp *q, struct request *r)
{
	static char inline_data[4096];
	struct place there = somewhere(h, true);

	memset(r, 0, sizeof(*r));
	r->op = opcodes[fuzz_below(h, 7)];
	r->send_flags = fuzz_below(h, 16); /* fence, signaled, solicited, inline */
	r->sges = gather(h, false, r->sge, &r->flags);
	if (r->send_flags & IBV_SEND_INLINE) {
		r->flags = 0;
		for (int i = 0; i < r->sges; i++) {
			r->sge[i].addr = (uintptr_t)inline_data;
			r->sge[i].length %= 60;
		}
	}
	r->remote = there.addr;
	r->rkey = there.rkey;
	if (is_atomic(r->op)) {
		r->flags = 0;
		r->remote &= ~(fuzz_once_in(h, 10) ? 0 : 7ull);
		if (r->sges)
			r->sge[0].length = 8, r->sges = 1;
	}
	if (there.dead && r->op != IBV_WR_SEND && r->op != IBV_WR_SEND_WITH_IMM && total(r->sge, r->sges))
		r->flags |= BOOK_FAILS;
	if ((r->send_flags & IBV_SEND_SIGNALED) || q->sig_all)
		r->flags |= BOOK_COMPLETES;
}

static void post_sends(struct fuzz_hand *h, struct fuzz_qp *q)
{
	struct ibv_send_wr wr[LIST], *bad = NULL;
	uint32_t n = 1 + fuzz_below(h, LIST), posted;
	struct request r[LIST];
	int err;

	for (uint32_t i = 0; i < n; i++) {
		make_request(h, q, &r[i]);
		wr[i] = (struct ibv_send_wr){ .sg_list = r[i].sge,
			.num_sge = r[i].sges,
			.opcode = r[i].op,
			.send_flags = r[i].send_flags,
			.imm_data = fuzz_below(h, UINT32_MAX) };
		if (is_atomic(r[i].op)) {
			wr[i].wr.atomic.remote_addr = r[i].remote;
			wr[i].wr.atomic.rkey = r[i].rkey;
			wr[i].wr.atomic.compare_add = 1;
		} else {
			wr[i].wr.rdma.remote_addr = r[i].remote;
			wr[i].wr.rdma.rkey = r[i].rkey;
		}
		if (fuzz_once_in(h, 100))
			wr[i].opcode = (enum ibv_wr_opcode)fuzz_below(h, 20);
		if (fuzz_once_in(h, 100)) /* inline data is read in this call: only where there is some */
			wr[i].send_flags = (fuzz_below(h, 1 << 10) & ~(unsigned)IBV_SEND_INLINE) |
					   (r[i].send_flags & IBV_SEND_INLINE);
		if (fuzz_once_in(h, 200))
			wr[i].num_sge = -1;
		if ((wr[i].send_flags & IBV_SEND_SIGNALED) || q->sig_all)
			r[i].flags |= BOOK_COMPLETES;
		else
			r[i].flags &= (uint8_t)~BOOK_COMPLETES;
		/* Another kind of request may have another kind of list: what comes of it is not foretold. */
		if (wr[i].opcode != r[i].op || wr[i].send_flags != r[i].send_flags)
			r[i].flags &= (uint8_t)~BOOK_FAILS;
		wr[i].wr_id = life_post(q->life, BOOK_SEND, r[i].flags);
		if (!wr[i].wr_id) {
			n = i;
			break;
		}
		if (i)
			wr[i - 1].next = &wr[i];
	}
	if (!n)
		return;
	wr[n - 1].next = NULL;
	err = ibv_post_send(q->qp, wr, &bad);
	must(err >= 0 && (!err || err == EINVAL || err == ENOMEM || err == EOPNOTSUPP), "ibv_post_send: %d",
		err);
	if (!err)
		return;
	for (posted = 0; posted < n && bad != &wr[posted]; posted++)
		;
	must(posted < n, "the request that was refused is not of the list");
	for (; posted < n; posted++)
		life_unpost(wr[posted].wr_id);
}

static void build(struct fuzz_qp *q, const struct request *r)
{
	switch (r->op) {
	case IBV_WR_SEND:
		ibv_wr_send(q->ex);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(q->ex, r->rkey, r->remote);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(q->ex, r->rkey, r->remote);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(q->ex, r->rkey, r->remote, 0, 1);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(q->ex, r->rkey, r->remote, 1);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(q->ex, r->rkey, r->remote, 7);
		break;
	default:
		ibv_wr_send_imm(q->ex, 7);
		break;
	}
	if (r->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(
			q->ex, (void *)(uintptr_t)r->sge[0].addr, r->sges ? r->sge[0].length : 0);
	else
		ibv_wr_set_sge_list(q->ex, (size_t)r->sges, r->sge);
}

/* All are posted, or none. */
static void post_built(struct fuzz_hand *h, struct fuzz_qp *q)
{
	uint32_t n = 1 + fuzz_below(h, LIST), built = 0;
	bool give_up = fuzz_once_in(h, 8);
	uint64_t wr_id[LIST];
	struct request r;
	int err = 0;

	ibv_wr_start(q->ex);
	for (; built < n; built++) {
		make_request(h, q, &r);
		if (r.send_flags & IBV_SEND_INLINE) /* one piece, and perhaps none: build() */
			r.flags &= (uint8_t)~BOOK_FAILS;
		wr_id[built] = life_post(q->life, BOOK_SEND, r.flags);
		if (!wr_id[built])
			break;
		q->ex->wr_id = wr_id[built];
		q->ex->wr_flags = r.send_flags & ~(unsigned)IBV_SEND_INLINE;
		build(q, &r);
	}
	if (give_up)
		ibv_wr_abort(q->ex);
	else
		err = ibv_wr_complete(q->ex);
	must(err >= 0 && (!err || err == EINVAL || err == ENOMEM), "ibv_wr_complete: %d", err);
	for (uint32_t i = 0; (give_up || err) && i < built; i++)
		life_unpost(wr_id[i]);
}

void fuzz_post(struct fuzz_hand *h, struct fuzz_qp *q)
{
	if (fuzz_below(h, 2))
		post_recvs(h, q);
	else if (q->ex && fuzz_once_in(h, 3))
		post_built(h, q);
	else
		post_sends(h, q);
}
