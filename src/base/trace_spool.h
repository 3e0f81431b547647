/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The spool of a timeline: a file beside it, named after it with TRACE_SPOOL_SUFFIX, into which the process
 *writes events as they were recorded, until the timeline is finished (trace_finish.h) and the spool removed.
 *What is in it survives the process.
 *
 *	trace_spool_head, then blocks: trace_spool_block, its payload, zeros up to a multiple of 16 bytes
 *
 * Numbers are the machine's own. A block that ends behind the end of the file was being written, and
 * what there is of it counts. At most TRACE_SPOOL_MOST bytes.
 *
 * Whose it is: the process that writes it has a record lock on the whole file (fcntl(2), F_SETLK), which goes
 *with the process or its program, whatever becomes of them, and is not inherited. Whoever gets the lock may
 *finish the timeline, if the spool still has its name then.
 *
 * Read back, it is somebody else's: every number is checked.
 *
 * Threads: none of this is thread safe; one owner for each structure.
 */
#ifndef UNPIN_BASE_TRACE_SPOOL_H
#define UNPIN_BASE_TRACE_SPOOL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/trace_clock.h"
#include "base/trace_event.h"
#include "base/trace_ring.h"

#define TRACE_SPOOL_SUFFIX  ".spool"
#define TRACE_SPOOL_MOST    (256ull << 20)
#define TRACE_SPOOL_PAYLOAD (TRACE_RING_UNITS * 16u) /* of a block, at most; the line of texts is smaller */

struct trace_spool_head {
	char magic[8];
	uint32_t version;
	uint32_t pid;
	uint64_t resume; /* length of the timeline up to which it is finished, without its end (trace_json.h)
			  */
	uint64_t flights;
	uint64_t dropped; /* events, in the whole timeline; brought up to date now and then */
};

enum trace_spool_kind {
	TRACE_SPOOL_EVENTS, /* trace_units of one thread, in their order */
	TRACE_SPOOL_NAME,   /* TRACE_RING_NAME bytes, 0-terminated: this thread has it from now on */
	TRACE_SPOOL_TEXTS,  /* trace_text_head, text, and so on */
	TRACE_SPOOL_KINDS
};

struct trace_spool_block {
	uint32_t magic;
	uint32_t kind;
	uint32_t tid;
	uint32_t bytes;		       /* of payload */
	struct trace_instant from, to; /* the passes of the writer before this one and this one */
	uint64_t dropped;	       /* as in the head, at `to` */
	uint64_t zero;
};

_Static_assert(sizeof(struct trace_spool_block) % 16 == 0, "units are aligned");

/* --- writing -----------------------------------------------------------------------------------------------
 */

struct trace_spool {
	int fd; /* -1: none */
	dev_t dev;
	ino_t ino;
	uint64_t end, dropped;
	char path[PATH_MAX];
};

/*
 * Creates the spool of that timeline, takes the lock and writes the head (magic and version are filled in).
 * One that is left over is replaced when it is this user's and nobody has its lock. 0; -EEXIST: it is
 * somebody else's; -ENAMETOOLONG; or the negative errno of creating, locking or writing.
 */
int trace_spool_create(struct trace_spool *s, const char *timeline, const struct trace_spool_head *head);

/*
 * Appends a block: fill in kind, tid, from, to, dropped; the payload is the n pieces (4 at most). 0; -EFBIG:
 * TRACE_SPOOL_MOST; -ENOENT: the program closed the descriptor and the file has gone; or the negative errno
 * of writing, and then nothing is appended.
 */
int trace_spool_append(
	struct trace_spool *s, struct trace_spool_block *block, const struct iovec *pieces, int n);

/* The head's count, when it has changed. Errors are ignored: blocks tell it, too. */
void trace_spool_set_dropped(struct trace_spool *s, uint64_t dropped);

/* The descriptor that is really the spool's, opened again if need be; -ENOENT, or the negative errno of open.
 */
int trace_spool_fd(struct trace_spool *s);

/* Removes the spool of that descriptor by its path, unless the path has become another's. 0 or negative
 * errno. */
int trace_spool_remove(int fd, const char *path);

/* Lets go of the descriptor, if it is still ours; remove: and removes the file. */
void trace_spool_close(struct trace_spool *s, bool remove);

/* --- reading -----------------------------------------------------------------------------------------------
 */

struct trace_spool_reader {
	int fd;
	uint64_t at, end; /* of the file as it was at the beginning */
	uint64_t payload; /* of the last block: where it is */
	struct trace_spool_head head;
};

/*
 * Opens a spool by its own path, for reading and writing. Its descriptor; -EPERM: it is another user's, or
 * linked to from elsewhere; -EINVAL: no regular file; or the negative errno of open, ELOOP for a symbolic
 * link.
 */
int trace_spool_open(const char *path);

/* Takes the lock; wait: until whoever has it ends. 0; -EAGAIN: somebody has it (not when waiting); -ESTALE:
 * got it, but the spool's name has gone: it has been finished; or negative errno. */
int trace_spool_lock(int fd, bool wait);

/* 0; -EINVAL: this is no spool, or of another version; or negative errno. */
int trace_spool_begin(struct trace_spool_reader *r, int fd);

/*
 * The next block. 1; 0: there is none; -EINVAL: what comes is no block, and nothing behind
 * it can be read; or negative errno. bytes is at most TRACE_SPOOL_PAYLOAD, and is there.
 */
int trace_spool_next(struct trace_spool_reader *r, struct trace_spool_block *block);

/* Its payload, in one piece. 0 or negative errno (-EIO: the file has been cut meanwhile). */
int trace_spool_payload(
	const struct trace_spool_reader *r, const struct trace_spool_block *block, void *payload);

#endif
