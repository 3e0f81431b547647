/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A queue pair whose request waits for a slow page stops nobody else: not on the same device, not towards the
 * same process. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"
#include "slow.h"

#define LENGTH (64 * 1024ul)

/* Writes of LENGTH that complete in so many milliseconds, 8 in flight. */
static unsigned long rate(struct end *e, struct ibv_mr *here, void *mine, uint64_t to, uint32_t rkey, int ms)
{
	double end = now() + ms / 1e3;
	unsigned long done = 0;
	int flying = 0;

	while (now() < end || flying) {
		struct ibv_wc wc;

		while (flying < 8 && now() < end) {
			post(e, done % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, here, mine, LENGTH,
				(void *)(uintptr_t)to, rkey);
			flying++;
		}
		if (!flying)
			break;
		wc = wait_for(e, IBV_WC_SUCCESS);
		check_int(wc.wr_id, LENGTH);
		flying--;
		done++;
	}
	return done;
}

/* b offers two regions, an ordinary one and a slow one, to two queue pairs of one process. */
struct offer {
	struct window ordinary, slow;
};

static void offer_slow(int sock, void *arg)
{
	bool *shared = arg;
	struct ibv_mr *ordinary, *slow;
	struct offer offer;
	struct end a, b;
	struct slow s;
	char word;

	slow_open(&s, 64 * PAGE, *shared);
	end_open(&a, NULL);
	end_open(&b, NULL);
	slow = reg(&a, s.memory, s.length, REMOTE | ODP);
	ordinary = reg(&b, fresh(LENGTH), LENGTH, REMOTE | ODP);
	exchange(&a, sock);
	exchange(&b, sock);
	offer = (struct offer){ window_of(ordinary), window_of(slow) };
	tell(sock, &offer, sizeof(offer));
	check_int(slow_fault(&s, 10000), 0);
	tell(sock, "f", 1); /* the fault has been raised */
	hear(sock, &word, 1);
	slow_close(&s);
	hear(sock, &word, 1);
	dereg(slow);
	dereg(ordinary);
	end_close(&a);
	end_close(&b);
}

static void b_runs_while_a_waits(bool shared)
{
	unsigned long before, during;
	struct peer peer;
	char *mine = fresh(2 * LENGTH), word;
	struct ibv_mr *here_a, *here_b;
	struct offer offer;
	struct ibv_wc wc;
	struct end a, b;

	slow_need();
	peer = peer_start(offer_slow, &shared);
	end_open(&a, NULL);
	end_open(&b, NULL);
	here_a = reg(&a, mine + LENGTH, LENGTH, LOCAL);
	here_b = reg(&b, mine, LENGTH, LOCAL);
	exchange(&a, peer.sock);
	exchange(&b, peer.sock);
	hear(peer.sock, &offer, sizeof(offer));
	rate(&b, here_b, mine, offer.ordinary.addr, offer.ordinary.rkey, 100);
	before = rate(&b, here_b, mine, offer.ordinary.addr, offer.ordinary.rkey, 1000);
	/* More than a window's worth behind the page that does not come. */
	for (int i = 0; i < 100; i++)
		post(&a, IBV_WR_RDMA_WRITE, here_a, mine + LENGTH, LENGTH, (void *)(uintptr_t)offer.slow.addr,
			offer.slow.rkey);
	hear(peer.sock, &word, 1);
	during = rate(&b, here_b, mine, offer.ordinary.addr, offer.ordinary.rkey, 1000);
	check_int(ibv_poll_cq(a.cq, 1, &wc), 0);
	fprintf(stderr, "in one second: %lu before, %lu while the other waits\n", before, during);
	/* A rate as before, on a machine that may be busy with other things by now; a blocked engine would do
	 * next to nothing. */
	check(during > before / 10);
	tell(peer.sock, "g", 1);
	for (int i = 0; i < 100; i++)
		wait_for(&a, IBV_WC_SUCCESS);
	tell(peer.sock, "e", 1);
	peer_done(&peer);
	dereg(here_a);
	dereg(here_b);
	end_close(&a);
	end_close(&b);
}

static void a_slow_file_page_of_one_queue_pair_does_not_stop_another(void)
{
	b_runs_while_a_waits(true);
}

static void a_slow_anonymous_page_of_one_queue_pair_does_not_stop_another(void)
{
	b_runs_while_a_waits(false);
}

static void within_one_process_too(void)
{
	char *mine = fresh(LENGTH), *memory = fresh(LENGTH);
	struct ibv_mr *here_a, *here_b, *slow, *ordinary;
	struct pair a, b;
	struct ibv_wc wc;
	struct slow s;

	slow_open(&s, 64 * PAGE, true);
	pair_open(&a, NULL);
	pair_open(&b, NULL);
	here_a = reg(&a.a, mine, LENGTH, LOCAL);
	here_b = reg(&b.a, mine, LENGTH, LOCAL);
	slow = reg(&a.b, s.memory, s.length, REMOTE | ODP);
	ordinary = reg(&b.b, memory, LENGTH, REMOTE | ODP);
	for (int i = 0; i < 100; i++)
		post(&a.a, IBV_WR_RDMA_WRITE, here_a, mine, LENGTH, s.memory, slow->rkey);
	check_int(slow_fault(&s, 10000), 0);
	check(rate(&b.a, here_b, mine, (uintptr_t)memory, ordinary->rkey, 1000) > 100);
	check_int(ibv_poll_cq(a.a.cq, 1, &wc), 0);
	slow_close(&s);
	for (int i = 0; i < 100; i++)
		wait_for(&a.a, IBV_WC_SUCCESS);
	dereg(here_a);
	dereg(here_b);
	dereg(slow);
	dereg(ordinary);
	pair_close(&a);
	pair_close(&b);
}

static void a_slow_page_of_the_sender_does_not_stop_what_it_receives(void)
{
	char *other = fresh(LENGTH), *memory = fresh(LENGTH);
	struct ibv_mr *slow, *remote, *back;
	struct ibv_wc wc;
	struct pair p;
	struct slow s;

	slow_open(&s, 64 * PAGE, true);
	pair_open(&p, NULL);
	slow = reg(&p.a, s.memory, s.length, LOCAL | ODP);
	remote = reg(&p.b, other, LENGTH, REMOTE);
	back = reg(&p.a, memory, LENGTH, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, slow, s.memory, LENGTH, other, remote->rkey);
	check_int(slow_fault(&s, 10000), 0);
	check(rate(&p.b, remote, other, (uintptr_t)memory, back->rkey, 300) > 30);
	check_int(ibv_poll_cq(p.a.cq, 1, &wc), 0);
	slow_close(&s);
	wait_for(&p.a, IBV_WC_SUCCESS);
	dereg(slow);
	dereg(remote);
	dereg(back);
	pair_close(&p);
}

static unsigned driver_threads(void)
{
	unsigned n = 0;
	struct dirent *d;
	DIR *dir = opendir("/proc/self/task");

	check_sys(dir != NULL);
	while ((d = readdir(dir))) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f))
			n += !strcmp(name, "unpin-odp\n");
		fclose(f);
	}
	closedir(dir);
	return n;
}

/* Four faults that take long, and two threads for them: two are taken up, two wait for their turn. */
static void there_are_no_more_driver_threads_than_asked_for(void)
{
	struct ibv_mr *here[4], *there[4];
	char *mine = fresh(PAGE);
	struct pair p[4];
	struct slow s;
	long first, second;

	check_sys(setenv("UNPIN_DRIVER_THREADS", "2", 1) == 0);
	slow_open(&s, 64 * PAGE, true);
	for (int i = 0; i < 4; i++) {
		pair_open(&p[i], NULL);
		here[i] = reg(&p[i].a, mine, PAGE, LOCAL);
		there[i] = reg(&p[i].b, s.memory, s.length, REMOTE | ODP);
		post(&p[i].a, IBV_WR_RDMA_WRITE, here[i], mine, 8, s.memory + i * 10 * PAGE, there[i]->rkey);
	}
	first = slow_fault(&s, 5000);
	second = slow_fault(&s, 5000);
	check(first >= 0 && second >= 0);
	check_int(slow_fault(&s, 100), -1);
	/* Those of the cases before, which have ended, may stand in /proc for a moment longer. */
	for (int i = 0; i < 1000 && driver_threads() > 2; i++)
		nap(10);
	check_int(driver_threads(), 2);
	slow_answer(&s, first, 0);
	slow_answer(&s, second, 0);
	for (int i = 0; i < 2; i++) {
		first = slow_fault(&s, 5000);
		check(first >= 0);
		slow_answer(&s, first, 0);
	}
	for (int i = 0; i < 4; i++) {
		wait_for(&p[i].a, IBV_WC_SUCCESS);
		dereg(here[i]);
		dereg(there[i]);
		pair_close(&p[i]);
	}
	slow_close(&s);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_slow_file_page_of_one_queue_pair_does_not_stop_another),
		CASE(a_slow_anonymous_page_of_one_queue_pair_does_not_stop_another),
		CASE(within_one_process_too),
		CASE(a_slow_page_of_the_sender_does_not_stop_what_it_receives),
		CASE(there_are_no_more_driver_threads_than_asked_for),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
