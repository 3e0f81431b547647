/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * `unpin doctor`: a checklist for on-demand paging on one RDMA device and the machine around it. Every check
 * is a row of a table (doctor_GROUP.c); it says what it saw, what that means and what to do, in sentences
 * that a person understands who has read nothing else.
 *
 * Two ways to run: live, where checks try things on the device; and over a recorded machine (--root DIR),
 * a folder with the files of another machine, where checks that try are not applicable. A recorded machine
 * is untrusted: links in it do not lead out of it, and texts from it are printed with control characters
 * replaced.
 *
 * One thread; the device's own threads aside.
 */
#ifndef UNPIN_TOOL_DOCTOR_H
#define UNPIN_TOOL_DOCTOR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/endpoint.h"
#include "tool/table.h"

enum doctor_verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_UNKNOWN, DOCTOR_NA, DOCTOR_VERDICTS };

/* What a check found. Texts are allocated, or NULL; the check sets them with the functions below. */
struct doctor_result {
	enum doctor_verdict verdict;
	char *seen, *meaning, *advice;
};

struct doctor;

/* What a check needs before it can be run; what is missing becomes "not applicable" with the reason. */
#define DOCTOR_LIVE   1u /* tries something: not over a recorded machine */
#define DOCTOR_OPEN   2u /* the device, opened, with an active port (implies DOCTOR_LIVE) */
#define DOCTOR_ODP    4u /* a device that accepts on-demand regions (implies DOCTOR_OPEN) */
#define DOCTOR_DEVICE 8u /* any device, live or recorded */
/* On-demand paging is not usable when this check fails, or cannot be carried out on a live device. */
#define DOCTOR_VITAL 16u

struct doctor_check {
	const char *id;	      /* "memory.memlock"; stable, for programs that read the JSON */
	const char *looks_at; /* "limit on locked memory" */
	unsigned flags;
	void (*run)(struct doctor *d, struct doctor_result *r);
};

struct doctor_group {
	const char *id, *heading;
	const struct doctor_check *checks;
	size_t count;
};

extern const struct doctor_group doctor_device_group, doctor_reality_group, doctor_kernel_group,
	doctor_pci_group, doctor_memory_group, doctor_manners_group;

enum doctor_kind {
	DOCTOR_KIND_OTHER,
	DOCTOR_KIND_UNPIN,
	DOCTOR_KIND_MLX5,
	DOCTOR_KIND_MLX4,
	DOCTOR_KIND_RXE
};

/* A card that this program knows, by its number on the PCI bus. */
struct doctor_part {
	uint32_t id;
	enum doctor_kind kind;
	/* The oldest firmware that the guide of DPDK asked for in 2018 and 2019: branch.tested_minor.1000; 0:
	 * no such rule. */
	unsigned branch, tested_minor;
	/* Known to be able to place data out of order (direct data placement), which UCX does not combine
	 * with on-demand paging. */
	bool ddp;
	const char *name;
};

enum doctor_transport { DOCTOR_RC, DOCTOR_UC, DOCTOR_UD, DOCTOR_XRC, DOCTOR_TRANSPORTS };
enum doctor_operation {
	DOCTOR_SEND,
	DOCTOR_RECV,
	DOCTOR_WRITE,
	DOCTOR_READ,
	DOCTOR_ATOMIC,
	DOCTOR_SRQ,
	DOCTOR_OPERATIONS
};

/* What came of trying an operation with on-demand memory. */
enum doctor_tried { DOCTOR_NOT_TRIED, DOCTOR_WORKS, DOCTOR_WRONG_BYTES, DOCTOR_REFUSED, DOCTOR_TRIED };

extern const char *const doctor_transport_names[DOCTOR_TRANSPORTS];
extern const char *const doctor_operation_names[DOCTOR_OPERATIONS];
extern const char *const doctor_tried_names[DOCTOR_TRIED];
extern const uint32_t doctor_operation_bits[DOCTOR_OPERATIONS]; /* enum ibv_odp_transport_cap_bits */

struct doctor_device {
	bool found;
	char name[ENDPOINT_NAME_MAX];
	char all[256]; /* names of all devices, separated by blanks */
	unsigned count;
	enum doctor_kind kind;
	char kind_words[96]; /* "NVIDIA ConnectX-5", "Linux rxe (software)" */
	char driver[64], firmware[64];
	uint32_t id;			/* on the PCI bus, 0 when not known */
	const struct doctor_part *part; /* NULL: not known */
	bool caps_known;		/* the following three are what the device says */
	uint64_t general;
	uint32_t says[DOCTOR_TRANSPORTS];
	uint64_t max_mr_size;
	char port_state[64];
	bool port_active;
};

/* What a registration of a large untouched buffer took. */
struct doctor_held {
	bool tried;
	int err; /* positive errno: it was refused */
	uint64_t length, ns;
	uint64_t pinned, locked, resident; /* how VmPin, VmLck and VmRSS grew, bytes */
};

struct doctor {
	const char *root; /* NULL: this machine, live */
	int root_fd;
	const char *wanted; /* -d, or NULL */
	char *config;	    /* the kernel's configuration once it has been read, or NULL; doctor_root.c's */
	const char *config_source;
	bool config_loaded;
	struct doctor_device device;
	bool open;	   /* e is open */
	struct endpoint e; /* on the device's first port */
	/* Learned while trying; checks are in such an order that whoever reads it comes later. */
	bool accepts_on_demand; /* a small on-demand region was registered */
	int on_demand_errno;	/* why not */
	enum doctor_tried tried[DOCTOR_TRANSPORTS][DOCTOR_OPERATIONS];
	char trouble[256]; /* the first operation that failed or delivered wrong bytes, as a sentence */
	bool tried_all;	   /* tried[] has been filled in */
	struct doctor_held held[2]; /* by enum endpoint_kind: pinned, on demand */
};

/* --- what checks say ------------------------------------------------------------------------------------ */

void doctor_say(struct doctor_result *r, enum doctor_verdict verdict, const char *seen, ...)
	__attribute__((format(printf, 3, 4)));
void doctor_mean(struct doctor_result *r, const char *meaning, ...) __attribute__((format(printf, 2, 3)));
void doctor_advise(struct doctor_result *r, const char *advice, ...) __attribute__((format(printf, 2, 3)));

/* Adds to a text of at most size bytes that grows, with "; " between. What has no room is cut. */
void doctor_append(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* --- files of the machine (doctor_root.c): live below /, else below root ---------------------------------
 */

/* All of a text file, at most 8 MiB, to be freed; control characters are replaced. NULL with errno. */
char *doctor_read(const struct doctor *d, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* Its first line, without blanks at either end, cut to size. False when there is none. */
bool doctor_line(const struct doctor *d, char *out, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Its first number (decimal, or hexadecimal behind 0x). False when it does not begin with one. */
bool doctor_number(const struct doctor *d, uint64_t *out, const char *path, ...)
	__attribute__((format(printf, 3, 4)));
bool doctor_exists(const struct doctor *d, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* Names in a folder, sorted, without those that begin with a dot; NULL-terminated; NULL when there is no such
 * folder. To be given back with doctor_names_free. */
char **doctor_names(const struct doctor *d, const char *path);
void doctor_names_free(char **names);
/* The kernel log: live from the kernel, else the file "dmesg" of the record. NULL with errno. */
char *doctor_kernel_log(const struct doctor *d);
/* Lines of text: calls see with each, without its end, until it returns false. text is changed. */
void doctor_lines(char *text, bool (*see)(void *arg, char *line), void *arg);
/* The kilobytes behind "name:" in such a text, in bytes; UINT64_MAX: there is none. */
uint64_t doctor_field(const char *text, const char *name);
/* The kernel's configuration: the value of CONFIG_name is written to value ("y", "m", "n" for "is not set" or
 * missing, or a text). source (for people) may be NULL. False when the configuration cannot be read. */
bool doctor_config(struct doctor *d, const char *name, char *value, size_t size, const char **source);
/* Version of the kernel, for comparing: major * 1000 + minor; 0 when not known. release may be NULL. */
unsigned doctor_kernel_version(const struct doctor *d, char *release, size_t size);

/* The system calls that unpin's own device makes (doctor_calls.c). */
void doctor_check_calls(struct doctor *d, struct doctor_result *r);

/* --- the device (doctor_find.c) ------------------------------------------------------------------------
 */

/* Chooses and, live, opens the device. Never fails: what cannot be had is missing in d. */
void doctor_find(struct doctor *d);
void doctor_find_close(struct doctor *d);

#define DOCTOR_NO_ADDRESSES (-1)

/* Registers length bytes of untouched memory for a moment, with access beside the usual rights. 0, a positive
 * errno, or DOCTOR_NO_ADDRESSES when the memory could not be mapped. */
int doctor_find_region(struct doctor *d, size_t length, int access);

/* Page faults of the device as the kernel counts them, over all of its regions (rdma netlink statistics), or
 * per device in sysfs. 0, with the counter's origin in from; -ENODATA: no such counter (doctor_counters.c).
 */
int doctor_counters_faults(const struct doctor *d, uint64_t *faults, char *from, size_t size);
/* A check: the regions that are registered on the device now, by whomever, and their page faults. */
void doctor_counters_use(struct doctor *d, struct doctor_result *r);

/* Bytes of the size that people read, for use as an argument: one of a few buffers in turn. */
const char *doctor_bytes(uint64_t bytes);

#endif
