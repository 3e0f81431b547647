/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The files that the kernel shows of a software device with one Ethernet port, below
 * /sys/devices/virtual/infiniband/NAME, and what each of them says. The values are those that the verbs
 * answer (nic/caps.h, nic/gid.h).
 *
 * Counters are those of this process's device since it was opened, and 0 while it is not open:
 * ports/1/counters has the kernel's names (data in units of 4 octets, payload only), ports/1/hw_counters
 * every counter of base/segment.h.
 *
 * Any thread. Nothing is kept.
 */
#ifndef UNPIN_SYSFS_ENTRY_H
#define UNPIN_SYSFS_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SYSFS_TEXT 128 /* room for what a file says */

/*
 * /sys/class/misc/rdma_cm is shown when /dev/infiniband/rdma_cm is served: librdmacm reads its abi_version.
 */
#define SYSFS_RDMA_CM	  true
#define SYSFS_RDMA_CM_ABI "4\n" /* RDMA_USER_CM_ABI_VERSION of the kernel's rdma_user_cm.h */

struct sysfs_entry {
	const char *directory; /* below the device: "" or "ports/1/gids" */
	const char *name;      /* NULL: rows, named by their numbers */
	unsigned rows;	       /* 1, or how many; 0: as many as the GID table has (sysfs_entry_rows()) */
	bool live;	       /* may say something else the next time */
	mode_t mode;
	/* What it says: its length, or the negative errno with which read(2) fails. */
	int (*show)(const struct sysfs_entry *e, unsigned row, char text[SYSFS_TEXT]);
	/* show()'s own: */
	const char *text;
	size_t counter;	  /* offset in struct unpin_segment */
	unsigned divisor; /* of the counter; 0: there is none, and the file says 0 */
};

extern const struct sysfs_entry sysfs_entries[];
extern const size_t sysfs_entry_count;

/* How many files the entry stands for. */
unsigned sysfs_entry_rows(const struct sysfs_entry *e);

/* The directories in which the entries are, each after the one it is in. */
extern const char *const sysfs_directories[];
extern const size_t sysfs_directory_count;

/* The entry of a path below the device ("ports/1/gids/3"), or NULL. */
const struct sysfs_entry *sysfs_entry_find(const char *path, unsigned *row);

#endif
