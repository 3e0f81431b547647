/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * `unpin advise`: what each memory region is, what it should be, what that gains, and the line that does it.
 * Its parts:
 *
 *   advise.c         options, what to look at
 *   advise_live.c    a running process: facts from its segment
 *   advise_trace.c   timelines: facts from their events
 *   advise_scan.c    the objects of a JSON file, one at a time, however large it is
 *   advise_cost.c    what pinning, faults and registering cost on this machine
 *   advise_event.c   what such an event says of a region
 *   advise_fold.c    facts, taken together where they are one thing. Pure functions
 *   advise_model.c   from facts to verdicts. Pure functions
 *   advise_words.c   verdicts as sentences and lines of code. Pure functions
 *   advise_page.c    the page, and JSON
 *
 * Not thread safe; one thread does it all.
 */
#ifndef UNPIN_TOOL_ADVISE_H
#define UNPIN_TOOL_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/segment.h"

#define ADVISE_PAGE 4096u

/* The counters of base/segment.h by number. */
enum advise_counter {
#define X(field, name, what) ADVISE_##field,
	UNPIN_ODP_COUNTERS(X)
#undef X
		ADVISE_COUNTERS
};
extern const char *const advise_counter_names[ADVISE_COUNTERS];

/* --- facts: what was seen of one region, or of one range that was registered several times
 * ------------------------ */

struct advise_region {
	uint32_t kind; /* enum unpin_region_kind, not NONE */
	uint32_t access;
	uint64_t addr, length; /* implicit: 0, UINT64_MAX */
	bool live;	       /* it is registered now (in a timeline: at its end) */
	uint32_t places;       /* different addresses that are taken together here, 1 or more */
	uint64_t times;	       /* registrations, 1 or more; of these... */
	uint64_t register_ns;  /* ...the time they took */
	uint64_t lived_ns;     /* ...and for how long they stood, so far */
	uint64_t odp[ADVISE_COUNTERS];
	uint64_t accesses, sequential, pages;
	uint64_t slice_bytes; /* 0: no slices */
	uint64_t base;	      /* where slice 0 begins */
	uint32_t slice[USAGE_SLICES];
	/* Time that page faults took, all together. Not known: there were some, and nobody said how long. */
	bool fault_ns_known;
	uint64_t fault_ns;
	/* During the last look at a running process; 0 seconds: there was none. */
	double look_seconds;
	uint64_t look_accesses, look_faults, look_invalidations;
};

/* One process. */
struct advise_facts {
	int64_t pid;
	char command[64], device[64];
	bool running;
	double seconds; /* from opening the device, or the timeline's begin, to the last look or event */
	double look_seconds;
	uint64_t registrations, register_ns; /* of all regions; those of the table only when forgotten is 0 */
	uint64_t forgotten;		     /* registrations about which nothing else is known any more */
	uint64_t dropped;		     /* events that the timeline lost */
	struct advise_region *region;
	size_t regions, room;
};

/* A zeroed region at the end; it is good until the next call. */
struct advise_region *advise_add(struct advise_facts *f);
void advise_facts_free(struct advise_facts *f);

/*
 * Takes together what is one thing to the application: a range that is registered and had been before; and
 * ranges of one length, kind and access at many addresses, each of which is registered no more, or is at this
 * moment and has been often before.
 */
#define ADVISE_OFTEN  4u /* registrations */
#define ADVISE_PLACES 8u /* so many addresses are an allocator's choice, not the program's */
void advise_fold(struct advise_facts *f);

/* Pages of 4 KiB that a region lies in; of an implicit one 0. */
uint64_t advise_pages_of(const struct advise_region *r);

/* --- costs
 * --------------------------------------------------------------------------------------------------- */

/* Nanoseconds on this machine. 0: not known. */
struct advise_costs {
	double pin_page;      /* pinning a page that nobody has touched, in a large range */
	double populate_page; /* bringing one in without pinning it, in a large range */
	double fault_page;    /* the first access to one, when only that one is brought in */
	double register_call; /* registering what needs no pages */
	bool register_assumed;
	double took;	/* measuring all this; 0: it was read from a file */
	char from[256]; /* "measured now", or the file */
};

/* Measures, in about a tenth of a second. Pinning is not known where not even 64 KiB may be locked. */
void advise_measure(struct advise_costs *c);
/* From a report of `unpin bench --json`. 0, or -EINVAL after a sentence on standard error. */
int advise_costs_read(struct advise_costs *c, const char *path);

/* --- verdicts
 * ------------------------------------------------------------------------------------------------ */

enum advise_should {
	ADVISE_UNSURE,
	ADVISE_PINNED,
	ADVISE_ON_DEMAND,
	ADVISE_PREFETCH, /* on demand, with prefetch */
	ADVISE_LOCK_HOT, /* on demand, with mlock of its hot part */
	ADVISE_ONCE,	 /* registered once, and kept */
	ADVISE_IMPLICIT, /* one implicit region for all of them */
	ADVISE_SHOULDS
};
/* "pinned", "on_demand", ... and "pinned", "on demand", "on demand, with prefetch", ... */
extern const char *const advise_should_keys[ADVISE_SHOULDS];
extern const char *const advise_should_names[ADVISE_SHOULDS];

enum advise_why {
	ADVISE_TOO_LITTLE, /* accesses */
	ADVISE_TOO_YOUNG,  /* unused, but not for long */
	ADVISE_UNUSED,
	ADVISE_AGAIN_AND_AGAIN, /* registered */
	ADVISE_GIVEN_BACK,	/* the application drops its pages again and again */
	ADVISE_RECLAIMED,	/* the kernel does */
	ADVISE_HOT_PART,
	ADVISE_HOT,    /* all of it */
	ADVISE_STREAM, /* through memory that is used once */
	ADVISE_SPARSE,
	ADVISE_FEW_USES,
	ADVISE_EITHER, /* the difference is small */
	ADVISE_WHYS
};
extern const char *const advise_why_keys[ADVISE_WHYS];

enum advise_pattern {
	ADVISE_NO_PATTERN,
	ADVISE_IN_SEQUENCE,
	ADVISE_REPEATED,
	ADVISE_AT_RANDOM,
	ADVISE_PATTERNS
};
extern const char *const advise_pattern_keys[ADVISE_PATTERNS];

#define ADVISE_HOT_RANGES 4u

struct advise_verdict {
	const struct advise_region *region;
	enum advise_should should, as; /* as: with ONCE, what it should be registered once as */
	enum advise_why why;
	bool same; /* it is what it should be */
	enum advise_pattern pattern;
	double touched;	 /* share of its pages; < 0: means nothing (implicit) */
	double reuse;	 /* times that each of these was accessed */
	double run;	 /* bytes, from where an access did not go on from another one, to the next such */
	double refaults; /* times that each of these was brought in */
	/* The parts that have nine of ten accesses, when they are few and small: bytes from addr on. */
	struct advise_range {
		uint64_t offset, length;
	} hot[ADVISE_HOT_RANGES];
	unsigned hots;
	uint64_t hot_bytes;
	double hot_share; /* of the accesses */
	/* What is gained if it becomes what it should be; negative: it costs that much. NAN: not known. */
	double register_ns; /* time for all its registrations, as seen */
	double fault_ns;    /* time of its page faults, as seen; with prefetch: up to that */
	double locked_bytes;
	double score; /* all of it as time: bytes count as what bringing them in takes */
};

/* Facts must have passed advise_fold(). */
void advise_judge(struct advise_verdict *v, const struct advise_region *r, const struct advise_costs *c);

/* Verdicts of all regions, those with most to gain first; then what is as it should be, largest first; then
 * what nothing can be said of. To be freed. */
struct advise_verdict *advise_judge_all(const struct advise_facts *f, const struct advise_costs *c);

/* --- words
 * --------------------------------------------------------------------------------------------------- */

#define ADVISE_WORDS 512
const char *advise_kind_name(uint32_t kind);
/* "64 MiB at 0x7f..", "3124 buffers of 64 KiB", "all of the address space" */
char *advise_what(char out[ADVISE_WORDS], const struct advise_region *r);
/* How it is used: "touched 5.0 % (820 pages), each 1.0 times; at random, 4 KiB at a time; 820 page faults" */
char *advise_seen(char out[ADVISE_WORDS], const struct advise_verdict *v);
char *advise_because(char out[ADVISE_WORDS], const struct advise_verdict *v);
/* "registration 63 ms less; 57.6 MiB less locked; page faults 12 ms more" */
char *advise_gain(char out[ADVISE_WORDS], const struct advise_verdict *v);
/* "pinned", or with its registrations: "pinned, 3124 times" */
char *advise_is(char out[ADVISE_WORDS], const struct advise_region *r);
/* "on demand, with prefetch" */
char *advise_shall(char out[ADVISE_WORDS], const struct advise_verdict *v);

enum advise_library { ADVISE_VERBS, ADVISE_UCX, ADVISE_LIBFABRIC, ADVISE_LIBRARIES };
extern const char *const advise_library_names[ADVISE_LIBRARIES];
/* What does it there: one to ADVISE_LINES lines; 0: nothing has to be done. */
#define ADVISE_LINES 4u
unsigned advise_lines(
	char out[ADVISE_LINES][ADVISE_WORDS], const struct advise_verdict *v, enum advise_library library);

/* --- ways in and out
 * ----------------------------------------------------------------------------------------- */

/* Looks at a process twice, so many seconds apart (once when it ends meanwhile). 0 or an error of attach.h.
 */
int advise_live(struct advise_facts *f, pid_t pid, double seconds);

/* A set of processes, from timelines. */
struct advise_crowd {
	struct advise_facts *facts;
	size_t count;
};
/*
 * Adds what a timeline says. 0; or a negative errno after a sentence on standard error: it cannot be read, it
 * is no timeline (-EINVAL), or has no regions in it (-ENODATA). A timeline that is cut off is good up to
 * there.
 */
int advise_trace(struct advise_crowd *crowd, const char *path);
void advise_crowd_free(struct advise_crowd *crowd);

struct advise_look {
	unsigned width; /* columns */
	bool colour;
	bool all; /* list every region */
};

void advise_page(FILE *out, const struct advise_facts *f, const struct advise_verdict *v,
	const struct advise_costs *c, const struct advise_look *look);
/* One object for all processes. 0 or -EIO. */
int advise_json(FILE *out, const struct advise_crowd *crowd, const struct advise_costs *c);

/* --- scanning a large file
 * ----------------------------------------------------------------------------------- */

enum advise_scan_end { ADVISE_SCAN_WHOLE, ADVISE_SCAN_CUT, ADVISE_SCAN_NO_JSON };

#define ADVISE_SCAN_MOST 65536u /* bytes of an object; longer ones are passed over */

/*
 * Calls each for every object of the array that the file is, or of its "traceEvents" (every object one level
 * below the outermost). text has a 0 behind it and may be changed. each returns 0 to go on. Returns what each
 * returned, or the negative errno of reading. *end: how the file ended; *passed: objects that were too long.
 */
int advise_scan(FILE *f, int (*each)(void *arg, char *text, size_t length), void *arg,
	enum advise_scan_end *end, uint64_t *passed);

#endif
