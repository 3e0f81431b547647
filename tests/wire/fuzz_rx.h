/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The steps of a script for fuzz_rx.c: a byte that names the step (modulo FUZZ_STEPS), then its arguments,
 * little endian. */
#ifndef UNPIN_TESTS_WIRE_FUZZ_RX_H
#define UNPIN_TESTS_WIRE_FUZZ_RX_H

enum fuzz_step {
	FUZZ_HELLO, /* flags(1): 1 magic, 2 version, 4 slot(2) follows, 8 door for memory, 16 memory for door,
		       32 one fd */
	FUZZ_RAW,   /* length(1), bytes: a message */
	FUZZ_PACKET, /* hdrlen(1) slot(1) paylen(2) qp(1): the next descriptor */
	FUZZ_WORD,   /* descriptor(2) word(1) value(8) */
	FUZZ_HEAD,   /* word of 4 bytes(2) value(4) */
	FUZZ_POLL,   /* budget(1) */
	FUZZ_SERVICE,
	FUZZ_RELEASE, /* everything received */
	FUZZ_STARVE,  /* no buffers(1) */
	FUZZ_DOOR,    /* state(8) */
	FUZZ_BYE,     /* flags(1): 1 goodbye, 2 shutdown, 4 of writing only */
	FUZZ_NOTIFY,  /* qpn(3) */
	FUZZ_SEND,    /* paylen(2) times(1): from the victim */
	FUZZ_ANSWER,  /* flags(1): 1 magic, 2 version, 4 slot(2) follows, 8 memory for door, 16 no fd */
	FUZZ_BACK,    /* word of 8 bytes(2) value(8): of the victim's channel */
	FUZZ_RING,    /* times(1) */
	FUZZ_ARM,     /* disarm(1) */
	FUZZ_PUNCH,   /* page(2) */
	FUZZ_STEPS
};

#endif
