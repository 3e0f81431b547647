/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/pingpong.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "tool/machine.h"

#define RECVS	     16u /* posted ahead */
#define SIGNAL_EVERY 32u /* of the sends of one end, so that the queue is emptied now and then */
#define OUT_OFFSET                                                                                           \
	0 /* in the memory: the message that goes, and the one that comes, a cache line or more apart */
#define IN_OFFSET  2048
#define LOOK_EVERY (1u << 16)

struct game {
	struct endpoint *e;
	const struct pingpong *p;
	struct endpoint_done done;
	unsigned posted, signaled; /* sends so far */
	unsigned receives;	   /* posted so far */
};

static volatile uint64_t *word_at(const struct pingpong *p, size_t offset)
{
	return (volatile uint64_t *)((char *)p->memory->addr + offset);
}

static int post_receive(struct game *g)
{
	int err = endpoint_post_recv(g->e, (char *)g->p->memory->addr + IN_OFFSET, 8, g->p->memory->mr->lkey);

	if (!err)
		g->receives++;
	return err;
}

static unsigned receives_ahead(const struct pingpong *p)
{
	return p->iterations < RECVS ? p->iterations : RECVS;
}

int pingpong_prepare(struct endpoint *e, const struct pingpong *p)
{
	struct game g = { .e = e, .p = p };
	int err = 0;

	*word_at(p, OUT_OFFSET) = 0;
	*word_at(p, IN_OFFSET) = 0;
	if (p->style == PINGPONG_WRITE)
		return 0;
	while (!err && g.receives < receives_ahead(p))
		err = post_receive(&g);
	return err;
}

static int wrong_message(struct game *g, uint64_t got, uint64_t want)
{
	snprintf(g->e->why, sizeof(g->e->why), "message %llu came where %llu was due",
		(unsigned long long)got, (unsigned long long)want);
	return -EBADMSG;
}

static int send_number(struct game *g, uint64_t number)
{
	const struct pingpong *p = g->p;
	bool signal = p->style == PINGPONG_WRITE || g->posted % SIGNAL_EVERY == SIGNAL_EVERY - 1;
	struct endpoint_op op = {
		.opcode = p->style == PINGPONG_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
		.local = (char *)p->memory->addr + OUT_OFFSET,
		.lkey = p->memory->mr->lkey,
		.length = 8,
		.remote = p->remote + IN_OFFSET,
		.rkey = p->rkey,
		.unsignaled = !signal,
	};
	int err;

	*word_at(p, OUT_OFFSET) = number;
	err = endpoint_post(g->e, &op);
	if (err)
		return err;
	g->posted++;
	g->signaled += signal;
	/* As ib_write_lat does: the completion of what was written is taken before the answer is looked for.
	 */
	return p->style == PINGPONG_WRITE ? endpoint_wait(g->e, &g->done, g->signaled, 0) : 0;
}

static int await_memory(struct game *g, uint64_t number)
{
	volatile uint64_t *in = word_at(g->p, IN_OFFSET);
	uint64_t deadline = 0;
	unsigned idle = 0;
	int err;

	while (*in != number) {
		if (*in > number)
			return wrong_message(g, *in, number);
		if (++idle % LOOK_EVERY) {
			machine_relax();
			continue;
		}
		/* Memory that nobody writes to any more says nothing: a queue pair that has failed does. */
		err = endpoint_poll(g->e, &g->done, 16);
		if (err >= 0)
			err = endpoint_patience(g->e, &deadline, "write of the other end");
		if (err)
			return err;
	}
	return 0;
}

static int await_receive(struct game *g, uint64_t number)
{
	int err = 0;

	while (!err && g->p->style == PINGPONG_EVENT && g->done.recvs < number) {
		err = endpoint_sleep(g->e, &g->done);
		if (!err)
			err = endpoint_poll(g->e, &g->done, 16);
		err = err > 0 ? 0 : err;
	}
	if (!err)
		err = endpoint_wait(g->e, &g->done, 0, (unsigned)number);
	if (!err && *word_at(g->p, IN_OFFSET) != number)
		return wrong_message(g, *word_at(g->p, IN_OFFSET), number);
	if (!err && g->receives < g->p->iterations)
		err = post_receive(g);
	return err;
}

static int await_number(struct game *g, uint64_t number)
{
	return g->p->style == PINGPONG_WRITE ? await_memory(g, number) : await_receive(g, number);
}

static int play(struct game *g, uint64_t *round_ns)
{
	uint64_t before = clock_ns(), now;
	int err = 0;

	for (uint64_t i = 1; !err && i <= g->p->iterations; i++) {
		if (g->p->first)
			err = send_number(g, i);
		if (!err)
			err = await_number(g, i);
		if (!err && !g->p->first)
			err = send_number(g, i);
		now = clock_ns();
		if (round_ns)
			round_ns[i - 1] = now - before;
		before = now;
	}
	/* Nothing is left in the queues for the next game. */
	if (!err)
		err = endpoint_wait(g->e, &g->done, g->signaled, 0);
	endpoint_ack(g->e);
	return err;
}

int pingpong_play(struct endpoint *e, const struct pingpong *p, uint64_t *round_ns)
{
	struct game g = { .e = e, .p = p, .receives = receives_ahead(p) };

	return play(&g, round_ns);
}
