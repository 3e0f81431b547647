/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory that is registered, freed, and allocated again at the same address (ofiwg/libfabric#6474, #6244).
 * Pinned, the device keeps to the old pages: that is what pinning means. On demand it sees what the program
 * sees. Neither is ever a mixture.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../counted_pins.h"
#include "pair.h"

#define LENGTH (16 * PAGE)

enum way { UNMAP_AND_MAP, MAP_OVER, DONTNEED, REMAP_AWAY, WAYS };
static const char *const way_names[] = { "munmap and mmap", "MAP_FIXED", "DONTNEED", "mremap away and mmap" };

/* New, zero memory at the same address. False when the kernel refuses (DONTNEED on memory that mlock pins).
 */
static bool renew(void *memory, enum way way)
{
	switch (way) {
	case UNMAP_AND_MAP:
		check_sys(munmap(memory, LENGTH) == 0);
		break;
	case DONTNEED:
		return !madvise(memory, LENGTH, MADV_DONTNEED);
	case REMAP_AWAY:
		check_sys(mremap(memory, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, fresh(LENGTH)) !=
			  MAP_FAILED);
		break;
	default:
		break;
	}
	check_sys(mmap(memory, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			  0) == memory);
	return true;
}

static void on_demand_the_new_data_is_sent(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int way = 0; way < WAYS; way++) {
		char *memory = fresh_apart(LENGTH), *got = fresh(LENGTH);
		struct ibv_mr *src, *dst;

		fill(memory, LENGTH, 1);
		src = reg(&p.a, memory, LENGTH, LOCAL | ODP);
		dst = reg(&p.b, got, LENGTH, LOCAL);
		for (unsigned round = 2; round < 6; round++) {
			post_recv(&p.b, dst, got, LENGTH);
			post(&p.a, IBV_WR_SEND, src, memory, LENGTH, NULL, 0);
			wait_for(&p.a, IBV_WC_SUCCESS);
			wait_for(&p.b, IBV_WC_SUCCESS);
			check_filled(got, LENGTH, round - 1);
			check(renew(memory, way));
			fill(memory, LENGTH, round);
		}
		dereg(src);
		dereg(dst);
	}
	pair_close(&p);
}

static void on_demand_the_device_writes_to_the_new_memory(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int way = 0; way < WAYS; way++) {
		char *memory = fresh_apart(LENGTH), *mine = fresh(LENGTH);
		struct ibv_mr *here, *there;

		here = reg(&p.a, mine, LENGTH, LOCAL);
		there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
		for (unsigned round = 0; round < 5; round++) {
			fill(mine, LENGTH, round);
			post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
			check_filled(memory, LENGTH, round);
			check(renew(memory, way));
			check_zero(memory, LENGTH);
		}
		dereg(here);
		dereg(there);
	}
	pair_close(&p);
}

/* After the range was renewed under a pin, the device either works on the old pages or refuses. */
static void pinned_the_new_mapping_is_never_touched(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int way = 0; way < WAYS; way++) {
		char *memory = fresh_apart(LENGTH), *mine = fresh(LENGTH);
		struct ibv_mr *here, *there;
		struct ibv_wc wc;

		fill(memory, LENGTH, 1);
		here = reg(&p.a, mine, LENGTH, LOCAL);
		there = reg(&p.b, memory, LENGTH, REMOTE);
		if (!renew(memory, way)) {
			check_int(errno, EINVAL);
			dereg(here);
			dereg(there);
			continue;
		}
		fill(memory, LENGTH, 2);
		post(&p.a, IBV_WR_RDMA_READ, here, mine, LENGTH, memory, there->rkey);
		wc = wait_any(&p.a);
		if (wc.status == IBV_WC_SUCCESS) {
			check_filled(mine, LENGTH, 1);
			/* Written and read back: to the old pages and from them. */
			fill(mine, LENGTH, 3);
			post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
			memset(mine, 0, LENGTH);
			post(&p.a, IBV_WR_RDMA_READ, here, mine, LENGTH, memory, there->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
			check_filled(mine, LENGTH, 3);
		} else {
			if (wc.status != IBV_WC_REM_ACCESS_ERR)
				check_failed(__FILE__, __LINE__, "%s: %s", way_names[way],
					ibv_wc_status_str(wc.status));
			pair_reconnect(&p);
			post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
			wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
			pair_reconnect(&p);
		}
		check_filled(memory, LENGTH, 2);
		dereg(here);
		dereg(there);
		check_filled(memory, LENGTH, 2);
	}
	pair_close(&p);
}

static void pinned_by_io_uring_the_old_pages_are_read(void)
{
	char *memory = fresh_apart(LENGTH), *mine = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	fill(memory, LENGTH, 1);
	here = reg(&p.a, mine, LENGTH, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE);
	if (!status_kib("VmPin")) {
		dereg(here);
		dereg(there);
		pair_close(&p);
		check_skip("pins are by mlock here");
	}
	check(renew(memory, DONTNEED));
	post(&p.a, IBV_WR_RDMA_READ, here, mine, LENGTH, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_filled(mine, LENGTH, 1);
	check_zero(memory, LENGTH);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(on_demand_the_new_data_is_sent),
		CASE(on_demand_the_device_writes_to_the_new_memory),
		CASE(pinned_the_new_mapping_is_never_touched),
		CASE(pinned_by_io_uring_the_old_pages_are_read),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
