/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Applications whose memory should be registered in a way that is known. One process, a queue pair to itself;
 * what is used is written by RDMA from a buffer of 64 KiB, which is pinned and should be.
 * usage: advise_app KIND
 *
 *   hot       4 MiB on demand, all of it written again and again                     -> pinned
 *   sparse    64 MiB pinned, 5 % of its pages written once                           -> on demand
 *   stream    64 MiB on demand, written once from begin to end                       -> prefetch
 *   again     64 KiB pinned, registered and deregistered for each transfer           -> once
 *   addresses 64 KiB on demand, likewise, each time somewhere else                   -> one implicit region
 *   discard   8 MiB on demand, written from begin to end and given back, over and over -> prefetch
 *   scatter   the same at random                                                     -> on demand, as it is
 *   tenth     64 MiB pinned, nine of ten writes go to 6.4 MiB from 32 MiB on         -> mlock of that
 *   unused    16 MiB pinned                                                          -> on demand
 *   few       16 MiB on demand, twelve writes                                        -> not known
 *   implicit  the address space, 8 MiB of it written                                 -> as it is
 *
 * Says "ready" when the answer should be that, goes on until its standard input ends, and then ends as most
 * programs do, with everything left open; after a line "close", with nothing left open.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "users/pair.h"

#define KIB   1024ul
#define MIB   (1024 * KIB)
#define PIECE (64 * KIB)

static struct pair pair;
static struct ibv_mr *local, *mr;
static char *buffer, *memory;

static bool over(int ms)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&p, 1, ms) > 0;
}

/* Rests, or repeats something, until it is over. */
static void go_on(void (*again)(void))
{
	puts("ready");
	fflush(stdout);
	while (!over(again ? 0 : 100))
		if (again)
			again();
}

static char *map(size_t length)
{
	char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check_sys(p != MAP_FAILED);
	madvise(p, length, MADV_NOHUGEPAGE);
	return p;
}

static void make(size_t length, int access)
{
	memory = map(length);
	mr = reg(&pair.b, memory, length, REMOTE | access);
}

static void transfer(size_t offset, size_t length)
{
	post(&pair.a, IBV_WR_RDMA_WRITE, local, buffer, length, memory + offset, mr->rkey);
	wait_for(&pair.a, IBV_WC_SUCCESS);
}

static void sweep(size_t length)
{
	for (size_t at = 0; at < length; at += PIECE)
		transfer(at, PIECE);
}

static size_t any(size_t pages)
{
	return (size_t)random() % pages * PAGE;
}

static void sweep_hot(void)
{
	sweep(4 * MIB);
}

static void hot(void)
{
	make(4 * MIB, ODP);
	for (int i = 0; i < 100; i++)
		sweep_hot();
	go_on(sweep_hot);
}

static void sparse(void)
{
	make(64 * MIB, 0);
	for (size_t i = 0; i < 64 * MIB / PAGE / 20; i++)
		transfer(any(64 * MIB / PAGE), 64);
	go_on(NULL);
}

static void stream(void)
{
	make(64 * MIB, ODP);
	sweep(64 * MIB);
	go_on(NULL);
}

static void register_anew(void)
{
	mr = reg(&pair.b, memory, PIECE, REMOTE);
	transfer(0, PIECE);
	dereg(mr);
	mr = NULL;
}

static void again(void)
{
	memory = map(PIECE);
	for (int i = 0; i < 1000; i++)
		register_anew();
	go_on(register_anew);
}

static void register_elsewhere(void)
{
	static char *arena;
	static unsigned n;

	if (!arena)
		arena = map(64 * PIECE);
	memory = arena + n++ % 64 * PIECE;
	mr = reg(&pair.b, memory, PIECE, REMOTE | ODP);
	transfer(0, PIECE);
	dereg(mr);
	mr = NULL;
}

static void addresses(void)
{
	for (int i = 0; i < 1000; i++)
		register_elsewhere();
	go_on(register_elsewhere);
}

static void sweep_and_drop(void)
{
	sweep(8 * MIB);
	check_sys(madvise(memory, 8 * MIB, MADV_DONTNEED) == 0);
}

static void discard(void)
{
	make(8 * MIB, ODP);
	for (int i = 0; i < 10; i++)
		sweep_and_drop();
	go_on(sweep_and_drop);
}

static void scatter_and_drop(void)
{
	for (int i = 0; i < 2048; i++)
		transfer(any(8 * MIB / PAGE), 64);
	check_sys(madvise(memory, 8 * MIB, MADV_DONTNEED) == 0);
}

static void scatter(void)
{
	make(8 * MIB, ODP);
	for (int i = 0; i < 10; i++)
		scatter_and_drop();
	go_on(scatter_and_drop);
}

#define TENTH (64 * MIB / PAGE / 10)

static void some_of_tenth(void)
{
	for (int i = 0; i < 1000; i++)
		transfer(i % 20 ? 32 * MIB + any(TENTH) : any(64 * MIB / PAGE), 64);
}

static void tenth(void)
{
	make(64 * MIB, 0);
	for (int i = 0; i < 60; i++)
		some_of_tenth();
	go_on(some_of_tenth);
}

static void unused(void)
{
	make(16 * MIB, 0);
	nap(2500);
	go_on(NULL);
}

static void few(void)
{
	make(16 * MIB, ODP);
	for (int i = 0; i < 12; i++)
		transfer(any(16 * MIB / PAGE), 64);
	go_on(NULL);
}

static void implicit(void)
{
	memory = map(8 * MIB);
	mr = ibv_reg_mr(pair.b.pd, NULL, SIZE_MAX, REMOTE | ODP);
	check_sys(mr);
	for (int i = 0; i < 2000; i++)
		transfer(any(8 * MIB / PAGE), 64);
	go_on(NULL);
}

static const struct {
	const char *name;
	void (*run)(void);
} kinds[] = { { "hot", hot }, { "sparse", sparse }, { "stream", stream }, { "again", again },
	{ "addresses", addresses }, { "discard", discard }, { "scatter", scatter }, { "tenth", tenth },
	{ "unused", unused }, { "few", few }, { "implicit", implicit } };

/* What was said before standard input ended. */
static bool asked_to_close(void)
{
	char word[16] = "";

	return fgets(word, sizeof(word), stdin) && strcmp(word, "close\n") == 0;
}

int main(int argc, char **argv)
{
	size_t i = 0;

	while (i < COUNT(kinds) && (argc < 2 || strcmp(kinds[i].name, argv[1])))
		i++;
	if (i == COUNT(kinds))
		return 2;
	pair_open(&pair, NULL);
	buffer = map(PIECE);
	memset(buffer, 1, PIECE);
	local = reg(&pair.a, buffer, PIECE, LOCAL);
	kinds[i].run();
	if (asked_to_close()) {
		if (mr)
			dereg(mr);
		dereg(local);
		pair_close(&pair);
	}
	return 0;
}
