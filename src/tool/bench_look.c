/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A look at the device before anything is measured: are the bytes right, and how fast is it, about? */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"

#define KIB    1024u
#define PAGE   4096u
#define LENGTH (1024u * KIB)
#define FAULTS 64u

/* Not the start of a page, not within one page, and multiples of 8, in which machine_fill counts. */
#define HERE  2008u
#define THERE 1000u
#define BYTES 6000u

struct look {
	struct bench *b;
	struct ibv_qp *loop;
	struct endpoint_region usual; /* pinned where that is allowed */
	struct endpoint_region cold;  /* on demand */
};

/* GB/s, the best of three, or 0. */
static void look_at_speed(struct look *l)
{
	for (int i = 0; i < 3; i++) {
		int64_t ns = bench_stream(l->b, IBV_WR_RDMA_WRITE, &l->usual,
			(uintptr_t)l->usual.addr + LENGTH, l->usual.mr->rkey, LENGTH, 256 * KIB, 4, LENGTH);
		double rate = ns > 0 ? LENGTH * 1e9 / (double)ns : 0;

		if (rate > l->b->bytes_per_s)
			l->b->bytes_per_s = rate;
	}
}

static void look_at_faults(struct look *l)
{
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = l->usual.addr,
		.lkey = l->usual.mr->lkey,
		.length = 8,
		.rkey = l->cold.mr->rkey };
	uint64_t start = clock_ns(), ns;

	for (unsigned i = 0; i < FAULTS; i++) {
		op.remote = (uintptr_t)l->cold.addr + LENGTH + (size_t)i * PAGE;
		if (endpoint_do(&l->b->e, &op))
			return;
	}
	ns = clock_ns() - start;
	l->b->faults_per_s = ns ? FAULTS * 1e9 / (double)ns : 0;
}

/* One WRITE; false when it was made and other bytes arrived. A request that fails is not judged here:
 * whatever part needs it will say so. */
static bool arrives(struct look *l, const struct endpoint_region *from, const struct endpoint_region *to)
{
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = (char *)from->addr + HERE,
		.lkey = from->mr->lkey,
		.length = BYTES,
		.remote = (uintptr_t)to->addr + LENGTH / 2 + THERE,
		.rkey = to->mr->rkey };

	machine_fill((char *)from->addr + HERE, BYTES, 3);
	if (endpoint_do(&l->b->e, &op))
		return true;
	return machine_compare((char *)to->addr + LENGTH / 2 + THERE, BYTES, 3) == BYTES;
}

static void look_at_bytes(struct look *l)
{
	const char *where = NULL;

	if (!arrives(l, &l->usual, &l->cold))
		where = "into";
	else if (!arrives(l, &l->cold, &l->usual))
		where = "from";
	if (where)
		snprintf(l->b->wrong, sizeof(l->b->wrong),
			"%s delivers wrong bytes: a WRITE %s on-demand memory, at an odd offset and across "
			"pages, "
			"succeeded and brought other bytes than were sent; 'unpin doctor -d %s' tells more",
			l->b->choice.device, where, l->b->choice.device);
}

void bench_look(struct bench *b)
{
	struct look l = { .b = b };
	struct endpoint *e = &b->e;
	struct ibv_qp *first = e->qp;
	int err;

	b->wrong[0] = 0;
	b->bytes_per_s = b->faults_per_s = 0;
	if (endpoint_loop(e, &l.loop))
		return;
	err = endpoint_region_make(e, &l.usual, (size_t)2 * LENGTH, ENDPOINT_PINNED);
	if (err && e->odp)
		err = endpoint_region_make(e, &l.usual, (size_t)2 * LENGTH, ENDPOINT_ON_DEMAND);
	e->qp = l.loop;
	if (!err) {
		machine_touch(l.usual.addr, l.usual.length);
		look_at_speed(&l);
	}
	if (!err && e->odp && !endpoint_region_make(e, &l.cold, (size_t)2 * LENGTH, ENDPOINT_ON_DEMAND)) {
		look_at_bytes(&l);
		look_at_faults(&l);
	}
	e->qp = first;
	ibv_destroy_qp(l.loop);
	endpoint_region_release(&l.usual);
	endpoint_region_release(&l.cold);
	e->why[0] = 0;
	b->why[0] = 0;
}

uint64_t bench_fit(double per_s, uint64_t amount, uint64_t least, double seconds)
{
	while (per_s > 0 && amount / 2 >= least && (double)amount > per_s * seconds)
		amount /= 2;
	return amount;
}

int bench_wrong(struct bench *b, const char *fmt, ...)
{
	va_list ap;

	if (b->wrong[0])
		return 0;
	va_start(ap, fmt);
	vsnprintf(b->why, sizeof(b->why), fmt, ap);
	va_end(ap);
	return -EBADMSG;
}
