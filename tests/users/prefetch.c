/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ibv_advise_mr(3). Documents differ in its errors (linux-rdma/rdma-core#1048); the table below is what holds
 * here. The effect is seen from both sides: what the kernel has in memory (mincore) and what the device needs
 * no fault for any more (counters).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../small_pages.h"
#include "pair.h"
#include "slow.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define READ	 IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITE	 IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH	 IBV_ADVISE_MR_FLAG_FLUSH

#define PAGES  48ul
#define LENGTH (PAGES * PAGE)

static int advise(
	struct ibv_pd *pd, int advice, uint32_t flags, const struct ibv_mr *mr, const void *at, size_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = (uint32_t)length, .lkey = mr ? mr->lkey : 0 };

	return ibv_advise_mr(pd, (enum ibv_advise_mr_advice)advice, flags, &sge, 1);
}

static uint64_t prefetched(void)
{
	return counter(getpid(), "page_prefetch");
}

/* Pages that accesses brought in, for themselves or ahead of themselves. */
static uint64_t faulted(void)
{
	return counter(getpid(), "page_faults") + counter(getpid(), "page_readahead");
}

/* How many of the pages are in memory. */
static unsigned present(void *memory, size_t pages)
{
	unsigned char vec[PAGES];
	unsigned n = 0;

	check(pages <= PAGES);
	check_sys(mincore(memory, pages * PAGE, vec) == 0);
	for (size_t i = 0; i < pages; i++)
		n += vec[i] & 1;
	return n;
}

/* ---- Errors ---- */

enum which { ON_DEMAND, READ_ONLY, PINNED, IMPLICIT, READ_IMPLICIT, GONE, NOBODYS, REGIONS };

static const struct {
	bool on_demand, implicit;
	int access;
} kinds[] = {
	[ON_DEMAND] = { true, false, REMOTE },
	[READ_ONLY] = { true, false, IBV_ACCESS_REMOTE_READ },
	[PINNED] = { false, false, REMOTE },
	[IMPLICIT] = { true, true, REMOTE },
	[READ_IMPLICIT] = { true, true, 0 },
	[GONE] = { true, false, REMOTE },
};

/* All regions are over the same memory, in end a's domain. */
struct regions {
	struct pair p;
	char *memory;
	struct ibv_mr *mr[REGIONS];
	uint32_t key[REGIONS];
};

static void regions_open(struct regions *r)
{
	pair_open(&r->p, NULL);
	r->memory = fresh_apart(LENGTH);
	for (unsigned i = 0; i < COUNT(kinds); i++) {
		int access = kinds[i].access | (kinds[i].on_demand ? ODP : 0);

		r->mr[i] = reg(&r->p.a, kinds[i].implicit ? NULL : r->memory,
			kinds[i].implicit ? SIZE_MAX : LENGTH, access);
		r->key[i] = r->mr[i]->lkey;
	}
	dereg(r->mr[GONE]);
}

static void regions_close(struct regions *r)
{
	for (unsigned i = 0; i < GONE; i++)
		dereg(r->mr[i]);
	pair_close(&r->p);
	drop(r->memory, LENGTH);
}

static int advise_key(
	struct ibv_pd *pd, int advice, uint32_t flags, uint32_t key, uintptr_t at, size_t length)
{
	struct ibv_sge sge = { .addr = at, .length = (uint32_t)length, .lkey = key };

	return ibv_advise_mr(pd, (enum ibv_advise_mr_advice)advice, flags, &sge, 1);
}

static const struct mistake {
	enum which which;
	bool of_b; /* in the other domain */
	int advice;
	uint32_t flags;
	uint64_t at; /* from the memory on, or */
	bool absolute;
	size_t length;
	int err;
} mistakes[] = {
	/* None. */
	{ ON_DEMAND, false, READ, 0, 0, false, LENGTH, 0 },
	{ ON_DEMAND, false, WRITE, FLUSH, 0, false, LENGTH, 0 },
	{ ON_DEMAND, false, READ, FLUSH, 0, false, 0, 0 },
	{ READ_ONLY, false, READ, FLUSH, 0, false, LENGTH, 0 },
	{ READ_ONLY, false, NO_FAULT, FLUSH, 5, false, 1, 0 },
	{ IMPLICIT, false, WRITE, FLUSH, 0, false, LENGTH, 0 },
	{ READ_IMPLICIT, false, READ, FLUSH, 0, false, LENGTH, 0 },
	/* Advice and flags. */
	{ ON_DEMAND, false, 3, 0, 0, false, PAGE, EINVAL },
	{ ON_DEMAND, false, -1, 0, 0, false, PAGE, EINVAL },
	{ ON_DEMAND, false, READ, 2, 0, false, PAGE, EINVAL },
	{ ON_DEMAND, false, WRITE, ~0u, 0, false, PAGE, EINVAL },
	/* A region of another domain. */
	{ ON_DEMAND, true, READ, 0, 0, false, PAGE, EINVAL },
	{ IMPLICIT, true, WRITE, FLUSH, 0, false, PAGE, EINVAL },
	/* No such key. */
	{ NOBODYS, false, READ, 0, 0, false, PAGE, ENOENT },
	{ GONE, false, READ, 0, 0, false, PAGE, ENOENT },
	{ GONE, false, WRITE, FLUSH, 0, false, PAGE, ENOENT },
	/* Not on demand. */
	{ PINNED, false, READ, 0, 0, false, PAGE, EOPNOTSUPP },
	{ PINNED, false, WRITE, FLUSH, 0, false, PAGE, EOPNOTSUPP },
	/* For writing, where the region may not be written. */
	{ READ_ONLY, false, WRITE, 0, 0, false, PAGE, EPERM },
	{ READ_ONLY, false, WRITE, FLUSH, 0, false, PAGE, EPERM },
	{ READ_IMPLICIT, false, WRITE, FLUSH, 0, false, PAGE, EPERM },
	/* Outside of the region. */
	{ ON_DEMAND, false, READ, 0, -1ull, false, PAGE, EFAULT },
	{ ON_DEMAND, false, READ, 0, LENGTH, false, 1, EFAULT },
	{ ON_DEMAND, false, NO_FAULT, 0, 1, false, LENGTH, EFAULT },
	{ ON_DEMAND, false, READ, FLUSH, LENGTH - 1, false, 2, EFAULT },
	{ ON_DEMAND, false, READ, 0, UINT64_MAX - 1, true, PAGE, EFAULT },
	{ IMPLICIT, false, READ, 0, UINT64_MAX - 1, true, PAGE, EFAULT },
	{ IMPLICIT, false, READ, 0, 0x7ffffffffff0, true, PAGE, EFAULT },
	/* Nothing there. */
	{ IMPLICIT, false, READ, FLUSH, 0xffff800000000000, true, PAGE, EFAULT },
	{ IMPLICIT, false, READ, FLUSH, 0, true, PAGE, EFAULT },
};

static void a_callers_mistake_is_told_by_the_table(void)
{
	struct regions r;
	struct ibv_sge sge;

	regions_open(&r);
	for (size_t i = 0; i < COUNT(mistakes); i++) {
		const struct mistake *m = &mistakes[i];
		int err = advise_key(m->of_b ? r.p.b.pd : r.p.a.pd, m->advice, m->flags, r.key[m->which],
			m->at + (m->absolute ? 0 : (uintptr_t)r.memory), m->length);

		if (err != m->err)
			check_failed(__FILE__, __LINE__, "row %zu of the table: %d, not %d", i, err, m->err);
	}
	sge = (struct ibv_sge){ .addr = (uintptr_t)r.memory, .length = PAGE, .lkey = r.key[ON_DEMAND] };
	check_int(ibv_advise_mr(r.p.a.pd, READ, 0, &sge, 0), EINVAL);
	check_int(ibv_advise_mr(r.p.a.pd, READ, 0, NULL, 1), EINVAL);
	regions_close(&r);
}

static void one_wrong_element_and_nothing_is_done(void)
{
	struct ibv_sge sge[3];
	struct regions r;
	uint64_t before;

	regions_open(&r);
	/* The pin has brought them in. */
	dereg(r.mr[PINNED]);
	r.mr[PINNED] = reg(&r.p.a, r.memory, PAGE, LOCAL);
	check_sys(madvise(r.memory + PAGE, LENGTH - PAGE, MADV_DONTNEED) == 0);
	before = prefetched();
	for (unsigned wrong = 0; wrong < 3; wrong++) {
		for (unsigned i = 0; i < 3; i++)
			sge[i] = (struct ibv_sge){ .addr = (uintptr_t)r.memory + (1 + i) * PAGE,
				.length = PAGE,
				.lkey = i == wrong ? r.key[GONE] : r.key[i % 2 ? IMPLICIT : ON_DEMAND] };
		check_int(ibv_advise_mr(r.p.a.pd, WRITE, FLUSH, sge, 3), ENOENT);
	}
	check_int(present(r.memory + PAGE, PAGES - 1), 0);
	check_int(prefetched(), before);
	regions_close(&r);
}

/* ---- Effect ---- */

enum backing { UNTOUCHED, WRITTEN, MEMORY_FILE, BACKINGS };

static char *make(enum backing b)
{
	char *memory;
	int fd;

	if (b != MEMORY_FILE) {
		memory = fresh_apart(LENGTH);
		if (b == WRITTEN)
			fill(memory, LENGTH, 3);
		return memory;
	}
	check_sys((fd = memfd_create("prefetch", MFD_CLOEXEC)) >= 0);
	check_sys(ftruncate(fd, LENGTH) == 0);
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check_sys(memory != MAP_FAILED);
	close(fd);
	return memory;
}

struct trial {
	int advice;
	uint32_t flush;
	bool implicit;
	unsigned elements;
	enum backing backing;
};

/* In so many elements that cover it all. */
static void advise_in_pieces(struct ibv_pd *pd, const struct trial *t, const struct ibv_mr *mr, char *memory)
{
	struct ibv_sge sge[PAGES];
	size_t piece = PAGES / t->elements * PAGE;

	for (unsigned i = 0; i < t->elements; i++)
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)memory + i * piece, .length = (uint32_t)piece, .lkey = mr->lkey
		};
	check_int(
		ibv_advise_mr(pd, (enum ibv_advise_mr_advice)t->advice, t->flush, sge, (int)t->elements), 0);
}

/* An access of all pages, and how many of them faulted. */
static uint64_t faults_of(struct pair *p, enum ibv_wr_opcode op, const struct ibv_mr *here, char *mine,
	const struct ibv_mr *there, char *memory)
{
	uint64_t before = faulted();

	post(&p->a, op, here, mine, LENGTH, memory, there->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	return faulted() - before;
}

static void say_which(const struct trial *t, const char *what, uint64_t got, uint64_t want)
{
	if (got == want)
		return;
	check_failed(__FILE__, __LINE__, "advice %d, %s, %s, %u elements, backing %d: %s: %llu, not %llu",
		t->advice, t->flush ? "flush" : "no flush", t->implicit ? "implicit" : "explicit",
		t->elements, t->backing, what, (unsigned long long)got, (unsigned long long)want);
}

static void try(struct pair *p, const struct ibv_mr *here, char *mine, const struct trial *t)
{
	char *memory = make(t->backing);
	struct ibv_mr *there = t->implicit ? reg(&p->b, NULL, SIZE_MAX, REMOTE | ODP)
					   : reg(&p->b, memory, LENGTH, REMOTE | ODP);
	/* What NO_FAULT finds is what is there; the others make it be there. */
	uint64_t pages = t->advice == NO_FAULT && t->backing != WRITTEN ? 0 : PAGES, before = prefetched(),
		 faults;

	advise_in_pieces(p->b.pd, t, there, memory);
	if (!t->flush && pages)
		wait_counter(getpid(), "page_prefetch", before + pages);
	say_which(t, "pages present", present(memory, PAGES), pages);
	/* A later access finds them. What was fetched for reading still has to be made writable. */
	faults = faults_of(p, IBV_WR_RDMA_READ, here, mine, there, memory);
	check(!memcmp(mine, memory, LENGTH));
	say_which(t, "pages prefetched or faulted", prefetched() - before + faults, PAGES);
	/* One that was neither waited for nor had anything to do may still be under way, and meet the
	 * access's. */
	if (t->flush || pages)
		say_which(t, "faults of a READ", faults, PAGES - pages);
	fill(mine, LENGTH, t->elements);
	faults = faults_of(p, IBV_WR_RDMA_WRITE, here, mine, there, memory);
	check_filled(memory, LENGTH, t->elements);
	if (t->advice == WRITE)
		say_which(t, "faults of a WRITE", faults, 0);
	dereg(there);
	drop(memory, LENGTH);
}

static void later_accesses_find_what_was_prefetched(void)
{
	static const int advices[] = { READ, WRITE, NO_FAULT };
	static const unsigned elements[] = { 1, 2, 6, PAGES };
	char *mine = fresh(LENGTH);
	struct ibv_mr *here;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, LENGTH, LOCAL);
	for (size_t a = 0; a < COUNT(advices); a++)
		for (size_t e = 0; e < COUNT(elements); e++)
			for (enum backing b = 0; b < BACKINGS; b++)
				for (unsigned i = 0; i < 4; i++)
					try(&p, here, mine,
						&(struct trial){ advices[a], i & 1 ? FLUSH : 0, i & 2,
							elements[e], b });
	dereg(here);
	pair_close(&p);
}

static void without_faulting_only_what_is_there_becomes_valid(void)
{
	char *mine = fresh(LENGTH), *memory = fresh_apart(LENGTH);
	struct ibv_mr *here, *there;
	uint64_t before;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, LENGTH, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	for (size_t i = 0; i < PAGES; i += 3)
		memory[i * PAGE] = 1;
	before = prefetched();
	check_int(advise(p.b.pd, NO_FAULT, FLUSH, there, memory, LENGTH), 0);
	check_int(prefetched() - before, PAGES / 3);
	check_int(present(memory, PAGES), PAGES / 3);
	check_int(faults_of(&p, IBV_WR_RDMA_READ, here, mine, there, memory), PAGES - PAGES / 3);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void for_reading_it_takes_no_memory_and_for_writing_it_takes_its_pages(void)
{
	const size_t length = 4096 * PAGE;
	char *memory = fresh(length);
	struct ibv_mr *mr;
	struct end e;
	long rss;

	end_open(&e, NULL);
	mr = reg(&e, memory, length, REMOTE | ODP);
	check_int(advise(e.pd, READ, FLUSH, mr, memory, PAGE), 0);
	rss = status_kib("RssAnon");
	check_int(advise(e.pd, READ, FLUSH, mr, memory, length), 0);
	check(status_kib("RssAnon") - rss < (long)(length / 1024) / 8);
	check_int(advise(e.pd, WRITE, FLUSH, mr, memory, length), 0);
	check(status_kib("RssAnon") - rss >= (long)(length / 1024));
	check_zero(memory, length);
	dereg(mr);
	end_close(&e);
}

/* Any alignment: the pages that the bytes touch. Addresses are the region's, which may not be memory's. */
static void pages_are_those_that_the_bytes_touch(void)
{
	static const struct {
		size_t at, length, pages;
	} rows[] = { { 0, 1, 1 }, { PAGE - 1, 1, 1 }, { PAGE - 1, 2, 2 }, { 5, PAGE, 2 }, { 5, 2 * PAGE, 3 },
		{ LENGTH - 1, 1, 1 }, { 7, 0, 0 } };
	const uint64_t iova = 0x123456789000;
	char *memory = fresh_apart(LENGTH);
	struct ibv_mr *mr;
	struct end e;

	end_open(&e, NULL);
	check_sys((mr = ibv_reg_mr_iova(e.pd, memory, LENGTH, iova, REMOTE | ODP)) != NULL);
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t before = prefetched();

		check_sys(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
		check_int(advise(e.pd, WRITE, FLUSH, mr, (void *)(iova + rows[i].at), rows[i].length), 0);
		check_int(prefetched() - before, rows[i].pages);
		check_int(present(memory, PAGES), rows[i].pages);
		check_int(present(memory + rows[i].at / PAGE * PAGE, rows[i].pages), rows[i].pages);
	}
	check_int(advise(e.pd, WRITE, FLUSH, mr, memory, PAGE), EFAULT);
	dereg(mr);
	end_close(&e);
}

/* ---- Over what cannot be had ---- */

enum obstacle { HOLE, NO_ACCESS, READ_PROTECTED, PAST_EOF, GUARD, OBSTACLES };
#define BAD 20ul

static char *with_obstacle(enum obstacle o)
{
	char *memory = fresh_apart(LENGTH), *at = memory + BAD * PAGE;
	int fd;

	switch (o) {
	case HOLE:
		drop(at, PAGE);
		break;
	case NO_ACCESS:
	case READ_PROTECTED:
		check_sys(mprotect(at, PAGE, o == NO_ACCESS ? PROT_NONE : PROT_READ) == 0);
		break;
	case PAST_EOF:
		check_sys((fd = memfd_create("short", MFD_CLOEXEC)) >= 0);
		check_sys(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at);
		close(fd);
		break;
	case GUARD:
		if (madvise(at, PAGE, MADV_GUARD_INSTALL))
			return NULL;
		break;
	case OBSTACLES:
		break;
	}
	return memory;
}

/* What is not in memory is no obstacle to who does not want to fault; what is no memory at all is one. */
static int obstacle_error(enum obstacle o, int advice)
{
	switch (o) {
	case HOLE:
		return EFAULT;
	case NO_ACCESS:
		return EPERM;
	case READ_PROTECTED:
		return advice == WRITE ? EPERM : 0;
	default:
		return advice == NO_FAULT ? 0 : EFAULT;
	}
}

static void meet_obstacle(struct end *e, enum obstacle o, int advice, bool implicit)
{
	char *memory = with_obstacle(o);
	int want = obstacle_error(o, advice), err;
	struct ibv_mr *mr;
	uint64_t dropped;

	if (!memory)
		return;
	mr = implicit ? reg(e, NULL, SIZE_MAX, REMOTE | ODP) : reg(e, memory, LENGTH, REMOTE | ODP);
	err = advise(e->pd, advice, FLUSH, mr, memory, LENGTH);
	if (err != want)
		check_failed(__FILE__, __LINE__, "obstacle %d, advice %d: %d, not %d", o, advice, err, want);
	if (advice != NO_FAULT)
		check_int(present(memory, BAD), BAD);
	else
		check_int(present(memory, BAD), 0);
	/* Without FLUSH nobody is told; it is counted. */
	dropped = counter(getpid(), "page_prefetch_dropped");
	check_int(advise(e->pd, advice, 0, mr, memory, LENGTH), 0);
	if (want)
		wait_counter(getpid(), "page_prefetch_dropped", dropped + 1);
	dereg(mr);
	check_sys(munmap(memory, LENGTH) == 0);
}

static void over_a_hole_or_past_the_end_of_a_file_a_flush_says_so(void)
{
	static const int advices[] = { READ, WRITE, NO_FAULT };
	struct end e;

	end_open(&e, NULL);
	for (enum obstacle o = 0; o < OBSTACLES; o++)
		for (size_t a = 0; a < COUNT(advices); a++)
			for (int implicit = 0; implicit < 2; implicit++)
				meet_obstacle(&e, o, advices[a], implicit);
	end_close(&e);
}

/* ---- While it is slow ---- */

#define SLOW (4096 * PAGE)

/* Answers faults until none has come for a while, and returns how many. */
static unsigned answer_all(struct slow *s, long first)
{
	unsigned n = 0;

	for (long at = first; at >= 0; at = slow_fault(s, 300)) {
		slow_answer(s, at, 7);
		n++;
	}
	return n;
}

static void dereg_does_not_wait_for_a_prefetch(void)
{
	uint64_t dropped;
	struct ibv_mr *mr;
	struct slow s;
	struct end e;
	uint32_t key;
	long at;

	slow_open(&s, SLOW, false);
	end_open(&e, NULL);
	for (int implicit = 0; implicit < 2; implicit++) {
		mr = implicit ? reg(&e, NULL, SIZE_MAX, REMOTE | ODP) : reg(&e, s.memory, SLOW, REMOTE | ODP);
		key = mr->lkey;
		dropped = counter(getpid(), "page_prefetch_dropped");
		check_int(advise(e.pd, WRITE, 0, mr, s.memory + implicit * SLOW / 2, SLOW / 2), 0);
		check((at = slow_fault(&s, WAIT_SECONDS * 1000)) >= 0);
		/* It returns although the fault has not been answered. */
		dereg(mr);
		check_int(advise_key(e.pd, WRITE, 0, key, (uintptr_t)s.memory, PAGE), ENOENT);
		wait_counter(getpid(), "page_prefetch_dropped", dropped + 1);
		/* What was under way ends; the rest is not begun. */
		check(answer_all(&s, at) < SLOW / PAGE / 4);
	}
	end_close(&e);
	slow_close(&s);
}

struct flusher {
	struct end *e;
	const struct ibv_mr *mr;
	char *memory;
	int err;
	atomic_bool over;
};

static void *flush(void *arg)
{
	struct flusher *f = arg;

	f->err = advise(f->e->pd, WRITE, FLUSH, f->mr, f->memory, SLOW);
	f->over = true;
	return NULL;
}

struct answerer {
	struct slow *s;
	long first;
	unsigned answered;
};

static void *answer(void *arg)
{
	struct answerer *a = arg;

	a->answered = answer_all(a->s, a->first);
	return NULL;
}

/* A flush is its caller's own wait: dereg breaks it off at the next chunk. */
static void dereg_breaks_a_flush_off(void)
{
	struct answerer a = { 0 };
	struct flusher f = { 0 };
	pthread_t flushing, answering;
	struct ibv_mr *mr;
	struct slow s;
	struct end e;

	slow_open(&s, SLOW, false);
	end_open(&e, NULL);
	mr = reg(&e, s.memory, SLOW, REMOTE | ODP);
	f.e = &e;
	f.mr = mr;
	f.memory = s.memory;
	check_int(pthread_create(&flushing, NULL, flush, &f), 0);
	a.s = &s;
	check((a.first = slow_fault(&s, WAIT_SECONDS * 1000)) >= 0);
	check(!f.over);
	check_int(pthread_create(&answering, NULL, answer, &a), 0);
	dereg(mr);
	check_int(pthread_join(flushing, NULL), 0);
	check_int(pthread_join(answering, NULL), 0);
	check(f.err == ENOENT || f.err == 0);
	check(f.err == 0 || a.answered < SLOW / PAGE);
	end_close(&e);
	slow_close(&s);
}

/* Traffic on other pages of the region goes on, and an access to the very page waits and is served. */
static void accesses_do_not_wait_behind_a_prefetch(void)
{
	char *mine, *quick;
	struct ibv_mr *here, *there;
	struct slow s;
	struct pair p;
	struct ibv_wc wc;
	long at;

	slow_open(&s, SLOW, false);
	pair_open(&p, NULL);
	mine = fresh(PAGE);
	quick = fresh(LENGTH);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, NULL, SIZE_MAX, REMOTE | ODP);
	check_int(advise(p.b.pd, WRITE, 0, there, s.memory, SLOW), 0);
	check((at = slow_fault(&s, WAIT_SECONDS * 1000)) >= 0);
	for (size_t i = 0; i < PAGES; i++) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, quick + i * PAGE, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	post(&p.a, IBV_WR_RDMA_READ, here, mine, PAGE, s.memory + at, there->rkey);
	check(!poll_for(&p.a, &wc, 20));
	slow_answer(&s, at, 7);
	/* Whatever chunk it is part of: all of its pages. */
	while (!poll_for(&p.a, &wc, 0))
		if ((at = slow_fault(&s, 1)) >= 0)
			slow_answer(&s, at, 7);
	check_int(wc.status, IBV_WC_SUCCESS);
	check_int(mine[0], 7);
	dereg(there);
	answer_all(&s, slow_fault(&s, 300));
	dereg(here);
	pair_close(&p);
	slow_close(&s);
}

/* ---- Beside somebody who takes the pages away ---- */

struct taker {
	char *memory;
	atomic_bool stop;
};

static void *take(void *arg)
{
	struct taker *t = arg;

	while (!t->stop)
		madvise(t->memory, LENGTH, MADV_DONTNEED);
	return NULL;
}

/* openucx/ucx#9967, #9230: EAGAIN without end. */
static void a_flush_ends_while_pages_are_taken_away(void)
{
	char *memory = fresh(LENGTH);
	struct taker t = { .memory = memory };
	struct ibv_mr *mr;
	pthread_t thread;
	struct end e;

	end_open(&e, NULL);
	mr = reg(&e, memory, LENGTH, REMOTE | ODP);
	check_int(pthread_create(&thread, NULL, take, &t), 0);
	for (unsigned i = 0; i < 300; i++)
		check_int(advise(e.pd, i % 2 ? READ : WRITE, i % 3 ? FLUSH : 0, mr, memory, LENGTH), 0);
	t.stop = true;
	check_int(pthread_join(thread, NULL), 0);
	dereg(mr);
	end_close(&e);
}

/* ---- What the device fetches ahead by itself ---- */

#define STREAM 1024ul /* pages */

/* meta-pytorch/monarch#4923: slow unless prefetched. */
static void accesses_in_sequence_are_batched_and_others_pay_for_their_own_pages_only(void)
{
	const size_t step = 389; /* no page follows another */
	char *mine = fresh(PAGE), *sequence = fresh(STREAM * PAGE), *random = fresh(STREAM * PAGE);
	struct ibv_mr *here, *there;
	uint64_t events, pages, ahead;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, NULL, SIZE_MAX, REMOTE | ODP);
	fill(mine, PAGE, 1);
	events = counter(getpid(), "faults_minor") + counter(getpid(), "faults_major");
	pages = faulted();
	for (size_t i = 0; i < STREAM; i++) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, sequence + i * PAGE, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(sequence + i * PAGE, PAGE, 1);
	}
	events = counter(getpid(), "faults_minor") + counter(getpid(), "faults_major") - events;
	check(events > 0 && events <= STREAM / 16);
	check(faulted() - pages >= STREAM);
	ahead = counter(getpid(), "page_readahead");
	check(ahead >= STREAM - events);

	pages = counter(getpid(), "page_faults");
	for (size_t i = 0; i < STREAM / 4; i++) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, random + i * step % STREAM * PAGE,
			there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	check_int(counter(getpid(), "page_faults") - pages, STREAM / 4);
	check_int(counter(getpid(), "page_readahead"), ahead);
	for (size_t i = 0; i < STREAM; i++)
		check_int(present(random + i * step % STREAM * PAGE, 1), i < STREAM / 4);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_callers_mistake_is_told_by_the_table),
		CASE(one_wrong_element_and_nothing_is_done),
		CASE(later_accesses_find_what_was_prefetched),
		CASE(without_faulting_only_what_is_there_becomes_valid),
		CASE(for_reading_it_takes_no_memory_and_for_writing_it_takes_its_pages),
		CASE(pages_are_those_that_the_bytes_touch),
		CASE(over_a_hole_or_past_the_end_of_a_file_a_flush_says_so),
		CASE(dereg_does_not_wait_for_a_prefetch),
		CASE(dereg_breaks_a_flush_off),
		CASE(accesses_do_not_wait_behind_a_prefetch),
		CASE(a_flush_ends_while_pages_are_taken_away),
		CASE(accesses_in_sequence_are_batched_and_others_pay_for_their_own_pages_only),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
