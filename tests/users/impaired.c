/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An impaired fabric (UNPIN_LOSS, UNPIN_REORDER, UNPIN_DELAY): packets are lost, overtaken and late between
 * two processes, and the transport makes a reliable connection of it, whichever of the two impairs what it
 * sends.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

#define ROUNDS	150
#define LENGTH	(80 * 1024ul) /* five packets and a bit */
#define TIMEOUT 14	      /* 67 ms: seven retries outlast a busy machine's pauses */
#define DELAY	0.0002

static const struct options opt = { .timeout = TIMEOUT };

struct fabric {
	const char *loss, *reorder, *delay;
};

static void impair(const struct fabric *f)
{
	check_sys(!setenv("UNPIN_LOSS", f->loss, 1) && !setenv("UNPIN_REORDER", f->reorder, 1) &&
		  !setenv("UNPIN_DELAY", f->delay, 1));
}

struct both {
	struct fabric ours, theirs;
};

/* Echoes every message from its own memory, which is also written, read and added to. */
static void echo(int sock, void *arg)
{
	const struct both *both = arg;
	char *memory = fresh(LENGTH + PAGE);
	struct window window;
	struct ibv_mr *mr;
	struct end e;
	char word;

	impair(&both->theirs);
	end_open(&e, &opt);
	mr = reg(&e, memory, LENGTH + PAGE, REMOTE | ODP);
	post_recv(&e, mr, memory, LENGTH);
	exchange(&e, sock);
	window = window_of(mr);
	tell(sock, &window, sizeof(window));
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc = wait_any(&e);

		while (wc.opcode != IBV_WC_RECV) {
			check_int(wc.status, IBV_WC_SUCCESS);
			wc = wait_any(&e);
		}
		check_int(wc.status, IBV_WC_SUCCESS);
		post_recv(&e, mr, memory, LENGTH);
		post(&e, IBV_WR_SEND, mr, memory, wc.byte_len, NULL, 0);
	}
	hear(sock, &word, 1); /* until nobody needs an answer any more */
	dereg(mr);
	end_close(&e);
}

static void add_one(struct end *e, const struct ibv_mr *mr, char *old, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)old, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { .remote_addr = to, .rkey = rkey, .compare_add = 1 } };
	struct ibv_send_wr *bad;

	check_int(ibv_post_send(e->qp, &wr, &bad), 0);
}

/* Sends come back, writes are read back, and what was added is the number of additions. */
static void talk(const struct both *both)
{
	struct peer peer = peer_start(echo, (void *)(uintptr_t)both);
	char *mine = fresh(3 * LENGTH), *back = mine + LENGTH, *old = mine + 2 * LENGTH;
	struct window there;
	struct ibv_mr *mr;
	struct end e;
	uint64_t word;

	impair(&both->ours);
	end_open(&e, &opt);
	mr = reg(&e, mine, 3 * LENGTH, LOCAL | ODP);
	exchange(&e, peer.sock);
	hear(peer.sock, &there, sizeof(there));
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t n = i % 10 ? 1 + i : LENGTH;
		unsigned left = 2;

		fill(mine, n, i);
		post_recv(&e, mr, back, LENGTH);
		post(&e, IBV_WR_SEND, mr, mine, n, NULL, 0);
		while (left--)
			wait_for(&e, IBV_WC_SUCCESS);
		check_filled(back, n, i);
		add_one(&e, mr, old, there.addr + LENGTH + PAGE - 8, there.rkey);
		wait_for(&e, IBV_WC_SUCCESS);
		memcpy(&word, old, 8);
		check_int(word, i);
		if (i % 10)
			continue;
		fill(mine, n, i + 1);
		post(&e, IBV_WR_RDMA_WRITE, mr, mine, n, (void *)(uintptr_t)(there.addr + 64), there.rkey);
		post(&e, IBV_WR_RDMA_READ, mr, back, n, (void *)(uintptr_t)(there.addr + 64), there.rkey);
		wait_for(&e, IBV_WC_SUCCESS);
		wait_for(&e, IBV_WC_SUCCESS);
		check_filled(back, n, i + 1);
	}
	/* The last answers of ours to the peer may be lost, so it is given time to ask again. */
	nap(50);
	tell(peer.sock, "e", 1);
	peer_done(&peer);
	dereg(mr);
}

static const struct fabric whole = { "0", "0", "0" };

static void a_fabric_that_loses_reorders_and_delays_ends_right(void)
{
	const struct fabric bad = { "5%", "5%", "200us" };

	talk(&(struct both){ bad, bad });
	check(counter(getpid(), "tx_lost") > ROUNDS / 20);
	check(counter(getpid(), "tx_reordered") > 0);
	check(counter(getpid(), "tx_delayed") > ROUNDS);
	check(counter(getpid(), "retransmits") > 0);
}

static void our_losses_are_known_to_the_peer_which_has_none(void)
{
	talk(&(struct both){ { "10%", "0", "0" }, whole });
	check(counter(getpid(), "tx_lost") > ROUNDS / 20);
}

static void a_peers_losses_are_known_to_us_who_have_none(void)
{
	talk(&(struct both){ whole, { "10%", "0", "0" } });
	check_int(counter(getpid(), "tx_lost"), 0);
	check(counter(getpid(), "retransmits") > 0);
}

static void reordering_alone_loses_nothing(void)
{
	talk(&(struct both){ { "0", "10%", "0" }, { "0", "10%", "0" } });
	check_int(counter(getpid(), "tx_lost"), 0);
	check(counter(getpid(), "tx_reordered") > 0);
}

static void delay_alone_is_waited_for_each_way(void)
{
	double begin = now();

	talk(&(struct both){ { "0", "0", "200us" }, { "0", "0", "200us" } });
	/* Each round is at least two round trips: the echo and the addition. */
	check(now() - begin >= ROUNDS * 4 * DELAY);
	check_int(counter(getpid(), "tx_lost"), 0);
	check_int(counter(getpid(), "tx_reordered"), 0);
	check(counter(getpid(), "tx_delayed") >= 2 * ROUNDS);
}

static void a_whole_fabric_counts_nothing(void)
{
	talk(&(struct both){ whole, whole });
	check_int(counter(getpid(), "tx_lost"), 0);
	check_int(counter(getpid(), "tx_reordered"), 0);
	check_int(counter(getpid(), "tx_delayed"), 0);
	check_int(counter(getpid(), "retransmits"), 0);
}

static void a_value_out_of_range_opens_no_device(void)
{
	struct ibv_device **list;
	int n;

	check_sys(!setenv("UNPIN_LOSS", "90%", 1));
	list = ibv_get_device_list(&n);
	check(list != NULL);
	for (int i = 0; i < n; i++)
		if (!strncmp(ibv_get_device_name(list[i]),
			    getenv("UNPIN_DEVICE") ? getenv("UNPIN_DEVICE") : "unpin0", 64))
			check(!ibv_open_device(list[i]));
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_fabric_that_loses_reorders_and_delays_ends_right),
		CASE(our_losses_are_known_to_the_peer_which_has_none),
		CASE(a_peers_losses_are_known_to_us_who_have_none),
		CASE(reordering_alone_loses_nothing),
		CASE(delay_alone_is_waited_for_each_way),
		CASE(a_whole_fabric_counts_nothing),
		CASE(a_value_out_of_range_opens_no_device),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
