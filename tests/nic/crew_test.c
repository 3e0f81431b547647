/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The engine's threads, each held up by a page that does not come before it is told to (userfaultfd, set up
 * by raw system calls so that the device does not know and waits in the thread that makes the access).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "nic/nic.h"
#include "pair.h"

#define PAGE	   4096u
#define ATTEMPTS   50
#define ANSWER_SEC 10

static int watch_faults(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && syscall(SYS_ioctl, fd, UFFDIO_API, &api)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static uint8_t *slow_page(int fd)
{
	uint8_t *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = { .range = { (uintptr_t)m, PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING };

	assert_true(m != MAP_FAILED);
	assert_int_equal(0, syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &reg));
	return m;
}

static void await_fault(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct uffd_msg msg;

	assert_int_equal(1, poll(&p, 1, ANSWER_SEC * 1000));
	assert_int_equal(sizeof(msg), read(fd, &msg, sizeof(msg)));
	assert_int_equal(UFFD_EVENT_PAGEFAULT, msg.event);
}

static void answer(int fd, uint8_t *page)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, PAGE } };

	assert_int_equal(0, syscall(SYS_ioctl, fd, UFFDIO_ZEROPAGE, &zero));
}

static unsigned threads_named(const char *name)
{
	struct dirent *entry;
	unsigned n = 0;
	DIR *dir = opendir("/proc/self/task");

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[300], line[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f))
			n += !strncmp(line, name, strlen(name));
		fclose(f);
	}
	closedir(dir);
	return n;
}

/* A thread that has been joined stands in /proc for a moment longer. */
static void none_is_left_named(const char *name)
{
	for (int i = 0; i < 1000 && threads_named(name); i++)
		usleep(10000);
	assert_int_equal(0, threads_named(name));
}

/* Two requests between two pairs, each to a page that does not come. True: both waited at once, each in a
 * thread of its own, and nobody had taken over from anybody. */
static bool both_at_once(struct pair p[2], int fd)
{
	struct crew *c = &p[0].ctx->nic->crew;
	uint32_t reliefs = atomic_load(&c->reliefs), jobs = atomic_load(&c->hand_jobs);
	struct nic_mr *slow[2], *from[2];
	uint8_t *page[2], word[2] = { 1, 2 };
	bool by_hand;

	for (int i = 0; i < 2; i++) {
		page[i] = slow_page(fd);
		slow[i] = pair_reg(&p[i], page[i], PAGE, IBV_ACCESS_ON_DEMAND);
		from[i] = pair_reg(&p[i], &word[i], 1, 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(0, pair_send(&p[i], 0, IBV_WR_RDMA_WRITE, &word[i], 1, pair_key(from[i]),
					    (uintptr_t)page[i], pair_key(slow[i])));
	await_fault(fd);
	await_fault(fd);
	by_hand = atomic_load(&c->hand_jobs) > jobs && atomic_load(&c->reliefs) == reliefs;
	for (int i = 0; i < 2; i++)
		answer(fd, page[i]);
	for (int i = 0; i < 2; i++) {
		pair_expect(&p[i], 0, IBV_WC_SUCCESS);
		assert_int_equal(word[i], page[i][0]);
		nic_mr_destroy(slow[i]);
		nic_mr_destroy(from[i]);
		munmap(page[i], PAGE);
	}
	return by_hand;
}

static void two_engine_threads_carry_two_queue_pairs_at_once(void **state)
{
	int fd = watch_faults(), attempts = 0;
	struct pair p[2];

	(void)state;
	if (fd < 0) {
		print_message("no userfaultfd: %s\n", strerror(errno));
		skip();
	}
	setenv("UNPIN_ENGINE_THREADS", "2", 1);
	pair_open(&p[0], NULL);
	pair_open(&p[1], NULL);
	assert_int_equal(0, threads_named("unpin-hand"));
	/* The two requests must come to the engine together; where they do not, the second one waits for the
	 * lookout as it does with one thread. */
	while (!both_at_once(p, fd))
		assert_true(++attempts < ATTEMPTS);
	assert_int_equal(1, threads_named("unpin-hand"));
	pair_close(&p[1]);
	pair_close(&p[0]);
	none_is_left_named("unpin-hand");
	unsetenv("UNPIN_ENGINE_THREADS");
	close(fd);
}

static void one_engine_thread_has_no_hands_and_the_lookout_takes_over(void **state)
{
	int fd = watch_faults();
	struct pair p[2];

	(void)state;
	if (fd < 0)
		skip();
	pair_open(&p[0], NULL);
	pair_open(&p[1], NULL);
	assert_false(both_at_once(p, fd));
	assert_true(atomic_load(&p[0].ctx->nic->crew.reliefs) >= 1);
	assert_int_equal(0, threads_named("unpin-hand"));
	pair_close(&p[1]);
	pair_close(&p[0]);
	close(fd);
}

/* Every thread there may be is stuck, the last one at the helm and without a lookout. The first that comes
 * back, whichever it is, takes over from it. */
static void the_first_thread_that_comes_back_carries_on_for_all(void **state)
{
	enum { STUCK = CREW_MOST, ALL = STUCK + 1 };
	static struct pair p[ALL];
	struct nic_mr *slow[ALL], *from[ALL];
	uint8_t *page[ALL], word = 7;
	uint32_t reliefs;
	int fd = watch_faults();

	(void)state;
	if (fd < 0)
		skip();
	for (int i = 0; i < ALL; i++) {
		pair_open(&p[i], NULL);
		page[i] = slow_page(fd);
		slow[i] = pair_reg(&p[i], page[i], PAGE, IBV_ACCESS_ON_DEMAND);
		from[i] = pair_reg(&p[i], &word, 1, 0);
	}
	for (int i = 0; i < ALL; i++) {
		assert_int_equal(0, pair_send(&p[i], 0, IBV_WR_RDMA_WRITE, &word, 1, pair_key(from[i]),
					    (uintptr_t)page[i], pair_key(slow[i])));
		if (i < STUCK)
			await_fault(fd);
	}
	/* More where the machine stood still for a moment. */
	reliefs = atomic_load(&p[0].ctx->nic->crew.reliefs);
	assert_true(reliefs >= STUCK - 1);
	answer(fd, page[0]);
	await_fault(fd);
	assert_true(atomic_load(&p[0].ctx->nic->crew.reliefs) > reliefs);
	for (int i = 1; i < ALL; i++)
		answer(fd, page[i]);
	for (int i = 0; i < ALL; i++) {
		pair_expect(&p[i], 0, IBV_WC_SUCCESS);
		assert_int_equal(page[i][0], word);
		nic_mr_destroy(slow[i]);
		nic_mr_destroy(from[i]);
		munmap(page[i], PAGE);
	}
	for (int i = 0; i < ALL; i++)
		pair_close(&p[i]);
	none_is_left_named("unpin-engine");
	none_is_left_named("unpin-lookout");
	close(fd);
}

/* Eight pairs and nobody who polls: the engine's threads share the work, and every byte arrives. */
static void hands_come_and_go(void **state)
{
	enum { PAIRS = 8, ROUNDS = 200, SIZE = 8192 };
	static struct pair p[PAIRS];
	uint8_t *m = mmap(NULL, 2 * PAIRS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct nic_mr *mr[PAIRS];

	(void)state;
	setenv("UNPIN_ENGINE_THREADS", "4", 1);
	for (int i = 0; i < PAIRS; i++) {
		pair_open(&p[i], NULL);
		mr[i] = pair_reg(&p[i], m, 2 * PAIRS * SIZE, i & 1 ? IBV_ACCESS_ON_DEMAND : 0);
	}
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < PAIRS; i++) {
			uint8_t *from = m + 2 * i * SIZE;

			memset(from, r + i, SIZE);
			for (int k = 0; k < 8; k++)
				assert_int_equal(
					0, pair_send(&p[i], 0, IBV_WR_RDMA_WRITE, from + k * 1024, 1024,
						   pair_key(mr[i]), (uintptr_t)from + SIZE + k * 1024,
						   pair_key(mr[i])));
		}
		for (int i = 0; i < PAIRS; i++) {
			struct ibv_wc wc[8];

			pair_wait(&p[i], 0, 8, wc);
			for (int k = 0; k < 8; k++)
				assert_int_equal(IBV_WC_SUCCESS, wc[k].status);
			assert_memory_equal(m + 2 * i * SIZE, m + (2 * i + 1) * SIZE, SIZE);
		}
	}
	assert_in_range(threads_named("unpin-hand"), 0, 3);
	for (int i = 0; i < PAIRS; i++) {
		nic_mr_destroy(mr[i]);
		pair_close(&p[i]);
	}
	unsetenv("UNPIN_ENGINE_THREADS");
	munmap(m, 2 * PAIRS * SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_engine_thread_has_no_hands_and_the_lookout_takes_over),
		cmocka_unit_test(two_engine_threads_carry_two_queue_pairs_at_once),
		cmocka_unit_test(the_first_thread_that_comes_back_carries_on_for_all),
		cmocka_unit_test(hands_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
