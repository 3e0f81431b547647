/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * `unpin bench`: what its parts share. A part is a file bench_NAME.c with one function of the type below, and
 * a row in the table of bench.c.
 */
#ifndef UNPIN_TOOL_BENCH_H
#define UNPIN_TOOL_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hist.h"
#include "tool/endpoint.h"
#include "tool/peer.h"
#include "tool/report.h"
#include "tool/sample.h"

#define BENCH_SIZES_MAX 16

struct bench {
	struct endpoint_choice choice;
	bool quick;
	uint32_t pairs;			/* interleaved rounds of a comparison */
	uint64_t size[BENCH_SIZES_MAX]; /* of registrations, given by --size; else none */
	unsigned sizes;
	struct endpoint e; /* this process's end; while a part is connected */
	struct peer peer;
	bool connected;
	bool progress;	      /* standard error is a terminal */
	unsigned part, parts; /* for the bar: the part that runs, and how many will */
	struct report report;
	enum endpoint_kind peer_kind[PEER_REGIONS]; /* of the regions made in the second process */
	/* What bench_look found. */
	char wrong[320];     /* that on-demand memory brings other bytes than were sent; "": it does not */
	double bytes_per_s;  /* of a stream of WRITEs, about; 0: not known */
	double faults_per_s; /* of cold pages one after the other, about; 0: not known */
	char why[512];	     /* of the last failure */
};

/* Measures and fills in its part of the report. 0, or a negative errno after a failure that ends the part
 * (b->why says what). */
typedef int bench_run(struct bench *b);
bench_run bench_registration, bench_touch, bench_streaming, bench_latency, bench_bandwidth, bench_idle,
	bench_pagetable, bench_faults, bench_invalidate, bench_implicit, bench_faultmode, bench_pitfalls,
	bench_sizes, bench_distribution, bench_prefetch, bench_held, bench_scaling, bench_reuse,
	bench_squeeze;

/* Adds a part with what the others found, in plain words; nothing when none of them says anything. */
void bench_advice(struct report *r);
/* From a plot of the reuse part: the uses from which on a pinned buffer is cheaper than one on demand. 0:
 * from the first; INFINITY: not within the plot; -1: no difference worth the name anywhere; NAN: one was not
 * measured. */
double bench_break_even(const struct plot *plot);

/* Opens the device in this process and in a second one and connects them; both are on processors of their own
 * afterwards. */
int bench_connect(struct bench *b);
/* Opens the device in this process alone, for parts that use queue pairs connected to themselves. */
int bench_alone(struct bench *b);
/* Without on-demand paging there is nothing to measure: -EOPNOTSUPP with the reason. */
int bench_no_odp(struct bench *b);
/* bench_connect with a variable of the environment set while the device opens; what it is to others stays. */
int bench_connect_set(struct bench *b, const char *variable, const char *value);
/* Closes both. Harmless when not connected. */
void bench_disconnect(struct bench *b);

/* True when the person wants no more (Ctrl-C). */
bool bench_stopped(void);

/* A bar and "what (done of all)" on the terminal. */
void bench_progress(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Looks at the device that is open: fills in wrong, bytes_per_s and faults_per_s. What fails is left at "" or
 * 0: the parts that need it will tell. */
void bench_look(struct bench *b);
/* amount, halved until per_s (0: not known) of it make no more than so many seconds, but not below least: a
 * device may be a hundred times as slow as ours, and a measurement must end. */
uint64_t bench_fit(double per_s, uint64_t amount, uint64_t least, double seconds);
/* What went through on-demand memory is not what was sent. 0 when bench_look has found that already, and the
 * report says so: figures tell all the same how long requests take. Otherwise -EBADMSG with the sentence. */
int bench_wrong(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts a sentence into b->why and returns err. */
int bench_fail(struct bench *b, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with what the endpoint or the second process said. 0 stays 0. */
int bench_fail_endpoint(struct bench *b, int err);
int bench_fail_peer(struct bench *b, int err);

/* Requests to the second process; errors are put into b->why. */
int bench_peer_make(struct bench *b, unsigned region, uint64_t length, enum endpoint_kind kind, bool touched,
	uint64_t *addr, uint32_t *rkey);
int bench_peer_simple(struct bench *b, enum peer_verb verb, unsigned region);
/* Wrong bytes in a region that is not pinned are told as bench_wrong has it. */
int bench_peer_compare(struct bench *b, unsigned region, uint64_t offset, uint64_t length, uint64_t seed);
int bench_peer_fill(struct bench *b, unsigned region, uint64_t offset, uint64_t length, uint64_t seed);

/* The second process polls its completion queue from begin to end. */
int bench_peer_poll_begin(struct bench *b);
int bench_peer_poll_end(struct bench *b);

/* length bytes by WRITE or READ in messages of message bytes, at most depth at a time. span: the local and
 * remote buffers have so many bytes and are used again from their start. Nanoseconds from the first post to
 * the last completion, or negative errno. */
int64_t bench_stream(struct bench *b, enum ibv_wr_opcode opcode, const struct endpoint_region *local,
	uint64_t remote, uint32_t rkey, uint64_t span, uint32_t message, unsigned depth, uint64_t length);

/* GB/s (10^9 bytes) from bytes and nanoseconds. */
double bench_rate(uint64_t bytes, uint64_t ns);

/* Microseconds with their unit; writes at most UNITS_MAX bytes and returns buf. */
char *bench_time(char *buf, double us);

#define BENCH_US(ns) ((double)(ns) / 1000.0)
#define BENCH_MS(ns) ((double)(ns) / 1000000.0)

#endif
