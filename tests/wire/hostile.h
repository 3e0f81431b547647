/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A peer that keeps to the rules only as far as it likes: it makes every step of a meeting by hand. */
#ifndef UNPIN_TESTS_WIRE_HOSTILE_H
#define UNPIN_TESTS_WIRE_HOSTILE_H

#include "party.h"

#include <sys/socket.h>

#include "wire/door.h"
#include "wire/layout.h"
#include "wire/meet.h"
#include "wire/sealed.h"

struct hostile {
	int listener; /* its slot's name, which is really its own */
	uint32_t slot;
	int sock; /* to the victim */
	void *memory;
	int memfd;
	struct layout_head *head;
	struct layout_desc *desc;
	struct door door;
};

/* A slot, memory as it should be, and a connected socket; no hello yet. */
static inline void hostile_open(struct hostile *h, const struct party *victim)
{
	struct meet_name name;

	memset(h, 0, sizeof(*h));
	h->listener = -1;
	for (h->slot = wire_slot(victim->w); h->listener < 0;) {
		h->slot = h->slot % (LAYOUT_APART - 1) + 1;
		meet_name(&name, geteuid(), party_device(), h->slot);
		h->listener = meet_listen(&name);
	}
	h->memfd = sealed_make("hostile", LAYOUT_BYTES, false, &h->memory);
	if (h->memfd < 0 || door_open(&h->door, false))
		abort();
	h->head = h->memory;
	h->desc = layout_ring(h->memory);
	atomic_store(&h->head->version, LAYOUT_VERSION);
	atomic_store(&h->head->ring, WIRE_RING);
	atomic_store(&h->head->slots, WIRE_SLOTS);
	atomic_store(&h->head->segment, WIRE_SEGMENT);
	atomic_store(&h->head->magic, LAYOUT_CHANNEL_MAGIC);
	meet_name(&name, geteuid(), party_device(), wire_slot(victim->w));
	h->sock = meet_connect(&name);
	if (h->sock < 0)
		abort();
}

static inline void hostile_close(struct hostile *h)
{
	close(h->sock);
	close(h->listener);
	close(h->memfd);
	close(h->door.fd);
	sealed_unmap(h->memory, LAYOUT_BYTES);
	door_close(&h->door);
}

static inline int hostile_hello(struct hostile *h)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h->slot };
	int fd[2] = { h->memfd, h->door.fd };

	return meet_send(h->sock, &m, fd, 2);
}

/* The victim has answered. */
static inline bool hostile_answered(struct hostile *h)
{
	struct layout_message m;
	int fd;

	if (meet_receive(h->sock, LAYOUT_ANSWER_MAGIC, &m, &fd, 1))
		return false;
	close(fd);
	return true;
}

#endif
