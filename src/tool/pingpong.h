/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages of 8 bytes back and forth, as both ends play it. Each message carries its number, and who receives
 * one checks it: a lost, doubled or late message ends the game with -EBADMSG.
 */
#ifndef UNPIN_TOOL_PINGPONG_H
#define UNPIN_TOOL_PINGPONG_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/endpoint.h"

enum pingpong_style {
	PINGPONG_SEND,	/* SEND, both ends poll the completion queue */
	PINGPONG_WRITE, /* RDMA WRITE, both ends spin on the memory that is written, as programs that poll on
			   memory do */
	PINGPONG_EVENT, /* SEND, both ends sleep until a completion event comes */
	PINGPONG_STYLES
};

#define PINGPONG_BYTES 4096 /* of memory that each end needs */

struct pingpong {
	enum pingpong_style style;
	bool first;	     /* this end sends first */
	uint32_t iterations; /* round trips */
	struct endpoint_region *memory;
	uint64_t remote; /* the other end's memory */
	uint32_t rkey;
};

/* Before the other end may start: posts receives, clears the memory. */
int pingpong_prepare(struct endpoint *e, const struct pingpong *p);
/* Plays. round_ns (iterations of them, or NULL) gets the time of each round trip. */
int pingpong_play(struct endpoint *e, const struct pingpong *p, uint64_t *round_ns);

#endif
