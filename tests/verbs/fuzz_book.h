/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The book that the fuzzer keeps of its requests: what was posted to which queue pair, what may come of it,
 * and what came.
 *
 * A life is the time of a queue pair from its creation, or from a RESET, to its destruction or the next
 * RESET. A request belongs to a life and has a number in one of its two queues; wr_id names all three.
 * Checked for each completion: its request was posted and has not completed before; its life was not over
 * before the poll began; one that could not succeed did not; with one thread, numbers of one queue come in
 * order.
 *
 * All functions may be called by any thread; a broken promise ends the program (must()).
 */
#ifndef UNPIN_TESTS_VERBS_FUZZ_BOOK_H
#define UNPIN_TESTS_VERBS_FUZZ_BOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

enum { BOOK_SEND, BOOK_RECV, BOOK_QUEUES };
enum { BOOK_REQUESTS = 1024, BOOK_LIVES = 8192 };

enum {
	BOOK_POSTED = 1,
	BOOK_COMPLETES = 2, /* whatever comes of it */
	BOOK_FAILS = 4,	    /* if any byte of it has to move */
	BOOK_DONE = 8,
};

struct life {
	uint32_t index, qp_num;
	_Atomic uint64_t over_at; /* moment of its end (book_now); 0: it goes on */
	_Atomic bool failed;	  /* a request did: there is nothing but flushes to come */
	bool may_lose;		  /* its completion queue may overflow */
	_Atomic uint32_t posted[BOOK_QUEUES];
	_Atomic uint32_t completed[BOOK_QUEUES]; /* one thread: numbers below this do not come any more */
	_Atomic uint8_t request[BOOK_QUEUES][BOOK_REQUESTS];
};

/* What a message is about: set before a run, printed when a promise is broken. */
extern struct book_run {
	uint64_t seed;
	unsigned steps, threads;
	const char *fabric;
} book_run;

#define must(condition, ...)                                                                                 \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			book_broken(__FILE__, __LINE__, #condition, __VA_ARGS__);                            \
	} while (0)
void book_broken(const char *file, int line, const char *condition, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 4, 5)));

struct life *life_begin(uint32_t qp_num, bool may_lose);
void life_end(struct life *l);
/* The next request of that queue; flags as above. Returns its wr_id, 0: the life has had its share. */
uint64_t life_post(struct life *l, int queue, uint8_t flags);
/* It was not posted after all. */
void life_unpost(uint64_t wr_id);
/* A life in which hardly anything can succeed any more, or that has had its share of requests. */
bool life_is_over_soon(const struct life *l);
/* Whether something that must complete has not. */
bool life_waits(const struct life *l);

/* Moments, for book_completion(). */
uint64_t book_now(void);
/* since: book_now() before the poll. */
void book_completion(const struct ibv_wc *wc, uint64_t since);
/* Forgets all lives; returns how many requests succeeded, and how many failed. */
void book_close(uint64_t *good, uint64_t *bad);

#endif
