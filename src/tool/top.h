/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * `unpin top`: what a process's on-demand paging does, as it happens. Its parts:
 *
 *   top.c         options, which process, the loop
 *   top_gather.c  one look at a process: a frame
 *   top_kernel.c  one look at a device of the kernel: a frame too
 *   top_model.c   what follows from two frames: rates, shares, heat. Pure functions
 *   top_order.c   in which order, and what of it. Pure functions
 *   top_page.c    a view as lines of text of a given width. Pure functions
 *   top_page_kernel.c  of a device of the kernel, what is other there
 *   top_screen.c  lines on a terminal, keys
 *   top_batch.c   views as lines for logs and as JSON
 *
 * Not thread safe; one thread does it all.
 */
#ifndef UNPIN_TOOL_TOP_H
#define UNPIN_TOOL_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/segment.h"

#define TOP_UNKNOWN UINT64_MAX /* of a quantity that the kernel does not tell */
#define TOP_NONE    UINT32_MAX /* of a number that it does not tell */

/* The counters of base/segment.h by number. */
enum top_odp_counter {
#define X(field, name, what) TOP_ODP_##field,
	UNPIN_ODP_COUNTERS(X)
#undef X
		TOP_ODP_COUNTERS
};
enum top_dev_counter {
#define X(field, name, what) TOP_DEV_##field,
	UNPIN_DEVICE_COUNTERS(X)
#undef X
		TOP_DEV_COUNTERS
};

/* --- a frame: one look ------------------------------------------------------------------------------------
 */

/* A region's memory, from its page table, in TOP_STRIP equal pieces. */
#define TOP_STRIP 16u
struct top_residency {
	bool known;
	unsigned asked, present, swapped; /* pages that were asked about; of those, in memory, in swap */
	uint8_t share[TOP_STRIP];	  /* percent in memory, of each piece */
	bool out[TOP_STRIP];		  /* some of the piece is in swap */
};

/* Whose something is on a device of the kernel. */
#define TOP_COMMAND 48
struct top_owner {
	uint32_t pid;		   /* 0: not told */
	uint32_t pd;		   /* TOP_NONE */
	char command[TOP_COMMAND]; /* "[ib_core]": the kernel's own; "": not told */
};

/* Of a device of the kernel row is the region's number there, kind may be UNPIN_REGION_NONE (not told), addr
 * and counters TOP_UNKNOWN. */
struct top_region {
	uint32_t row, kind; /* enum unpin_region_kind */
	uint64_t addr, length;
	uint32_t lkey, access;
	uint64_t odp[TOP_ODP_COUNTERS];
	struct top_residency residency;
	/* Of a device of the kernel: */
	struct top_owner owner;
	bool keys_told;
	uint32_t rkey;
	char details[96]; /* the driver's */
};

/* Of a device of the kernel state and peer may be TOP_NONE, retransmits and rnr_naks TOP_UNKNOWN; what lies
 * between these is not told at all. */
struct top_qp {
	uint32_t number, state, peer, outstanding, receives, parked;
	uint64_t parked_since_ns, parkings, retransmits, rnr_naks;
	/* Of a device of the kernel: */
	struct top_owner owner;
	uint32_t type, port; /* enum ib_qp_type; TOP_NONE */
};

/* A counter of a port. */
struct top_counter {
	char name[80]; /* "port1.rcvd_pkts" */
	uint64_t value;
};

struct top_slow {
	uint32_t flags;
	uint64_t ended_ns, addr, pages, waited_ns, resolved_ns, reads;
};

/* Where the time of faults has gone so far, nanoseconds. */
struct top_time {
	uint64_t waited; /* for somebody to work on it */
	uint64_t reads;	 /* resolving, while the kernel read from a disk or swap */
	uint64_t work;	 /* resolving, without that */
	uint64_t resume; /* until what waited went on */
};

struct top_system {
	uint64_t minflt, majflt;	    /* of the process, so far */
	uint64_t rss, locked, pinned, swap; /* of the process, bytes */
	uint64_t swap_in, swap_out;	    /* pages, the machine, so far */
	uint64_t psi_some_us, psi_full_us;  /* memory stall, so far */
	bool psi_of_group;		    /* of the process's control group, else of the machine */
	bool of_machine; /* no process: faults are all of the machine's, group_* its memory that is in use and
			    all */
	uint64_t group_used, group_limit; /* bytes; TOP_UNKNOWN: no group, no limit */
};

struct top_frame {
	uint64_t at_ns; /* CLOCK_MONOTONIC */
	pid_t pid;
	char command[64], device[64], profile[32], notifier[32], fault_mode[16], fault_reply[16];
	uint64_t start_ns, pinned_bytes, table_bytes;
	uint64_t odp[TOP_ODP_COUNTERS], dev[TOP_DEV_COUNTERS];
	uint64_t read_events;
	struct top_time time;
	uint32_t storm; /* enum unpin_storm_cause */
	uint64_t storms;
	struct top_region *region;
	size_t regions;
	struct top_qp *qp;
	size_t qps;
	struct top_slow slow[UNPIN_SLOW_FAULTS];
	size_t slows;
	unsigned unreadable; /* regions that changed while they were read */
	struct top_system system;
	/* Of a device of the kernel, which has no time of faults, slow faults and storms: */
	bool kernel;
	char firmware[64];
	char trouble[128];	     /* why regions or queue pairs are not told; "" */
	struct top_counter *counter; /* by name */
	size_t counters;
};

void top_frame_free(struct top_frame *f);
/* Reads a process's segment, and /proc and /sys below root ("" for the real ones). 0 or an error of attach.h.
 */
int top_frame_read(struct top_frame *f, pid_t pid, const char *root);
/* The part about the system; pid 0: of the machine. */
void top_system_read(struct top_system *s, pid_t pid, const char *root);
/* The number behind a word at the beginning of a line of a file below root, in pages or whatever it is in;
 * TOP_UNKNOWN: there is none. */
uint64_t top_number_behind(const char *root, const char *path, const char *word);
/* The residency of at most `most` of the frame's regions, those first that `order` lists; the others' is not
 * known. Bounded work: some thousand pages are asked about per region. */
void top_residency_read(struct top_frame *f, const size_t *order, size_t most, const char *root);

/* --- a view: what two frames come to
 * ------------------------------------------------------------------------ */

enum top_heat { TOP_NEVER, TOP_COLD, TOP_WARM, TOP_HOT, TOP_HEAT_UNKNOWN };
extern const char *const top_heat_names[];

#define TOP_WARM_NS 10000000000ull /* a region is warm for so long after it was hot */

struct top_region_view {
	const struct top_region *region;
	bool fresh; /* made since the frame before */
	double faults, majors, invalidations, prefetched, ahead, bytes_in,
		bytes_out; /* per second; < 0: not known */
	enum top_heat heat;
};

struct top_qp_view {
	const struct top_qp *qp;
	uint64_t waits_ns;	  /* for a fault, by now; 0: for none */
	double parkings, retries; /* per second; < 0: not known */
};

struct top_counter_view {
	const struct top_counter *counter;
	double rate; /* per second */
};

struct top_slow_view {
	const struct top_slow *slow;
	const struct top_region *region; /* the smallest that holds the address; NULL: none does any more */
	uint64_t took_ns, ago_ns;
};

struct top_view {
	const struct top_frame *frame;
	double seconds;					     /* between the frames */
	double odp[TOP_ODP_COUNTERS], dev[TOP_DEV_COUNTERS]; /* per second; < 0: not known */
	struct top_time time;				     /* in between */
	double minflt, majflt, swap_in, swap_out;	     /* per second; < 0: not known */
	double psi_some, psi_full;			     /* percent of the time; < 0: not known */
	double read_events;				     /* per second */
	struct top_region_view *region;
	size_t regions;
	struct top_qp_view *qp;
	size_t qps;
	struct top_slow_view slow[UNPIN_SLOW_FAULTS];
	size_t slows;
	struct top_counter_view *counter;
	size_t counters;
};

/* What a frame does not hold: when each of its regions, in their order, was last seen at work. Zeroed at
 * first. */
struct top_memory {
	struct top_remembered {
		uint32_t row, lkey;
		bool ever;
		uint64_t hot_ns;
	} * row;
	size_t rows;
};

/*
 * What has happened from before to now, two frames of one process. The view points into both frames. Counters
 * that went backwards (another device was opened) count from 0.
 */
void top_view_make(struct top_view *v, const struct top_frame *before, const struct top_frame *now,
	struct top_memory *memory);
void top_view_free(struct top_view *v);
void top_memory_free(struct top_memory *m);

/* One word for where the time of faults went, by the larger part: "disk or swap", "waiting in line", "kernel
 * and driver", "waking", or "no faults". */
const char *top_verdict(const struct top_time *t);

/* --- order and choice
 * --------------------------------------------------------------------------------------- */

enum top_key {
	TOP_BY_FAULTS,
	TOP_BY_MAJORS,
	TOP_BY_INVALIDATIONS,
	TOP_BY_PREFETCH,
	TOP_BY_AHEAD,
	TOP_BY_BYTES,
	TOP_BY_RESIDENT,
	TOP_BY_LENGTH,
	TOP_BY_ADDRESS,
	TOP_KEYS
};
extern const char *const top_key_names[TOP_KEYS];
/* The key of a name; TOP_KEYS: there is none. */
enum top_key top_key_named(const char *name);

/* Sorts the view's regions, largest first (smallest first: backwards), equal ones by address; queue pairs:
 * those that wait first, then by outstanding, and of a device of the kernel by retries; slow faults: the
 * slowest first; counters: the fastest first. */
void top_sort(struct top_view *v, enum top_key key, bool backwards);
/* Leaves what holds the text: kind, address, heat, rights of a region; number, state of a queue pair; of
 * both, on a device of the kernel, process and command, and keys and details of a region; why of a slow
 * fault, and its region's address; name of a counter. "" leaves all. */
void top_filter(struct top_view *v, const char *text);

/* --- words
 * --------------------------------------------------------------------------------------------------- */

#define TOP_WORDS 128
const char *top_kind_name(uint32_t kind);
const char *top_qp_state_name(uint32_t state);
const char *top_qp_type_name(uint32_t type);
/* "disk or swap; write, file" */
char *top_why(char buf[TOP_WORDS], const struct top_slow *s);
/* Percent in memory; < 0: not known. */
double top_resident(const struct top_residency *r);
/* One character per piece: ' ' nothing in memory, '.', ':', '+' more, '#' all; 's': nothing, and some in
 * swap;
 * "?": not known. */
char *top_strip(char buf[TOP_STRIP + 1], const struct top_residency *r);

/* --- the page
 * ------------------------------------------------------------------------------------------------ */

enum top_colour { TOP_PLAIN, TOP_TITLE, TOP_HEADING, TOP_GOOD, TOP_WARNING, TOP_BAD, TOP_DIM };

#define TOP_WIDTH 512
struct top_line {
	enum top_colour colour;
	char text[TOP_WIDTH];
};

/* TOP_SLOWEST: of a device of the kernel, its counters. */
enum top_panel { TOP_ALL, TOP_REGIONS, TOP_QPS, TOP_SLOWEST, TOP_PANELS };

struct top_look {
	unsigned width, height;
	enum top_panel panel;
	enum top_key key;
	bool backwards, paused, help;
	bool editing; /* the filter is being typed */
	char filter[64];
	unsigned scroll;    /* rows of the panel's list that are passed over */
	double every;	    /* seconds */
	const char *notice; /* "the process has ended"; NULL: none */
};

/* At most height lines, none longer than width (both at least 1; more than TOP_WIDTH - 1 columns are not
 * used). v NULL: nothing is known yet. Returns how many. */
size_t top_page(const struct top_view *v, const struct top_look *look, struct top_line *lines);
/* How many rows the list has that a panel scrolls. */
size_t top_rows(const struct top_view *v, enum top_panel panel);

/* --- ways out
 * ------------------------------------------------------------------------------------------------ */

struct top_watch; /* what is watched: top.c */

/*
 * Waits up to timeout_ms. 1: there is a new view. 0: not yet. Negative: an error of attach.h; -ESRCH: the
 * process has ended; after others it may be called again. The view is good until the next call of one of
 * these.
 */
int top_next(struct top_watch *w, int timeout_ms, const struct top_view **v);
/* Sorts and filters from now on, and the view that there is anew; NULL: there is none yet. */
const struct top_view *top_arrange(struct top_watch *w, enum top_key key, bool backwards, const char *filter);
void top_set_every(struct top_watch *w, double seconds);
/* What an error of top_next means for whoever watches. */
const char *top_trouble(const struct top_watch *w, int err);

/* Exit status. count 0: without end. */
int top_batch(struct top_watch *w, bool json, uint64_t count);
int top_screen(struct top_watch *w, struct top_look *look);

/* One view, as one line of JSON or as lines "WHAT key=value ...". */
void top_print_json(const struct top_view *v);
void top_print_lines(const struct top_view *v);

/* --- a device of the kernel: top_kernel.c
 * ------------------------------------------------------------------------------- */

bool top_kernel_has(const char *root, const char *device);

struct top_kernel; /* how it is asked */

/*
 * pid: only what belongs to that process, as far as the kernel tells; 0: all. root "": this machine; else
 * sysfs, procfs and a record of rdma netlink (tool/rdmanl.h) below it. record: a folder that answers of the
 * kernel are written into, or NULL; *err is then negative when that cannot be, and NULL returned. The texts
 * stay the caller's.
 */
struct top_kernel *top_kernel_open(
	const char *device, pid_t pid, const char *root, const char *record, int *err);
/* One look. What rdma netlink does not tell is missing, and trouble says why. 0; -ENODEV: the device is not
 * there (any more). */
int top_kernel_read(struct top_kernel *k, struct top_frame *f);
void top_kernel_close(struct top_kernel *k);

#endif
