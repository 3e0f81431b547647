/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Is it really on? Everything here is tried on the device: what a registration takes, whether cold pages are
 * brought in and followed when they go, and whether the bytes that arrive are those that were sent, at odd
 * offsets and across pages. A completion alone proves nothing: Linux 7.3's rxe completes and delivers other
 * bytes.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/attach.h"
#include "tool/doctor.h"
#include "tool/doctor_pair.h"
#include "tool/machine.h"
#include "tool/units.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ALL_ACCESS                                                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define LARGE ((uint64_t)1 << 30)

/* --- what a registration takes ----------------------------------------------------------------------------
 */

/* As much as can be pinned without harm should on demand turn out to be a pin. */
static uint64_t large(void)
{
	uint64_t room = machine_available() / 4 / (2 << 20) * (2 << 20);

	return room < LARGE ? room : LARGE;
}

static uint64_t grown(uint64_t after, uint64_t before)
{
	return after > before ? after - before : 0;
}

static void hold(struct doctor *d, struct doctor_held *h, enum endpoint_kind kind)
{
	struct machine_memory before, after;
	struct ibv_mr *mr;
	void *addr;

	h->length = large();
	addr = h->length ? machine_map(h->length) : NULL;
	if (!addr) {
		h->err = ENOMEM;
		return;
	}
	before = machine_memory();
	errno = 0;
	h->ns = clock_ns();
	mr = ibv_reg_mr(d->e.pd, addr, h->length,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			(kind == ENDPOINT_ON_DEMAND ? IBV_ACCESS_ON_DEMAND : 0));
	h->err = mr ? 0 : errno ? errno : EIO;
	h->ns = clock_ns() - h->ns;
	after = machine_memory();
	h->pinned = grown(after.pinned, before.pinned);
	h->locked = grown(after.locked, before.locked);
	h->resident = grown(after.resident, before.resident);
	if (mr)
		ibv_dereg_mr(mr);
	machine_unmap(addr, h->length);
}

const struct doctor_held *doctor_reality_hold(struct doctor *d, enum endpoint_kind kind)
{
	struct doctor_held *h = &d->held[kind];

	if (!h->tried)
		hold(d, h, kind);
	h->tried = true;
	return h;
}

/* Half of the buffer is far beyond what tables of a device take, and far below a pin. */
bool doctor_reality_pins(struct doctor *d)
{
	const struct doctor_held *h = doctor_reality_hold(d, ENDPOINT_ON_DEMAND);

	return !h->err &&
	       (h->pinned >= h->length / 2 || h->locked >= h->length / 2 || h->resident >= h->length / 2);
}

static void check_on_demand(struct doctor *d, struct doctor_result *r)
{
	const struct doctor_held *h = doctor_reality_hold(d, ENDPOINT_ON_DEMAND);
	char time[UNITS_MAX];

	if (h->err) {
		doctor_say(r, DOCTOR_FAIL, "%s of untouched memory: refused: %s", doctor_bytes(h->length),
			strerror(h->err));
		doctor_mean(r, "A small region can be registered on demand, a large one cannot.");
		doctor_advise(r, "%s",
			h->err == ENOMEM
				? "If VmPin of the process grows, this device pins on-demand regions and "
				  "meets the limit on locked memory; see the limit in the memory group."
				: "Register smaller pieces, and read the kernel log.");
		return;
	}
	doctor_say(r, doctor_reality_pins(d) ? DOCTOR_FAIL : DOCTOR_OK,
		"%s of untouched memory in %s: VmPin +%s, VmLck +%s, VmRSS +%s", doctor_bytes(h->length),
		units_time(time, h->ns), doctor_bytes(h->pinned), doctor_bytes(h->locked),
		doctor_bytes(h->resident));
	if (!doctor_reality_pins(d))
		return;
	doctor_mean(r,
		"The device takes IBV_ACCESS_ON_DEMAND and pins the memory all the same: a silent pin. "
		"Registration "
		"is as slow and takes as much as without on-demand paging, and memory that the program gives "
		"back goes on being used by the device under its feet.");
	if (d->device.kind == DOCTOR_KIND_UNPIN)
		doctor_advise(r,
			"This device imitates such firmware because UNPIN_PROFILE=%s is set. Unset the "
			"variable, or set "
			"it to unpin.",
			getenv("UNPIN_PROFILE") ? getenv("UNPIN_PROFILE") : "");
	else
		doctor_advise(r,
			"Update the card's firmware and the driver. Until this check passes, treat the "
			"device as one "
			"without on-demand paging: size the limit on locked memory for all buffers.");
}

static void check_pinned(struct doctor *d, struct doctor_result *r)
{
	const struct doctor_held *h = doctor_reality_hold(d, ENDPOINT_PINNED);
	const struct doctor_held *on_demand = &d->held[ENDPOINT_ON_DEMAND];
	char time[UNITS_MAX], times[64] = "";

	if (h->err) {
		doctor_say(r, DOCTOR_WARN, "%s: refused: %s", doctor_bytes(h->length), strerror(h->err));
		doctor_mean(r, "Pinned regions of this size cannot be had; on-demand regions do not need the "
			       "limit that stands "
			       "in the way.");
		doctor_advise(
			r, "If the program pins, raise the limit on locked memory (see the memory group).");
		return;
	}
	if (on_demand->tried && !on_demand->err && on_demand->ns && !doctor_reality_pins(d))
		snprintf(times, sizeof(times), ", %llu times as long as on demand",
			(unsigned long long)(h->ns / on_demand->ns));
	doctor_say(r, DOCTOR_OK, "%s in %s%s: VmPin +%s, VmLck +%s, VmRSS +%s", doctor_bytes(h->length),
		units_time(time, h->ns), times, doctor_bytes(h->pinned), doctor_bytes(h->locked),
		doctor_bytes(h->resident));
}

/* --- one transfer, and where its bytes went ----------------------------------------------------------------
 */

#define PAGES 16

struct buffer {
	unsigned char *addr;
	size_t length;
	struct ibv_mr *mr;
	bool on_demand;
};

static bool buffer_make(struct doctor *d, struct buffer *b, bool on_demand)
{
	b->length = PAGES * (size_t)getpagesize();
	b->addr = machine_map(b->length);
	b->on_demand = on_demand;
	b->mr = !b->addr ? NULL
			 : ibv_reg_mr(d->e.pd, b->addr, b->length,
				   ALL_ACCESS | (on_demand ? IBV_ACCESS_ON_DEMAND : 0));
	/* A device without atomics refuses their right. */
	if (b->addr && !b->mr)
		b->mr = ibv_reg_mr(d->e.pd, b->addr, b->length,
			(ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC) | (on_demand ? IBV_ACCESS_ON_DEMAND : 0));
	return b->mr;
}

static void buffer_drop(struct buffer *b)
{
	int err = errno;

	if (b->mr)
		ibv_dereg_mr(b->mr);
	machine_unmap(b->addr, b->length);
	memset(b, 0, sizeof(*b));
	errno = err;
}

/* On demand, too, where pinning is refused. */
static bool buffer_any(struct doctor *d, struct buffer *b, bool on_demand)
{
	if (buffer_make(d, b, on_demand))
		return true;
	buffer_drop(b);
	return !on_demand && buffer_make(d, b, true);
}

/* All of it is value afterwards; 0 by giving the pages back, so that the device finds them cold. Memory that
 * is pinned must not be given back, or the device would keep the old pages. */
static void buffer_reset(struct doctor *d, struct buffer *b, unsigned char value)
{
	if (!value && b->on_demand && !doctor_reality_pins(d))
		madvise(b->addr, b->length, MADV_DONTNEED);
	else
		memset(b->addr, value, b->length);
}

static unsigned char pattern(size_t i)
{
	return (unsigned char)(0x80 | ((i * 37 + i / 251) & 0x7f));
}

/* What is tried: the operation, and which side's memory is on demand. */
struct attempt {
	enum doctor_transport transport;
	enum doctor_operation operation;
	enum ibv_wr_opcode opcode;
	bool requester, responder; /* each in turn */
};

static const struct attempt attempts[] = {
	{ DOCTOR_RC, DOCTOR_SEND, IBV_WR_SEND, true, false },
	{ DOCTOR_RC, DOCTOR_RECV, IBV_WR_SEND, false, true },
	{ DOCTOR_RC, DOCTOR_WRITE, IBV_WR_RDMA_WRITE, true, true },
	{ DOCTOR_RC, DOCTOR_READ, IBV_WR_RDMA_READ, true, true },
	{ DOCTOR_RC, DOCTOR_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD, true, true },
	{ DOCTOR_RC, DOCTOR_ATOMIC, IBV_WR_ATOMIC_CMP_AND_SWP, true, true },
	{ DOCTOR_RC, DOCTOR_SRQ, IBV_WR_SEND, false, true },
	{ DOCTOR_UC, DOCTOR_SEND, IBV_WR_SEND, true, false },
	{ DOCTOR_UC, DOCTOR_RECV, IBV_WR_SEND, false, true },
	{ DOCTOR_UC, DOCTOR_WRITE, IBV_WR_RDMA_WRITE, true, true },
	{ DOCTOR_UD, DOCTOR_SEND, IBV_WR_SEND, true, false },
	{ DOCTOR_UD, DOCTOR_RECV, IBV_WR_SEND, false, true },
};

static const enum ibv_qp_type types[DOCTOR_TRANSPORTS] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
	IBV_QPT_XRC_SEND };

struct trial {
	struct doctor *d;
	struct doctor_pair pair;
	struct buffer local, remote;
	const struct attempt *a;
	char why[256];
};

static void tell(struct trial *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void tell(struct trial *t, const char *fmt, ...)
{
	char rest[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(rest, sizeof(rest), fmt, ap);
	va_end(ap);
	snprintf(t->why, sizeof(t->why), "%s %s with on-demand memory at the %s: %s",
		doctor_transport_names[t->a->transport], doctor_operation_names[t->a->operation],
		t->local.on_demand ? "requester" : "responder", rest);
}

/* Where the bytes from source are in the buffer, to tell what went wrong; length when they are nowhere. */
static size_t find_bytes(const struct buffer *b, const unsigned char *source, size_t n)
{
	const unsigned char *at = n < 4 ? NULL : memmem(b->addr, b->length, source, n < 16 ? n : 16);

	return at ? (size_t)(at - b->addr) : b->length;
}

static enum doctor_tried wrong(struct trial *t, const struct buffer *to, size_t offset, size_t bad,
	uint32_t length, const unsigned char *source)
{
	size_t page = (size_t)getpagesize(), found = find_bytes(to, source, length);

	if (found < to->length && found != offset)
		tell(t, "%u bytes for offset %zu of a page arrived at offset %zu instead", length,
			offset % page, found % page);
	else
		tell(t, "of %u bytes for offset %zu of a page, byte %zu is wrong", length, offset % page,
			bad);
	return DOCTOR_WRONG_BYTES;
}

/* Compares the whole buffer: the bytes that were to arrive, and those around them. */
static enum doctor_tried compare(struct trial *t, const struct buffer *to, size_t offset,
	const unsigned char *source, uint32_t length, unsigned char rest)
{
	size_t skip = t->pair.type == IBV_QPT_UD ? DOCTOR_PAIR_GRH : 0;

	for (size_t i = 0; i < length; i++)
		if (to->addr[offset + i] != source[i])
			return wrong(t, to, offset, i, length, source);
	for (size_t i = 0; i < to->length; i++) {
		if (i + skip >= offset && i < offset + length)
			continue;
		if (to->addr[i] != rest) {
			tell(t,
				"%u bytes for offset %zu of a page arrived, and a byte beside them was "
				"overwritten",
				length, offset % (size_t)getpagesize());
			return DOCTOR_WRONG_BYTES;
		}
	}
	return DOCTOR_WORKS;
}

/* An unreliable WRITE completes when it has been sent. */
static void await_arrival(
	const struct buffer *to, size_t offset, const unsigned char *source, uint32_t length)
{
	uint64_t deadline = clock_ns() + NSEC_PER_SEC;

	while (memcmp(to->addr + offset, source, length) != 0 && clock_ns() < deadline)
		usleep(1000);
}

static enum doctor_tried carry(struct trial *t, size_t local, size_t remote, uint32_t length, bool cold)
{
	bool reads = t->a->opcode == IBV_WR_RDMA_READ;
	struct buffer *from = reads ? &t->remote : &t->local, *to = reads ? &t->local : &t->remote;
	size_t source = reads ? remote : local, target = reads ? local : remote;
	unsigned char rest = cold ? 0 : 0x5a;
	struct doctor_transfer transfer = {
		.opcode = t->a->opcode,
		.local = { t->local.addr + local, t->local.mr->lkey },
		.remote = { t->remote.addr + remote,
			t->a->opcode == IBV_WR_SEND ? t->remote.mr->lkey : t->remote.mr->rkey },
		.length = length,
	};
	int err;

	buffer_reset(t->d, from, 0);
	buffer_reset(t->d, to, rest);
	for (size_t i = 0; i < length; i++)
		from->addr[source + i] = pattern(source + i);
	err = doctor_pair_do(&t->pair, &transfer);
	if (err) {
		tell(t, "%s", t->pair.why);
		return DOCTOR_REFUSED;
	}
	if (t->pair.type == IBV_QPT_UC && t->a->opcode == IBV_WR_RDMA_WRITE)
		await_arrival(to, target, from->addr + source, length);
	return compare(t, to, target, from->addr + source, length, rest);
}

/* Old value at the requester, new value at the responder, and nothing else changed. */
static enum doctor_tried carry_atomic(struct trial *t, size_t local, size_t remote, bool cold)
{
	const uint64_t before = 0x1122334455667788, after = 0x99aabbccddeeff00;
	bool swaps = t->a->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct doctor_transfer transfer = {
		.opcode = t->a->opcode,
		.local = { t->local.addr + local, t->local.mr->lkey },
		.remote = { t->remote.addr + remote, t->remote.mr->rkey },
		.length = 8,
		.compare_add = swaps ? before : after - before,
		.swap = after,
	};
	unsigned char rest = cold ? 0 : 0x5a;
	enum doctor_tried tried;
	int err;

	buffer_reset(t->d, &t->remote, rest);
	buffer_reset(t->d, &t->local, rest);
	memcpy(t->remote.addr + remote, &before, 8);
	err = doctor_pair_do(&t->pair, &transfer);
	if (err) {
		tell(t, "%s", t->pair.why);
		return DOCTOR_REFUSED;
	}
	tried = compare(t, &t->local, local, (const unsigned char *)&before, 8, rest);
	return tried == DOCTOR_WORKS ? compare(t, &t->remote, remote, (const unsigned char *)&after, 8, rest)
				     : tried;
}

/* Offsets into pages: pages is counted in pages, bytes added. One row would do on a device that is right. */
static const struct {
	int local_pages, local_bytes, remote_pages, remote_bytes, length_pages, length_bytes;
} shapes[] = {
	{ 1, 0, 1, 0, 1, 0 },	  /* a page from its start: all that most suites look at */
	{ 1, 0, 1, 0, 3, 0 },	  /* three of them */
	{ 1, 1, 1, 1, 0, 1 },	  /* a byte */
	{ 1, 17, 1, 17, 0, 100 }, /* the same odd offset on both sides */
	{ 1, 123, 2, 3000, 0, 500 }, { 1, -5, 2, -5, 0, 10 }, /* across the end of a page, on both sides */
	{ 1, 8, 2, -100, 0, 300 },			      /* on one */
	{ 2, -1, 1, 1, 2, 3 },				      /* over four pages */
	{ 1, 5, 2, -7, 8, 11 },				      /* over ten */
};

static enum doctor_tried try_shapes(struct trial *t)
{
	static const int targets[] = { 0, 296, 4088 }, results[] = { 3, 4092, 17 };
	int page = getpagesize();
	enum doctor_tried tried = DOCTOR_WORKS;

	for (size_t i = 0;
		i < 2 * COUNT(targets) && t->a->operation == DOCTOR_ATOMIC && tried == DOCTOR_WORKS; i++)
		tried = carry_atomic(
			t, (size_t)(page + results[i / 2]), (size_t)(page + targets[i / 2]), i % 2 == 0);
	for (size_t i = 0; i < 2 * COUNT(shapes) && t->a->operation != DOCTOR_ATOMIC && tried == DOCTOR_WORKS;
		i++) {
		uint32_t length = (uint32_t)(shapes[i / 2].length_pages * page + shapes[i / 2].length_bytes);

		if (length > t->pair.largest)
			length = t->pair.largest;
		tried = carry(t, (size_t)(shapes[i / 2].local_pages * page + shapes[i / 2].local_bytes),
			(size_t)(shapes[i / 2].remote_pages * page + shapes[i / 2].remote_bytes), length,
			i % 2 == 0);
	}
	return tried;
}

/* With on-demand memory at the requester, at the responder, or at neither. */
static enum doctor_tried try_sides(
	struct doctor *d, const struct attempt *a, bool requester, bool responder, char *why, size_t size)
{
	struct trial t = { .d = d, .a = a };
	enum doctor_tried tried = DOCTOR_NOT_TRIED;
	int err = doctor_pair_open(&t.pair, &d->e, types[a->transport], a->operation == DOCTOR_SRQ);

	t.local.on_demand = requester;
	if (err && err != -EOPNOTSUPP) {
		tried = DOCTOR_REFUSED;
		tell(&t, "%s", t.pair.why);
	}
	/* The other side is pinned, so that this one is to blame; where pinning is refused, both are on
	 * demand. */
	if (!err && buffer_any(d, &t.local, requester) && buffer_any(d, &t.remote, responder))
		tried = try_shapes(&t);
	buffer_drop(&t.local);
	buffer_drop(&t.remote);
	doctor_pair_close(&t.pair);
	snprintf(why, size, "%s", t.why);
	return tried;
}

/* The worse of two. */
static enum doctor_tried worse(enum doctor_tried a, enum doctor_tried b)
{
	if (a == DOCTOR_WRONG_BYTES || b == DOCTOR_WRONG_BYTES)
		return DOCTOR_WRONG_BYTES;
	return a > b ? a : b;
}

void doctor_reality_try(struct doctor *d)
{
	if (d->tried_all)
		return;
	d->tried_all = true;
	for (size_t i = 0; i < COUNT(attempts) && !endpoint_stop; i++) {
		const struct attempt *a = &attempts[i];
		bool says = d->device.says[a->transport] & doctor_operation_bits[a->operation];

		for (int requester = 1; requester >= 0; requester--) {
			enum doctor_tried tried;
			char why[256];

			if (!(requester ? a->requester : a->responder))
				continue;
			tried = try_sides(d, a, requester, !requester, why, sizeof(why));
			d->tried[a->transport][a->operation] =
				worse(d->tried[a->transport][a->operation], tried);
			if (says && tried > DOCTOR_WORKS && !d->trouble[0])
				snprintf(d->trouble, sizeof(d->trouble), "%s", why);
		}
	}
}

/* Whether on-demand memory is to blame. */
static bool pinned_is_right(struct doctor *d)
{
	char why[256];

	for (size_t i = 0; i < COUNT(attempts); i++)
		if (attempts[i].transport == DOCTOR_RC && attempts[i].operation == DOCTOR_WRITE)
			return try_sides(d, &attempts[i], false, false, why, sizeof(why)) == DOCTOR_WORKS;
	return false;
}

static void check_data(struct doctor *d, struct doctor_result *r)
{
	unsigned right = 0, bad = 0, refused = 0;

	doctor_reality_try(d);
	for (int o = 0; o < DOCTOR_OPERATIONS; o++) {
		right += d->tried[DOCTOR_RC][o] == DOCTOR_WORKS;
		bad += d->tried[DOCTOR_RC][o] == DOCTOR_WRONG_BYTES;
		refused += d->tried[DOCTOR_RC][o] == DOCTOR_REFUSED &&
			   (d->device.says[DOCTOR_RC] & doctor_operation_bits[o]);
	}
	if (bad) {
		doctor_say(r, DOCTOR_FAIL, "%s",
			d->trouble[0] ? d->trouble : "an operation delivered other bytes than were sent");
		doctor_mean(r,
			"Requests complete without an error and the data is wrong. Programs on this device "
			"lose or corrupt "
			"data when their memory is on demand%s.",
			pinned_is_right(d)
				? "; the same transfers between pinned buffers are right"
				: ". Pinned memory does not help: its transfers are not right either");
		if (d->device.kind == DOCTOR_KIND_RXE)
			doctor_advise(r, "Do not use on-demand memory on rxe with this kernel: it copies to "
					 "the start of the page, "
					 "whatever the offset (Linux 7.3 does). Use pinned memory on it, a "
					 "kernel in which this "
					 "check passes, or 'unpin run -- PROGRAM'.");
		else
			doctor_advise(r, "Do not use on-demand memory on this device. Use pinned memory, "
					 "other firmware or another "
					 "kernel, and run this check again.");
		return;
	}
	if (endpoint_stop || (!right && !refused)) {
		doctor_say(r, DOCTOR_UNKNOWN, "nothing could be tried");
		doctor_mean(r, "Whether on-demand memory carries data is not known.");
		doctor_advise(r, "Let the check run to its end.");
		return;
	}
	if (refused) {
		doctor_say(r, right ? DOCTOR_WARN : DOCTOR_FAIL, "%s", d->trouble);
		doctor_mean(r, "%s",
			right ? "Some operations fail with on-demand memory, though the device offers them; "
				"the bytes of the "
				"others are right."
			      : "No operation works with on-demand memory.");
		doctor_advise(r, "Look at the table below for what works; use pinned memory for the rest.");
		return;
	}
	doctor_say(r, DOCTOR_OK,
		"%u operations on reliable connections, each side, cold and warm, at odd offsets and across "
		"pages: all "
		"bytes are right",
		right);
}

/* --- cold pages --------------------------------------------------------------------------------------------
 */

#define COLD_PAGES 256

/* A pair, a pinned or on-demand source with a pattern, and COLD_PAGES of untouched on-demand memory. */
struct cold {
	struct doctor *d;
	struct doctor_pair pair;
	struct buffer from;
	unsigned char *addr;
	size_t length;
	struct ibv_mr *mr;
	const char *why;
};

static bool cold_open(struct cold *c, struct doctor *d)
{
	memset(c, 0, sizeof(*c));
	c->d = d;
	c->length = COLD_PAGES * (size_t)getpagesize();
	c->addr = machine_map(c->length);
	if (doctor_pair_open(&c->pair, &d->e, IBV_QPT_RC, false)) {
		c->why = c->pair.why;
		return false;
	}
	if (!buffer_any(d, &c->from, false)) {
		c->why = "cannot register the memory to send from";
		return false;
	}
	for (size_t i = 0; i < c->from.length; i++)
		c->from.addr[i] = pattern(i);
	c->mr = c->addr ? ibv_reg_mr(d->e.pd, c->addr, c->length, ALL_ACCESS | IBV_ACCESS_ON_DEMAND) : NULL;
	if (!c->mr && c->addr)
		c->mr = ibv_reg_mr(d->e.pd, c->addr, c->length,
			(ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC) | IBV_ACCESS_ON_DEMAND);
	if (!c->mr)
		c->why = "cannot register the cold memory";
	return c->mr;
}

static void cold_close(struct cold *c)
{
	if (c->mr)
		ibv_dereg_mr(c->mr);
	buffer_drop(&c->from);
	doctor_pair_close(&c->pair);
	machine_unmap(c->addr, c->length);
}

/* Pages of the cold memory that are there. */
static size_t cold_resident(const struct cold *c)
{
	unsigned char in[COLD_PAGES];
	size_t n = 0;

	if (mincore(c->addr, c->length, in))
		return 0;
	for (size_t i = 0; i < COLD_PAGES; i++)
		n += in[i] & 1;
	return n;
}

/* A few bytes at the start of a page, which also devices get right that confuse offsets or packets: those are
 * the data check's. */
#define COLD_BYTES 64

static int cold_write(struct cold *c, size_t page)
{
	struct doctor_transfer t = {
		.opcode = IBV_WR_RDMA_WRITE,
		.local = { c->from.addr, c->from.mr->lkey },
		.remote = { c->addr + page * (size_t)getpagesize(), c->mr->rkey },
		.length = COLD_BYTES,
	};
	int err = doctor_pair_do(&c->pair, &t);

	if (err)
		c->why = c->pair.why;
	return err;
}

static bool cold_arrived(const struct cold *c, size_t page)
{
	return memcmp(c->addr + page * (size_t)getpagesize(), c->from.addr, COLD_BYTES) == 0;
}

static void cannot(struct doctor_result *r, const struct cold *c)
{
	doctor_say(r, DOCTOR_FAIL, "%s", c->why);
	doctor_mean(r, "The attempt did not get as far as an access to a cold page.");
	doctor_advise(r,
		"See whether pinned memory works: 'ibv_rc_pingpong -d %s -g 0' in two terminals, one with "
		"the name of "
		"this host behind it.",
		c->d->device.name);
}

static void check_cold(struct doctor *d, struct doctor_result *r)
{
	struct cold c;
	size_t before, after;
	uint64_t ns;
	char time[UNITS_MAX];

	if (!cold_open(&c, d)) {
		cannot(r, &c);
		cold_close(&c);
		return;
	}
	before = cold_resident(&c);
	ns = clock_ns();
	if (cold_write(&c, 7)) {
		doctor_say(
			r, DOCTOR_FAIL, "an RDMA WRITE to a page that was never touched failed: %s", c.why);
		doctor_mean(r, "The device does not resolve page faults, which is what on-demand paging is.");
		doctor_advise(r, "Read the kernel log for messages of the driver about page faults; with a "
				 "timeout (\"transport retry "
				 "counter exceeded\") update the firmware. Do not use on-demand memory until "
				 "this passes.");
		cold_close(&c);
		return;
	}
	ns = clock_ns() - ns;
	after = cold_resident(&c);
	if (!cold_arrived(&c, 7)) {
		doctor_say(r, DOCTOR_FAIL,
			"an RDMA WRITE to a page that was never touched completed, and the data is not "
			"there");
		doctor_mean(r, "Data is lost without an error.");
		doctor_advise(r, "Do not use on-demand memory on this device.");
	} else if (before == COLD_PAGES) {
		doctor_say(r, DOCTOR_FAIL, "all %d pages were there before the first access", COLD_PAGES);
		doctor_mean(r,
			"The registration brought in (and keeps) every page: it is a pin by another name.");
		doctor_advise(r, "See the check of on-demand registration above.");
	} else {
		doctor_say(r, DOCTOR_OK,
			"an RDMA WRITE to one of %d untouched pages completed in %s; pages in memory: %zu "
			"before, %zu after",
			COLD_PAGES, units_time(time, ns), before, after);
	}
	cold_close(&c);
}

/* What pinned memory cannot do: the device follows when the program gives a page back and gets another one.
 */
static void check_follows(struct doctor *d, struct doctor_result *r)
{
	size_t page = (size_t)getpagesize();
	const char *lost = NULL;
	struct cold c;

	if (!cold_open(&c, d)) {
		cannot(r, &c);
		cold_close(&c);
		return;
	}
	if (!cold_write(&c, 3)) {
		madvise(c.addr + 3 * page, page, MADV_DONTNEED);
		if (!cold_write(&c, 3) && !cold_arrived(&c, 3))
			lost = "MADV_DONTNEED";
		if (!c.why && !lost &&
			mmap(c.addr + 3 * page, page, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED &&
			!cold_write(&c, 3) && !cold_arrived(&c, 3))
			lost = "a new mapping at the same address";
	}
	if (c.why) {
		doctor_say(r, DOCTOR_FAIL, "an RDMA WRITE failed: %s", c.why);
		doctor_mean(r, "The device does not get over the loss of a page that it had used.");
		doctor_advise(r, "Do not use on-demand memory that is given back or mapped anew while it is "
				 "registered.");
	} else if (lost) {
		doctor_say(
			r, DOCTOR_FAIL, "after %s the device writes to the page that was there before", lost);
		doctor_mean(r, "The data goes where nobody looks, without an error. That is how pinned "
			       "memory behaves: the region is "
			       "not on demand, whatever the device says.");
		doctor_advise(r, "Treat the device as one without on-demand paging: deregister memory before "
				 "giving it back.");
	} else {
		doctor_say(r, DOCTOR_OK,
			"after MADV_DONTNEED and after a new mapping, RDMA WRITEs reach the new page");
	}
	cold_close(&c);
}

/* The page faults of our own device's region, from the segment that this process exports. */
static int own_faults(const struct cold *c, uint64_t *faults)
{
	struct attach a;
	int err = attach_open(&a, getpid());

	if (err)
		return err;
	err = attach_read(&a);
	if (!err)
		err = -ENODATA;
	for (uint32_t i = 0; err == -ENODATA && i < a.copy->regions_high; i++)
		if (a.copy->region[i].kind == UNPIN_REGION_ODP && a.copy->region[i].rkey == c->mr->rkey) {
			*faults = a.copy->region[i].odp.page_faults;
			err = 0;
		}
	attach_close(&a);
	return err;
}

static int count_faults(const struct cold *c, uint64_t *faults, char *from, size_t size)
{
	if (c->d->device.kind == DOCTOR_KIND_UNPIN) {
		snprintf(from, size, "unpin's segment");
		return own_faults(c, faults);
	}
	return doctor_counters_faults(c->d, faults, from, size);
}

static void check_counters(struct doctor *d, struct doctor_result *r)
{
	uint64_t before = 0, after = 0;
	char from[128] = "";
	struct cold c;
	int err;

	if (doctor_reality_pins(d)) {
		doctor_say(r, DOCTOR_NA, "on-demand regions are pinned on this device");
		return;
	}
	if (!cold_open(&c, d)) {
		cannot(r, &c);
		cold_close(&c);
		return;
	}
	err = count_faults(&c, &before, from, sizeof(from));
	if (!err && !cold_write(&c, 5))
		err = count_faults(&c, &after, from, sizeof(from));
	cold_close(&c);
	if (err) {
		doctor_say(r, DOCTOR_WARN, "there is no counter of page faults for this device (%s)",
			strerror(-err));
		doctor_mean(r, "On-demand paging cannot be watched on it: whether a slow request waited for "
			       "a page fault will not be "
			       "told.");
		doctor_advise(r,
			"Watch the process instead: minflt and majflt of ps(1), VmRSS in /proc/PID/status. "
			"('rdma statistic "
			"show mr' has the counters where the driver has them: mlx5, from Linux 5.5 on.)");
		return;
	}
	if (after > before) {
		doctor_say(r, DOCTOR_OK,
			"page_faults went from %llu to %llu with one access to a cold page (%s)",
			(unsigned long long)before, (unsigned long long)after, from);
		return;
	}
	doctor_say(r, DOCTOR_WARN, "page_faults stayed at %llu during an access to a cold page (%s)",
		(unsigned long long)before, from);
	doctor_mean(r, "Either the counter does not count, or the page was not cold for the device: then the "
		       "region is pinned.");
	doctor_advise(r, "If the check of on-demand registration passed, do not rely on this counter.");
}

static const struct doctor_check checks[] = {
	{ "reality.on-demand", "registration, on demand", DOCTOR_ODP | DOCTOR_VITAL, check_on_demand },
	{ "reality.pinned", "registration, pinned", DOCTOR_OPEN, check_pinned },
	{ "reality.cold", "a cold page", DOCTOR_ODP | DOCTOR_VITAL, check_cold },
	{ "reality.follows", "memory given back", DOCTOR_ODP | DOCTOR_VITAL, check_follows },
	{ "reality.counters", "page fault counters", DOCTOR_ODP, check_counters },
	{ "reality.data", "the bytes", DOCTOR_ODP | DOCTOR_VITAL, check_data },
};

const struct doctor_group doctor_reality_group = { "reality", "Is it really on?", checks, COUNT(checks) };
