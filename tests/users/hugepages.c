/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Huge pages: those that an application asks for (hugetlb, reserved here and given back) and those that the
 * kernel makes (transparent ones). One event brings 2 MiB in; that the kernel splits and collapses them under
 * the device changes no byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

#define HUGE   (2ul << 20)
#define SMALLS (HUGE / PAGE)
#define HUGES  4ul
#define LENGTH (HUGES * HUGE)

/* ---- Reservation ---- */

/* The pool is the machine's: tests take turns at it (../odp/hugetlb.h). */
#define TURN "/proc/sys/vm/nr_hugepages"
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

/* A process that gives the pages back when the case's has ended, however it did. */
static struct {
	pid_t keeper;
	int life;
} reservation;

static void keep(int life, long pages)
{
	char word;

	setpgid(0, 0);
	while (read(life, &word, 1) < 0)
		;
	/* Somebody else may have reserved some meanwhile. */
	set_number(POOL "nr_hugepages", number_in(POOL "nr_hugepages") - pages);
	_exit(0);
}

static void reserve_pages(long pages)
{
	int life[2], turn = open(TURN, O_RDONLY | O_CLOEXEC);
	long had;

	if (turn < 0)
		check_skip("this kernel has no huge pages");
	while (flock(turn, LOCK_EX | LOCK_NB)) {
		check_sys(errno == EWOULDBLOCK);
		check_goes_on();
		nap(50);
	}
	had = number_in(POOL "nr_hugepages");
	if (had < 0)
		check_skip("this kernel has no huge pages of 2 MiB");
	if (!set_number(POOL "nr_hugepages", had + pages))
		check_skip("huge pages cannot be reserved: not root");
	if (number_in(POOL "nr_hugepages") < had + pages) {
		set_number(POOL "nr_hugepages", had);
		check_skip("the kernel finds no memory for %ld huge pages", pages);
	}
	check_sys(pipe2(life, O_CLOEXEC) == 0);
	check_sys((reservation.keeper = fork()) >= 0);
	if (!reservation.keeper) {
		close(life[1]);
		keep(life[0], pages);
	}
	close(life[0]);
	close(turn); /* the keeper has it */
	reservation.life = life[1];
}

static void give_back(void)
{
	close(reservation.life);
	check_sys(waitpid(reservation.keeper, NULL, 0) == reservation.keeper);
}

static long pages_free(void)
{
	return number_in(POOL "free_hugepages");
}

/* ---- The scene ---- */

struct scene {
	struct pair p;
	unsigned char *mine;
	struct ibv_mr *here;
	unsigned char *memory;
	struct ibv_mr *there;
};

static void scene_open(struct scene *s, unsigned char *memory, size_t length, int more)
{
	s->memory = memory;
	pair_open(&s->p, NULL);
	s->mine = fresh(LENGTH);
	memset(s->mine, 0, LENGTH);
	s->here = reg(&s->p.a, s->mine, LENGTH, LOCAL);
	s->there = reg(&s->p.b, memory, length, REMOTE | ODP | more);
}

static void scene_close(struct scene *s)
{
	dereg(s->here);
	dereg(s->there);
	pair_close(&s->p);
	drop(s->mine, LENGTH);
}

static void request(struct scene *s, enum ibv_wr_opcode op, size_t at, size_t length)
{
	post(&s->p.a, op, s->here, s->mine + at, length, s->memory + at, s->there->rkey);
	wait_for(&s->p.a, IBV_WC_SUCCESS);
}

static void writes(struct scene *s, size_t at, size_t length, unsigned seed)
{
	fill(s->mine + at, length, seed);
	request(s, IBV_WR_RDMA_WRITE, at, length);
	check_filled(s->memory + at, length, seed);
}

static void reads(struct scene *s, size_t at, size_t length)
{
	memset(s->mine + at, 0xa5, length);
	request(s, IBV_WR_RDMA_READ, at, length);
	check(!memcmp(s->mine + at, s->memory + at, length));
}

struct count {
	uint64_t pages, events;
};

static struct count count_now(void)
{
	pid_t me = getpid();

	return (struct count){ counter(me, "page_faults"),
		counter(me, "faults_minor") + counter(me, "faults_major") };
}

/* Pages that faulted, and events, since then. */
static void check_count(struct count since, uint64_t pages, uint64_t events)
{
	struct count c = count_now();

	check_int(c.pages - since.pages, pages);
	check_int(c.events - since.events, events);
}

/* ---- hugetlb ---- */

static void *hugetlb(size_t length, int more)
{
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB | more, -1, 0);

	check_sys(memory != MAP_FAILED);
	return memory;
}

static void the_flag_is_for_huge_pages_only(void)
{
	unsigned char *huge, *small;
	struct ibv_mr *mr;
	struct end e;

	reserve_pages(HUGES);
	end_open(&e, NULL);
	huge = hugetlb(LENGTH, 0);
	small = fresh(LENGTH);
	/* Any alignment and length inside, with the flag and without. */
	for (int flag = 0; flag <= IBV_ACCESS_HUGETLB; flag += IBV_ACCESS_HUGETLB) {
		dereg(reg(&e, huge, LENGTH, REMOTE | ODP | flag));
		dereg(reg(&e, huge + 4096, HUGE + 4099, REMOTE | ODP | flag));
		dereg(reg(&e, huge + 1, 1, REMOTE | ODP | flag));
		dereg(reg(&e, huge + HUGE - 1, 2, IBV_ACCESS_REMOTE_READ | ODP | flag));
		mr = reg(&e, huge + 5, HUGE, REMOTE | flag);
		dereg(mr);
	}
	errno = 0;
	check(!ibv_reg_mr(e.pd, small, LENGTH, REMOTE | ODP | IBV_ACCESS_HUGETLB) && errno == EINVAL);
	/* Partly huge is not huge. */
	check_sys(munmap(huge + LENGTH - HUGE, HUGE) == 0);
	errno = 0;
	check(!ibv_reg_mr(e.pd, huge, LENGTH, REMOTE | ODP | IBV_ACCESS_HUGETLB) && errno == EINVAL);
	errno = 0;
	check(!ibv_reg_mr(e.pd, NULL, SIZE_MAX, REMOTE | ODP | IBV_ACCESS_HUGETLB) && errno == EINVAL);
	drop(huge, LENGTH - HUGE);
	end_close(&e);
	give_back();
}

static void a_huge_page_comes_with_one_event(void)
{
	reserve_pages(HUGES);
	for (int flag = 0; flag <= IBV_ACCESS_HUGETLB; flag += IBV_ACCESS_HUGETLB)
		for (int write = 0; write < 2; write++) {
			unsigned char *memory = hugetlb(LENGTH, 0);
			struct count c;
			struct scene s;

			scene_open(&s, memory, LENGTH, flag);
			for (size_t i = 0; i < HUGES; i++) {
				size_t at = i * HUGE + (i * 1237 % SMALLS) * PAGE + 100;

				c = count_now();
				if (write)
					writes(&s, at, 8, 1);
				else
					reads(&s, at, 8);
				check_count(c, 1, 1);
			}
			/* All of it is there. */
			c = count_now();
			reads(&s, 0, LENGTH);
			if (write)
				writes(&s, 0, LENGTH, 2);
			check_count(c, 0, 0);
			scene_close(&s);
			drop(memory, LENGTH);
		}
	give_back();
}

static void odd_lengths_and_borders_between_huge_pages(void)
{
	static const size_t rows[][2] = { { 0, 1 }, { HUGE - 1, 2 }, { HUGE - 4097, 8197 },
		{ 12345, HUGE + 1 }, { 1, LENGTH - 2 }, { LENGTH - 3, 3 } };
	unsigned char *memory;
	struct scene s;

	reserve_pages(HUGES);
	memory = hugetlb(LENGTH, 0);
	scene_open(&s, memory, LENGTH, IBV_ACCESS_HUGETLB);
	for (unsigned i = 0; i < COUNT(rows); i++) {
		unsigned char before = 0, after = 0;
		size_t end = rows[i][0] + rows[i][1];

		if (rows[i][0])
			before = memory[rows[i][0] - 1];
		if (end < LENGTH)
			after = memory[end];
		writes(&s, rows[i][0], rows[i][1], i);
		reads(&s, rows[i][0], rows[i][1]);
		check(!rows[i][0] || memory[rows[i][0] - 1] == before);
		check(end == LENGTH || memory[end] == after);
	}
	/* Dropped, it is zero again. */
	check_sys(madvise(memory + HUGE, HUGE, MADV_DONTNEED) == 0);
	reads(&s, HUGE, HUGE);
	check_zero(s.mine + HUGE, HUGE);
	writes(&s, HUGE, HUGE, 9);
	scene_close(&s);
	drop(memory, LENGTH);
	give_back();
}

/* The processor would get SIGBUS. */
static void when_there_is_none_left_it_is_an_error(void)
{
	unsigned char *memory;
	struct scene s;
	long there;
	struct ibv_wc wc = { 0 };

	reserve_pages(2);
	if (number_in(POOL "nr_overcommit_hugepages") > 0)
		check_skip("huge pages may be overcommitted here");
	there = pages_free() - number_in(POOL "resv_hugepages");
	memory = hugetlb((size_t)(there + 1) * HUGE, MAP_NORESERVE);
	scene_open(&s, memory, (size_t)(there + 1) * HUGE, 0);
	for (long i = 0; i <= there; i++) {
		post(&s.p.a, IBV_WR_RDMA_WRITE, s.here, s.mine, 64, memory + (size_t)i * HUGE, s.there->rkey);
		wc = wait_any(&s.p.a);
		if (wc.status != IBV_WC_SUCCESS)
			break;
	}
	check_int(wc.status, IBV_WC_REM_ACCESS_ERR);
	pair_reconnect(&s.p);
	/* And what was had is still there. */
	post(&s.p.a, IBV_WR_RDMA_WRITE, s.here, s.mine, HUGE, memory, s.there->rkey);
	wait_for(&s.p.a, IBV_WC_SUCCESS);
	scene_close(&s);
	drop(memory, (size_t)(there + 1) * HUGE);
	give_back();
}

/* ---- Transparent huge pages ---- */

/* How much of the mapping at that address is in huge pages, in KiB. */
static long huge_kib(const void *memory)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	bool in = false;
	char line[512];
	long kib = -1;

	check_sys(f != NULL);
	while (kib < 0 && fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = (uintptr_t)memory >= start && (uintptr_t)memory < end;
		else if (in && !strncmp(line, "AnonHugePages:", 14))
			kib = strtol(line + 14, NULL, 10);
	}
	fclose(f);
	check(kib >= 0);
	return kib;
}

/* LENGTH bytes, aligned; nothing touched. */
static unsigned char *aligned(int advice)
{
	unsigned char *all = fresh_apart(LENGTH), *memory = all;

	check(!((uintptr_t)memory % HUGE));
	check_sys(madvise(memory, LENGTH, advice) == 0);
	return memory;
}

static unsigned char *transparent(void)
{
	unsigned char *memory;

	if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK))
		check_skip("this kernel has no transparent huge pages");
	memory = aligned(MADV_HUGEPAGE);
	memory[0] = 1;
	if (!huge_kib(memory))
		check_skip("the kernel gives no transparent huge page");
	check_sys(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
	return memory;
}

/* Nothing else tells the device that a page is part of a huge one (Linux 6.7). */
static bool have_pagemap_scan(void)
{
	const unsigned long pagemap_scan = _IOC(_IOC_READ | _IOC_WRITE, 'f', 16, 96);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	bool have = fd >= 0 && ioctl(fd, pagemap_scan, NULL) && errno != ENOTTY;

	if (fd >= 0)
		close(fd);
	return have;
}

static void a_transparent_huge_page_comes_with_one_event(void)
{
	unsigned char *memory = transparent();
	struct count c;
	struct scene s;

	if (!have_pagemap_scan())
		check_skip("this kernel does not tell which pages are huge: they come in batches");

	scene_open(&s, memory, LENGTH, 0);
	for (size_t i = 0; i < HUGES; i++) {
		c = count_now();
		writes(&s, i * HUGE + 333 * PAGE, 8, 1);
		check_count(c, 1, 1);
	}
	check_int(huge_kib(memory), LENGTH / 1024);
	c = count_now();
	writes(&s, 0, LENGTH, 2);
	reads(&s, 0, LENGTH);
	check_count(c, 0, 0);
	scene_close(&s);
}

static void the_huge_zero_page_is_read_and_then_replaced(void)
{
	unsigned char *memory = transparent();
	struct scene s;

	scene_open(&s, memory, LENGTH, 0);
	reads(&s, 0, LENGTH);
	check_zero(s.mine, LENGTH);
	writes(&s, HUGE + 5 * PAGE, PAGE, 3);
	reads(&s, 0, LENGTH);
	check_zero(memory, HUGE + 5 * PAGE);
	check_zero(memory + HUGE + 6 * PAGE, LENGTH - HUGE - 6 * PAGE);
	writes(&s, 0, LENGTH, 4);
	scene_close(&s);
}

enum split { DONTNEED, PROTECT, UNMAP, REPLACE, MOVE, SPLITS };
#define PIECE 77ul /* the page that is split off */

/* Splits page PIECE off. raw: past libc, so that no notifier sees it. */
static void split(unsigned char *at, enum split how, bool raw, void *away)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

	switch (how) {
	case DONTNEED:
		check_sys((raw ? syscall(SYS_madvise, at, PAGE, MADV_DONTNEED)
			       : madvise(at, PAGE, MADV_DONTNEED)) == 0);
		break;
	case PROTECT:
		check_sys((raw ? syscall(SYS_mprotect, at, PAGE, PROT_READ)
			       : mprotect(at, PAGE, PROT_READ)) == 0);
		break;
	case UNMAP:
		check_sys((raw ? syscall(SYS_munmap, at, PAGE) : munmap(at, PAGE)) == 0);
		break;
	case REPLACE:
		check_sys((raw ? (void *)syscall(SYS_mmap, at, PAGE, prot, flags, -1, 0)
			       : mmap(at, PAGE, prot, flags, -1, 0)) == at);
		break;
	case MOVE:
		check_sys((raw ? (void *)syscall(
					 SYS_mremap, at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away)
			       : mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away)) == away);
		break;
	case SPLITS:
		break;
	}
}

/* The piece: refused, unchanged, or zero. */
static void check_piece(struct scene *s, size_t at, enum split how)
{
	bool gone = how == UNMAP || how == MOVE;

	post(&s->p.a, IBV_WR_RDMA_READ, s->here, s->mine + at, PAGE, s->memory + at, s->there->rkey);
	wait_for(&s->p.a, gone ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	if (gone)
		pair_reconnect(&s->p);
	else if (how != PROTECT)
		check_zero(s->mine + at, PAGE);
	else
		check(!memcmp(s->mine + at, s->memory + at, PAGE));
	if (how != PROTECT)
		return;
	post(&s->p.a, IBV_WR_RDMA_WRITE, s->here, s->mine + at, PAGE, s->memory + at, s->there->rkey);
	wait_for(&s->p.a, IBV_WC_REM_ACCESS_ERR);
	pair_reconnect(&s->p);
}

static void splitting_one_page_off_concerns_that_page_only(void)
{
	unsigned char *away = fresh_apart(PAGE);

	for (int raw = 0; raw < 2; raw++)
		for (enum split how = 0; how < SPLITS; how++) {
			unsigned char *memory = transparent();
			const size_t at = HUGE + PIECE * PAGE, rest = at + PAGE;
			struct count c;
			struct scene s;

			scene_open(&s, memory, LENGTH, 0);
			writes(&s, 0, LENGTH, 5);
			memcpy(s.mine, memory, LENGTH);
			split(memory + at, how, raw, away);
			/* What is beside it has stayed, and needs no fault. */
			c = count_now();
			reads(&s, 0, at);
			reads(&s, rest, LENGTH - rest);
			check_count(c, 0, 0);
			fill(s.mine, LENGTH, 5);
			check(!memcmp(memory, s.mine, at) &&
				!memcmp(memory + rest, s.mine + rest, LENGTH - rest));
			check_piece(&s, at, how);
			writes(&s, 0, at, 6);
			writes(&s, rest, LENGTH - rest, 7);
			scene_close(&s);
			check_sys(munmap(memory, LENGTH) == 0);
		}
}

static void collapse(void *memory)
{
	if (madvise(memory, LENGTH, MADV_COLLAPSE)) {
		if (errno == EINVAL)
			check_skip("this kernel does not collapse when asked (it does from 6.1 on)");
		check_sys(errno == EAGAIN || errno == ENOMEM || errno == EBUSY);
	}
}

static void a_collapse_is_not_even_noticed(void)
{
	unsigned char *memory = aligned(MADV_NOHUGEPAGE);
	struct count c;
	struct scene s;

	scene_open(&s, memory, LENGTH, 0);
	writes(&s, 0, LENGTH, 1);
	check_int(huge_kib(memory), 0);
	check_sys(madvise(memory, LENGTH, MADV_HUGEPAGE) == 0);
	collapse(memory);
	if (!huge_kib(memory))
		check_skip("the kernel has not collapsed anything");
	c = count_now();
	reads(&s, 0, LENGTH);
	check_filled(memory, LENGTH, 1);
	writes(&s, 0, LENGTH, 2);
	check_count(c, 0, 0);
	scene_close(&s);
}

/* ---- Both, under traffic ---- */

struct shaker {
	unsigned char *memory;
	atomic_bool stop;
	atomic_uint rounds;
};

/* The last page of each huge one is the shaker's: it is dropped, protected, and collapsed together again. */
static void *shake(void *arg)
{
	struct shaker *sh = arg;

	for (unsigned i = 0; !sh->stop; i++) {
		unsigned char *huge = sh->memory + i % HUGES * HUGE, *last = huge + HUGE - PAGE;

		switch (i / HUGES % 3) {
		case 0:
			madvise(last, PAGE, MADV_DONTNEED);
			break;
		case 1:
			mprotect(last, PAGE, PROT_READ);
			mprotect(last, PAGE, PROT_READ | PROT_WRITE);
			break;
		default:
			*(volatile unsigned char *)last = 1;
			madvise(huge, HUGE, MADV_COLLAPSE);
		}
		sh->rounds++;
	}
	return NULL;
}

static void under_splits_and_collapses_every_byte_is_right(void)
{
	unsigned char *memory = transparent(), seed[HUGES][SMALLS] = { 0 };
	struct shaker sh = { .memory = memory };
	pthread_t thread;
	unsigned x = 1;
	struct scene s;
	double end;

	scene_open(&s, memory, LENGTH, 0);
	for (size_t h = 0; h < HUGES; h++)
		for (size_t i = 0; i < SMALLS - 1; i++)
			writes(&s, h * HUGE + i * PAGE, PAGE, 0);
	check_int(pthread_create(&thread, NULL, shake, &sh), 0);
	for (end = now() + 3; now() < end || sh.rounds < 100;) {
		size_t h, i, n;

		x = x * 1664525 + 1013904223;
		h = (x >> 8) % HUGES;
		i = (x >> 12) % (SMALLS - 1);
		n = 1 + (x >> 22) % 8;
		if (i + n > SMALLS - 1)
			n = SMALLS - 1 - i;
		memset(s.mine, 0, n * PAGE);
		post(&s.p.a, IBV_WR_RDMA_READ, s.here, s.mine, n * PAGE, memory + h * HUGE + i * PAGE,
			s.there->rkey);
		wait_for(&s.p.a, IBV_WC_SUCCESS);
		for (size_t k = 0; k < n; k++)
			check_filled(s.mine + k * PAGE, PAGE, seed[h][i + k]);
		for (size_t k = 0; k < n; k++)
			fill(s.mine + k * PAGE, PAGE, ++seed[h][i + k]);
		post(&s.p.a, IBV_WR_RDMA_WRITE, s.here, s.mine, n * PAGE, memory + h * HUGE + i * PAGE,
			s.there->rkey);
		wait_for(&s.p.a, IBV_WC_SUCCESS);
		check(now() < end + WAIT_SECONDS);
	}
	sh.stop = true;
	check_int(pthread_join(thread, NULL), 0);
	for (size_t h = 0; h < HUGES; h++)
		for (size_t i = 0; i < SMALLS - 1; i++)
			check_filled(memory + h * HUGE + i * PAGE, PAGE, seed[h][i]);
	scene_close(&s);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(the_flag_is_for_huge_pages_only),
		CASE(a_huge_page_comes_with_one_event),
		CASE(odd_lengths_and_borders_between_huge_pages),
		CASE(when_there_is_none_left_it_is_an_error),
		CASE(a_transparent_huge_page_comes_with_one_event),
		CASE(the_huge_zero_page_is_read_and_then_replaced),
		CASE(splitting_one_page_off_concerns_that_page_only),
		CASE(a_collapse_is_not_even_noticed),
		CASE(under_splits_and_collapses_every_byte_is_right),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
