/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the fuzzer does to objects. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

#define PAGE 4096ul
#define RIGHTS                                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

uint32_t fuzz_below(struct fuzz_hand *h, uint32_t n)
{
	uint64_t z = h->rng += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return n ? (uint32_t)((z ^ (z >> 31)) % n) : 0;
}

bool fuzz_once_in(struct fuzz_hand *h, uint32_t n)
{
	return fuzz_below(h, n) == 0;
}

/* --- completion queues and events ----------------------------------------------------------------- */

void fuzz_make_cq(struct fuzz *f, unsigned i)
{
	/* Room for all that can be out, so that nothing is lost, but in the last one. */
	f->cq[i].cq = ibv_create_cq(f->ctx, i == FUZZ_CQS - 1 ? 5 : 2 * FUZZ_QPS * 40, NULL, f->channel, 0);
	must(f->cq[i].cq, "ibv_create_cq: errno %d", errno);
}

/* One that has overflowed: its queue pairs go with it. Another thread may use one of them: next time, then.
 */
static void replace_cq(struct fuzz *f, unsigned i)
{
	unsigned taken;
	bool all = true;

	for (taken = 0; taken < FUZZ_QPS && all; taken++)
		all = !pthread_rwlock_trywrlock(&f->qp[taken].lock);
	taken -= !all;
	if (all && !pthread_rwlock_trywrlock(&f->cq[i].lock)) {
		for (unsigned q = 0; q < FUZZ_QPS; q++)
			if (f->qp[q].send_cq == i || f->qp[q].recv_cq == i)
				fuzz_unmake_qp(f, q);
		fuzz_take_events(f);
		must(ibv_destroy_cq(f->cq[i].cq) == 0, "a completion queue without users stays");
		fuzz_make_cq(f, i);
		pthread_rwlock_unlock(&f->cq[i].lock);
	}
	while (taken--)
		pthread_rwlock_unlock(&f->qp[taken].lock);
}

void fuzz_poll(struct fuzz_hand *h, unsigned i)
{
	struct fuzz_cq *c = &h->f->cq[i];
	struct ibv_wc wc[8];
	uint64_t since;
	int n;

	if (pthread_rwlock_tryrdlock(&c->lock))
		return;
	do {
		since = book_now();
		n = ibv_poll_cq(c->cq, 8, wc);
		for (int k = 0; k < n; k++)
			book_completion(&wc[k], since);
	} while (n == 8);
	pthread_rwlock_unlock(&c->lock);
	must(n >= 0 || i == FUZZ_CQS - 1, "completion queue %u overflowed", i);
	if (n < 0)
		replace_cq(h->f, i);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

void fuzz_take_events(struct fuzz *f)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* who sees an event gets it */
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	pthread_mutex_lock(&one);
	while (readable(f->ctx->async_fd) && !ibv_get_async_event(f->ctx, &event))
		ibv_ack_async_event(&event);
	while (readable(f->channel->fd) && !ibv_get_cq_event(f->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	pthread_mutex_unlock(&one);
}

static void act_cq(struct fuzz_hand *h)
{
	unsigned i = fuzz_below(h, FUZZ_CQS);
	struct fuzz_cq *c = &h->f->cq[i];
	struct ibv_cq *made;

	if (pthread_rwlock_tryrdlock(&c->lock))
		return;
	switch (fuzz_below(h, 4)) {
	case 0:
		/* Small sizes are for the one that may overflow. */
		ibv_resize_cq(c->cq, (int)(i == FUZZ_CQS - 1 ? fuzz_below(h, 30)
							     : 2 * FUZZ_QPS * 40 + fuzz_below(h, 1000)));
		break;
	case 1:
		must(ibv_req_notify_cq(c->cq, (int)fuzz_below(h, 2)) == 0, "ibv_req_notify_cq");
		break;
	default:
		made = ibv_create_cq(h->f->ctx, (int)fuzz_below(h, 40) - 10, NULL,
			fuzz_once_in(h, 2) ? h->f->channel : NULL, (int)fuzz_below(h, 3) - 1);
		if (made)
			must(ibv_destroy_cq(made) == 0, "an unused completion queue stays");
		break;
	}
	pthread_rwlock_unlock(&c->lock);
}

/* --- queue pairs ---------------------------------------------------------------------------------- */

static void make_qp(struct fuzz_hand *h, struct fuzz_qp *q)
{
	unsigned s = fuzz_below(h, FUZZ_CQS), r = fuzz_below(h, FUZZ_CQS);
	struct fuzz *f = h->f;
	struct ibv_qp_init_attr_ex init = {
		.cap = { fuzz_below(h, 20), fuzz_below(h, 20), fuzz_below(h, 5), fuzz_below(h, 5),
			fuzz_below(h, 200) },
		.qp_type = fuzz_once_in(h, 50) ? (enum ibv_qp_type)fuzz_below(h, 10) : IBV_QPT_RC,
		.sq_sig_all = (int)fuzz_below(h, 2),
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = f->pd[fuzz_once_in(h, 20)],
	};

	if (fuzz_once_in(h, 60))
		init.cap.max_send_wr = fuzz_below(h, UINT32_MAX);
	if (fuzz_below(h, 2)) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = fuzz_once_in(h, 20) ? fuzz_below(h, UINT32_MAX) : 0x7f;
	}
	if (pthread_rwlock_tryrdlock(&f->cq[s].lock))
		return;
	if (r == s || !pthread_rwlock_tryrdlock(&f->cq[r].lock)) {
		init.send_cq = f->cq[s].cq;
		init.recv_cq = f->cq[r].cq;
		q->qp = ibv_create_qp_ex(f->ctx, &init);
		if (q->qp) {
			q->ex = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
						init.send_ops_flags == 0x7f
					? ibv_qp_to_qp_ex(q->qp)
					: NULL;
			q->send_cq = s;
			q->recv_cq = r;
			q->sig_all = init.sq_sig_all;
			q->life = life_begin(q->qp->qp_num, s == FUZZ_CQS - 1 || r == FUZZ_CQS - 1);
		}
		if (r != s)
			pthread_rwlock_unlock(&f->cq[r].lock);
	}
	pthread_rwlock_unlock(&f->cq[s].lock);
}

/* The slot is locked for writing. */
bool fuzz_unmake_qp(struct fuzz *f, unsigned i)
{
	struct fuzz_qp *q = &f->qp[i];

	if (!q->qp)
		return false;
	fuzz_take_events(f);
	must(ibv_destroy_qp(q->qp) == 0, "ibv_destroy_qp");
	life_end(q->life);
	q->qp = NULL;
	return true;
}

static enum ibv_qp_state state_of(struct fuzz_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(ibv_query_qp(q->qp, &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
	return attr.qp_state;
}

static void reset(struct fuzz_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	must(ibv_modify_qp(q->qp, &a, IBV_QP_STATE) == 0, "a queue pair does not go to RESET");
	life_end(q->life);
	q->life = life_begin(q->qp->qp_num, q->life->may_lose);
}

/* RESET to RTR or RTS, as a peer of the queue pair of that number, which may have gone meanwhile. */
static void connect(struct fuzz_hand *h, struct fuzz_qp *q, uint32_t peer, uint32_t sq_psn, uint32_t rq_psn)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = fuzz_once_in(h, 16) ? fuzz_below(h, 16) : RIGHTS };

	reset(q);
	must(ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
			0,
		"INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = rq_psn,
		.max_dest_rd_atomic = (uint8_t)(1 + fuzz_below(h, 16)),
		.min_rnr_timer = 1,
		.ah_attr = { .port_num = 1, .is_global = 1, .grh = { .dgid = h->f->gid, .hop_limit = 1 } } };
	must(ibv_modify_qp(q->qp, &a,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
		"RTR");
	if (fuzz_once_in(h, 10))
		return;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
		.sq_psn = sq_psn,
		.timeout = (uint8_t)(7 + fuzz_below(h, 5)),
		.retry_cnt = (uint8_t)fuzz_below(h, 8),
		.rnr_retry = (uint8_t)(fuzz_once_in(h, 4) ? fuzz_below(h, 7) : 7),
		.max_rd_atomic = (uint8_t)fuzz_below(h, 3) };
	if (ibv_modify_qp(q->qp, &a,
		    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC))
		must(state_of(q) == IBV_QPS_ERR,
			"RTS"); /* the peer of before has sent something bad already */
}

static void act_connect_one(struct fuzz_hand *h, struct fuzz_qp *a)
{
	struct fuzz_qp *b = &h->f->qp[fuzz_below(h, FUZZ_QPS)];
	/* Random, as the specification wants them: answers to an earlier connection would fit into this one.
	 */
	uint32_t psn[2] = { fuzz_below(h, 1 << 24), fuzz_below(h, 1 << 24) };

	if (pthread_rwlock_trywrlock(&a->lock))
		return;
	if (a == b && a->qp)
		connect(h, a, a->qp->qp_num, psn[0], psn[0]);
	if (a != b && !pthread_rwlock_trywrlock(&b->lock)) {
		if (a->qp && b->qp) {
			connect(h, a, b->qp->qp_num, psn[0], psn[1]);
			connect(h, b, a->qp->qp_num, psn[1], psn[0]);
		}
		pthread_rwlock_unlock(&b->lock);
	}
	pthread_rwlock_unlock(&a->lock);
}

static void act_connect(struct fuzz_hand *h)
{
	act_connect_one(h, &h->f->qp[fuzz_below(h, FUZZ_QPS)]);
}

/* Makes what is not there; unmakes what is, now and then. */
static void act_make_qp(struct fuzz_hand *h)
{
	unsigned i = fuzz_below(h, FUZZ_QPS);
	struct fuzz_qp *q = &h->f->qp[i];

	if (pthread_rwlock_trywrlock(&q->lock))
		return;
	if (!q->qp)
		make_qp(h, q);
	else if (fuzz_once_in(h, 3))
		fuzz_unmake_qp(h->f, i);
	pthread_rwlock_unlock(&q->lock);
}

/* Any attributes. RESET is reset()'s, since it ends a life. */
static void act_modify(struct fuzz_hand *h)
{
	struct fuzz_qp *q = &h->f->qp[fuzz_below(h, FUZZ_QPS)];
	struct ibv_qp_attr a = { .qp_state = (enum ibv_qp_state)(1 + fuzz_below(h, 7)),
		.cur_qp_state = (enum ibv_qp_state)fuzz_below(h, 7),
		.port_num = (uint8_t)fuzz_below(h, 2),
		.qp_access_flags = fuzz_below(h, 16),
		.path_mtu = (enum ibv_mtu)fuzz_below(h, 6),
		.en_sqd_async_notify = (uint8_t)fuzz_below(h, 2),
		.dest_qp_num = fuzz_below(h, 1 << 25),
		.timeout = (uint8_t)fuzz_below(h, 14),
		.max_rd_atomic = (uint8_t)fuzz_below(h, 17),
		.retry_cnt = (uint8_t)fuzz_below(h, 9),
		.rnr_retry = (uint8_t)fuzz_below(h, 9),
		.min_rnr_timer = (uint8_t)fuzz_below(h, 8) };
	int mask = IBV_QP_STATE | (fuzz_once_in(h, 2) ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0), err;

	if (fuzz_once_in(h, 3))
		mask = (int)fuzz_below(h, 1 << 21);
	else if (fuzz_once_in(h, 2))
		a.qp_state = fuzz_once_in(h, 3)	  ? IBV_QPS_ERR
			     : fuzz_once_in(h, 2) ? IBV_QPS_SQD
						  : IBV_QPS_RTS;
	if (pthread_rwlock_tryrdlock(&q->lock))
		return;
	if (q->qp) {
		err = ibv_modify_qp(q->qp, &a, mask);
		must(err >= 0, "ibv_modify_qp: %d", err);
	}
	pthread_rwlock_unlock(&q->lock);
}

static void act_query(struct fuzz_hand *h)
{
	struct fuzz_qp *q = &h->f->qp[fuzz_below(h, FUZZ_QPS)];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (pthread_rwlock_tryrdlock(&q->lock))
		return;
	if (q->qp) {
		must(ibv_query_qp(q->qp, &attr, -1, &init) == 0, "ibv_query_qp");
		must(attr.qp_state <= IBV_QPS_ERR && attr.qp_state != IBV_QPS_SQE, "state %d",
			(int)attr.qp_state);
		must(ibv_dealloc_pd(q->qp->pd) == EBUSY, "a domain with a queue pair is gone");
		must(ibv_destroy_cq(q->qp->send_cq) == EBUSY, "a completion queue with a queue pair is gone");
	}
	pthread_rwlock_unlock(&q->lock);
}

static void act_post(struct fuzz_hand *h)
{
	struct fuzz_qp *q = &h->f->qp[fuzz_below(h, FUZZ_QPS)];
	bool over = false;

	if (pthread_rwlock_tryrdlock(&q->lock))
		return;
	if (q->qp)
		over = life_is_over_soon(q->life) && fuzz_once_in(h, 4);
	if (q->qp && !over)
		fuzz_post(h, q);
	pthread_rwlock_unlock(&q->lock);
	if (over)
		act_connect_one(h, q);
}

/* --- memory --------------------------------------------------------------------------------------- */

static void make_mr(struct fuzz_hand *h, struct fuzz_mr *m)
{
	struct fuzz *f = h->f;
	size_t off = fuzz_below(h, FUZZ_BUF - 1), len = 1 + fuzz_below(h, (uint32_t)(FUZZ_BUF - off));
	int access = fuzz_once_in(h, 16) ? (int)fuzz_below(h, 16) : RIGHTS;
	uint8_t *at = f->buf[fuzz_below(h, FUZZ_BUFS)] + off;

	m->guard = fuzz_once_in(h, 10);
	if (m->guard) {
		at = f->guard + FUZZ_GUARD;
		len = FUZZ_GUARD;
		access = fuzz_once_in(h, 2) ? IBV_ACCESS_REMOTE_READ : 0;
	}
	if (fuzz_below(h, 3))
		access |= IBV_ACCESS_ON_DEMAND;
	if (fuzz_once_in(h, 40))
		len = fuzz_once_in(h, 2) ? 0 : SIZE_MAX - fuzz_below(h, 9000);
	m->mr = ibv_reg_mr(f->pd[fuzz_once_in(h, 20)], at, len, access);
}

void fuzz_unmake_mr(struct fuzz *f, struct fuzz_mr *m)
{
	uint32_t key = m->mr->rkey;

	must(ibv_dereg_mr(m->mr) == 0, "ibv_dereg_mr");
	m->mr = NULL;
	atomic_store(&f->dead_key[atomic_fetch_add(&f->deaths, 1) % FUZZ_DEAD_KEYS], key);
}

static void act_mr(struct fuzz_hand *h)
{
	struct fuzz_mr *m = &h->f->mr[fuzz_below(h, FUZZ_MRS)];
	struct fuzz *f = h->f;

	if (pthread_rwlock_trywrlock(&m->lock))
		return;
	if (!m->mr)
		make_mr(h, m);
	else if (fuzz_once_in(h, 3))
		fuzz_unmake_mr(f, m);
	else if (!m->guard && m->mr->length < FUZZ_BUF) /* one that failed may be good for dereg only */
		ibv_rereg_mr(m->mr, (int)fuzz_below(h, 9), f->pd[fuzz_below(h, 2)],
			f->buf[fuzz_below(h, FUZZ_BUFS)], 1 + fuzz_below(h, FUZZ_BUF),
			RIGHTS | (fuzz_below(h, 2) ? IBV_ACCESS_ON_DEMAND : 0));
	pthread_rwlock_unlock(&m->lock);
}

static void act_advise(struct fuzz_hand *h)
{
	struct fuzz_mr *m = &h->f->mr[fuzz_below(h, FUZZ_MRS)];
	struct ibv_sge sge = { 0 };

	if (pthread_rwlock_tryrdlock(&m->lock))
		return;
	if (m->mr) {
		sge = (struct ibv_sge){ (uintptr_t)m->mr->addr + fuzz_below(h, 3) * PAGE,
			fuzz_below(h, (uint32_t)m->mr->length + 1000), m->mr->lkey };
		ibv_advise_mr(
			h->f->pd[0], (enum ibv_advise_mr_advice)fuzz_below(h, 4), fuzz_below(h, 3), &sge, 1);
	}
	pthread_rwlock_unlock(&m->lock);
}

/* Changes of mappings, as libc's functions and as bare system calls, which the notifier does not see. */
static void act_mapping(struct fuzz_hand *h)
{
	uint8_t *buf = h->f->buf[fuzz_below(h, FUZZ_BUFS)],
		*at = buf + fuzz_below(h, FUZZ_BUF / PAGE - 8) * PAGE;
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	size_t len = PAGE * (1 + fuzz_below(h, 5));

	switch (fuzz_below(h, 6)) {
	case 0:
		must(mmap(at, len, prot, flags, -1, 0) == at, "mmap");
		break;
	case 1:
		/* Reserved at once, or another thread's mapping may take the place. */
		must(mmap(at, len, PROT_NONE, flags | MAP_NORESERVE, -1, 0) == at, "mmap");
		break;
	case 2:
		madvise(buf, FUZZ_BUF, MADV_DONTNEED);
		break;
	case 3:
		mprotect(at, len, (int)fuzz_below(h, 4));
		break;
	case 4:
		must(mmap(buf, FUZZ_BUF, prot, flags, -1, 0) == buf, "mmap");
		break;
	default:
		must((uint8_t *)syscall(SYS_mmap, at, len, prot, flags, -1, 0) == at, "mmap");
		break;
	}
}

/* A child that tries what it inherited. */
static void act_fork(struct fuzz_hand *h)
{
	struct ibv_wc wc;
	pid_t pid;

	if (book_run.threads > 1)
		return; /* another thread may hold a lock that the child would need */
	pid = fork();
	must(pid >= 0, "fork: errno %d", errno);
	if (!pid)
		_exit(ibv_poll_cq(h->f->cq[0].cq, 1, &wc) > 0);
	int status;

	must(waitpid(pid, &status, 0) == pid && status == 0, "the child took a completion, or died");
}

void fuzz_step(struct fuzz_hand *h)
{
	static void (*const few[])(struct fuzz_hand *) = { act_make_qp, act_connect, act_connect, act_modify,
		act_query, act_mr, act_mr, act_advise, act_mapping, act_cq };

	if (fuzz_once_in(h, 800))
		act_fork(h);
	else if (fuzz_once_in(h, 6))
		few[fuzz_below(h, sizeof(few) / sizeof(few[0]))](h);
	else
		act_post(h);
	if (fuzz_once_in(h, 16))
		fuzz_take_events(h->f);
	for (unsigned i = 0; i < FUZZ_CQS; i++)
		fuzz_poll(h, i);
}
