/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Something for `unpin top` to look at: one process, a queue pair to itself, and page faults of one kind
 * without end. usage: top_load memory|disk|squeeze|wait [FOLDER]
 *
 * memory: 8 MiB are written and dropped again, faults that need no disk; 2 MiB are pinned; a part is
 * prefetched.
 *
 * disk: a file in FOLDER is read page by page after it was dropped from memory.
 *
 * squeeze: 64 MiB are used under a limit of 32 MiB and a swap device (root).
 *
 * wait: one page whose fault is answered when the process is told to end (userfaultfd).
 *
 * Says "ready" when it has begun, and ends when its standard input does. Status 77: not here (a reason is
 * printed).
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tool/squeeze.h"
#include "users/pair.h"
#include "users/slow.h"

#define MIB   (1ul << 20)
#define PIECE (16 * PAGE)

static struct pair pair;
static struct ibv_mr *local;
static char *buffer;

static bool over(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static char *map(size_t length)
{
	char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check_sys(p != MAP_FAILED);
	madvise(p, length, MADV_NOHUGEPAGE);
	return p;
}

static void begin(void)
{
	pair_open(&pair, NULL);
	buffer = map(PIECE);
	memset(buffer, 1, PIECE);
	local = reg(&pair.a, buffer, PIECE, LOCAL);
}

static void transfer(enum ibv_wr_opcode op, size_t length, char *remote, const struct ibv_mr *mr)
{
	post(&pair.a, op, local, buffer, length, remote, mr->rkey);
	wait_for(&pair.a, IBV_WC_SUCCESS);
}

static void load_memory(void)
{
	size_t length = 8 * MIB;
	char *p, *idle;
	struct ibv_sge part;
	struct ibv_mr *mr;

	begin();
	p = map(length);
	idle = map(2 * MIB);
	mr = reg(&pair.b, p, length, REMOTE | ODP);
	reg(&pair.b, idle, 2 * MIB, REMOTE);
	part = (struct ibv_sge){ .addr = (uintptr_t)p, .length = 256 * PAGE, .lkey = mr->lkey };
	ready();
	while (!over()) {
		check(!ibv_advise_mr(
			pair.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &part, 1));
		for (size_t at = 0; at < length; at += PIECE)
			transfer(IBV_WR_RDMA_WRITE, PIECE, p + at, mr);
		check_sys(madvise(p, length, MADV_DONTNEED) == 0);
	}
}

static void load_disk(const char *folder)
{
	size_t length = 8 * MIB, at = 0;
	int fd = open(folder, O_TMPFILE | O_RDWR, 0600);
	struct ibv_mr *mr;
	char *p;

	if (fd < 0) {
		printf("no file can be made in %s\n", folder);
		exit(77);
	}
	begin();
	for (size_t i = 0; i < length; i += PIECE)
		check_sys(write(fd, buffer, PIECE) == (ssize_t)PIECE);
	check_sys(fsync(fd) == 0);
	p = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	check_sys(p != MAP_FAILED);
	madvise(p, length, MADV_RANDOM);
	mr = reg(&pair.b, p, length, IBV_ACCESS_REMOTE_READ | ODP);
	ready();
	while (!over()) {
		check_sys(madvise(p, length, MADV_DONTNEED) == 0);
		posix_fadvise(fd, 0, (off_t)length, POSIX_FADV_DONTNEED);
		for (int i = 0; i < 64; i++) {
			at = (at + 97 * PAGE) % length;
			transfer(IBV_WR_RDMA_READ, 64, p + at, mr);
		}
	}
}

static void load_squeeze(void)
{
	size_t length = 64 * MIB;
	struct squeeze s;
	struct ibv_mr *mr;
	char *p;

	check_squeeze(&s, 32 * MIB, 128 * MIB);
	check_int(squeeze_enter(&s), 0);
	begin();
	p = map(length);
	mr = reg(&pair.b, p, length, REMOTE | ODP);
	ready();
	while (!over())
		for (size_t at = 0; at < length && !over(); at += PIECE)
			transfer(IBV_WR_RDMA_WRITE, PIECE, p + at, mr);
}

static void load_wait(void)
{
	struct slow slow;
	struct ibv_mr *mr;

	slow_need();
	slow_open(&slow, PIECE, false);
	begin();
	mr = reg(&pair.b, slow.memory, PIECE, REMOTE | ODP);
	post(&pair.a, IBV_WR_RDMA_WRITE, local, buffer, 64, slow.memory, mr->rkey);
	check(slow_fault(&slow, 10000) == 0);
	ready();
	while (!over())
		poll(NULL, 0, 20);
	slow_close(&slow);
	wait_for(&pair.a, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";

	if (!strcmp(kind, "memory"))
		load_memory();
	else if (!strcmp(kind, "disk"))
		load_disk(argc > 2 ? argv[2] : "/var/tmp");
	else if (!strcmp(kind, "squeeze"))
		load_squeeze();
	else if (!strcmp(kind, "wait"))
		load_wait();
	else
		return 2;
	/* The device ends with the process, as it does with most programs. */
	return 0;
}
