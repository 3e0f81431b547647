/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Implicit on-demand regions: one region over the whole address space, as it is at the moment of each access.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../counted_pins.h"
#include "../small_pages.h"
#include "pair.h"
#include "slow.h"

#define LENGTH (16 * PAGE)

/* One of each end's own, with all rights, and ordinary buffers. */
struct site {
	struct pair p;
	struct ibv_mr *at_a, *at_b; /* implicit */
	char *mine;
	struct ibv_mr *here;
};

static void site_open(struct site *s)
{
	pair_open(&s->p, NULL);
	s->at_a = reg(&s->p.a, NULL, SIZE_MAX, REMOTE | ODP);
	s->at_b = reg(&s->p.b, NULL, SIZE_MAX, REMOTE | ODP);
	s->mine = fresh(LENGTH);
	fill(s->mine, LENGTH, 1);
	s->here = reg(&s->p.a, s->mine, LENGTH, LOCAL);
}

static void site_close(struct site *s)
{
	dereg(s->here);
	dereg(s->at_a);
	dereg(s->at_b);
	pair_close(&s->p);
	drop(s->mine, LENGTH);
}

static void finish(struct site *s, enum ibv_wc_status status)
{
	wait_for(&s->p.a, status);
	if (status != IBV_WC_SUCCESS)
		pair_reconnect(&s->p);
}

/* Between the ordinary buffer and memory that the implicit region of the other end names. */
static void request(
	struct site *s, enum ibv_wr_opcode op, const void *at, size_t length, enum ibv_wc_status status)
{
	post(&s->p.a, op, s->here, s->mine, length, at, s->at_b->rkey);
	finish(s, status);
}

static void writes(struct site *s, void *at, size_t length, unsigned seed)
{
	fill(s->mine, length, seed);
	request(s, IBV_WR_RDMA_WRITE, at, length, IBV_WC_SUCCESS);
	check_filled(at, length, seed);
}

static void reads(struct site *s, const void *at, size_t length)
{
	memset(s->mine, 0xa5, length);
	request(s, IBV_WR_RDMA_READ, at, length, IBV_WC_SUCCESS);
	check(!memcmp(s->mine, at, length));
}

/* ---- What it is ---- */

static void it_is_described_as_it_was_asked_for(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_mr *mr;
	struct end e;

	end_open(&e, NULL);
	check_int(ibv_query_device_ex(e.ctx, NULL, &attr), 0);
	check(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT);
	mr = reg(&e, NULL, SIZE_MAX, LOCAL | ODP);
	check(mr->addr == NULL && mr->length == SIZE_MAX && mr->lkey && mr->rkey);
	dereg(mr);
	/* All of the address space, and at its own addresses, or not at all. */
	errno = 0;
	check(!ibv_reg_mr(e.pd, NULL, SIZE_MAX, LOCAL) && errno == EINVAL);
	errno = 0;
	check(!ibv_reg_mr_iova(e.pd, NULL, SIZE_MAX, PAGE, LOCAL | ODP) && errno == EINVAL);
	errno = 0;
	check(!ibv_reg_mr(e.pd, (void *)PAGE, SIZE_MAX, LOCAL | ODP) && errno == EINVAL);
	errno = 0;
	check(!ibv_reg_mr(e.pd, NULL, SIZE_MAX - 1, LOCAL | ODP) && errno == EINVAL);
	end_close(&e);
}

static void without_the_capability_it_is_refused(void)
{
	struct ibv_device_attr_ex attr;
	char *memory = fresh(PAGE);
	struct end e;

	check_sys(setenv("UNPIN_IMPLICIT", "0", 1) == 0);
	end_open(&e, NULL);
	check_int(ibv_query_device_ex(e.ctx, NULL, &attr), 0);
	check(!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT));
	check(attr.odp_caps.general_caps & IBV_ODP_SUPPORT);
	errno = 0;
	check(!ibv_reg_mr(e.pd, NULL, SIZE_MAX, LOCAL | ODP));
	check_int(errno, EINVAL);
	/* Others are there all the same. */
	dereg(reg(&e, memory, PAGE, LOCAL | ODP));
	end_close(&e);
}

/* ---- What it reaches ---- */

static void memory_mapped_after_registration_is_reached_on_either_side(void)
{
	struct site s;

	site_open(&s);
	for (unsigned i = 0; i < 20; i++) {
		char *x = fresh(LENGTH), *y = fresh(LENGTH);

		fill(x, LENGTH, i);
		post(&s.p.a, IBV_WR_RDMA_WRITE, s.at_a, x, LENGTH, y, s.at_b->rkey);
		finish(&s, IBV_WC_SUCCESS);
		check_filled(y, LENGTH, i);
		fill(y, LENGTH, 100 + i);
		post(&s.p.a, IBV_WR_RDMA_READ, s.at_a, x, LENGTH, y, s.at_b->rkey);
		finish(&s, IBV_WC_SUCCESS);
		check_filled(x, LENGTH, 100 + i);
		drop(y, LENGTH);
		y = fresh(LENGTH);
		post_recv(&s.p.b, s.at_b, y, LENGTH);
		post(&s.p.a, IBV_WR_SEND, s.at_a, x, LENGTH, NULL, 0);
		finish(&s, IBV_WC_SUCCESS);
		wait_for(&s.p.b, IBV_WC_SUCCESS);
		check_filled(y, LENGTH, 100 + i);
		memset(y, 0, 8);
		post(&s.p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, s.at_a, x, 8, y, s.at_b->rkey);
		finish(&s, IBV_WC_SUCCESS);
		check_zero(x, 8);
		drop(x, LENGTH);
		drop(y, LENGTH);
	}
	site_close(&s);
}

static const char constants[3 * 4096] = { [0] = 1, [5000] = 2, [12287] = 3 };
static char data[8192] = { 1 };
static char bss[8192];
static __thread char of_thread[256];

static void *on_a_stack(void *arg)
{
	char local[3 * 4096];
	struct site *s = arg;

	fill(local, sizeof(local), 77);
	reads(s, local, sizeof(local));
	writes(s, local, sizeof(local), 78);
	writes(s, of_thread, sizeof(of_thread), 79);
	return NULL;
}

static void rodata_data_stacks_heap_and_code_are_what_they_are(void)
{
	pthread_t thread;
	struct site s;
	char *small, *large;

	site_open(&s);
	reads(&s, constants, sizeof(constants));
	request(&s, IBV_WR_RDMA_WRITE, constants + 4096, 8, IBV_WC_REM_ACCESS_ERR);
	check_int(constants[5000], 2);
	/* Code is readable. Its bytes are not the pointer's object for the compiler. */
	reads(&s, (const void *)(uintptr_t)&reads, 64);
	request(&s, IBV_WR_RDMA_WRITE, (const void *)(uintptr_t)&reads, 8, IBV_WC_REM_ACCESS_ERR);
	writes(&s, data, sizeof(data), 2);
	writes(&s, bss, sizeof(bss), 3);
	on_a_stack(&s);
	check_int(pthread_create(&thread, NULL, on_a_stack, &s), 0);
	check_int(pthread_join(thread, NULL), 0);
	check_sys((small = malloc(1000)) != NULL);
	check_sys((large = malloc(LENGTH)) != NULL);
	writes(&s, small, 1000, 4);
	writes(&s, large, LENGTH, 5);
	free(small);
	free(large);
	/* The break moves. */
	small = sbrk((intptr_t)(4 * PAGE));
	check_sys(small != (void *)-1);
	writes(&s, small, 4 * PAGE, 6);
	site_close(&s);
}

struct special {
	char name[32];
	uintptr_t start;
};

/* The kernel's own mappings in this process. */
static size_t special_mappings(struct special *out, size_t most)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	size_t n = 0;

	check_sys(f != NULL);
	while (n < most && fgets(line, sizeof(line), f)) {
		struct special *m = &out[n];

		m->name[0] = '\0';
		check(sscanf(line, "%" SCNxPTR "-%*x %*s %*s %*s %*s %31s", &m->start, m->name) >= 1);
		n += !strncmp(m->name, "[v", 2);
	}
	fclose(f);
	return n;
}

static void refused_everywhere(struct site *s, uintptr_t va)
{
	void *at = (void *)va;

	request(s, IBV_WR_RDMA_WRITE, at, 16, IBV_WC_REM_ACCESS_ERR);
	request(s, IBV_WR_ATOMIC_FETCH_AND_ADD, (void *)(va & ~(uintptr_t)7), 8, IBV_WC_REM_ACCESS_ERR);
	post(&s->p.a, IBV_WR_RDMA_READ, s->at_a, at, 16, s->mine, s->at_b->rkey);
	finish(s, IBV_WC_LOC_PROT_ERR);
	request(s, IBV_WR_RDMA_READ, at, 16, IBV_WC_REM_ACCESS_ERR);
	post(&s->p.a, IBV_WR_RDMA_WRITE, s->at_a, at, 16, s->mine, s->at_b->rkey);
	finish(s, IBV_WC_LOC_PROT_ERR);
}

/* [vdso], [vvar] and their like belong to the kernel: no device reaches them. */
static void the_kernels_mappings_are_refused(void)
{
	struct special m[8];
	struct site s;
	size_t n;

	site_open(&s);
	n = special_mappings(m, COUNT(m));
	check(n > 0);
	for (size_t i = 0; i < n; i++)
		refused_everywhere(&s, m[i].start);
	site_close(&s);
}

static void addresses_that_are_nobodys_are_errors(void)
{
	static const uintptr_t nowhere[] = {
		8, /* NULL's page */
		PAGE - 16,
		0x7fffffffefe0, /* the last page below the kernel's half is never mapped */
		0x7ffffffff000,
		0x7fffffffffe8,	    /* the end of the address space, up to it */
		0x800000000000,	    /* not canonical */
		0x7fffffffffffffe0, /* not canonical */
		0xffff7fffffffffe0,
		0xffff800000000000, /* the kernel's half */
		0xffff888000000000,
		0xffffffff81000000,
		0xffffffffff600000, /* vsyscall */
		0xffffffffffffffe0,
	};
	struct site s;

	site_open(&s);
	for (size_t i = 0; i < COUNT(nowhere); i++)
		refused_everywhere(&s, nowhere[i]);
	/* Over the end of the address space, and of all numbers. */
	request(&s, IBV_WR_RDMA_READ, (void *)0x7ffffffffff8, LENGTH, IBV_WC_REM_ACCESS_ERR);
	request(&s, IBV_WR_RDMA_WRITE, (void *)(UINTPTR_MAX - 3), 16, IBV_WC_REM_ACCESS_ERR);
	/* And nothing of that has hurt. */
	memory_mapped_after_registration_is_reached_on_either_side();
	writes(&s, bss, sizeof(bss), 9);
	site_close(&s);
}

#define TERABYTE (1ul << 40)
#define TOUCHES	 200u

static void a_terabyte_costs_what_is_touched(void)
{
	uint64_t faults;
	struct site s;
	char *memory;
	long rss;

	site_open(&s);
	memory = fresh(TERABYTE);
	writes(&s, memory, 8, 1); /* whatever begins with the first fault has begun */
	rss = status_kib("VmRSS");
	faults = counter(getpid(), "page_faults");
	for (uint64_t i = 0; i < TOUCHES; i++) {
		/* Another stretch of the terabyte each time. */
		char *at = memory + (i * 2654435761u % 100003 + 1) * (TERABYTE / 100004 & ~(PAGE - 1));

		writes(&s, at, 8, (unsigned)i);
	}
	check_int(counter(getpid(), "page_faults") - faults, TOUCHES);
	/*
	 * Each touch costs its page, at most two pages of page tables of the processor's, and a leaf and two
	 * nodes of the device's table (832 bytes, and what a level has).
	 */
	check(status_kib("VmRSS") - rss < TOUCHES * 16l);
	drop(memory, TERABYTE);
	request(&s, IBV_WR_RDMA_READ, memory, 8, IBV_WC_REM_ACCESS_ERR);
	site_close(&s);
}

/* ---- Mappings that come and go ---- */

static void *reserve(size_t length)
{
	char *at = fresh_apart(length);

	drop(at, length);
	return at;
}

static void map_at(void *at, size_t length)
{
	check_sys(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		  at);
}

static void mappings_appear_move_and_vanish(void)
{
	char *x = reserve(LENGTH), *y = reserve(LENGTH);
	struct site s;

	site_open(&s);
	for (unsigned raw = 0; raw < 2; raw++) {
		request(&s, IBV_WR_RDMA_READ, x, 8, IBV_WC_REM_ACCESS_ERR);
		map_at(x, LENGTH);
		writes(&s, x, LENGTH, 1);
		check_sys((raw ? (void *)syscall(
					 SYS_mremap, x, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, y)
			       : mremap(x, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, y)) == y);
		request(&s, IBV_WR_RDMA_READ, x, LENGTH, IBV_WC_REM_ACCESS_ERR);
		reads(&s, y, LENGTH);
		check_filled(y, LENGTH, 1);
		map_at(x, LENGTH);
		reads(&s, x, LENGTH);
		check_zero(s.mine, LENGTH);
		writes(&s, x, LENGTH, 2);
		check_filled(y, LENGTH, 1);
		check_sys((raw ? syscall(SYS_munmap, y, LENGTH) : munmap(y, LENGTH)) == 0);
		request(&s, IBV_WR_RDMA_WRITE, y, 8, IBV_WC_REM_ACCESS_ERR);
		check_filled(x, LENGTH, 2);
		check_sys((raw ? syscall(SYS_munmap, x, LENGTH) : munmap(x, LENGTH)) == 0);
	}
	site_close(&s);
}

#define SLOTS 32u

struct arena {
	char *slot[SLOTS];
	atomic_bool stop;
};

/* Slots are mapped, unmapped, and moved over each other. */
static void *mover(void *arg)
{
	struct arena *a = arg;
	unsigned x = 1;

	while (!a->stop) {
		char *from, *to;

		x = x * 1664525 + 1013904223;
		from = a->slot[(x >> 8) % SLOTS];
		to = a->slot[(x >> 16) % SLOTS];
		if (x >> 30 == 0)
			munmap(from, LENGTH);
		else if (x >> 30 == 1 && from != to)
			mremap(from, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		else
			mmap(from, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				-1, 0);
	}
	return NULL;
}

static void all_slots_are_right(struct site *s, struct arena *a)
{
	for (unsigned i = 0; i < SLOTS; i++)
		map_at(a->slot[i], LENGTH);
	for (unsigned i = 0; i < SLOTS; i++)
		writes(s, a->slot[i], LENGTH, i);
	for (unsigned i = 0; i < SLOTS; i++)
		check_filled(a->slot[i], LENGTH, i);
}

static void under_traffic_each_request_meets_memory_or_an_error(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD };
	unsigned good = 0, refused = 0;
	struct arena a = { 0 };
	pthread_t thread;
	struct site s;
	double end = now() + 3;

	site_open(&s);
	for (unsigned i = 0; i < SLOTS; i++)
		a.slot[i] = reserve(LENGTH);
	check_int(pthread_create(&thread, NULL, mover, &a), 0);
	for (unsigned i = 0; now() < end || !good || !refused; i++) {
		enum ibv_wr_opcode op = ops[i % 3];
		char *at = a.slot[i * 7 % SLOTS];
		struct ibv_wc wc;

		check(now() < end + WAIT_SECONDS);
		post(&s.p.a, op, s.here, s.mine, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH, at,
			s.at_b->rkey);
		wc = wait_any(&s.p.a);
		if (wc.status == IBV_WC_SUCCESS) {
			good++;
			continue;
		}
		check_int(wc.status, IBV_WC_REM_ACCESS_ERR);
		refused++;
		pair_reconnect(&s.p);
	}
	a.stop = true;
	check_int(pthread_join(thread, NULL), 0);
	all_slots_are_right(&s, &a);
	site_close(&s);
}

/* ---- Beside other regions over the same pages ---- */

enum kind { PINNED, EXPLICIT, IMPLICIT, KINDS };

static struct ibv_mr *reg_kind(struct end *e, enum kind kind, void *memory, size_t length)
{
	if (kind == IMPLICIT)
		return reg(e, NULL, SIZE_MAX, REMOTE | ODP);
	return reg(e, memory, length, kind == EXPLICIT ? REMOTE | ODP : REMOTE);
}

static void through(struct site *s, uint32_t key, enum ibv_wr_opcode op, void *at, enum ibv_wc_status status)
{
	post(&s->p.a, op, s->here, s->mine, LENGTH, at, key);
	finish(s, status);
}

static void all_of_them_work(struct site *s, struct ibv_mr *const *mr, const uint32_t *key, char *memory)
{
	for (unsigned w = 0; w < KINDS; w++) {
		fill(s->mine, LENGTH, 10 + w);
		through(s, key[w], IBV_WR_RDMA_WRITE, memory, mr[w] ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		if (!mr[w])
			continue;
		check_filled(memory, LENGTH, 10 + w);
		for (unsigned r = 0; r < KINDS; r++) {
			memset(s->mine, 0, LENGTH);
			through(s, key[r], IBV_WR_RDMA_READ, memory,
				mr[r] ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
			if (mr[r])
				check_filled(s->mine, LENGTH, 10 + w);
		}
	}
}

static void regions_over_the_same_pages_come_and_go_without_each_other(void)
{
	static const unsigned orders[][KINDS] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 },
		{ 2, 0, 1 }, { 2, 1, 0 } };
	char *memory = fresh(LENGTH);
	struct site s;
	long locked;

	site_open(&s);
	locked = status_kib("VmLck") + status_kib("VmPin");
	for (size_t made = 0; made < COUNT(orders); made++)
		for (size_t gone = 0; gone < COUNT(orders); gone++) {
			struct ibv_mr *mr[KINDS];
			uint32_t key[KINDS];

			for (unsigned i = 0; i < KINDS; i++) {
				unsigned k = orders[made][i];

				mr[k] = reg_kind(&s.p.b, k, memory, LENGTH);
				key[k] = mr[k]->rkey;
			}
			all_of_them_work(&s, mr, key, memory);
			for (unsigned i = 0; i < KINDS; i++) {
				unsigned k = orders[gone][i];

				dereg(mr[k]);
				mr[k] = NULL;
				all_of_them_work(&s, mr, key, memory);
			}
			check_int(status_kib("VmLck") + status_kib("VmPin"), locked);
		}
	site_close(&s);
}

static void a_discarded_page_is_the_old_one_for_the_pin_and_a_new_one_on_demand(void)
{
	char *memory = fresh(LENGTH);
	struct ibv_mr *pinned, *explicit;
	struct site s;

	site_open(&s);
	fill(memory, LENGTH, 1);
	pinned = reg(&s.p.b, memory, LENGTH, REMOTE);
	explicit = reg(&s.p.b, memory, LENGTH, REMOTE | ODP);
	through(&s, explicit->rkey, IBV_WR_RDMA_READ, memory, IBV_WC_SUCCESS);
	if (!status_kib("VmPin"))
		check_skip("nothing is really pinned here: locked pages cannot be discarded");
	check_sys(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
	through(&s, explicit->rkey, IBV_WR_RDMA_READ, memory, IBV_WC_SUCCESS);
	check_zero(s.mine, LENGTH);
	reads(&s, memory, LENGTH);
	check_zero(s.mine, LENGTH);
	through(&s, pinned->rkey, IBV_WR_RDMA_READ, memory, IBV_WC_SUCCESS);
	check_filled(s.mine, LENGTH, 1);
	fill(s.mine, LENGTH, 2);
	through(&s, pinned->rkey, IBV_WR_RDMA_WRITE, memory, IBV_WC_SUCCESS);
	check_zero(memory, LENGTH);
	writes(&s, memory, LENGTH, 3);
	through(&s, pinned->rkey, IBV_WR_RDMA_READ, memory, IBV_WC_SUCCESS);
	check_filled(s.mine, LENGTH, 2);
	dereg(pinned);
	check_filled(memory, LENGTH, 3);
	reads(&s, memory, LENGTH);
	dereg(explicit);
	reads(&s, memory, LENGTH);
	site_close(&s);
}

static void each_has_its_own_rights(void)
{
	struct ibv_mr *reads_only, *here_only;
	struct site s;

	site_open(&s);
	reads_only = reg(&s.p.b, NULL, SIZE_MAX, IBV_ACCESS_REMOTE_READ | ODP);
	here_only = reg(&s.p.b, NULL, SIZE_MAX, LOCAL | ODP);
	writes(&s, bss, LENGTH / 8, 4);
	post(&s.p.a, IBV_WR_RDMA_READ, s.here, s.mine, 64, bss, reads_only->rkey);
	finish(&s, IBV_WC_SUCCESS);
	post(&s.p.a, IBV_WR_RDMA_WRITE, s.here, s.mine, 64, bss, reads_only->rkey);
	finish(&s, IBV_WC_REM_ACCESS_ERR);
	post(&s.p.a, IBV_WR_RDMA_READ, s.here, s.mine, 64, bss, here_only->rkey);
	finish(&s, IBV_WC_REM_ACCESS_ERR);
	/* Keys of another domain are no keys. */
	post(&s.p.a, IBV_WR_RDMA_READ, s.here, s.mine, 64, bss, s.at_a->rkey);
	finish(&s, IBV_WC_REM_ACCESS_ERR);
	writes(&s, bss, LENGTH / 8, 5);
	dereg(reads_only);
	dereg(here_only);
	site_close(&s);
}

/* The key fails from then on, also for memory that it has reached a moment ago. */
static void after_its_end_the_key_reaches_nothing(void)
{
	char *memory = fresh(LENGTH);
	struct ibv_mr *mr;
	uint32_t key;
	struct site s;

	site_open(&s);
	for (unsigned i = 0; i < 300; i++) {
		mr = reg(&s.p.b, NULL, SIZE_MAX, REMOTE | ODP);
		key = mr->rkey;
		fill(s.mine, LENGTH, i);
		through(&s, key, IBV_WR_RDMA_WRITE, memory, IBV_WC_SUCCESS);
		dereg(mr);
		memset(s.mine, 0, LENGTH);
		through(&s, key, IBV_WR_RDMA_WRITE, memory, IBV_WC_REM_ACCESS_ERR);
		through(&s, key, IBV_WR_RDMA_READ, memory, IBV_WC_REM_ACCESS_ERR);
		check_zero(s.mine, LENGTH);
		check_filled(memory, LENGTH, i);
	}
	site_close(&s);
}

/* ---- Its end, while it is in use ---- */

/* The kernel's CVE-2025-21714 and -21886: hangs and a use after free. */
static void dereg_fails_what_is_parked_and_does_not_wait_for_the_page(void)
{
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct slow slow;
	struct site s;

	slow_open(&slow, 4 * PAGE, true);
	site_open(&s);
	mr = reg(&s.p.b, NULL, SIZE_MAX, REMOTE | ODP);
	post(&s.p.a, IBV_WR_RDMA_WRITE, s.here, s.mine, PAGE, slow.memory, mr->rkey);
	check_int(slow_fault(&slow, WAIT_SECONDS * 1000), 0);
	check(!poll_for(&s.p.a, &wc, 20));
	dereg(mr);
	finish(&s, IBV_WC_REM_ACCESS_ERR);
	/* On the requesting side too. */
	mr = reg(&s.p.a, NULL, SIZE_MAX, LOCAL | ODP);
	post(&s.p.a, IBV_WR_RDMA_WRITE, mr, slow.memory + PAGE, PAGE, bss, s.at_b->rkey);
	check_int(slow_fault(&slow, WAIT_SECONDS * 1000), PAGE);
	dereg(mr);
	finish(&s, IBV_WC_LOC_PROT_ERR);
	slow_answer(&slow, 0, 5);
	slow_answer(&slow, PAGE, 6);
	/* Another region over the same pages finds what came in the end. */
	request(&s, IBV_WR_RDMA_READ, slow.memory, 2 * PAGE, IBV_WC_SUCCESS);
	check_int(s.mine[0], 5);
	check_int(s.mine[PAGE], 6);
	site_close(&s);
	slow_close(&slow);
}

/* One region ends under a fault that another one waits for too. */
static void the_end_of_one_does_not_fail_who_waits_by_another(void)
{
	struct ibv_mr *mr, *here;
	struct ibv_wc wc;
	struct slow slow;
	struct pair other;
	struct site s;

	slow_open(&slow, 4 * PAGE, true);
	site_open(&s);
	pair_open(&other, NULL);
	mr = reg(&other.b, NULL, SIZE_MAX, REMOTE | ODP);
	here = reg(&other.a, bss, PAGE, LOCAL);
	post(&other.a, IBV_WR_RDMA_READ, here, bss, 8, slow.memory, mr->rkey);
	check_int(slow_fault(&slow, WAIT_SECONDS * 1000), 0);
	post(&s.p.a, IBV_WR_RDMA_READ, s.here, s.mine, 8, slow.memory, s.at_b->rkey);
	wait_counter(getpid(), "faults_coalesced", 1);
	dereg(mr);
	wait_for(&other.a, IBV_WC_REM_ACCESS_ERR);
	check(!poll_for(&s.p.a, &wc, 20));
	slow_answer(&slow, 0, 9);
	finish(&s, IBV_WC_SUCCESS);
	check_int(s.mine[0], 9);
	dereg(here);
	pair_close(&other);
	site_close(&s);
	slow_close(&slow);
}

struct owner {
	struct end *end;
	_Atomic uint32_t key;
	atomic_bool stop;
	char *memory;
};

static void *registers_and_deregisters(void *arg)
{
	struct owner *o = arg;

	for (unsigned i = 0; !o->stop; i++) {
		struct ibv_mr *mr = reg(o->end, NULL, SIZE_MAX, REMOTE | ODP);
		struct ibv_sge sge = { .addr = (uintptr_t)o->memory, .length = LENGTH, .lkey = mr->lkey };

		o->key = mr->rkey;
		if (i % 3 == 0)
			madvise(o->memory, LENGTH, MADV_DONTNEED);
		if (i % 2)
			check_int(ibv_advise_mr(o->end->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
					  i % 4 == 1 ? IBV_ADVISE_MR_FLAG_FLUSH : 0, &sge, 1),
				0);
		if (i % 8 == 0)
			nap(1);
		dereg(mr);
	}
	return NULL;
}

static void it_may_end_while_requests_faults_and_prefetches_are_under_way(void)
{
	struct owner o = { .memory = fresh(LENGTH) };
	unsigned good = 0, refused = 0;
	pthread_t thread;
	struct site s;
	double end = now() + 2;

	site_open(&s);
	o.end = &s.p.b;
	check_int(pthread_create(&thread, NULL, registers_and_deregisters, &o), 0);
	while (!o.key)
		;
	while (now() < end || !good || !refused) {
		struct ibv_wc wc;

		post(&s.p.a, good % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, s.here, s.mine, LENGTH,
			o.memory, o.key);
		wc = wait_any(&s.p.a);
		check(now() < end + WAIT_SECONDS);
		if (wc.status == IBV_WC_SUCCESS) {
			good++;
			continue;
		}
		check_int(wc.status, IBV_WC_REM_ACCESS_ERR);
		refused++;
		pair_reconnect(&s.p);
	}
	o.stop = true;
	check_int(pthread_join(thread, NULL), 0);
	site_close(&s);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(it_is_described_as_it_was_asked_for),
		CASE(without_the_capability_it_is_refused),
		CASE(memory_mapped_after_registration_is_reached_on_either_side),
		CASE(rodata_data_stacks_heap_and_code_are_what_they_are),
		CASE(the_kernels_mappings_are_refused),
		CASE(addresses_that_are_nobodys_are_errors),
		CASE(a_terabyte_costs_what_is_touched),
		CASE(mappings_appear_move_and_vanish),
		CASE(under_traffic_each_request_meets_memory_or_an_error),
		CASE(regions_over_the_same_pages_come_and_go_without_each_other),
		CASE(a_discarded_page_is_the_old_one_for_the_pin_and_a_new_one_on_demand),
		CASE(each_has_its_own_rights),
		CASE(after_its_end_the_key_reaches_nothing),
		CASE(dereg_fails_what_is_parked_and_does_not_wait_for_the_page),
		CASE(the_end_of_one_does_not_fail_who_waits_by_another),
		CASE(it_may_end_while_requests_faults_and_prefetches_are_under_way),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
