/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Threads at once on one device: each moves data between the two ends of a queue pair of its own, in memory
 * of its own, checks every byte, and takes pages away while requests are on their way; all share two
 * completion queues, the engine and the page table. Argument: seed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nic/nic.h"

#define THREADS 4
#define ROUNDS	300
#define PAGE	4096u
#define BUFFER	(48 * PAGE)
#define BATCH	4

static struct nic_context *ctx;
static struct nic_pd *pd;
static struct nic_cq *cq;
static _Atomic int done[THREADS]; /* successful completions of each thread's requests */
static _Atomic int failures;
static _Atomic bool stop;

#define CHECK(cond)                                                                                          \
	do {                                                                                                 \
		if (!(cond)) {                                                                               \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                           \
			atomic_fetch_add(&failures, 1);                                                      \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void *poller(void *arg)
{
	struct ibv_wc wc[8];
	int n;

	(void)arg;
	while (!atomic_load(&stop)) {
		n = nic_cq_poll(cq, 8, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			if (wc[i].status)
				fprintf(stderr, "thread %u: status %d opcode %d\n", (unsigned)wc[i].wr_id,
					(int)wc[i].status, (int)wc[i].opcode);
			CHECK(wc[i].status == IBV_WC_SUCCESS);
			atomic_fetch_add(&done[wc[i].wr_id], 1);
		}
		if (!n)
			usleep(20);
	}
	return NULL;
}

static struct nic_qp *make_qp(void)
{
	struct nic_qp_init init = { .send_cq = cq, .recv_cq = cq, .sq_sig_all = true };
	struct nic_qp *qp;

	init.cap = (struct ibv_qp_cap){
		.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2
	};
	CHECK(!nic_qp_create(pd, &init, &qp));
	return qp;
}

static void connect_qp(struct nic_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = 15,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.max_rd_atomic = 4,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = { .raw = { [15] = 1 } } } },
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7 };

	CHECK(!nic_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!nic_qp_modify(qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!nic_qp_modify(qp, &a,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC));
}

struct worker {
	unsigned id;
	uint64_t seed;
	struct nic_qp *a, *b;
	uint8_t *src, *dst;
	struct nic_mr *src_mr, *dst_mr;
};

static struct nic_mr *reg(uint8_t *at, int more)
{
	struct nic_mr *mr;

	CHECK(!nic_mr_create(pd, (uintptr_t)at, BUFFER, (uintptr_t)at, 15 | more, &mr));
	return mr;
}

static uint32_t key(struct nic_mr *mr)
{
	struct nic_mr_info info;

	nic_mr_info(mr, &info);
	return info.key;
}

/* What the application may do to pages whose content does not matter now. */
static void disturb(struct worker *w, uint8_t *at, uint64_t how)
{
	size_t first = how >> 8 & 31, pages = 1 + (how >> 16 & 7);

	if (first + pages > BUFFER / PAGE)
		pages = BUFFER / PAGE - first;
	at += first * PAGE;
	switch (how & 3) {
	case 0:
		CHECK(!madvise(at, pages * PAGE, MADV_DONTNEED));
		break;
	case 1:
		CHECK(mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			      -1, 0) == at);
		break;
	case 2:
		CHECK(!mprotect(at, pages * PAGE, PROT_READ));
		CHECK(!mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE));
		break;
	default:
		break;
	}
	(void)w;
}

static int post(struct worker *w, enum ibv_wr_opcode op, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)w->src + off, len, key(w->src_mr) },
		       to = { (uintptr_t)w->dst + off, len, key(w->dst_mr) };
	struct ibv_send_wr wr = { .wr_id = w->id, .opcode = op, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_recv_wr rr = { .wr_id = w->id, .sg_list = &to, .num_sge = 1 }, *rbad;

	wr.wr.rdma.remote_addr = (uintptr_t)w->dst + off;
	wr.wr.rdma.rkey = key(w->dst_mr);
	if (op == IBV_WR_SEND)
		CHECK(!nic_qp_post_recv(w->b, &rr, &rbad));
	CHECK(!nic_qp_post_send(w->a, &wr, &bad));
	return op == IBV_WR_SEND ? 2 : 1;
}

static void *work(void *arg)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct worker *w = arg;
	const uint32_t part = BUFFER / BATCH;
	int expected = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint32_t off[BATCH], len[BATCH];
		enum ibv_wr_opcode op[BATCH];

		/* Content goes in on one side; the other side's pages come and go while the requests run
		 * towards them. */
		for (int i = 0; i < BATCH; i++) {
			off[i] = (uint32_t)i * part + (uint32_t)(rnd(&w->seed) % 3000);
			len[i] = 1 + (uint32_t)(rnd(&w->seed) % (part - 3001));
			op[i] = ops[rnd(&w->seed) % 3];
			for (uint32_t b = 0; b < len[i]; b += 61)
				(op[i] == IBV_WR_RDMA_READ ? w->dst : w->src)[off[i] + b] =
					(uint8_t)(b + (uint32_t)round + w->id);
		}
		for (int i = 0; i < BATCH; i++)
			expected += post(w, op[i], off[i], len[i]);
		while (atomic_load(&done[w->id]) < expected)
			usleep(10);
		for (int i = 0; i < BATCH; i++)
			for (uint32_t b = 0; b < len[i]; b += 61)
				CHECK((op[i] == IBV_WR_RDMA_READ ? w->src : w->dst)[off[i] + b] ==
					(uint8_t)(b + (uint32_t)round + w->id));
		disturb(w, rnd(&w->seed) & 1 ? w->src : w->dst, rnd(&w->seed));
		if (round % 16 == 15) {
			nic_mr_destroy(w->dst_mr);
			w->dst_mr = reg(w->dst, IBV_ACCESS_ON_DEMAND);
		}
	}
	return NULL;
}

/* Takes pages of every worker's destination away for no reason, without changing what is in them: rights come
 * and go. */
static void *nuisance(void *arg)
{
	struct worker *w = arg;
	uint64_t seed = 0x5555;

	while (!atomic_load(&stop)) {
		uint8_t *at = w[rnd(&seed) % THREADS].dst + rnd(&seed) % (BUFFER / PAGE) * PAGE;

		/* Same protection: a change that invalidates and forbids nothing. */
		CHECK(!mprotect(at, PAGE, PROT_READ | PROT_WRITE));
		usleep(200);
	}
	return NULL;
}

static void worker_make(struct worker *w, unsigned id, uint64_t seed)
{
	w->id = id;
	w->seed = seed * 2654435761u + id * 97 + 1;
	w->src = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w->dst = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(w->src != MAP_FAILED && w->dst != MAP_FAILED);
	w->src_mr = reg(w->src, IBV_ACCESS_ON_DEMAND);
	w->dst_mr = reg(w->dst, IBV_ACCESS_ON_DEMAND);
	w->a = make_qp();
	w->b = make_qp();
	connect_qp(w->a, nic_qp_num(w->b));
	connect_qp(w->b, nic_qp_num(w->a));
}

static void worker_unmake(struct worker *w)
{
	CHECK(!nic_qp_destroy(w->a));
	CHECK(!nic_qp_destroy(w->b));
	nic_mr_destroy(w->src_mr);
	nic_mr_destroy(w->dst_mr);
	munmap(w->src, BUFFER);
	munmap(w->dst, BUFFER);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
	pthread_t thread[THREADS], poll_thread[2], bother;
	static struct worker w[THREADS];
	char name[32];
	int actual;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	alarm(100); /* a hang is a failure */
	snprintf(name, sizeof(name), "traffic-%d", (int)getpid());
	setenv("UNPIN_DEVICE", name, 1);
	CHECK(!nic_context_open(&ctx));
	CHECK(!nic_pd_create(ctx, &pd));
	CHECK(!nic_cq_create(ctx, 1024, NULL, NULL, &cq, &actual));
	for (unsigned i = 0; i < THREADS; i++)
		worker_make(&w[i], i, seed);
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&poll_thread[i], NULL, poller, NULL));
	CHECK(!pthread_create(&bother, NULL, nuisance, w));
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, work, &w[i]));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(poll_thread[i], NULL);
	pthread_join(bother, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		worker_unmake(&w[i]);
	CHECK(!nic_cq_destroy(cq));
	CHECK(!nic_pd_destroy(pd));
	nic_context_close(ctx);
	printf("%d rounds of %d threads, every byte right\n", ROUNDS, THREADS);
	return atomic_load(&failures) != 0;
}
