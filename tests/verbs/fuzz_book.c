/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "fuzz_book.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct book_run book_run;

static _Atomic(struct life *) lives[BOOK_LIVES];
static _Atomic uint32_t begun;
static _Atomic uint64_t moment = 1, good, bad;

void book_broken(const char *file, int line, const char *condition, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s:%d: seed %" PRIu64 ", %u steps, %u threads, %s fabric: %s (%s)\n", file, line,
		book_run.seed, book_run.steps, book_run.threads, book_run.fabric, text, condition);
	abort();
}

struct life *life_begin(uint32_t qp_num, bool may_lose)
{
	uint32_t index = atomic_fetch_add(&begun, 1);
	struct life *l = calloc(1, sizeof(*l));

	must(l && index < BOOK_LIVES, "no room for life %u", index);
	l->index = index;
	l->qp_num = qp_num;
	l->may_lose = may_lose;
	atomic_store(&lives[index], l);
	return l;
}

void life_end(struct life *l)
{
	atomic_store(&l->over_at, atomic_fetch_add(&moment, 1) + 1);
}

/* wr_id: a bit that is always set, the life, the queue, the number. */
static uint64_t id_of(const struct life *l, int queue, uint32_t number)
{
	return 1ull << 63 | (uint64_t)l->index << 32 | (uint64_t)queue << 31 | number;
}

static struct life *life_of(uint64_t wr_id, int *queue, uint32_t *number)
{
	uint32_t index = wr_id >> 32 & 0x7fffffff;
	struct life *l = index < BOOK_LIVES ? atomic_load(&lives[index]) : NULL;

	*queue = wr_id >> 31 & 1;
	*number = wr_id & 0x7fffffff;
	must(wr_id >> 63 && l && *number < BOOK_REQUESTS, "wr_id %" PRIx64 " is nobody's", wr_id);
	return l;
}

uint64_t life_post(struct life *l, int queue, uint8_t flags)
{
	uint32_t number = atomic_fetch_add(&l->posted[queue], 1);

	if (number >= BOOK_REQUESTS) {
		atomic_store(&l->posted[queue], BOOK_REQUESTS);
		return 0;
	}
	atomic_store(&l->request[queue][number], (uint8_t)(BOOK_POSTED | flags));
	return id_of(l, queue, number);
}

void life_unpost(uint64_t wr_id)
{
	uint32_t number;
	int queue;
	struct life *l = life_of(wr_id, &queue, &number);
	uint8_t was = atomic_exchange(&l->request[queue][number], 0);

	must(!(was & BOOK_DONE), "request %u of queue %d was refused, and completed", number, queue);
}

bool life_is_over_soon(const struct life *l)
{
	return atomic_load(&l->failed) || atomic_load(&l->posted[BOOK_SEND]) >= BOOK_REQUESTS ||
	       atomic_load(&l->posted[BOOK_RECV]) >= BOOK_REQUESTS;
}

bool life_waits(const struct life *l)
{
	for (int queue = 0; queue < BOOK_QUEUES; queue++)
		for (uint32_t i = 0; i < BOOK_REQUESTS; i++) {
			uint8_t r = atomic_load(&l->request[queue][i]);

			if ((r & BOOK_COMPLETES) && !(r & BOOK_DONE))
				return true;
		}
	return false;
}

uint64_t book_now(void)
{
	return atomic_load(&moment);
}

static void check_success(const struct ibv_wc *wc, int queue, uint8_t was)
{
	bool moved = queue == BOOK_SEND || (wc->opcode == IBV_WC_RECV && wc->byte_len);

	atomic_fetch_add(&good, 1);
	must(!(was & BOOK_FAILS) || !moved,
		"a request with a dead key succeeded: queue %d, opcode %d, %u bytes", queue, (int)wc->opcode,
		wc->byte_len);
	if (queue == BOOK_RECV)
		must(wc->opcode == IBV_WC_RECV || wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM,
			"a receive has opcode %d", (int)wc->opcode);
}

void book_completion(const struct ibv_wc *wc, uint64_t since)
{
	uint32_t number;
	int queue;
	struct life *l = life_of(wc->wr_id, &queue, &number);
	uint64_t over_at = atomic_load(&l->over_at);
	uint8_t was = atomic_fetch_or(&l->request[queue][number], BOOK_DONE);

	must(was & BOOK_POSTED, "request %u of queue %d was not posted", number, queue);
	must(!(was & BOOK_DONE), "request %u of queue %d completed twice", number, queue);
	must(!over_at || over_at > since, "a completion came after its queue pair's end");
	must(wc->qp_num == l->qp_num, "qp_num is %x, not %x", wc->qp_num, l->qp_num);
	must(wc->status <= IBV_WC_GENERAL_ERR, "status %d", (int)wc->status);
	if (book_run.threads == 1) {
		must(number >= atomic_load(&l->completed[queue]), "request %u of queue %d is out of order",
			number, queue);
		atomic_store(&l->completed[queue], number + 1);
	}
	if (wc->status == IBV_WC_SUCCESS) {
		check_success(wc, queue, was);
		return;
	}
	atomic_store(&l->failed, true);
	atomic_fetch_add(&bad, 1);
}

void book_close(uint64_t *successes, uint64_t *failures)
{
	for (uint32_t i = 0; i < BOOK_LIVES; i++)
		free(atomic_exchange(&lives[i], NULL));
	atomic_store(&begun, 0);
	*successes = atomic_exchange(&good, 0);
	*failures = atomic_exchange(&bad, 0);
}
