/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the transport alone costs: two queue pairs in one thread exchange messages, every step is carried out
 * as cheaply as can be (nothing is copied), and the time per message over both ends is printed. Usage:
 * ib_bench [messages].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ib/opcode.h"
#include "ib/qp.h"

enum { SQ_DEPTH = 256, FIFO = 1024, SEGMENT = 4096, WINDOW = 128 };

struct fifo {
	struct ib_packet pkt[FIFO];
	uint32_t paylen[FIFO];
	unsigned head, tail;
};

struct end {
	struct ib_qp qp;
	struct ib_sq sq;
	struct end *peer;
	struct fifo in[2]; /* for the responder; for the completer */
	struct ibv_sge sge;
	uint64_t completions, received, steps;
};

static struct unpin_device_counters counters;

static void transmit(struct end *e, const struct ib_step *step)
{
	struct fifo *f = &e->peer->in[ib_lane_of(step->pkt.opcode) == IB_COMPLETER];

	f->pkt[f->head % FIFO] = step->pkt;
	f->paylen[f->head % FIFO] = step->mem.length;
	f->head++;
}

static int carry_out(struct end *e, struct ib_step *step)
{
	switch (step->op) {
	case IB_TX:
		transmit(e, step);
		return 0;
	case IB_RECV:
		step->recv = (struct ib_recv){ .sge = &e->sge, .num_sge = 1, .length = 1 << 20 };
		return 0;
	case IB_CQE:
		if (step->wc.status != IBV_WC_SUCCESS)
			abort();
		if (step->wc.recv)
			e->received++;
		else
			e->completions++;
		if (!step->wc.recv)
			atomic_store_explicit(&e->sq.freed, step->wc.index + 1, memory_order_release);
		return 0;
	default:
		return 0;
	}
}

static bool run_lane(struct end *e, enum ib_lane lane, int limit)
{
	struct ib_step *step;
	bool ran = false;

	while (limit-- && (step = ib_next(&e->qp, lane, 0))) {
		ib_done(&e->qp, lane, carry_out(e, step), 0);
		e->steps++;
		ran = true;
	}
	return ran;
}

static bool receive(struct end *e, struct fifo *f, enum ib_lane lane)
{
	bool ran = false;

	while (f->tail != f->head) {
		ib_rx(&e->qp, &f->pkt[f->tail % FIFO], f->paylen[f->tail % FIFO], 0);
		f->tail++;
		run_lane(e, lane, -1);
		ran = true;
	}
	return ran;
}

static void setup(struct end *e, struct end *peer)
{
	struct ib_qp_cfg cfg = { .sq = &e->sq, .counters = &counters };
	struct ib_qp_attr attr = { .segment = SEGMENT,
		.window = WINDOW,
		.lossless = true,
		.max_rd_atomic = 16,
		.max_dest_rd_atomic = 16,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

	if (ib_sq_init(&e->sq, SQ_DEPTH, 1, 0))
		abort();
	e->peer = peer;
	ib_qp_init(&e->qp, &cfg);
	ib_qp_modify(&e->qp, IBV_QPS_INIT, &attr, false, 0);
	ib_qp_modify(&e->qp, IBV_QPS_RTR, &attr, false, 0);
	ib_qp_modify(&e->qp, IBV_QPS_RTS, &attr, false, 0);
}

static void post(struct end *e, uint8_t opcode, uint32_t length, bool signaled)
{
	uint32_t prod = atomic_load_explicit(&e->sq.prod, memory_order_relaxed);
	struct ib_wqe *wqe = ib_sq_at(&e->sq, prod);

	*wqe = (struct ib_wqe){ .opcode = opcode, .num_sge = 1, .signaled = signaled, .length = length };
	wqe->sge[0] = (struct ibv_sge){ .length = length };
	atomic_store_explicit(&e->sq.prod, prod + 1, memory_order_release);
}

/* The thread's own time: other work on the machine is not ours. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void measure(const char *name, uint8_t opcode, uint32_t length, unsigned batch, uint64_t messages)
{
	struct end *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
	uint64_t start, ns;

	if (!a || !b)
		abort();
	setup(a, b);
	setup(b, a);
	start = cpu_ns();
	for (uint64_t done = 0; done < messages; done += batch) {
		for (unsigned i = 0; i < batch; i++)
			post(a, opcode, length, i + 1 == batch);
		while (a->completions * batch < done + batch) {
			run_lane(a, IB_REQUESTER, FIFO / 2);
			receive(b, &b->in[0], IB_RESPONDER);
			receive(a, &a->in[1], IB_COMPLETER);
		}
	}
	ns = cpu_ns() - start;
	printf("%-28s %8.1f ns/message %6.2f steps/message\n", name, (double)ns / (double)messages,
		(double)(a->steps + b->steps) / (double)messages);
	ib_sq_fini(&a->sq);
	ib_sq_fini(&b->sq);
	free(a);
	free(b);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 0) : 2000000;

	if (!n)
		n = 1;
	measure("send 8, one at a time", IBV_WR_SEND, 8, 1, n);
	measure("send 8, 16 at a time", IBV_WR_SEND, 8, 16, n);
	measure("write 8, one at a time", IBV_WR_RDMA_WRITE, 8, 1, n);
	measure("write 64 KiB", IBV_WR_RDMA_WRITE, 65536, 1, n / 16 + 1);
	measure("read 8", IBV_WR_RDMA_READ, 8, 1, n);
	measure("read 64 KiB", IBV_WR_RDMA_READ, 65536, 1, n / 16 + 1);
	measure("fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, n);
	return 0;
}
