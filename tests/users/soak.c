/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Everything at once: two clients SEND, READ, WRITE and add atomically into the memory of two servers,
 * through explicit and implicit keys, while threads of all of them unmap, map, move, protect, drop, page out,
 * fork and write. Every byte is checked against a model.
 *
 * A server's memory has four parts.
 *
 *   cells   Whoever holds a cell (a word in memory that all processes share) knows every byte of it. A client
 * that holds one writes and reads pieces of any alignment, and all of them succeed with the right bytes.
 * Threads of the server that hold one drop, replace or write it. What does not change contents (page out,
 * fork, rights that only grow) is done to cells that clients hold. wild    Nobody holds them: they vanish,
 * move and lose their rights under the requests. A request may fail with a remote access error, and nothing
 * else. Each word read is zero or one that was meant for this very place. counter Atomics add up, whatever is
 * done to the page. slots   Receive buffers, dropped between messages.
 *
 * UNPIN_SOAK_SECONDS: how long [20]. UNPIN_SOAK_SEED: of the dice [time].
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SERVERS 2
#define CLIENTS 2
#define CELL	(3 * PAGE)
#define CELLS	360 /* some 4 MiB: whole huge pages are among them */
#define HOT	40
#define WILD	(2 * PAGE)
#define WILDS	12
#define SLOT	(2 * PAGE)
#define SLOTS	8 /* per client */
#define BURST	4

/* Where the parts lie. */
#define COUNTER	    (CELLS * CELL)
#define WILD_AT(i)  (COUNTER + PAGE + (size_t)(i)*WILD)
#define SLOT_AT(i)  (WILD_AT(WILDS) + (size_t)(i)*SLOT)
#define SERVER_SIZE SLOT_AT(CLIENTS *SLOTS)

enum { NOBODY, CLIENT, CHAOS };

/* clang-format off */
#define TALLIES(X) \
	X(writes) X(reads) X(sends) X(adds) X(wild_good) X(wild_refused) \
	X(dropped) X(replaced) X(moved) X(written) X(paged_out) X(protected) X(forked) X(holes) X(collapsed)
/* clang-format on */

struct cell {
	_Atomic uint32_t holder;
	unsigned char model[CELL];
};

struct server {
	struct cell cell[CELLS];
	_Atomic uint64_t version[WILDS], adds;
};

/* What all processes share. */
struct board {
	_Atomic bool stop;
	struct server server[SERVERS];
#define X(name) _Atomic uint64_t name;
	TALLIES(X)
#undef X
};

static struct board *board;
static unsigned seed;
static double seconds;

/* --- dice --- */

static _Thread_local uint64_t dice;

static void dice_seed(unsigned who)
{
	dice = seed * 0x9e3779b97f4a7c15ull + who * 0xbf58476d1ce4e5b9ull + 1;
}

static uint64_t roll(uint64_t below)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (dice >> 11) % below;
}

/* --- cells --- */

/* Most work meets on a few. */
static size_t any_cell(void)
{
	return roll(4) ? roll(HOT) : roll(CELLS);
}

static struct cell *take(struct server *s, size_t i, uint32_t who)
{
	uint32_t nobody = NOBODY;

	return atomic_compare_exchange_strong(&s->cell[i].holder, &nobody, who) ? &s->cell[i] : NULL;
}

static void give(struct cell *c)
{
	atomic_store(&c->holder, NOBODY);
}

/* --- wild memory: a word says where it belongs and of which write it is --- */

static uint64_t wild_word(size_t wild, size_t i, uint64_t version)
{
	return (uint64_t)(wild + 1) << 56 | (uint64_t)i << 40 | (version & 0xffffffffffull);
}

static void check_wild(struct server *s, size_t wild, const _Atomic uint64_t *words)
{
	for (size_t i = 0; i < WILD / 8; i++) {
		uint64_t w = words[i];

		/* Writes go on meanwhile: the newest is asked for after the word. */
		if (w && (w >> 40 != wild_word(wild, i, 0) >> 40 ||
				 (w & 0xffffffffffull) > atomic_load(&s->version[wild])))
			check_failed(__FILE__, __LINE__, "seed %u: word %zu of wild %zu is %#llx", seed, i,
				wild, (unsigned long long)w);
	}
}

/* --- a server's threads --- */

struct place {
	struct server *s;
	unsigned char *memory;
	unsigned who;
};

static void map_anew(void *at, size_t length)
{
	check_sys(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		  at);
}

static void move_onto(void *at, size_t length)
{
	void *other = fresh(length);

	memset(other, 0, length);
	check_sys(mremap(other, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
}

/* Rights that never fall below what the device needs. */
static void split_and_join(void *at, size_t length)
{
	check_sys(mprotect(at, length, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	check_sys(mprotect(at, length, PROT_READ | PROT_WRITE) == 0);
}

static void change_contents(struct place *p, size_t i)
{
	unsigned char *at = p->memory + i * CELL;
	struct cell *c = take(p->s, i, CHAOS);

	if (!c)
		return;
	switch (roll(5)) {
	case 0:
		check_sys(madvise(at, CELL, MADV_DONTNEED) == 0);
		memset(c->model, 0, CELL);
		board->dropped++;
		break;
	case 1:
		map_anew(at, CELL);
		memset(c->model, 0, CELL);
		board->replaced++;
		break;
	case 2:
		move_onto(at, CELL);
		memset(c->model, 0, CELL);
		board->moved++;
		break;
	case 3:
		/* Away with all rights, and back: the contents stay. */
		check_sys(mprotect(at, CELL, PROT_NONE) == 0);
		check_sys(mprotect(at, CELL, PROT_READ | PROT_WRITE) == 0);
		board->protected ++;
		break;
	default:
		/* Free, and write at once: what was lazily freed must not eat what is written. */
		check_sys(madvise(at, CELL, MADV_FREE) == 0);
		fill(c->model, CELL, (unsigned)roll(1000));
		memcpy(at, c->model, CELL);
		board->written++;
	}
	give(c);
}

static void keep_contents(struct place *p, size_t i)
{
	unsigned char *at = p->memory + i * CELL;

	switch (roll(3)) {
	case 0:
		madvise(at, CELL, MADV_PAGEOUT);
		board->paged_out++;
		break;
	case 1:
		split_and_join(at + roll(3) * PAGE, PAGE);
		board->protected ++;
		break;
	default:
		madvise(p->memory, COUNTER, MADV_COLLAPSE);
		board->collapsed++;
	}
}

/* A child with the same memory writes all over it and ends. */
static void fork_and_write(struct place *p)
{
	pid_t child = fork();

	check_sys(child >= 0);
	if (!child) {
		for (size_t i = 0; i < CELLS * CELL; i += 64)
			p->memory[i] ^= 0x55;
		_exit(0);
	}
	check_sys(waitpid(child, NULL, 0) == child);
	board->forked++;
}

static void *cell_chaos(void *arg)
{
	struct place *p = arg;

	dice_seed(100 + p->who);
	while (!board->stop) {
		size_t i = any_cell();

		if (roll(2))
			change_contents(p, i);
		else
			keep_contents(p, i);
		if (!roll(8))
			madvise(p->memory + COUNTER, PAGE, MADV_PAGEOUT);
		if (!roll(4))
			usleep(100);
	}
	return NULL;
}

static void *fork_chaos(void *arg)
{
	struct place *p = arg;

	while (!board->stop) {
		fork_and_write(p);
		nap(20);
	}
	return NULL;
}

static void *wild_chaos(void *arg)
{
	struct place *p = arg;

	dice_seed(200 + p->who);
	while (!board->stop) {
		unsigned char *at = p->memory + WILD_AT(roll(WILDS));

		switch (roll(6)) {
		case 0:
			check_sys(munmap(at, WILD) == 0);
			usleep((useconds_t)roll(200));
			map_anew(at, WILD);
			board->holes++;
			break;
		case 1:
			check_sys(mprotect(at, WILD, PROT_READ) == 0);
			usleep((useconds_t)roll(100));
			check_sys(mprotect(at, WILD, PROT_READ | PROT_WRITE) == 0);
			break;
		case 2:
			check_sys(mprotect(at + PAGE, PAGE, PROT_NONE) == 0);
			check_sys(mprotect(at + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
			break;
		case 3:
			move_onto(at, WILD);
			break;
		case 4:
			check_sys(madvise(at, WILD, MADV_FREE) == 0);
			break;
		default:
			check_sys(madvise(at + roll(2) * PAGE, PAGE, MADV_DONTNEED) == 0);
		}
		check_wild(p->s, (size_t)(at - p->memory - WILD_AT(0)) / WILD, (const _Atomic uint64_t *)at);
		usleep((useconds_t)roll(300));
	}
	return NULL;
}

/* --- messages: the seed first, then what it makes --- */

static void make_message(unsigned char *at, size_t length, uint64_t of)
{
	memcpy(at, &of, 8);
	fill(at + 8, length - 8, (unsigned)of);
}

static void check_message(const unsigned char *at, size_t length)
{
	uint64_t of;

	memcpy(&of, at, 8);
	check_filled(at + 8, length - 8, (unsigned)of);
}

/* --- a server --- */

struct grant {
	uint64_t base;
	uint32_t key[2]; /* explicit, implicit */
};

struct guest {
	int sock;
	struct end tame, wild;
	size_t first_slot;
};

static void post_slot(struct guest *g, struct ibv_mr *mr, unsigned char *memory, size_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(memory + SLOT_AT(slot)), .length = (uint32_t)SLOT, .lkey = mr->lkey
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	check_int(ibv_post_recv(g->tame.qp, &wr, &bad), 0);
}

static void serve_messages(struct guest *g, struct ibv_mr *const mr[2], unsigned char *memory)
{
	struct ibv_wc wc;
	unsigned char *at;

	while (ibv_poll_cq(g->tame.cq, 1, &wc) > 0) {
		check_int(wc.status, IBV_WC_SUCCESS);
		at = memory + SLOT_AT(wc.wr_id);
		check_message(at, wc.byte_len);
		if (roll(2))
			check_sys(madvise(at, SLOT, MADV_DONTNEED) == 0);
		post_slot(g, mr[roll(2)], memory, wc.wr_id);
	}
}

/* 'r': the wild queue pair has failed and is made anew; 'q': the client has finished. */
static bool serve_word(struct guest *g)
{
	struct address mine, theirs;
	char word;

	hear(g->sock, &word, 1);
	if (word == 'q')
		return false;
	hear(g->sock, &theirs, sizeof(theirs));
	end_reset(&g->wild);
	g->wild.psn = (uint32_t)roll(1 << 24); /* what is still on the way belongs to the connection before */
	mine = end_address(&g->wild);
	tell(g->sock, &mine, sizeof(mine));
	end_connect(&g->wild, &theirs);
	tell(g->sock, "k", 1);
	return true;
}

static bool word_waits(int sock)
{
	char c;

	return recv(sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void serve(int sock, void *arg)
{
	size_t me = *(size_t *)arg;
	struct place place = { &board->server[me], fresh_apart(SERVER_SIZE), (unsigned)me };
	struct place second = { place.s, place.memory, 50 + place.who };
	struct guest guest[CLIENTS];
	struct options opt = { .recv_wr = SLOTS };
	struct ibv_mr *mr[2];
	struct grant grant;
	pthread_t thread[4];
	int left = CLIENTS;

	dice_seed(10 + (unsigned)me);
	end_open(&guest[0].tame, &opt);
	mr[0] = reg(&guest[0].tame, place.memory, SERVER_SIZE, REMOTE | ODP);
	mr[1] = reg(&guest[0].tame, NULL, SIZE_MAX, REMOTE | ODP);
	grant = (struct grant){ (uintptr_t)place.memory, { mr[0]->rkey, mr[1]->rkey } };
	for (int i = 0; i < CLIENTS; i++) {
		struct guest *g = &guest[i];

		hear(sock, &g->sock, sizeof(g->sock)); /* inherited: one number, both processes */
		if (i) {
			g->tame = guest[0].tame;
			check_sys((g->tame.cq = ibv_create_cq(g->tame.ctx, 512, NULL, NULL, 0)) != NULL);
			end_make_qp(&g->tame);
		}
		g->wild = g->tame;
		check_sys((g->wild.cq = ibv_create_cq(g->wild.ctx, 512, NULL, NULL, 0)) != NULL);
		end_make_qp(&g->wild);
		for (size_t k = 0; k < SLOTS; k++)
			post_slot(g, mr[k % 2], place.memory, (size_t)i * SLOTS + k);
		tell(g->sock, &grant, sizeof(grant));
		exchange(&g->tame, g->sock);
		exchange(&g->wild, g->sock);
	}
	check_int(pthread_create(&thread[0], NULL, cell_chaos, &place), 0);
	check_int(pthread_create(&thread[1], NULL, cell_chaos, &second), 0);
	check_int(pthread_create(&thread[2], NULL, wild_chaos, &place), 0);
	check_int(pthread_create(&thread[3], NULL, fork_chaos, &place), 0);
	while (left) {
		for (int i = 0; i < CLIENTS; i++) {
			if (guest[i].sock < 0)
				continue;
			serve_messages(&guest[i], mr, place.memory);
			if (word_waits(guest[i].sock) && !serve_word(&guest[i])) {
				guest[i].sock = -1;
				left--;
			}
		}
		usleep(50);
	}
	for (int i = 0; i < 4; i++)
		check_int(pthread_join(thread[i], NULL), 0);
	for (size_t i = 0; i < CELLS; i++)
		check(!memcmp(place.memory + i * CELL, place.s->cell[i].model, CELL));
	check_int(*(uint64_t *)(place.memory + COUNTER), atomic_load(&place.s->adds));
	_exit(0); /* with everything open: the kernel and the peers clean up */
}

/* --- a client --- */

struct link {
	int sock;
	struct server *s;
	struct end tame, wild;
	struct grant grant;
	struct ibv_mr *mr[2];
	unsigned char *mine; /* BURST pieces of CELL bytes */
	uint64_t last_add;
};

static struct ibv_mr *any_mr(struct link *l)
{
	return l->mr[roll(2)];
}

static void *far(struct link *l, size_t offset)
{
	return (void *)(uintptr_t)(l->grant.base + offset);
}

static uint32_t any_key(struct link *l)
{
	return l->grant.key[roll(2)];
}

static void ask(struct link *l, enum ibv_wr_opcode op, void *local, size_t length, size_t offset)
{
	post(&l->tame, op, any_mr(l), local, length, far(l, offset), any_key(l));
}

static void trouble_mine(struct link *l)
{
	if (!roll(3))
		check_sys(madvise(l->mine, BURST * CELL, MADV_DONTNEED) == 0);
	else if (!roll(3))
		madvise(l->mine, BURST * CELL, MADV_PAGEOUT);
}

/* A few pieces written, then all of it read back. */
static void work_on_cell(struct link *l)
{
	size_t i = any_cell(), n = 1 + roll(BURST);
	struct cell *c = take(l->s, i, CLIENT);
	size_t at[BURST], length[BURST];

	if (!c)
		return;
	trouble_mine(l);
	for (size_t k = 0; k < n; k++) {
		at[k] = roll(CELL);
		length[k] = 1 + roll(CELL - at[k]);
		fill(l->mine + k * CELL, length[k], (unsigned)roll(1000));
		memcpy(c->model + at[k], l->mine + k * CELL, length[k]);
	}
	for (size_t k = 0; k < n; k++)
		ask(l, IBV_WR_RDMA_WRITE, l->mine + k * CELL, length[k], i * CELL + at[k]);
	for (size_t k = 0; k < n; k++)
		wait_for(&l->tame, IBV_WC_SUCCESS);
	board->writes += n;
	trouble_mine(l);
	ask(l, IBV_WR_RDMA_READ, l->mine, CELL, i * CELL);
	wait_for(&l->tame, IBV_WC_SUCCESS);
	board->reads++;
	for (size_t k = 0; k < CELL; k++)
		if (l->mine[k] != c->model[k])
			check_failed(__FILE__, __LINE__, "seed %u: byte %zu of cell %zu is %#x, not %#x",
				seed, k, i, l->mine[k], c->model[k]);
	give(c);
}

static void send_message(struct link *l)
{
	size_t length = 8 + roll(SLOT - 8);

	make_message(l->mine, length, roll(100000));
	ask(l, IBV_WR_SEND, l->mine, length, 0);
	wait_for(&l->tame, IBV_WC_SUCCESS);
	board->sends++;
}

static void add(struct link *l)
{
	uint64_t *orig = (uint64_t *)l->mine;
	struct ibv_sge sge = { .addr = (uintptr_t)orig, .length = 8, .lkey = any_mr(l)->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { .remote_addr = (uintptr_t)far(l, COUNTER),
			.compare_add = 1,
			.rkey = any_key(l) } },
			   *bad;

	check_int(ibv_post_send(l->tame.qp, &wr, &bad), 0);
	wait_for(&l->tame, IBV_WC_SUCCESS);
	atomic_fetch_add(&l->s->adds, 1);
	check(*orig >= l->last_add);
	l->last_add = *orig + 1;
	board->adds++;
}

static void reconnect(struct link *l)
{
	struct address mine, theirs;
	struct ibv_wc wc;
	char word;

	end_reset(&l->wild);
	l->wild.psn = (uint32_t)roll(1 << 24);
	while (ibv_poll_cq(l->wild.cq, 1, &wc) > 0)
		;
	mine = end_address(&l->wild);
	tell(l->sock, "r", 1);
	tell(l->sock, &mine, sizeof(mine));
	hear(l->sock, &theirs, sizeof(theirs));
	end_connect(&l->wild, &theirs);
	hear(l->sock, &word, 1);
}

static void work_on_wild(struct link *l)
{
	size_t wild = roll(WILDS);
	uint64_t *words = (uint64_t *)l->mine, version;
	bool write = roll(2);
	struct ibv_wc wc;

	if (write) {
		version = atomic_fetch_add(&l->s->version[wild], 1) + 1;
		for (size_t i = 0; i < WILD / 8; i++)
			words[i] = wild_word(wild, i, version);
	}
	post(&l->wild, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, any_mr(l), words, WILD,
		far(l, WILD_AT(wild)), any_key(l));
	wc = wait_any(&l->wild);
	if (wc.status == IBV_WC_SUCCESS) {
		board->wild_good++;
		if (!write)
			check_wild(l->s, wild, (const _Atomic uint64_t *)words);
		return;
	}
	/* Where packets are lost, the one that says why may be. */
	if (wc.status != IBV_WC_RETRY_EXC_ERR || !getenv("UNPIN_LOSS"))
		check_int(wc.status, IBV_WC_REM_ACCESS_ERR);
	board->wild_refused++;
	reconnect(l);
}

static void link_open(struct link *l, int sock, size_t server, struct link *first)
{
	*l = (struct link){ .sock = sock, .s = &board->server[server], .mine = fresh(BURST * CELL) };
	if (!first) {
		end_open(&l->tame, NULL);
	} else {
		l->tame = first->tame;
		end_make_qp(&l->tame);
	}
	l->wild = l->tame;
	check_sys((l->wild.cq = ibv_create_cq(l->wild.ctx, 512, NULL, NULL, 0)) != NULL);
	end_make_qp(&l->wild);
	l->mr[0] = reg(&l->tame, l->mine, BURST * CELL, LOCAL | ODP);
	l->mr[1] = first ? first->mr[1] : reg(&l->tame, NULL, SIZE_MAX, LOCAL | ODP);
	hear(sock, &l->grant, sizeof(l->grant));
	exchange(&l->tame, sock);
	exchange(&l->wild, sock);
}

struct client {
	unsigned number;
	int sock[SERVERS];
};

static void be_client(int sock, void *arg)
{
	struct client *me = arg;
	struct link link[SERVERS];
	double end;
	char word;

	dice_seed(1 + me->number);
	for (size_t i = 0; i < SERVERS; i++)
		link_open(&link[i], me->sock[i], i, i ? &link[0] : NULL);
	end = now() + seconds;
	while (now() < end) {
		struct link *l = &link[roll(SERVERS)];

		switch (roll(8)) {
		case 0:
			send_message(l);
			break;
		case 1:
			add(l);
			break;
		case 2:
		case 3:
			work_on_wild(l);
			break;
		default:
			work_on_cell(l);
		}
	}
	/* Both have finished before anybody goes: the servers then compare all that they have. */
	tell(sock, "d", 1);
	hear(sock, &word, 1);
	for (size_t i = 0; i < SERVERS; i++)
		tell(link[i].sock, "q", 1);
	_exit(0);
}

/* --- the whole --- */

static void report(void)
{
#define X(name) printf("  %-14s %llu\n", #name, (unsigned long long)board->name);
	TALLIES(X)
#undef X
	fflush(stdout);
}

static void every_byte_is_right_whatever_moves(void)
{
	struct peer server[SERVERS], client[CLIENTS];
	struct client who[CLIENTS];
	int sock[CLIENTS][SERVERS][2];
	char word;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check_sys(board != MAP_FAILED);
	seconds = atof(getenv("UNPIN_SOAK_SECONDS") ? getenv("UNPIN_SOAK_SECONDS") : "20");
	seed = (unsigned)atol(getenv("UNPIN_SOAK_SEED") ? getenv("UNPIN_SOAK_SEED") : "0");
	if (!seed)
		seed = (unsigned)time(NULL);
	printf("  seed %u\n", seed);
	for (int c = 0; c < CLIENTS; c++)
		for (int s = 0; s < SERVERS; s++)
			check_sys(socketpair(AF_UNIX, SOCK_STREAM, 0, sock[c][s]) == 0);
	for (size_t s = 0; s < SERVERS; s++) {
		server[s] = peer_start(serve, &s);
		for (int c = 0; c < CLIENTS; c++)
			tell(server[s].sock, &sock[c][s][1], sizeof(int));
	}
	for (unsigned c = 0; c < CLIENTS; c++) {
		who[c].number = c;
		for (int s = 0; s < SERVERS; s++)
			who[c].sock[s] = sock[c][s][0];
		client[c] = peer_start(be_client, &who[c]);
	}
	for (int c = 0; c < CLIENTS; c++)
		for (int s = 0; s < SERVERS; s++)
			close(sock[c][s][0]), close(sock[c][s][1]);
	for (int c = 0; c < CLIENTS; c++)
		hear(client[c].sock, &word, 1);
	atomic_store(&board->stop, true);
	for (int c = 0; c < CLIENTS; c++)
		tell(client[c].sock, "g", 1);
	for (int c = 0; c < CLIENTS; c++)
		peer_done(&client[c]);
	for (int s = 0; s < SERVERS; s++)
		peer_done(&server[s]);
	report();
#define X(name) check(board->name > 0);
	TALLIES(X)
#undef X
	munmap(board, sizeof(*board));
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = { CASE(every_byte_is_right_whatever_moves) };

	return check_main(cases, COUNT(cases), argc, argv);
}
