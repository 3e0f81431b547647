/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether the bytes that arrive are those that were sent, with each operation, on each side, at odd offsets
 * and across pages. A completion alone proves nothing: Linux 7.3's rxe completes and delivers other bytes.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/doctor.h"
#include "tool/doctor_pair.h"
#include "tool/doctor_reality.h"
#include "tool/doctor_region.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* --- one transfer, and where its bytes went ----------------------------------------------------------------
 */

/* All of it is value afterwards; 0 by giving the pages back, so that the device finds them cold. Memory that
 * is pinned must not be given back, or the device would keep the old pages. */
static void reset(struct doctor *d, struct doctor_region *b, unsigned char value)
{
	if (!value && b->on_demand && !doctor_held_pins(d))
		madvise(b->addr, b->length, MADV_DONTNEED);
	else
		memset(b->addr, value, b->length);
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
	struct doctor_region local, remote;
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
static size_t find_bytes(const struct doctor_region *b, const unsigned char *source, size_t n)
{
	const unsigned char *at = n < 4 ? NULL : memmem(b->addr, b->length, source, n < 16 ? n : 16);

	return at ? (size_t)(at - b->addr) : b->length;
}

static enum doctor_tried wrong(struct trial *t, const struct doctor_region *to, size_t offset, size_t bad,
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
static enum doctor_tried compare(struct trial *t, const struct doctor_region *to, size_t offset,
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
	const struct doctor_region *to, size_t offset, const unsigned char *source, uint32_t length)
{
	uint64_t deadline = clock_ns() + NSEC_PER_SEC;

	while (memcmp(to->addr + offset, source, length) != 0 && clock_ns() < deadline)
		usleep(1000);
}

static enum doctor_tried carry(struct trial *t, size_t local, size_t remote, uint32_t length, bool cold)
{
	bool reads = t->a->opcode == IBV_WR_RDMA_READ;
	struct doctor_region *from = reads ? &t->remote : &t->local, *to = reads ? &t->local : &t->remote;
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

	reset(t->d, from, 0);
	reset(t->d, to, rest);
	for (size_t i = 0; i < length; i++)
		from->addr[source + i] = doctor_region_pattern(source + i);
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

	reset(t->d, &t->remote, rest);
	reset(t->d, &t->local, rest);
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
	if (!err && doctor_region_any(d, &t.local, requester) && doctor_region_any(d, &t.remote, responder))
		tried = try_shapes(&t);
	doctor_region_drop(&t.local);
	doctor_region_drop(&t.remote);
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

void doctor_data_try(struct doctor *d)
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

void doctor_data_check(struct doctor *d, struct doctor_result *r)
{
	unsigned right = 0, bad = 0, refused = 0;

	doctor_data_try(d);
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
