/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A program that closes descriptors which it does not know, by libc's functions or by system calls, and then
 * opens files of its own: nothing spins, nothing hangs, and none of the files is written to or closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define FILES 1400 /* reaches the numbers where the device's descriptors were */

static int file[FILES];

static void open_files(void)
{
	struct rlimit limit;

	check_sys(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
	check_sys(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int i = 0; i < FILES; i++) {
		file[i] = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (file[i] < 0 && errno == EMFILE)
			break;
		check_sys(file[i] >= 0);
	}
}

/* But for those that libibverbs itself closes by number. */
static void check_files(const struct ibv_context *ctx, int cmd, int async, int channel)
{
	struct stat st;

	(void)ctx;
	for (int i = 0; i < FILES && file[i] > 0; i++) {
		if (file[i] == cmd || file[i] == async || file[i] == channel)
			continue;
		check_sys(fstat(file[i], &st) == 0);
		check_int(st.st_size, 0);
		check_int(lseek(file[i], 0, SEEK_CUR), 0);
	}
}

static double cpu_seconds(void)
{
	struct rusage u;

	check_sys(getrusage(RUSAGE_SELF, &u) == 0);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void raw_close_from_3(void)
{
	check_sys(syscall(SYS_close_range, 3u, UINT_MAX, 0u) == 0);
}

static void descriptors_closed_by_system_call_harm_nobody(void)
{
	struct options opt = { .events = true };
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;
	double before;
	int cmd, async, channel;

	pair_open(&p, &opt);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	nap(50);
	cmd = p.a.ctx->cmd_fd;
	async = p.a.ctx->async_fd;
	channel = p.a.channel->fd;
	raw_close_from_3();
	open_files();
	before = cpu_seconds();
	nap(2000);
	check(cpu_seconds() - before < 0.5);
	/* Within the process everything works that needs no descriptor. */
	fill(mine, PAGE, 7);
	for (int i = 0; i < 100; i++) {
		check_int(ibv_req_notify_cq(p.a.cq, 0), 0);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	check_filled(memory, PAGE, 7);
	check_files(p.a.ctx, cmd, async, channel);
	dereg(here);
	dereg(there);
	pair_close(&p);
	check_files(NULL, cmd, async, channel);
}

/* Data goes on, between processes too, for the device's own descriptors are still there. */
static void works(struct pair *p)
{
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here = reg(&p->a, mine, PAGE, LOCAL), *there = reg(&p->b, memory, PAGE, REMOTE);

	fill(mine, PAGE, 3);
	post(&p->a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	check_filled(memory, PAGE, 3);
	dereg(here);
	dereg(there);
}

static int highest_open(void)
{
	int fd = 8191;

	while (fd > 2 && fcntl(fd, F_GETFD) < 0)
		fd--;
	return fd;
}

static void descriptors_of_the_device_are_left_open_by_libc(void)
{
	struct pair p;
	int highest;

	pair_open(&p, NULL);
	highest = highest_open();
	check(highest > 2);
	closefrom(3);
	check_int(highest_open(), highest);
	for (int fd = 3; fd < 8192; fd++)
		close(fd);
	check_int(highest_open(), highest);
	works(&p);
	open_files();
	pair_close(&p);
	check_files(NULL, -1, -1, -1);
}

static void what_the_program_sees_is_for_select(void)
{
	struct options opt = { .events = true };
	struct pair p;

	pair_open(&p, &opt);
	check(p.a.channel->fd < FD_SETSIZE / 2 && p.a.ctx->async_fd < FD_SETSIZE / 2);
	check(p.a.ctx->cmd_fd < FD_SETSIZE / 2);
	check(highest_open() > p.a.channel->fd);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(descriptors_closed_by_system_call_harm_nobody),
		CASE(descriptors_of_the_device_are_left_open_by_libc),
		CASE(what_the_program_sees_is_for_select),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
