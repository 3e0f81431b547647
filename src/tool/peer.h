/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The second process of the bench. It is the same program started as `unpin bench --peer FD` (hidden), so
 * that it opens the device by itself, and it does what it is told over a socket pair: records of fixed size,
 * one answer per request unless the verb says otherwise. It ends when the socket does.
 */
#ifndef UNPIN_TOOL_PEER_H
#define UNPIN_TOOL_PEER_H

#include <sys/types.h>

#include "tool/endpoint.h"
#include "tool/pingpong.h"

#define PEER_REGIONS 4

enum peer_verb {
	PEER_OPEN,    /* choice; answers address */
	PEER_CONNECT, /* address */
	PEER_MAKE,    /* region, length, kind, flag: touched; answers addr, rkey */
	PEER_RELEASE, /* region */
	PEER_FRESH,   /* region: MADV_DONTNEED, so that its pages are cold */
	PEER_TOUCH,   /* region */
	PEER_SCATTER, /* region: a store into every page, as machine_scatter has them; answers value: ns */
	PEER_FILL,    /* region, offset, length, seed */
	PEER_COMPARE, /* region, offset, length, seed; -EBADMSG when the bytes differ */
	/* These two answer twice: when they are ready, and when they have ended. */
	PEER_POLL,  /* polls until a SEND of no bytes arrives */
	PEER_PLAY,  /* pingpong; region, remote, rkey, style, length: iterations */
	PEER_USAGE, /* answers value: CPU time of the process in nanoseconds */
	PEER_VERBS
};

struct peer_request {
	uint32_t verb, region, kind, flag, style, rkey;
	uint64_t offset, length, seed, remote;
	struct endpoint_choice choice;
	struct endpoint_address address;
};

struct peer_answer {
	int32_t err; /* 0 or negative errno */
	uint32_t rkey;
	uint64_t addr, value;
	struct endpoint_address address;
	char why[256];
};

struct peer {
	pid_t pid;
	int fd;
	struct peer_answer answer; /* the last one; why is a sentence when err is not 0 */
};

/* Starts the process. 0 or negative errno. */
int peer_start(struct peer *p);
/* Sends a request and waits for the answer; returns its err, -EPIPE when the process has ended. */
int peer_call(struct peer *p, const struct peer_request *request);
/* The second answer of PEER_POLL and PEER_PLAY. */
int peer_finish(struct peer *p);
/* Ends the process and waits for it. */
void peer_stop(struct peer *p);

/* The second process itself: serves fd until it ends. The exit status. */
int peer_main(int fd);

#endif
