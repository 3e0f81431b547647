/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * munmap, mremap, MAP_FIXED, DONTNEED, mprotect over registered memory: a request sees the new state, or
 * completes with the error that verbs defines for it; raw system calls, which no interposer sees, included.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#define PAGES  64ul
#define LENGTH (PAGES * PAGE)

struct site {
	struct pair p;
	char *mine, *memory;
	struct ibv_mr *here, *there;
};

static void site_open(struct site *s)
{
	pair_open(&s->p, NULL);
	s->mine = fresh(LENGTH);
	s->memory = fresh_apart(LENGTH);
	fill(s->mine, LENGTH, 1);
	s->here = reg(&s->p.a, s->mine, LENGTH, LOCAL);
	s->there = reg(&s->p.b, s->memory, LENGTH, REMOTE | ODP);
}

static void site_close(struct site *s)
{
	dereg(s->here);
	dereg(s->there);
	pair_close(&s->p);
}

static void request(
	struct site *s, enum ibv_wr_opcode op, size_t offset, size_t length, enum ibv_wc_status status)
{
	post(&s->p.a, op, s->here, s->mine + offset, length, s->memory + offset, s->there->rkey);
	wait_for(&s->p.a, status);
	if (status != IBV_WC_SUCCESS)
		pair_reconnect(&s->p);
}

static void write_all(struct site *s)
{
	request(s, IBV_WR_RDMA_WRITE, 0, LENGTH, IBV_WC_SUCCESS);
}

/* The calls as libc makes them, and past it. */
static int raw;

static void unmap(void *at, size_t length)
{
	check_sys((raw ? syscall(SYS_munmap, at, length) : munmap(at, length)) == 0);
}

static void map_fixed(void *at, size_t length, int prot)
{
	void *got = raw ? (void *)syscall(
				  SYS_mmap, at, length, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
			: mmap(at, length, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	check_sys(got == at);
}

static void advise(void *at, size_t length, int advice)
{
	check_sys((raw ? syscall(SYS_madvise, at, length, advice) : madvise(at, length, advice)) == 0);
}

static void protect(void *at, size_t length, int prot)
{
	check_sys((raw ? syscall(SYS_mprotect, at, length, prot) : mprotect(at, length, prot)) == 0);
}

static void *move(void *at, size_t length, void *to)
{
	void *got = raw ? (void *)syscall(SYS_mremap, at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to)
			: mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	check_sys(got == to);
	return got;
}

static void unmapped_memory_is_an_error_and_its_neighbours_are_not(void)
{
	struct site s;

	site_open(&s);
	for (raw = 0; raw < 2; raw++) {
		map_fixed(s.memory, LENGTH, PROT_READ | PROT_WRITE);
		write_all(&s);
		unmap(s.memory + 8 * PAGE, PAGE);
		request(&s, IBV_WR_RDMA_WRITE, 8 * PAGE, 8, IBV_WC_REM_ACCESS_ERR);
		request(&s, IBV_WR_RDMA_READ, 0, LENGTH, IBV_WC_REM_ACCESS_ERR);
		request(&s, IBV_WR_RDMA_WRITE, 0, 8 * PAGE, IBV_WC_SUCCESS);
		request(&s, IBV_WR_RDMA_WRITE, 9 * PAGE, PAGE, IBV_WC_SUCCESS);
		map_fixed(s.memory + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE);
		write_all(&s);
		check_filled(s.memory, LENGTH, 1);
	}
	site_close(&s);
}

static void replaced_memory_gets_the_bytes(void)
{
	struct site s;

	site_open(&s);
	for (raw = 0; raw < 2; raw++) {
		write_all(&s);
		map_fixed(s.memory + PAGE, PAGE, PROT_READ | PROT_WRITE);
		check_zero(s.memory + PAGE, PAGE);
		request(&s, IBV_WR_RDMA_WRITE, PAGE, PAGE, IBV_WC_SUCCESS);
		check_filled(s.memory, LENGTH, 1);
		map_fixed(s.memory + PAGE, PAGE, PROT_READ);
		request(&s, IBV_WR_RDMA_WRITE, PAGE, PAGE, IBV_WC_REM_ACCESS_ERR);
		check_zero(s.memory + PAGE, PAGE);
		map_fixed(s.memory + PAGE, PAGE, PROT_NONE);
		request(&s, IBV_WR_RDMA_READ, PAGE, PAGE, IBV_WC_REM_ACCESS_ERR);
		map_fixed(s.memory + PAGE, PAGE, PROT_READ | PROT_WRITE);
	}
	site_close(&s);
}

static void dropped_pages_read_as_zero(void)
{
	char *got = fresh(LENGTH);
	struct ibv_mr *dst;
	struct site s;

	site_open(&s);
	dst = reg(&s.p.a, got, LENGTH, LOCAL);
	for (raw = 0; raw < 2; raw++) {
		write_all(&s);
		advise(s.memory + PAGE, 3 * PAGE, MADV_DONTNEED);
		post(&s.p.a, IBV_WR_RDMA_READ, dst, got, LENGTH, s.memory, s.there->rkey);
		wait_for(&s.p.a, IBV_WC_SUCCESS);
		check(!memcmp(got, s.mine, PAGE));
		check_zero(got + PAGE, 3 * PAGE);
		check(!memcmp(got + 4 * PAGE, s.mine + 4 * PAGE, LENGTH - 4 * PAGE));
	}
	dereg(dst);
	site_close(&s);
}

static void protection_is_that_of_the_moment(void)
{
	struct site s;

	site_open(&s);
	for (raw = 0; raw < 2; raw++) {
		write_all(&s);
		protect(s.memory, LENGTH, PROT_READ);
		request(&s, IBV_WR_RDMA_WRITE, 100, PAGE, IBV_WC_REM_ACCESS_ERR);
		request(&s, IBV_WR_RDMA_READ, 0, LENGTH, IBV_WC_SUCCESS);
		protect(s.memory, LENGTH, PROT_NONE);
		request(&s, IBV_WR_RDMA_READ, 100, PAGE, IBV_WC_REM_ACCESS_ERR);
		protect(s.memory, LENGTH, PROT_READ | PROT_WRITE);
		check_filled(s.memory, LENGTH, 1);
		write_all(&s);
	}
	site_close(&s);
}

static void moved_memory_stays_behind_its_old_address(void)
{
	struct site s;

	site_open(&s);
	for (raw = 0; raw < 2; raw++) {
		char *away = fresh(LENGTH);

		write_all(&s);
		move(s.memory, LENGTH, away);
		check_filled(away, LENGTH, 1);
		request(&s, IBV_WR_RDMA_WRITE, 0, PAGE, IBV_WC_REM_ACCESS_ERR);
		/* Other memory moves in: it is what the region now means. */
		move(away, LENGTH, s.memory);
		memset(s.memory, 0, LENGTH);
		write_all(&s);
		check_filled(s.memory, LENGTH, 1);
	}
	site_close(&s);
}

static void shrinking_and_growing_in_place(void)
{
	struct site s;

	site_open(&s);
	write_all(&s);
	check_sys(mremap(s.memory, LENGTH, LENGTH / 2, 0) == s.memory);
	request(&s, IBV_WR_RDMA_WRITE, LENGTH / 2, PAGE, IBV_WC_REM_ACCESS_ERR);
	request(&s, IBV_WR_RDMA_WRITE, LENGTH / 2 - PAGE, PAGE, IBV_WC_SUCCESS);
	check_sys(mremap(s.memory, LENGTH / 2, LENGTH, 0) == s.memory);
	check_zero(s.memory + LENGTH / 2, LENGTH / 2);
	write_all(&s);
	check_filled(s.memory, LENGTH, 1);
	site_close(&s);
}

static void a_truncated_file_is_an_error_and_comes_back_when_it_grows(void)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct site s;

	site_open(&s);
	check_sys(fd >= 0);
	check_sys(ftruncate(fd, LENGTH) == 0);
	check_sys(mmap(s.memory, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == s.memory);
	write_all(&s);
	check_sys(ftruncate(fd, LENGTH / 2) == 0);
	request(&s, IBV_WR_RDMA_WRITE, LENGTH / 2, PAGE, IBV_WC_REM_ACCESS_ERR);
	request(&s, IBV_WR_RDMA_READ, 0, LENGTH, IBV_WC_REM_ACCESS_ERR);
	request(&s, IBV_WR_RDMA_WRITE, 0, LENGTH / 2, IBV_WC_SUCCESS);
	check_sys(ftruncate(fd, LENGTH) == 0);
	check_zero(s.memory + LENGTH / 2, LENGTH / 2);
	write_all(&s);
	check_filled(s.memory, LENGTH, 1);
	site_close(&s);
	close(fd);
}

struct trouble {
	char *memory;
	atomic_bool stop;
};

/* Everything at once, in random order; between its steps the memory may be missing. */
static void *troublemaker(void *arg)
{
	struct trouble *t = arg;
	unsigned x = 1;

	while (!t->stop) {
		char *at;

		x = x * 1664525 + 1013904223;
		at = t->memory + (x >> 8) % (PAGES - 8) * PAGE;
		switch (x >> 28) {
		case 0 ... 3:
			madvise(at, 8 * PAGE, MADV_DONTNEED);
			break;
		case 4 ... 6:
			munmap(at, 4 * PAGE);
			break;
		case 7 ... 11:
			mmap(at, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				-1, 0);
			break;
		case 12:
			mprotect(at, 2 * PAGE, PROT_READ);
			break;
		case 13:
			mprotect(at, 2 * PAGE, PROT_NONE);
			break;
		default:
			mmap(t->memory, LENGTH, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		}
	}
	return NULL;
}

static void under_traffic_each_request_succeeds_or_fails_as_verbs_has_it(void)
{
	struct trouble t = { 0 };
	int good = 0, refused = 0;
	pthread_t thread;
	struct site s;
	double end = now() + 4;

	site_open(&s);
	t.memory = s.memory;
	check_int(pthread_create(&thread, NULL, troublemaker, &t), 0);
	for (unsigned i = 0; now() < end; i++) {
		size_t length = i % 4 ? PAGE * (1 + i % 16) : 8;
		struct ibv_wc wc;

		post(&s.p.a, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, s.here, s.mine, length,
			s.memory + i * 7 % (PAGES - 16) * PAGE, s.there->rkey);
		wc = wait_any(&s.p.a);
		if (wc.status == IBV_WC_SUCCESS) {
			good++;
			continue;
		}
		check_int(wc.status, IBV_WC_REM_ACCESS_ERR);
		refused++;
		pair_reconnect(&s.p);
	}
	t.stop = true;
	check_int(pthread_join(thread, NULL), 0);
	check(good > 0 && refused > 0);
	raw = 0;
	map_fixed(s.memory, LENGTH, PROT_READ | PROT_WRITE);
	fill(s.mine, LENGTH, 1);
	write_all(&s);
	check_filled(s.memory, LENGTH, 1);
	site_close(&s);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(unmapped_memory_is_an_error_and_its_neighbours_are_not),
		CASE(replaced_memory_gets_the_bytes),
		CASE(dropped_pages_read_as_zero),
		CASE(protection_is_that_of_the_moment),
		CASE(moved_memory_stays_behind_its_old_address),
		CASE(shrinking_and_growing_in_place),
		CASE(a_truncated_file_is_an_error_and_comes_back_when_it_grows),
		CASE(under_traffic_each_request_succeeds_or_fails_as_verbs_has_it),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
