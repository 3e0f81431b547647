/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Who may access what: every operation, on the side where the memory in question lies, under every set of
 * rights of the region, over every kind of memory and protection of its mapping, pinned, on demand and
 * implicit. What must come of a combination follows from the rules below (pins(), reaches(), expect()); each
 * is carried out with fresh memory and compared: the registration's errno, the completions of both sides, the
 * states of both queue pairs, the event, and every byte of the memory, its neighbours, its file and the other
 * side's buffer.
 *
 * The memory in question is one page between ordinary ones. A transfer begins some pages before it and ends
 * in the page after it, so that a packet of good bytes comes before the failing one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../counted_pins.h"
#include "pair.h"
#include "wire/shm.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

#define AHEAD  5ul	      /* pages before the one in question */
#define IT     (AHEAD * PAGE) /* where it is */
#define LENGTH ((AHEAD + 2) * PAGE)
/* The transfer: one packet, then one that reaches into the page in question. */
#define START  3000ul
#define BYTES  (IT + PAGE + 100 - START)
#define WHOLE  ((size_t)WIRE_SEGMENT) /* of packets before the first that touches the page */
#define BEFORE (IT - START)	      /* bytes before the page */
#define WORD   (IT + 8)		      /* where atomics are */

_Static_assert(WHOLE < BEFORE && BEFORE < 2 * WHOLE, "one packet lies before the page");

#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* ---- What is combined ---- */

enum kind { PINNED, EXPLICIT, IMPLICIT, KINDS };
static const char *const kind_names[] = { "pinned", "on-demand", "implicit" };

static const struct rights {
	int access;
	const char *name;
} rights[] = {
	{ 0, "no rights" },
	{ IBV_ACCESS_LOCAL_WRITE, "local write" },
	{ IBV_ACCESS_REMOTE_READ, "remote read" },
	{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, "local write, remote read" },
	{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, "local write, remote write" },
	{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, "local write, remote atomic" },
	{ REMOTE, "all rights" },
};

/* Protection at registration and at the access, and whether the device has touched the page in between. */
static const struct protection {
	int before, after;
	bool touched;
	const char *name;
} protections[] = {
	{ PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, false, "RW" },
	{ PROT_READ, PROT_READ, false, "R" },
	{ PROT_WRITE, PROT_WRITE, false, "W" },
	{ PROT_EXEC, PROT_EXEC, false, "X" },
	{ PROT_NONE, PROT_NONE, false, "NONE" },
	{ PROT_READ | PROT_WRITE, PROT_READ, false, "RW, then R" },
	{ PROT_READ | PROT_WRITE, PROT_READ, true, "RW, touched, then R" },
	{ PROT_READ, PROT_READ | PROT_WRITE, false, "R, then RW" },
	{ PROT_READ, PROT_READ | PROT_WRITE, true, "R, touched, then RW" },
	{ PROT_READ | PROT_WRITE, PROT_NONE, false, "RW, then NONE" },
	{ PROT_READ | PROT_WRITE, PROT_NONE, true, "RW, touched, then NONE" },
	{ PROT_NONE, PROT_READ | PROT_WRITE, false, "NONE, then RW" },
	{ PROT_NONE, PROT_READ | PROT_WRITE, true, "NONE, touched, then RW" },
};

enum backing {
	UNTOUCHED,
	ZERO_PAGE,
	WRITTEN,
	FILE_PRIVATE,
	FILE_SHARED,
	MEMFD,
	PAST_EOF,
	GUARD,
	HOLE,
	BACKINGS
};
static const struct {
	const char *name;
	bool there; /* a page can be had */
	bool filled;
} backings[] = {
	[UNTOUCHED] = { "untouched anonymous memory", true, false },
	[ZERO_PAGE] = { "a zero page", true, false },
	[WRITTEN] = { "anonymous memory", true, true },
	[FILE_PRIVATE] = { "a private mapping of a file", true, true },
	[FILE_SHARED] = { "a shared mapping of a file", true, true },
	[MEMFD] = { "a memory file", true, true },
	[PAST_EOF] = { "a mapping past the end of its file", false, false },
	[GUARD] = { "a guard page", false, false },
	[HOLE] = { "a hole", false, false },
};

/* An operation, seen from the memory in question. */
enum way { READS, WRITES_TO, MODIFIES };
static const struct op {
	const char *name;
	enum ibv_wr_opcode opcode;
	bool remote; /* the memory is named by the peer's key */
	bool receiver;
	enum way way; /* what happens to the memory */
	int right;
} ops[] = {
	{ "SEND from", IBV_WR_SEND, false, false, READS, 0 },
	{ "RECV into", IBV_WR_SEND, false, true, WRITES_TO, IBV_ACCESS_LOCAL_WRITE },
	{ "local side of a WRITE from", IBV_WR_RDMA_WRITE, false, false, READS, 0 },
	{ "remote side of a WRITE to", IBV_WR_RDMA_WRITE, true, false, WRITES_TO, IBV_ACCESS_REMOTE_WRITE },
	{ "local side of a READ into", IBV_WR_RDMA_READ, false, false, WRITES_TO, IBV_ACCESS_LOCAL_WRITE },
	{ "remote side of a READ from", IBV_WR_RDMA_READ, true, false, READS, IBV_ACCESS_REMOTE_READ },
	{ "result of a compare-and-swap into", IBV_WR_ATOMIC_CMP_AND_SWP, false, false, WRITES_TO,
		IBV_ACCESS_LOCAL_WRITE },
	{ "compare-and-swap on", IBV_WR_ATOMIC_CMP_AND_SWP, true, false, MODIFIES, IBV_ACCESS_REMOTE_ATOMIC },
	{ "result of a fetch-and-add into", IBV_WR_ATOMIC_FETCH_AND_ADD, false, false, WRITES_TO,
		IBV_ACCESS_LOCAL_WRITE },
	{ "fetch-and-add on", IBV_WR_ATOMIC_FETCH_AND_ADD, true, false, MODIFIES, IBV_ACCESS_REMOTE_ATOMIC },
};

struct combination {
	enum kind kind;
	const struct rights *rights;
	enum backing backing;
	const struct protection *protection;
	const struct op *op; /* NULL: the registration itself */
};

static bool is_atomic(const struct op *op)
{
	return op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* ---- The rules ---- */

/* Pinning takes the pages now: all must be there, readable, and writable if the region may be written. */
static int pins(const struct combination *c)
{
	int prot = c->protection->before;

	if (!backings[c->backing].there || !(prot & PROT_READ))
		return EFAULT;
	return (c->rights->access & WRITES) && !(prot & PROT_WRITE) ? EFAULT : 0;
}

/*
 * Whether the device gets at the page. On demand it is the mapping of the moment that decides; a page that is
 * really pinned stays in reach whatever becomes of the mapping, as with hardware; one that could only be
 * locked (mlock) is reached through its mapping.
 */
static bool reaches(const struct combination *c, bool really_pinned)
{
	int prot = c->protection->after;

	if (really_pinned)
		return true;
	return backings[c->backing].there && prot & (c->op->way == READS ? PROT_READ : PROT_WRITE);
}

struct expected {
	enum ibv_wc_status requester;
	bool receiver_completes;
	enum ibv_wc_status receiver;
	enum ibv_qp_state requester_state, responder_state;
	bool event; /* of the responder: access error */
	/* Of the destination's bytes: the first are surely new, up to the second new or old, the rest old. */
	size_t sure, maybe;
};

static struct expected expect(const struct combination *c, bool really_pinned)
{
	const struct op *op = c->op;
	bool key = (c->rights->access & op->right) == op->right, page = reaches(c, really_pinned);
	struct expected e = { IBV_WC_SUCCESS, op->opcode == IBV_WR_SEND, IBV_WC_SUCCESS, IBV_QPS_RTS,
		IBV_QPS_RTS, false, BYTES, BYTES };

	if (key && page)
		return e;
	e.requester_state = IBV_QPS_ERR;
	if (op->remote) {
		e.requester = IBV_WC_REM_ACCESS_ERR;
		e.responder_state = IBV_QPS_ERR;
		e.event = true;
	} else if (op->receiver) {
		e.requester = IBV_WC_REM_OP_ERR;
		e.receiver = IBV_WC_LOC_PROT_ERR;
		e.responder_state = IBV_QPS_ERR;
	} else {
		e.requester = IBV_WC_LOC_PROT_ERR;
		e.receiver_completes = false;
	}
	/* A key without the right lets no byte pass; else the packets before the failing one have been
	 * carried out, in order, and of the failing one what lies before the page may have been. Packets that
	 * are sent before their sender fails may still be under way. */
	e.sure = key ? WHOLE : 0;
	e.maybe = key ? BEFORE : 0;
	if (op->way == READS) {
		e.sure = op->remote ? e.sure : 0;
		e.maybe = key ? WHOLE : 0;
	}
	return e;
}

/* ---- The scene ---- */

static struct {
	struct pair p;
	unsigned char *place; /* LENGTH bytes at a place where nothing else comes */
	unsigned char *mine, *theirs;
	struct ibv_mr *here, *there;
	struct ibv_mr *whole[2][COUNT(rights)]; /* implicit regions of both ends */
	int file, memfd, empty;
	unsigned char stored[PAGE]; /* what the file had */
	bool guards;
	bool told; /* the device is told of every change; without a notifier an old entry may be believed */
	unsigned carried_out, refused, wrong;
} scene;

static void complain(const struct combination *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A failing combination says what it was, in a sentence; the others go on. */
static void complain(const struct combination *c, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr,
		"%s %s, protection %s, in %s region with %s: ", c->op ? c->op->name : "registration of",
		backings[c->backing].name, c->protection->name,
		c->kind == PINNED     ? "a pinned"
		: c->kind == EXPLICIT ? "an on-demand"
				      : "an implicit",
		c->rights->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (++scene.wrong == 30)
		check_failed(__FILE__, __LINE__, "too many wrong results");
}

/* Two sets of bytes that differ from each other and from zero everywhere. */
static void fill_low(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(1 + (i * 7 + i / 256) % 127);
}

static void fill_high(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(128 + (i * 5 + i / 256) % 128);
}

static int disk_file(void)
{
	char name[] = "/tmp/unpin-permissions-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);

	check_sys(fd >= 0);
	check_sys(unlink(name) == 0);
	check_sys(ftruncate(fd, PAGE) == 0);
	return fd;
}

static bool have_guards(void)
{
	char *page = fresh(PAGE);
	bool have = madvise(page, PAGE, MADV_GUARD_INSTALL) == 0;

	drop(page, PAGE);
	if (!have)
		fprintf(stderr, "guard pages are left out: this kernel has none (they come with 6.13)\n");
	return have;
}

static void scene_open(void)
{
	pair_open(&scene.p, NULL);
	scene.place = fresh_apart(LENGTH);
	scene.mine = fresh(LENGTH);
	scene.theirs = fresh(LENGTH);
	scene.here = reg(&scene.p.a, scene.mine, LENGTH, LOCAL);
	scene.there = reg(&scene.p.b, scene.theirs, LENGTH, REMOTE);
	scene.file = disk_file();
	check_sys((scene.memfd = memfd_create("permissions", MFD_CLOEXEC)) >= 0);
	check_sys(ftruncate(scene.memfd, PAGE) == 0);
	check_sys((scene.empty = memfd_create("empty", MFD_CLOEXEC)) >= 0);
	scene.guards = have_guards();
	scene.told = !getenv("UNPIN_NOTIFIER") || strcmp(getenv("UNPIN_NOTIFIER"), "none");
}

static void scene_close(void)
{
	check(scene.carried_out > 0 && scene.refused > 0);
	check_int(scene.wrong, 0);
	for (int end = 0; end < 2; end++)
		for (size_t i = 0; i < COUNT(rights); i++)
			if (scene.whole[end][i])
				dereg(scene.whole[end][i]);
	dereg(scene.here);
	dereg(scene.there);
	pair_close(&scene.p);
}

/* ---- One combination ---- */

static int fd_of(enum backing b)
{
	return b == FILE_PRIVATE || b == FILE_SHARED ? scene.file
	       : b == MEMFD			     ? scene.memfd
	       : b == PAST_EOF			     ? scene.empty
						     : -1;
}

static void map_file(enum backing b, const unsigned char *content)
{
	unsigned char *page = scene.place + IT;
	int fd = fd_of(b);

	if (b == PAST_EOF)
		check_sys(ftruncate(fd, 0) == 0);
	else
		check_sys(pwrite(fd, content, PAGE, 0) == (ssize_t)PAGE);
	memcpy(scene.stored, content, PAGE);
	check_sys(mmap(page, PAGE, PROT_READ | PROT_WRITE,
			  MAP_FIXED | (b == FILE_PRIVATE ? MAP_PRIVATE : MAP_SHARED), fd, 0) == page);
}

/* Makes the pages, and fills old with what they hold. */
static void place_make(const struct combination *c, unsigned char *old)
{
	unsigned char *page = scene.place + IT;

	check_sys(mmap(scene.place, LENGTH, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0) == scene.place);
	fill_low(old, LENGTH);
	memcpy(scene.place, old, IT);
	memcpy(scene.place + IT + PAGE, old + IT + PAGE, PAGE);
	if (!backings[c->backing].filled)
		memset(old + IT, 0, PAGE);
	if (fd_of(c->backing) >= 0)
		map_file(c->backing, old + IT);
	else if (c->backing == ZERO_PAGE)
		check_int(*(volatile unsigned char *)page, 0);
	else if (c->backing == WRITTEN)
		memcpy(page, old + IT, PAGE);
	else if (c->backing == GUARD)
		check_sys(madvise(page, PAGE, MADV_GUARD_INSTALL) == 0);
	if (c->backing == HOLE)
		check_sys(munmap(page, PAGE) == 0);
	else
		check_sys(mprotect(page, PAGE, c->protection->before) == 0);
}

/* Makes the page readable again, for looking at it. false: there is none. */
static bool place_uncover(const struct combination *c)
{
	unsigned char *page = scene.place + IT;

	if (c->backing == HOLE)
		return false;
	if (c->backing == GUARD)
		check_sys(madvise(page, PAGE, MADV_GUARD_REMOVE) == 0);
	if (c->backing == PAST_EOF)
		check_sys(ftruncate(scene.empty, PAGE) == 0);
	check_sys(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	return true;
}

/* The device looks at the page before it changes, as far as that is allowed: for writing, without a change.
 */
static void touch(const struct combination *c)
{
	bool write = c->protection->before & PROT_WRITE, read = c->protection->before & PROT_READ;
	struct ibv_mr *mr = reg(&scene.p.b, scene.place, LENGTH, REMOTE | ODP);
	bool good = backings[c->backing].there && (read || write);
	struct ibv_async_event event;
	struct ibv_wc wc;

	memset(scene.mine, 0, 8);
	/* compare_add is 0. */
	post(&scene.p.a, write ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ, scene.here, scene.mine, 8,
		scene.place + WORD, mr->rkey);
	wc = wait_any(&scene.p.a);
	if (wc.status != (good ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR))
		complain(c, "the first touch completed with %s", ibv_wc_status_str(wc.status));
	dereg(mr);
	if (wc.status == IBV_WC_SUCCESS)
		return;
	/* Its event is not the one that is looked for. */
	check_int(ibv_get_async_event(scene.p.b.ctx, &event), 0);
	ibv_ack_async_event(&event);
	pair_reconnect(&scene.p);
}

static struct end *owner(const struct op *op)
{
	return op->remote || op->receiver ? &scene.p.b : &scene.p.a;
}

static struct ibv_mr *region(const struct combination *c)
{
	struct end *e = owner(c->op);
	int access = c->rights->access;

	if (c->kind == IMPLICIT)
		return scene.whole[e == &scene.p.b][c->rights - rights];
	return ibv_reg_mr(e->pd, scene.place, LENGTH, c->kind == EXPLICIT ? access | ODP : access);
}

#define COMPARE 0x1122334455667788ull
#define SWAP	0x8877665544332211ull

/* The word that the atomic works on before it, and after it. */
static uint64_t word_at(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

static void post_atomic(const struct combination *c, const struct ibv_mr *mr, uint64_t before)
{
	const struct op *op = c->op;
	unsigned char *local = op->remote ? scene.mine : scene.place;
	unsigned char *remote = op->remote ? scene.place : scene.theirs;
	struct ibv_sge sge = {
		.addr = (uintptr_t)local + WORD, .length = 8, .lkey = op->remote ? scene.here->lkey : mr->lkey
	};
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = op->opcode,
		.send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)remote + WORD;
	wr.wr.atomic.rkey = op->remote ? mr->rkey : scene.there->rkey;
	wr.wr.atomic.compare_add = op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? before : SWAP;
	wr.wr.atomic.swap = SWAP;
	check_int(ibv_post_send(scene.p.a.qp, &wr, &bad), 0);
}

static uint64_t atomic_result(const struct op *op, uint64_t before)
{
	return op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? SWAP : before + SWAP;
}

static void post_transfer(const struct combination *c, const struct ibv_mr *mr)
{
	const struct op *op = c->op;
	bool away = op->remote || op->receiver; /* the memory is at the responder */
	unsigned char *local = away ? scene.mine : scene.place;
	unsigned char *remote = away ? scene.place : scene.theirs;
	const struct ibv_mr *lmr = away ? scene.here : mr, *rmr = away ? mr : scene.there;

	if (op->opcode == IBV_WR_SEND)
		post_recv(&scene.p.b, rmr, remote + START, BYTES);
	post(&scene.p.a, op->opcode, lmr, local + START, BYTES, remote + START, rmr->rkey);
}

static void wait_state(const struct combination *c, const char *who, struct end *e, enum ibv_qp_state want)
{
	double end = now() + WAIT_SECONDS;

	/* The answer leaves before its queue pair goes to ERR. */
	while (state_of(e->qp) != want && want == IBV_QPS_ERR && now() < end)
		nap(0);
	if (state_of(e->qp) != want)
		complain(c, "the %s's queue pair is in state %d, not %d", who, state_of(e->qp), want);
}

static void check_event(const struct combination *c, bool wanted)
{
	struct pollfd p = { .fd = scene.p.b.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&p, 1, wanted ? WAIT_SECONDS * 1000 : 0) != wanted)
		complain(c, wanted ? "no event at the responder" : "an event at the responder");
	if (!(p.revents & POLLIN))
		return;
	check_int(ibv_get_async_event(scene.p.b.ctx, &event), 0);
	if (event.event_type != IBV_EVENT_QP_ACCESS_ERR || event.element.qp != scene.p.b.qp)
		complain(c, "the event is %s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
}

static void check_completions(const struct combination *c, const struct expected *e)
{
	struct ibv_wc wc = wait_any(&scene.p.a);

	if (wc.status != e->requester) {
		complain(c, "the request completed with %s, not %s", ibv_wc_status_str(wc.status),
			ibv_wc_status_str(e->requester));
		/* Nothing else will be as expected. */
		pair_reconnect(&scene.p);
		return;
	}
	if (e->receiver_completes) {
		wc = wait_any(&scene.p.b);
		if (wc.status != e->receiver)
			complain(c, "the receive completed with %s, not %s", ibv_wc_status_str(wc.status),
				ibv_wc_status_str(e->receiver));
	}
	wait_state(c, "requester", &scene.p.a, e->requester_state);
	wait_state(c, "responder", &scene.p.b, e->responder_state);
	check_event(c, e->event);
	if (e->requester_state == IBV_QPS_ERR || wc.status != IBV_WC_SUCCESS)
		pair_reconnect(&scene.p);
	if (ibv_poll_cq(scene.p.a.cq, 1, &wc) || ibv_poll_cq(scene.p.b.cq, 1, &wc))
		complain(c, "one completion more (%s)", ibv_wc_status_str(wc.status));
}

/* [0, sure) is new, [sure, maybe) either, everything else old; new begins at START. */
static void check_bytes(const struct combination *c, const char *what, const unsigned char *got,
	const unsigned char *old, const unsigned char *new, size_t sure, size_t maybe, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		bool in_old = got[i] == old[i], in_new = got[i] == new[i];
		size_t at = i - START;

		if (i < START || at >= maybe ? in_old : at < sure ? in_new : in_old || in_new)
			continue;
		complain(c, "byte %zu of %s is %02x; before it was %02x, sent was %02x", i, what, got[i],
			old[i], new[i]);
		return;
	}
}

static void check_file(const struct combination *c)
{
	unsigned char on_disk[PAGE], *page = scene.place + IT;
	const unsigned char *want = c->backing == FILE_PRIVATE ? scene.stored : page;

	if (c->backing != FILE_PRIVATE && c->backing != FILE_SHARED && c->backing != MEMFD)
		return;
	check_sys(pread(fd_of(c->backing), on_disk, PAGE, 0) == (ssize_t)PAGE);
	if (memcmp(on_disk, want, PAGE))
		complain(c, c->backing == FILE_PRIVATE ? "it wrote through to the file"
						       : "the file does not have what the mapping has");
}

static void check_place(const struct combination *c, const unsigned char *old, const unsigned char *new,
	size_t sure, size_t maybe)
{
	bool uncovered = place_uncover(c);

	check_bytes(c, "what lies before it", scene.place, old, new, sure, maybe, 0, IT);
	if (uncovered)
		check_bytes(c, "it", scene.place, old, new, sure, maybe, IT, IT + PAGE);
	check_bytes(c, "what lies after it", scene.place, old, new, sure, maybe, IT + PAGE, LENGTH);
	if (uncovered)
		check_file(c);
}

static void check_transfer(const struct combination *c, const struct expected *e, const unsigned char *old,
	const unsigned char *other)
{
	unsigned char *buffer = owner(c->op) == &scene.p.a ? scene.theirs : scene.mine;

	if (c->op->way == READS) {
		check_place(c, old, old, BYTES, BYTES);
		check_bytes(c, "the other side's buffer", buffer, other, old, e->sure, e->maybe, 0, LENGTH);
	} else {
		check_place(c, old, other, e->sure, e->maybe);
		check_bytes(c, "the other side's buffer", buffer, other, other, BYTES, BYTES, 0, LENGTH);
	}
}

static void check_atomic(const struct combination *c, const struct expected *e, unsigned char *old,
	unsigned char *other, uint64_t before)
{
	unsigned char *buffer = c->op->remote ? scene.mine : scene.theirs;
	bool good = e->requester == IBV_WC_SUCCESS;
	uint64_t after = atomic_result(c->op, before);

	if (c->op->remote) {
		memcpy(old + WORD, good ? &after : &before, 8);
		memcpy(other + WORD, good ? (const void *)&before : other + WORD, 8);
	} else {
		if (good)
			memcpy(old + WORD, &before, 8);
		/* A result that cannot be delivered comes of an operation that was, or was not, carried out.
		 */
		if (!good && word_at(buffer + WORD) == before)
			after = before;
		memcpy(other + WORD, &after, 8);
	}
	check_place(c, old, old, BYTES, BYTES);
	check_bytes(c, "the other side's buffer", buffer, other, other, BYTES, BYTES, 0, LENGTH);
}

static bool meaningful(const struct combination *c)
{
	/*
	 * Processors let memory be read that may only be written or executed; it takes a fault to refuse it.
	 * That there is one is certain if the device is told what has become of the mapping before.
	 */
	if (!scene.told && c->op->way == READS && c->protection->after & (PROT_WRITE | PROT_EXEC) &&
		!(c->protection->after & PROT_READ))
		return false;
	/* A hole has no protection; what is not there yet can have none that changes. */
	if (c->backing == HOLE)
		return c->protection == &protections[0];
	return c->backing != GUARD || scene.guards;
}

static bool really_pinned(const struct combination *c)
{
	/* The buffers of the scene are pinned too. */
	return c->kind == PINNED && status_kib("VmPin") == 3 * (long)LENGTH / 1024;
}

static void carry_out(const struct combination *c)
{
	static unsigned char old[LENGTH], other[LENGTH];
	struct expected e;
	struct ibv_mr *mr;
	int refusal = c->kind == PINNED ? pins(c) : 0;
	uint64_t before;

	place_make(c, old);
	errno = 0;
	mr = region(c);
	if (!mr != !!refusal || (!mr && errno != refusal))
		complain(c, "registration %s (errno %d), and %s", mr ? "succeeded" : "failed", errno,
			refusal ? "EFAULT was due" : "should not have");
	if (!mr) {
		scene.refused++;
		return;
	}
	if (c->protection->touched)
		touch(c);
	if (c->protection->after != c->protection->before && c->backing != HOLE)
		check_sys(mprotect(scene.place + IT, PAGE, c->protection->after) == 0);
	fill_high(other, LENGTH);
	memcpy(scene.mine, other, LENGTH);
	memcpy(scene.theirs, other, LENGTH);
	e = expect(c, really_pinned(c));
	before = c->op->remote ? word_at(old + WORD) : word_at(other + WORD);
	if (is_atomic(c->op))
		post_atomic(c, mr, before);
	else
		post_transfer(c, mr);
	check_completions(c, &e);
	if (c->kind != IMPLICIT)
		dereg(mr);
	if (is_atomic(c->op))
		check_atomic(c, &e, old, other, before);
	else
		check_transfer(c, &e, old, other);
	if (e.requester == IBV_WC_SUCCESS)
		scene.carried_out++;
	else
		scene.refused++;
}

static void all_of(enum kind kind)
{
	for (enum backing b = 0; b < BACKINGS; b++)
		for (size_t p = 0; p < COUNT(protections); p++)
			for (size_t r = 0; r < COUNT(rights); r++)
				for (size_t o = 0; o < COUNT(ops); o++) {
					struct combination c = { kind, &rights[r], b, &protections[p],
						&ops[o] };

					if (meaningful(&c))
						carry_out(&c);
				}
	fprintf(stderr, "%s: %u combinations succeeded, %u were refused\n", kind_names[kind],
		scene.carried_out, scene.refused);
}

static void pinned_regions_reach_what_they_pinned(void)
{
	scene_open();
	all_of(PINNED);
	scene_close();
}

static void on_demand_regions_reach_what_the_mapping_allows(void)
{
	scene_open();
	all_of(EXPLICIT);
	scene_close();
}

static void implicit_regions_reach_what_the_mapping_allows(void)
{
	scene_open();
	for (size_t i = 0; i < COUNT(rights); i++) {
		scene.whole[0][i] = reg(&scene.p.a, NULL, SIZE_MAX, rights[i].access | ODP);
		scene.whole[1][i] = reg(&scene.p.b, NULL, SIZE_MAX, rights[i].access | ODP);
	}
	all_of(IMPLICIT);
	scene_close();
}

/* ibv_reg_mr(3): remote write and remote atomic need local write. */
static void remote_changes_without_local_write_are_EINVAL(void)
{
	static const int wrong[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ };
	char *memory = fresh(PAGE);
	struct end e;

	end_open(&e, NULL);
	for (size_t i = 0; i < COUNT(wrong); i++) {
		errno = 0;
		check(!ibv_reg_mr(e.pd, memory, PAGE, wrong[i]));
		check_int(errno, EINVAL);
		errno = 0;
		check(!ibv_reg_mr(e.pd, memory, PAGE, wrong[i] | ODP));
		check_int(errno, EINVAL);
		errno = 0;
		check(!ibv_reg_mr(e.pd, NULL, SIZE_MAX, wrong[i] | ODP));
		check_int(errno, EINVAL);
	}
	end_close(&e);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(remote_changes_without_local_write_are_EINVAL),
		CASE(pinned_regions_reach_what_they_pinned),
		CASE(on_demand_regions_reach_what_the_mapping_allows),
		CASE(implicit_regions_reach_what_the_mapping_allows),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
