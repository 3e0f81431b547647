/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A fuzzer's entry: the input is a script that a hostile peer plays against a victim, through its socket, the
 * memory of its channel, its door, and the memory of the victim's channel to it. Whatever it does, the victim
 * may only be given packets that are well formed, must forget the peer afterwards, keep its descriptors and
 * go on talking to others.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined -Isrc tests/wire/fuzz_rx.c src/wire/?*.c
 * src/base/log.c -lcmocka -lpthread
 */
#include "hostile.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "../fuzz_driver.h"
#include "fuzz_rx.h"

#define MAX_STEPS 400

#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);       \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

struct script {
	const uint8_t *at, *end;
};

/* One round: the peer, and what it knows. */
struct round {
	struct hostile h;
	uint64_t pos;	       /* of its stream */
	struct wire_flow flow; /* the victim's, to it */
	bool flows;
	int callee;   /* the victim's connection, once it is accepted */
	void *theirs; /* the memory of the victim's channel */
};

static struct party victim;
static struct wire_flow self; /* the honest conversation: the victim with itself */
static uint32_t tag;
static unsigned descriptors;
static bool ready;

static uint64_t take(struct script *s, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes && s->at < s->end; i++)
		v |= (uint64_t)*s->at++ << 8 * i;
	return v;
}

static void check_packets(struct round *r, bool release)
{
	volatile uint8_t sink = 0;
	struct list keep = LIST_INIT(keep);
	struct wire_rx *rx;

	while ((rx = party_next(&victim))) {
		const uint8_t *p = rx->payload;

		must(rx->hdrlen >= 1 && rx->hdrlen <= WIRE_HDR);
		must(rx->paylen <= WIRE_SEGMENT);
		must(rx->src_slot == r->h.slot && wire_qpn_slot(rx->src_qpn) == r->h.slot);
		must(wire_qpn_slot(rx->dest_qpn) == wire_slot(victim.w));
		if (rx->paylen)
			sink = p[0] + p[rx->paylen - 1] + p[rx->paylen / 2];
		if (release)
			party_release(&victim, rx);
		else
			list_add_tail(&keep, &rx->node);
	}
	list_splice_tail(&victim.got, &keep);
	(void)sink;
}

static void step_hello(struct round *r, struct script *s)
{
	uint64_t flags = take(s, 1);
	struct layout_message m = { LAYOUT_HELLO_MAGIC ^ (flags & 1), LAYOUT_VERSION + (flags >> 1 & 1),
		flags & 4 ? (uint32_t)take(s, 2) : r->h.slot };
	int fd[2] = { flags & 8 ? r->h.door.fd : r->h.memfd, flags & 16 ? r->h.memfd : r->h.door.fd };

	meet_send(r->h.sock, &m, fd, flags & 32 ? 1 : 2);
}

static void step_raw(struct round *r, struct script *s)
{
	size_t n = take(s, 1);

	if (n > (size_t)(s->end - s->at))
		n = (size_t)(s->end - s->at);
	send(r->h.sock, s->at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	s->at += n;
}

/* Mostly by the rules, so that the rest of the script is reached. */
static void step_packet(struct round *r, struct script *s)
{
	struct layout_desc *d = &r->h.desc[r->pos % WIRE_RING];
	uint64_t hdrlen = take(s, 1), slot = take(s, 1), paylen = take(s, 2);
	uint64_t src = r->h.slot << WIRE_SLOT_BITS | take(s, 1), dest = wire_slot(victim.w) << WIRE_SLOT_BITS;

	atomic_store(&d->word[1], dest | hdrlen << 32 | slot << 40 | paylen << 48);
	atomic_store(&d->word[0], (uint32_t)(r->pos / WIRE_RING + 1) | src << 32);
	r->pos++;
}

static void step_word(struct round *r, struct script *s)
{
	uint64_t i = take(s, 2) % WIRE_RING, word = take(s, 1) % LAYOUT_DESC_WORDS;

	atomic_store(&r->h.desc[i].word[word], take(s, 8));
}

static void step_head(struct round *r, struct script *s)
{
	_Atomic uint32_t *word = r->h.memory;
	uint64_t i = take(s, 2) % (LAYOUT_HEAD_BYTES / 4);

	atomic_store(&word[i], (uint32_t)take(s, 4));
}

static void step_poll(struct round *r, struct script *s)
{
	wire_poll(victim.w, (int)take(s, 1));
	check_packets(r, false);
}

static void step_service(struct round *r, struct script *s)
{
	wire_service(victim.w, clock_ns());
}

static void step_release(struct round *r, struct script *s)
{
	check_packets(r, true);
}

static void step_starve(struct round *r, struct script *s)
{
	victim.starve = take(s, 1) & 1;
}

static void step_door(struct round *r, struct script *s)
{
	atomic_store(&r->h.door.page->state, take(s, 8));
}

static void step_bye(struct round *r, struct script *s)
{
	uint64_t flags = take(s, 1);

	if (flags & 1)
		meet_leave(r->h.sock);
	if (flags & 2)
		shutdown(r->h.sock, flags & 4 ? SHUT_WR : SHUT_RDWR);
}

static void step_notify(struct round *r, struct script *s)
{
	wire_notify_dropped(victim.w, r->h.slot, (uint32_t)take(s, 3));
}

static void step_send(struct round *r, struct script *s)
{
	uint32_t paylen = (uint32_t)take(s, 2) % (WIRE_SEGMENT + 1);

	if (!r->flows)
		party_flow(&r->flow, &victim, r->h.slot);
	r->flows = true;
	for (uint64_t n = take(s, 1); n > 0 && !party_send(&r->flow, r->h.slot, 1, paylen, 1); n--)
		;
}

static void step_answer(struct round *r, struct script *s)
{
	uint64_t flags = take(s, 1);
	struct layout_message m = { LAYOUT_ANSWER_MAGIC ^ (flags & 1), LAYOUT_VERSION + (flags >> 1 & 1),
		flags & 4 ? (uint32_t)take(s, 2) : r->h.slot };
	struct layout_message hello;
	int fd[2];

	if (r->callee < 0)
		r->callee = meet_accept(r->h.listener);
	if (r->callee < 0)
		return;
	if (!r->theirs && !meet_receive(r->callee, LAYOUT_HELLO_MAGIC, &hello, fd, 2)) {
		must(!sealed_map(fd[0], LAYOUT_BYTES, true, &r->theirs));
		close(fd[0]);
		close(fd[1]);
	}
	meet_send(r->callee, &m, flags & 8 ? &r->h.memfd : &r->h.door.fd, flags & 16 ? 0 : 1);
}

static void step_back(struct round *r, struct script *s)
{
	_Atomic uint64_t *word = r->theirs;
	uint64_t i = take(s, 2) % (LAYOUT_SLOT_OFFSET / 8), value = take(s, 8);

	if (word)
		atomic_store(&word[i], value);
}

static void step_ring(struct round *r, struct script *s)
{
	for (uint64_t n = take(s, 1); n; n--)
		meet_ring(r->callee >= 0 ? r->callee : r->h.sock);
}

static void step_arm(struct round *r, struct script *s)
{
	wire_arm(victim.w);
	if (take(s, 1) & 1)
		wire_disarm(victim.w);
}

static void step_punch(struct round *r, struct script *s)
{
	uint64_t page = take(s, 2) % (LAYOUT_BYTES / 4096);

	must(ftruncate(r->h.memfd, (off_t)page * 4096));
	fallocate(r->h.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)page * 4096, 8192);
}

static void (*const step[FUZZ_STEPS])(struct round *, struct script *) = {
	[FUZZ_HELLO] = step_hello,
	[FUZZ_RAW] = step_raw,
	[FUZZ_PACKET] = step_packet,
	[FUZZ_WORD] = step_word,
	[FUZZ_HEAD] = step_head,
	[FUZZ_POLL] = step_poll,
	[FUZZ_SERVICE] = step_service,
	[FUZZ_RELEASE] = step_release,
	[FUZZ_STARVE] = step_starve,
	[FUZZ_DOOR] = step_door,
	[FUZZ_BYE] = step_bye,
	[FUZZ_NOTIFY] = step_notify,
	[FUZZ_SEND] = step_send,
	[FUZZ_ANSWER] = step_answer,
	[FUZZ_BACK] = step_back,
	[FUZZ_RING] = step_ring,
	[FUZZ_ARM] = step_arm,
	[FUZZ_PUNCH] = step_punch,
};

static void open_victim(void)
{
	if (ready)
		return;
	ready = true;
	setenv("UNPIN_LOG", "error", 0);
	party_open(&victim, 1024);
	party_flow(&self, &victim, wire_slot(victim.w));
	must(!party_send(&self, wire_slot(victim.w), 1, 100, 0));
	party_until(&victim, &victim, victim.ngot == 1);
	party_release_all(&victim);
	for (int i = 0; i < 5; i++)
		party_pump(&victim);
}

/* The victim's other conversation has not suffered. */
static void talk_to_oneself(void)
{
	for (int i = 0; i < 3; i++) {
		unsigned long got = victim.ngot;
		struct wire_rx *rx;

		must(!party_send(&self, wire_slot(victim.w), 1, 5000, ++tag));
		party_until(&victim, &victim, victim.ngot > got);
		rx = party_next(&victim);
		must(rx && rx->src_slot == wire_slot(victim.w) && party_intact(rx, 5000, tag));
		party_release(&victim, rx);
	}
}

static void part(struct round *r)
{
	victim.starve = false;
	wire_disarm(victim.w);
	meet_leave(r->h.sock);
	if (r->callee >= 0) {
		meet_leave(r->callee);
		close(r->callee);
	}
	if (r->theirs)
		sealed_unmap(r->theirs, LAYOUT_BYTES);
	hostile_close(&r->h);
	for (int i = 0; i < 3; i++) {
		party_pump(&victim);
		check_packets(r, true);
	}
	if (r->flows)
		party_end_flow(&r->flow);
	/* Even a peer that was only thought to be dying is given up in the end. */
	wire_service(victim.w, clock_ns() + 20 * NSEC_PER_SEC);
	wire_service(victim.w, clock_ns() + 20 * NSEC_PER_SEC);
	check_packets(r, true);
	talk_to_oneself();
	party_until(&victim, &victim, open_descriptors() == descriptors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = { data, data + size };
	struct round r = { .callee = -1 };

	open_victim();
	descriptors =
		open_descriptors(); /* the fuzzer has some of its own, which come and go between scripts */
	hostile_open(&r.h, &victim);
	for (int i = 0; i < MAX_STEPS && s.at < s.end; i++)
		step[take(&s, 1) % FUZZ_STEPS](&r, &s);
	part(&r);
	return 0;
}
