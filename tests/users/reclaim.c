/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory pressure, on real swap under a real limit. An application whose on-demand regions are four times
 * what it may hold keeps working; pinned regions of that size cannot be. Who reads resident pages is not held
 * up by who takes major faults without end. (MLNX documents: "pages may be swapped out"; what the field runs
 * into is that they never are, since they are pinned.)
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "tool/squeeze.h"

#define MIB	 (1ul << 20)
#define LIMIT	 (32 * MIB)
#define LENGTH	 (4 * LIMIT)
#define PIECE	 (256 * 1024ul)
#define PIECES	 (LENGTH / PIECE)
#define SWAP	 (512 * MIB)
#define RESIDENT (1 * MIB)

struct offer {
	struct window big, small;
	pid_t pid;
};

/* A process under the limit with a region of four times as much, and a small one that it keeps touching. */
static void serve(int sock, void *arg)
{
	struct squeeze *s = arg;
	struct ibv_mr *big, *small;
	struct offer offer;
	struct end a, b;
	char word;

	check_int(squeeze_enter(s), 0);
	end_open(&a, NULL);
	end_open(&b, NULL);
	big = reg(&a, fresh(LENGTH), LENGTH, REMOTE | ODP);
	small = reg(&b, fresh(RESIDENT), RESIDENT, REMOTE | ODP);
	fill(small->addr, RESIDENT, 77);
	exchange(&a, sock);
	exchange(&b, sock);
	offer = (struct offer){ window_of(big), window_of(small), getpid() };
	tell(sock, &offer, sizeof(offer));
	for (hear(sock, &word, 1); word == 'p'; hear(sock, &word, 1)) {
		struct ibv_sge sge = { (uintptr_t)big->addr, (uint32_t)LENGTH, big->lkey };

		check_int(ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), 0);
	}
	check_filled(small->addr, RESIDENT, 77);
	dereg(big);
	dereg(small);
	end_close(&a);
	end_close(&b);
}

struct client {
	struct peer peer;
	struct end a, b;
	struct offer offer;
	unsigned char *mine;
	struct ibv_mr *here_a, *here_b;
};

static void client_open(struct client *c, struct squeeze *s)
{
	c->peer = peer_start(serve, s);
	c->mine = fresh(PIECE);
	end_open(&c->a, NULL);
	end_open(&c->b, NULL);
	c->here_a = reg(&c->a, c->mine, PIECE, LOCAL);
	c->here_b = reg(&c->b, c->mine, PIECE, LOCAL);
	exchange(&c->a, c->peer.sock);
	exchange(&c->b, c->peer.sock);
	hear(c->peer.sock, &c->offer, sizeof(c->offer));
}

static void client_close(struct client *c)
{
	tell(c->peer.sock, "q", 1);
	peer_done(&c->peer);
	dereg(c->here_a);
	dereg(c->here_b);
	end_close(&c->a);
	end_close(&c->b);
	drop(c->mine, PIECE);
}

static void piece(struct client *c, enum ibv_wr_opcode op, size_t i)
{
	post(&c->a, op, c->here_a, c->mine, PIECE, (char *)(uintptr_t)c->offer.big.addr + i * PIECE,
		c->offer.big.rkey);
	wait_for(&c->a, IBV_WC_SUCCESS);
	check_goes_on();
}

static void write_all(struct client *c, unsigned of)
{
	for (size_t i = 0; i < PIECES; i++) {
		fill(c->mine, PIECE, of + (unsigned)i);
		piece(c, IBV_WR_RDMA_WRITE, i);
	}
}

static void read_all(struct client *c, unsigned of, size_t step)
{
	for (size_t k = 0, i = 0; k < PIECES; k++, i = (i + step) % PIECES) {
		memset(c->mine, 0, PIECE);
		piece(c, IBV_WR_RDMA_READ, i);
		check_filled(c->mine, PIECE, of + (unsigned)i);
	}
}

static long rss_of(pid_t pid)
{
	char path[64], line[128];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	check_sys(f != NULL);
	while (kib < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) != 1)
			kib = -1;
	fclose(f);
	return kib;
}

static void regions_of_four_times_the_limit_keep_working(void)
{
	struct squeeze s;
	struct client c;

	check_squeeze(&s, LIMIT, SWAP);
	client_open(&c, &s);
	write_all(&c, 1000);
	/* The limit, and what the squeeze gives when nothing can leave; libraries and rings are in it. */
	check(squeeze_usage(&s) <= 2 * LIMIT);
	check(rss_of(c.offer.pid) * 1024 <= (long)(2 * LIMIT));
	read_all(&c, 1000, 1);
	write_all(&c, 5000);
	/* And in an order that no read-ahead knows; 7 does not divide the number of pieces. */
	check(PIECES % 7);
	read_all(&c, 5000, 7);
	check(counter(c.offer.pid, "faults_major") > 0);
	check_int(counter(c.offer.pid, "faults_failed"), 0);
	check_int(counter(getpid(), "retransmits"), 0);
	client_close(&c);
}

static void put(const char *folder, const char *file, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	f = fopen(path, "we");
	check_sys(f != NULL);
	check_sys(fputs(text, f) >= 0 && fclose(f) == 0);
}

/* A limit as containers have them: who cannot get below it is killed, instead of slowed down. */
static void harden(const struct squeeze *s)
{
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%lu", LIMIT);
	if (s->v1)
		put(s->cgroup, "memory.oom_control", "0");
	else
		put(s->cgroup, "memory.max", bytes);
}

/* Ends with 0 if it could pin more than it may hold. */
static void pin_four_times(struct squeeze *s)
{
	struct end e;

	check_int(squeeze_enter(s), 0);
	end_open(&e, NULL);
	if (!ibv_reg_mr(e.pd, fresh(LENGTH), LENGTH, REMOTE))
		_exit(3);
	_exit(0);
}

static void pinned_regions_of_that_size_fail(void)
{
	struct squeeze s;
	int status;
	pid_t pid;

	check_squeeze(&s, LIMIT, SWAP);
	harden(&s);
	pid = fork();
	check_sys(pid >= 0);
	if (!pid)
		pin_four_times(&s);
	check_sys(waitpid(pid, &status, 0) == pid);
	/* Refused, or ended by the kernel for lack of memory: pinned pages cannot leave. */
	check((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
		(WIFEXITED(status) && WEXITSTATUS(status) == 3));
}

#define REQUESTS 3000

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Requests of b on a few pages that stay in memory; with others, a always waits for a page of the big region.
 * The 99th percentile of their times in microseconds. */
static double requests_of_b(struct client *c, bool others)
{
	static double took[REQUESTS];
	bool flying = false;
	size_t next = 0;

	for (int i = 0; i < REQUESTS; i++) {
		double begin = now();
		struct ibv_wc wc;

		post(&c->b, IBV_WR_RDMA_READ, c->here_b, c->mine + PAGE, 512,
			(char *)(uintptr_t)c->offer.small.addr + i % 16 * 512, c->offer.small.rkey);
		wait_for(&c->b, IBV_WC_SUCCESS);
		took[i] = (now() - begin) * 1e6;
		if (flying && ibv_poll_cq(c->a.cq, 1, &wc) > 0) {
			check_int(wc.status, IBV_WC_SUCCESS);
			flying = false;
		}
		if (others && !flying) {
			/* Single pages, far apart. */
			post(&c->a, IBV_WR_RDMA_READ, c->here_a, c->mine, 8,
				(char *)(uintptr_t)c->offer.big.addr + next * PIECE, c->offer.big.rkey);
			next = (next + 61) % PIECES;
			flying = true;
		}
	}
	if (flying)
		wait_for(&c->a, IBV_WC_SUCCESS);
	qsort(took, REQUESTS, sizeof(took[0]), by_size);
	return took[REQUESTS - REQUESTS / 100];
}

static void resident_pages_are_served_while_others_come_from_swap(void)
{
	double quiet, busy;
	uint64_t majors;
	struct squeeze s;
	struct client c;

	check_squeeze(&s, LIMIT, SWAP);
	client_open(&c, &s);
	write_all(&c, 1000);
	quiet = requests_of_b(&c, false);
	majors = counter(c.offer.pid, "faults_major");
	busy = requests_of_b(&c, true);
	check(counter(c.offer.pid, "faults_major") > majors);
	printf("  p99 of requests on resident pages: %.1f us alone, %.1f us while others wait for swap\n",
		quiet, busy);
	client_close(&c);
}

/* Under the squeeze the guard says so once, reads nothing ahead, holds queued prefetches back; in peace all
 * goes on. */
static void a_storm_is_told_and_passes(void)
{
	uint64_t ahead, prefetched;
	struct squeeze s;
	struct client c;
	double end;

	check_sys(setenv("UNPIN_STORM_MAJORS", "50", 1) == 0);
	check_squeeze(&s, LIMIT, SWAP);
	client_open(&c, &s);
	write_all(&c, 1000);
	/* Until it has begun, which takes a second of major faults. */
	end = now() + WAIT_SECONDS;
	for (size_t i = 0; !storm_of(c.offer.pid).cause; i += 61) {
		check(now() < end);
		piece(&c, IBV_WR_RDMA_READ, i % PIECES);
	}
	ahead = counter(c.offer.pid, "page_readahead");
	for (size_t i = 0; i < 200 && storm_of(c.offer.pid).cause; i++)
		piece(&c, IBV_WR_RDMA_READ, i * 61 % PIECES);
	if (storm_of(c.offer.pid).cause && storm_of(c.offer.pid).count == 1)
		check_int(counter(c.offer.pid, "page_readahead"), ahead);
	tell(c.peer.sock, "p", 1); /* a prefetch, queued */
	prefetched = counter(c.offer.pid, "page_prefetch");
	end = now() + WAIT_SECONDS;
	while (storm_of(c.offer.pid).cause) {
		check(now() < end);
		nap(20);
	}
	check(storm_of(c.offer.pid).count >= 1);
	/* Either it is carried out now, or dropped because there is no room: it is not forgotten. */
	while (counter(c.offer.pid, "page_prefetch") == prefetched &&
		!counter(c.offer.pid, "page_prefetch_dropped")) {
		check(now() < end);
		nap(20);
	}
	client_close(&c);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(regions_of_four_times_the_limit_keep_working),
		CASE(pinned_regions_of_that_size_fail),
		CASE(a_storm_is_told_and_passes),
		CASE(resident_pages_are_served_while_others_come_from_swap),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
