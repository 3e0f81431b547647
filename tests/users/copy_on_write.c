/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pages that are shared until somebody writes: the zero page, a forked child's, those that KSM merged. The
 * peer is a process of its own. What must hold, for every kind of region: the parent's memory and what the
 * peer reads of it are the same at any time; the child keeps what was there at the fork; neither the parent
 * nor the peer ever sees what the child writes, with its processor or with a device of its own.
 *
 * For pinned memory that is the kernel's doing: since 5.12 fork gives the child copies of pages that are
 * pinned, instead of sharing them and leaving the pin with whoever writes last.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (8 * PAGE)

enum kind { PINNED, EXPLICIT, IMPLICIT, KINDS };

/* A region over the memory, all rights. */
static struct ibv_mr *reg_kind(struct end *e, enum kind kind, void *memory, size_t length)
{
	if (kind == IMPLICIT)
		return reg(e, NULL, SIZE_MAX, REMOTE | ODP);
	return reg(e, memory, length, kind == EXPLICIT ? REMOTE | ODP : REMOTE);
}

/* ---- The peer: does as it is told ---- */

enum { READS, WRITES, BURST, LEAVES };
#define NOTHING	  UINT32_MAX /* instead of a seed: all zero */
#define BURST_MAX 300u

struct order {
	int what;
	uint32_t seed; /* BURST: of the first write */
	struct window at;
};

static void peer_write(struct end *e, struct ibv_mr *mr, const struct order *o, uint32_t seed)
{
	fill(mr->addr, LENGTH, seed);
	post(e, IBV_WR_RDMA_WRITE, mr, mr->addr, LENGTH, (void *)(uintptr_t)o->at.addr, o->at.rkey);
	wait_for(e, IBV_WC_SUCCESS);
}

static void peer_read(struct end *e, struct ibv_mr *mr, const struct order *o)
{
	memset(mr->addr, 0xee, LENGTH);
	post(e, IBV_WR_RDMA_READ, mr, mr->addr, LENGTH, (void *)(uintptr_t)o->at.addr, o->at.rkey);
	wait_for(e, IBV_WC_SUCCESS);
	if (o->seed == NOTHING)
		check_zero(mr->addr, LENGTH);
	else
		check_filled(mr->addr, LENGTH, o->seed);
}

static void peer_main(int sock, void *arg)
{
	struct ibv_mr *mr;
	struct order o;
	struct end e;

	(void)arg;
	end_open(&e, NULL);
	mr = reg(&e, fresh(LENGTH), LENGTH, LOCAL);
	exchange(&e, sock);
	for (;;) {
		hear(sock, &o, sizeof(o));
		if (o.what == LEAVES)
			break;
		if (o.what == READS)
			peer_read(&e, mr, &o);
		for (uint32_t i = 0; o.what == BURST && i < BURST_MAX; i++) {
			peer_write(&e, mr, &o, o.seed + i);
			if (i == 3)
				tell(sock, &o, 1); /* in full swing */
		}
		if (o.what == WRITES)
			peer_write(&e, mr, &o, o.seed);
		tell(sock, &o, 1);
	}
	dereg(mr);
	end_close(&e);
}

/* ---- The parent ---- */

struct scene {
	struct peer peer;
	struct end e;
	unsigned char *memory;
	struct ibv_mr *mr;
};

static void scene_open(struct scene *s)
{
	s->peer = peer_start(peer_main, NULL);
	end_open(&s->e, NULL);
	exchange(&s->e, s->peer.sock);
}

static void scene_close(struct scene *s)
{
	struct order o = { .what = LEAVES };

	tell(s->peer.sock, &o, sizeof(o));
	peer_done(&s->peer);
	end_close(&s->e);
}

/* memory: NULL for some of its own. */
static void scene_memory(struct scene *s, enum kind kind, void *memory)
{
	s->memory = memory ? memory : fresh(LENGTH);
	s->mr = reg_kind(&s->e, kind, s->memory, LENGTH);
}

static void scene_forget(struct scene *s)
{
	dereg(s->mr);
	drop(s->memory, LENGTH);
}

static void heard(struct scene *s)
{
	char word;

	hear(s->peer.sock, &word, 1);
}

static void order(struct scene *s, int what, uint32_t seed)
{
	struct order o = { what, seed, { (uintptr_t)s->memory, LENGTH, s->mr->rkey } };

	tell(s->peer.sock, &o, sizeof(o));
	heard(s);
}

static void peer_sees(struct scene *s, uint32_t seed)
{
	order(s, READS, seed);
}

static void peer_writes(struct scene *s, uint32_t seed)
{
	order(s, WRITES, seed);
	check_filled(s->memory, LENGTH, seed);
}

/* ---- The zero page ---- */

static void the_peer_reads_zeros_then_writes_and_all_see_it(void)
{
	struct scene s;

	scene_open(&s);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		scene_memory(&s, kind, NULL);
		peer_sees(&s, NOTHING);
		check_zero(s.memory, LENGTH);
		peer_writes(&s, 1);
		peer_sees(&s, 1);
		scene_forget(&s);
	}
	scene_close(&s);
}

static void a_zero_page_that_the_peer_has_read_is_not_kept(void)
{
	struct scene s;

	scene_open(&s);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		scene_memory(&s, kind, NULL);
		peer_sees(&s, NOTHING);
		/* Now the processor writes: the mapping has another page. */
		fill(s.memory, LENGTH, 2);
		peer_sees(&s, 2);
		peer_writes(&s, 3);
		fill(s.memory, LENGTH, 4);
		peer_sees(&s, 4);
		scene_forget(&s);
	}
	scene_close(&s);
}

/* The device reads its own side's zero pages, and then receives into them. */
static void zero_pages_are_sent_and_then_received_into(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		unsigned char *mine = fresh(LENGTH), *theirs = fresh(LENGTH);
		struct ibv_mr *here = reg_kind(&p.a, kind, mine, LENGTH);
		struct ibv_mr *there = reg_kind(&p.b, kind, theirs, LENGTH);

		memset(theirs, 7, PAGE);
		post_recv(&p.b, there, theirs, LENGTH);
		post(&p.a, IBV_WR_SEND, here, mine, LENGTH, NULL, 0);
		wait_for(&p.a, IBV_WC_SUCCESS);
		wait_for(&p.b, IBV_WC_SUCCESS);
		check_zero(theirs, LENGTH);
		fill(theirs, LENGTH, 5);
		post_recv(&p.a, here, mine, LENGTH);
		post(&p.b, IBV_WR_SEND, there, theirs, LENGTH, NULL, 0);
		wait_for(&p.b, IBV_WC_SUCCESS);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(mine, LENGTH, 5);
		dereg(here);
		dereg(there);
		drop(mine, LENGTH);
		drop(theirs, LENGTH);
	}
	pair_close(&p);
}

/* ---- Fork ---- */

enum moment { BEFORE, DURING, AFTER, MOMENTS };
enum deed { STAYS, EXITS, EXECS, OPENS_A_DEVICE, DEEDS };
enum { CHECK = 'c', WRITE = 'w', QUIT = 'q' };

struct child {
	pid_t pid;
	int sock;
};

/* The child's device writes into the inherited memory. */
static void write_by_device(unsigned char *memory, unsigned seed)
{
	unsigned char *from = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	fill(from, LENGTH, seed);
	here = reg(&p.a, from, LENGTH, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, from, LENGTH, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void child_main(unsigned char *memory, enum deed deed, int sock)
{
	static unsigned char was[LENGTH];
	char word = 0;

	if (deed == EXITS)
		_exit(0);
	if (deed == EXECS) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	memcpy(was, memory, LENGTH);
	for (;;) {
		tell(sock, &word, 1);
		hear(sock, &word, 1);
		if (word == QUIT)
			_exit(0);
		check(!memcmp(memory, was, LENGTH));
		if (word != WRITE)
			continue;
		if (deed == OPENS_A_DEVICE)
			write_by_device(memory, 200);
		else
			fill(memory, LENGTH, 200);
		check_filled(memory, LENGTH, 200);
		memcpy(was, memory, LENGTH);
	}
}

static struct child child_start(unsigned char *memory, enum deed deed)
{
	struct child c;
	int sock[2];

	check_sys(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) == 0);
	check_sys((c.pid = fork()) >= 0);
	if (!c.pid) {
		close(sock[0]);
		child_main(memory, deed, sock[1]);
	}
	close(sock[1]);
	c.sock = sock[0];
	return c;
}

static void child_does(struct child *c, enum deed deed, char word)
{
	if (deed == EXITS || deed == EXECS)
		return;
	tell(c->sock, &word, 1);
	if (word != QUIT)
		hear(c->sock, &word, 1);
}

static void child_ends(struct child *c)
{
	double end = now() + WAIT_SECONDS;
	int status;

	while (waitpid(c->pid, &status, WNOHANG) != c->pid) {
		check(now() < end);
		nap(1);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		check_failed(__FILE__, __LINE__, "the child ended with wait status %#x", (unsigned)status);
	if (c->sock >= 0)
		close(c->sock);
}

static struct child fork_at(struct scene *s, enum moment moment, enum deed deed)
{
	struct child c;

	fill(s->memory, LENGTH, 1);
	if (moment == AFTER) {
		peer_writes(s, 2);
		peer_sees(s, 2);
	}
	if (moment == DURING)
		order(s, BURST, 1000);
	c = child_start(s->memory, deed);
	if (moment == DURING) {
		heard(s);
		check_filled(s->memory, LENGTH, 1000 + BURST_MAX - 1);
	}
	return c;
}

static void one_fork(struct scene *s, enum moment moment, enum deed deed)
{
	struct child c = fork_at(s, moment, deed);
	char word;

	if (deed == STAYS || deed == OPENS_A_DEVICE)
		hear(c.sock, &word, 1);
	for (uint32_t i = 0; i < 4; i++) {
		fill(s->memory, LENGTH, 10 + i);
		peer_sees(s, 10 + i);
		child_does(&c, deed, CHECK);
		peer_writes(s, 20 + i);
		child_does(&c, deed, i == 1 ? WRITE : CHECK);
		check_filled(s->memory, LENGTH, 20 + i);
		peer_sees(s, 20 + i);
	}
	child_does(&c, deed, QUIT);
	child_ends(&c);
	peer_sees(s, 23);
	peer_writes(s, 30);
}

static void all_forks(void)
{
	struct scene s;

	scene_open(&s);
	for (enum kind kind = 0; kind < KINDS; kind++)
		for (enum moment moment = 0; moment < MOMENTS; moment++)
			for (enum deed deed = 0; deed < DEEDS; deed++) {
				scene_memory(&s, kind, NULL);
				one_fork(&s, moment, deed);
				scene_forget(&s);
			}
	scene_close(&s);
}

static void parent_and_peer_see_the_parents_bytes_and_the_child_its_own(void)
{
	all_forks();
}

static void so_it_is_after_ibv_fork_init(void)
{
	check_int(ibv_fork_init(), 0);
	all_forks();
}

/* A child of a child, and many children at once. */
static void every_generation_keeps_what_was_there_when_it_was_born(void)
{
	struct child c[6];
	struct scene s;
	char word;

	scene_open(&s);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		scene_memory(&s, kind, NULL);
		for (unsigned i = 0; i < COUNT(c); i++) {
			peer_writes(&s, i);
			c[i] = child_start(s.memory, i % 2 ? OPENS_A_DEVICE : STAYS);
			hear(c[i].sock, &word, 1);
		}
		for (unsigned i = 0; i < COUNT(c); i++) {
			child_does(&c[i], STAYS, WRITE);
			peer_sees(&s, COUNT(c) - 1);
		}
		peer_writes(&s, 50);
		for (unsigned i = 0; i < COUNT(c); i++) {
			child_does(&c[i], STAYS, CHECK);
			child_does(&c[i], STAYS, QUIT);
			child_ends(&c[i]);
		}
		peer_sees(&s, 50);
		scene_forget(&s);
	}
	scene_close(&s);
}

/* ---- MADV_DONTFORK, MADV_WIPEONFORK: the application's own wish ---- */

static void run_child(void (*function)(unsigned char *memory), unsigned char *memory)
{
	struct child c = { .sock = -1 };

	check_sys((c.pid = fork()) >= 0);
	if (!c.pid) {
		function(memory);
		_exit(0);
	}
	child_ends(&c);
}

static void finds_nothing(unsigned char *memory)
{
	unsigned char *other = fresh(PAGE), there;
	struct ibv_mr *here, *gone;
	struct pair p;

	check(mincore(memory, PAGE, &there) == -1 && errno == ENOMEM);
	pair_open(&p, NULL);
	errno = 0;
	check(!ibv_reg_mr(p.b.pd, memory, LENGTH, REMOTE));
	check_int(errno, EFAULT);
	here = reg(&p.a, other, PAGE, LOCAL);
	gone = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_READ, here, other, PAGE, memory, gone->rkey);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
	dereg(here);
	dereg(gone);
	pair_close(&p);
}

static void finds_zeros(unsigned char *memory)
{
	unsigned char *other = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	memset(other, 9, LENGTH);
	here = reg(&p.a, other, LENGTH, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_READ, here, other, LENGTH, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_zero(other, LENGTH);
	check_zero(memory, LENGTH);
	fill(memory, LENGTH, 200);
	post(&p.a, IBV_WR_RDMA_READ, here, other, LENGTH, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_filled(other, LENGTH, 200);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void advised(int advice, void (*child)(unsigned char *memory))
{
	struct scene s;

	scene_open(&s);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		unsigned char *memory = fresh_apart(LENGTH);

		check_sys(madvise(memory, LENGTH, advice) == 0);
		scene_memory(&s, kind, memory);
		peer_writes(&s, 1);
		run_child(child, s.memory);
		check_filled(s.memory, LENGTH, 1);
		peer_sees(&s, 1);
		peer_writes(&s, 2);
		run_child(child, s.memory);
		fill(s.memory, LENGTH, 3);
		peer_sees(&s, 3);
		scene_forget(&s);
	}
	scene_close(&s);
}

static void memory_that_is_not_inherited_stays_the_parents(void)
{
	advised(MADV_DONTFORK, finds_nothing);
}

static void memory_that_is_wiped_in_the_child_stays_the_parents(void)
{
	advised(MADV_WIPEONFORK, finds_zeros);
}

/* ---- KSM ---- */

#define KSM "/sys/kernel/mm/ksm/"

static const char *const ksm_files[] = { KSM "pages_to_scan", KSM "sleep_millisecs", KSM "run" };

/* A process that puts the settings back when the case's has ended, however it did. */
struct ksm {
	pid_t keeper;
	int life;
};

static void ksm_keeper(const long *was, int life)
{
	char word;

	setpgid(0, 0);
	while (read(life, &word, 1) < 0)
		;
	for (size_t i = 0; i < COUNT(ksm_files); i++)
		set_number(ksm_files[i], was[i]);
	_exit(0);
}

static struct ksm ksm_start(void)
{
	static const long want[] = { 4000, 5, 1 };
	long was[COUNT(ksm_files)];
	struct ksm k;
	int life[2];

	for (size_t i = 0; i < COUNT(ksm_files); i++)
		if ((was[i] = number_in(ksm_files[i])) < 0)
			check_skip("no KSM in this kernel (%s)", ksm_files[i]);
	if (number_in("/proc/self/ksm_merging_pages") < 0)
		check_skip("the kernel does not tell what KSM has merged (it does from 5.19 on)");
	if (!set_number(ksm_files[0], was[0]))
		check_skip("KSM's settings cannot be changed: not root, or its advisor holds them");
	check_sys(pipe2(life, O_CLOEXEC) == 0);
	check_sys((k.keeper = fork()) >= 0);
	if (!k.keeper) {
		close(life[1]);
		ksm_keeper(was, life[0]);
	}
	close(life[0]);
	k.life = life[1];
	for (size_t i = 0; i < COUNT(ksm_files); i++)
		check_sys(set_number(ksm_files[i], want[i]));
	return k;
}

static void ksm_end(const struct ksm *k)
{
	close(k->life);
	check_sys(waitpid(k->keeper, NULL, 0) == k->keeper);
}

/* Twin pages: every page of both halves has the same bytes. */
static void ksm_merge(unsigned char *memory, unsigned seed)
{
	double end = now() + WAIT_SECONDS;

	for (size_t at = 0; at < LENGTH; at += PAGE)
		fill(memory + at, PAGE, seed);
	while (number_in("/proc/self/ksm_merging_pages") < (long)(LENGTH / PAGE - 1)) {
		if (now() > end)
			check_skip("KSM merged %ld pages of %lu within %d s",
				number_in("/proc/self/ksm_merging_pages"), LENGTH / PAGE, WAIT_SECONDS);
		nap(5);
	}
}

static void check_twins(const unsigned char *memory, size_t but, unsigned seed)
{
	for (size_t page = 0; page < LENGTH / PAGE; page++)
		if (page != but)
			check_filled(memory + page * PAGE, PAGE, seed);
}

static void merge_and_write(struct pair *p, enum kind kind)
{
	unsigned char *memory = fresh(LENGTH), *mine = fresh(PAGE);
	const size_t page = 3;
	struct ibv_mr *here, *there;
	uint64_t before, after;

	check_sys(madvise(memory, LENGTH, MADV_MERGEABLE) == 0);
	/* Pinning for writing parts the pages: pinned ones are merged first. */
	if (kind == PINNED)
		ksm_merge(memory, 1);
	there = reg_kind(&p->b, kind, memory, LENGTH);
	here = reg(&p->a, mine, PAGE, LOCAL);
	if (kind != PINNED) {
		/* Valid in the device when they are merged under it. */
		fill(mine, PAGE, 8);
		for (size_t at = 0; at < LENGTH; at += PAGE) {
			post(&p->a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory + at, there->rkey);
			wait_for(&p->a, IBV_WC_SUCCESS);
		}
		ksm_merge(memory, 1);
	}
	fill(mine, PAGE, 2);
	post(&p->a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory + page * PAGE, there->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	check_filled(memory + page * PAGE, PAGE, 2);
	check_twins(memory, page, 1);
	for (size_t i = 0; i < LENGTH / PAGE; i++) {
		post(&p->a, IBV_WR_RDMA_READ, here, mine, PAGE, memory + i * PAGE, there->rkey);
		wait_for(&p->a, IBV_WC_SUCCESS);
		check_filled(mine, PAGE, i == page ? 2 : 1);
	}
	/* And an atomic parts one too. */
	memset(mine, 0, 8);
	memcpy(&before, memory, 8);
	post(&p->a, IBV_WR_ATOMIC_CMP_AND_SWP, here, mine, 8, memory, there->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	memcpy(&after, mine, 8);
	check(before == after);
	check_twins(memory, page, 1);
	dereg(there);
	dereg(here);
	drop(memory, LENGTH);
	drop(mine, PAGE);
}

static void writing_to_a_page_that_ksm_has_merged_leaves_its_twins_alone(void)
{
	struct ksm ksm = ksm_start();
	struct pair p;

	pair_open(&p, NULL);
	for (enum kind kind = 0; kind < KINDS; kind++)
		merge_and_write(&p, kind);
	pair_close(&p);
	ksm_end(&ksm);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(the_peer_reads_zeros_then_writes_and_all_see_it),
		CASE(a_zero_page_that_the_peer_has_read_is_not_kept),
		CASE(zero_pages_are_sent_and_then_received_into),
		CASE(parent_and_peer_see_the_parents_bytes_and_the_child_its_own),
		CASE(so_it_is_after_ibv_fork_init),
		CASE(every_generation_keeps_what_was_there_when_it_was_born),
		CASE(memory_that_is_not_inherited_stays_the_parents),
		CASE(memory_that_is_wiped_in_the_child_stays_the_parents),
		CASE(writing_to_a_page_that_ksm_has_merged_leaves_its_twins_alone),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
