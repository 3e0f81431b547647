/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a study found on hardware (Fukuoka et al., ISPASS 2021) and our device must not have: a second request
 * that is posted while the first one waits for a fault ("damming"), many queue pairs that meet on one cold
 * page ("flood"), and faults at both ends of one request cost three to four orders of magnitude more than one
 * fault, in time-outs and retransmissions. Here each is one fault per page, nothing is sent twice, and nobody
 * times out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"
#include "slow.h"

#define QPS 512

/* A process with memory whose faults wait for an answer. Words: 'f' a fault waits (offset follows), 'a'
 * answer it. */
struct host {
	size_t qps;
	bool rnr;
};

static void choose_reply(bool rnr)
{
	check_sys(setenv("UNPIN_FAULT_REPLY", rnr ? "rnr" : "park", 1) == 0);
}

static void open_many(struct end *e, size_t n)
{
	struct options opt = { .send_wr = 8, .recv_wr = 1, .cqe = 2 * QPS };

	end_open(&e[0], &opt);
	for (size_t i = 1; i < n; i++) {
		e[i] = e[0];
		end_make_qp(&e[i]);
	}
}

static void close_many(struct end *e, size_t n)
{
	for (size_t i = 1; i < n; i++)
		check_int(ibv_destroy_qp(e[i].qp), 0);
	end_close(&e[0]);
}

static void exchange_many(struct end *e, size_t n, int sock)
{
	for (size_t i = 0; i < n; i++)
		exchange(&e[i], sock);
}

static void host(int sock, void *arg)
{
	struct host *h = arg;
	struct end *e = calloc(h->qps, sizeof(*e));
	struct ibv_mr *mr;
	struct window w;
	struct slow s;
	char word;

	choose_reply(h->rnr);
	slow_open(&s, 64 * PAGE, false);
	open_many(e, h->qps);
	mr = reg(&e[0], s.memory, s.length, REMOTE | ODP);
	w = window_of(mr);
	exchange_many(e, h->qps, sock);
	tell(sock, &w, sizeof(w));
	for (;;) {
		long offset;

		hear(sock, &word, 1);
		if (word == 'q')
			break;
		/* 'n': wait for the next fault and tell; 'a': answer it; 'z': there is none. */
		if (word == 'n') {
			offset = slow_fault(&s, 10000);
			tell(sock, &offset, sizeof(offset));
		} else if (word == 'z') {
			offset = slow_fault(&s, 50);
			tell(sock, &offset, sizeof(offset));
		} else {
			hear(sock, &offset, sizeof(offset));
			slow_answer(&s, offset, 0);
			tell(sock, "k", 1);
		}
	}
	slow_close(&s);
	dereg(mr);
	close_many(e, h->qps);
	free(e);
}

static long next_fault(struct peer *p, char how)
{
	long offset;

	tell(p->sock, &how, 1);
	hear(p->sock, &offset, sizeof(offset));
	return offset;
}

static void answer(struct peer *p, long offset)
{
	char word;

	tell(p->sock, "a", 1);
	tell(p->sock, &offset, sizeof(offset));
	hear(p->sock, &word, 1);
}

static void nothing_was_sent_twice(const struct peer *p)
{
	check_int(counter(getpid(), "retransmits"), 0);
	check_int(counter(getpid(), "rnr_nak_rcvd"), 0);
	check_int(counter(p->pid, "naks_sent"), 0);
}

struct scene {
	struct host h;
	struct peer peer;
	struct end *e;
	unsigned char *mine;
	struct ibv_mr *here;
	struct window w;
};

static void scene_open(struct scene *sc, size_t qps, bool rnr)
{
	slow_need();
	*sc = (struct scene){ .h = { qps, rnr }, .e = calloc(qps, sizeof(struct end)), .mine = fresh(PAGE) };
	sc->peer = peer_start(host, &sc->h);
	open_many(sc->e, qps);
	sc->here = reg(&sc->e[0], sc->mine, PAGE, LOCAL);
	exchange_many(sc->e, qps, sc->peer.sock);
	hear(sc->peer.sock, &sc->w, sizeof(sc->w));
}

static void scene_close(struct scene *sc)
{
	tell(sc->peer.sock, "q", 1);
	peer_done(&sc->peer);
	dereg(sc->here);
	close_many(sc->e, sc->h.qps);
	drop(sc->mine, PAGE);
	free(sc->e);
}

static void write_to(struct scene *sc, size_t qp, size_t offset)
{
	post(&sc->e[qp], IBV_WR_RDMA_WRITE, sc->here, sc->mine + offset % PAGE, 8,
		(char *)(uintptr_t)sc->w.addr + offset, sc->w.rkey);
}

static void a_second_request_during_a_fault_costs_no_more_than_its_own(void)
{
	static const int gap_ms[] = { 0, 1, 2, 5, 10 };
	struct scene sc;

	scene_open(&sc, 1, false);
	for (size_t i = 0; i < COUNT(gap_ms); i++) {
		/* Not in sequence, or one fault would bring in both. */
		size_t first = 6 * i * PAGE, second = first + 3 * PAGE;

		write_to(&sc, 0, first);
		check_int(next_fault(&sc.peer, 'n'), first);
		nap(gap_ms[i]);
		write_to(&sc, 0, second); /* behind the first: it cannot be executed before */
		write_to(&sc, 0, first + 64);
		answer(&sc.peer, (long)first);
		check_int(next_fault(&sc.peer, 'n'), second);
		answer(&sc.peer, (long)second);
		for (int k = 0; k < 3; k++)
			wait_for(&sc.e[0], IBV_WC_SUCCESS);
	}
	check_int(next_fault(&sc.peer, 'z'), -1);
	nothing_was_sent_twice(&sc.peer);
	scene_close(&sc);
}

static void many_queue_pairs_on_one_cold_page(size_t qps)
{
	struct scene sc;

	scene_open(&sc, qps, false);
	for (size_t i = 0; i < qps; i++)
		write_to(&sc, i, i * 8);
	check_int(next_fault(&sc.peer, 'n'), 0);
	answer(&sc.peer, 0);
	for (size_t i = 0; i < qps; i++)
		wait_for(&sc.e[0], IBV_WC_SUCCESS);
	check_int(next_fault(&sc.peer, 'z'), -1);
	check_int(counter(sc.peer.pid, "page_faults"), 1);
	nothing_was_sent_twice(&sc.peer);
	scene_close(&sc);
}

static void one_queue_pair_on_a_cold_page_is_one_fault(void)
{
	many_queue_pairs_on_one_cold_page(1);
}

static void eight_queue_pairs_on_a_cold_page_are_one_fault(void)
{
	many_queue_pairs_on_one_cold_page(8);
}

static void sixty_four_queue_pairs_on_a_cold_page_are_one_fault(void)
{
	many_queue_pairs_on_one_cold_page(64);
}

static void five_hundred_and_twelve_queue_pairs_on_a_cold_page_are_one_fault(void)
{
	many_queue_pairs_on_one_cold_page(QPS);
}

static void faults_at_both_ends_of_a_write_are_two_faults(void)
{
	struct scene sc;
	struct slow mine;
	struct ibv_mr *here;

	scene_open(&sc, 1, false);
	slow_open(&mine, 4 * PAGE, false);
	here = reg(&sc.e[0], mine.memory, mine.length, LOCAL | ODP);
	/* This thread posts and answers: it must not wait in the post. */
	post(&sc.e[0], IBV_WR_RDMA_WRITE, here, mine.memory, 8, (void *)(uintptr_t)sc.w.addr, sc.w.rkey);
	check_int(slow_fault(&mine, 10000), 0);
	slow_answer(&mine, 0, 'x');
	check_int(next_fault(&sc.peer, 'n'), 0);
	answer(&sc.peer, 0);
	wait_for(&sc.e[0], IBV_WC_SUCCESS);
	check_int(slow_fault(&mine, 0), -1);
	check_int(next_fault(&sc.peer, 'z'), -1);
	nothing_was_sent_twice(&sc.peer);
	slow_close(&mine);
	dereg(here);
	scene_close(&sc);
}

/* As hardware does it: refused until the page is there. min_rnr_timer 1 is 10 us, so that the number of
 * refusals says how long the fault took, and there must be no more than one at a time per request. */
static void answering_receiver_not_ready_is_no_storm(void)
{
	unsigned long long refused;
	struct scene sc;

	scene_open(&sc, 8, true);
	for (size_t i = 0; i < 8; i++)
		write_to(&sc, i, i * 8);
	check_int(next_fault(&sc.peer, 'n'), 0);
	nap(20);
	answer(&sc.peer, 0);
	for (size_t i = 0; i < 8; i++)
		wait_for(&sc.e[0], IBV_WC_SUCCESS);
	refused = counter(sc.peer.pid, "rnr_nak_sent");
	printf("  8 requests that waited 20 ms for one page were refused %llu times\n", refused);
	check(refused >= 1);
	check_int(counter(sc.peer.pid, "faults_rnr"), refused);
	check_int(counter(getpid(), "rnr_nak_rcvd"), refused);
	check_int(counter(sc.peer.pid, "page_faults"), 1);
	scene_close(&sc);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_second_request_during_a_fault_costs_no_more_than_its_own),
		CASE(one_queue_pair_on_a_cold_page_is_one_fault),
		CASE(eight_queue_pairs_on_a_cold_page_are_one_fault),
		CASE(sixty_four_queue_pairs_on_a_cold_page_are_one_fault),
		CASE(five_hundred_and_twelve_queue_pairs_on_a_cold_page_are_one_fault),
		CASE(faults_at_both_ends_of_a_write_are_two_faults),
		CASE(answering_receiver_not_ready_is_no_storm),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
