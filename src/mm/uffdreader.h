/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The reader of a userfaultfd's events. Whoever unmaps or discards registered memory stands still in the
 * kernel until the event has been read, in a state that neither a debugger nor a stop signal gets through:
 * were the reader a thread of the same process, stopping the process would stop it first and leave the others
 * where they are, for good. So it is a process of its own, made by clone(CLONE_VM): it shares the address
 * space but not the thread group, session and descriptors. A debugger that attaches to the program, Ctrl-Z
 * and kill -STOP pass it by.
 *
 * It only reads and copies what it read into a ring. It runs without libc (thread-local storage would be its
 * creator's), takes no lock, allocates nothing, and is built without a sanitizer's instrumentation. Every
 * signal is blocked in it. It ends when it is killed, when its creating thread ends (exec and exit included),
 * and when the descriptor breaks.
 *
 * exit_signal is 0: wait() and waitpid() of the application see it only with __WALL or __WCLONE. A program
 * that calls exec without closing the device keeps it as a zombie until its own end; when a program is
 * killed, its reader is init's to reap.
 */
#ifndef UNPIN_MM_UFFDREADER_H
#define UNPIN_MM_UFFDREADER_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define UFFDREADER_RING 1024u /* a power of two */

struct uffdreader_event {
	uintptr_t start, end;
	uint32_t discard; /* 0: unmapped or moved; 1: its pages are discarded, the mapping stays */
};

struct uffdreader {
	/* Set before it starts. */
	int fd;
	pid_t parent; /* the program's process id */
	/* A futex: 0 once the reader has ended (written by the kernel); else changes after every batch of
	 * events and when it begins to read. Only the reader writes it. */
	_Atomic uint32_t turn;
	_Atomic uint32_t reading; /* it has begun */
	/*
	 * Odd from before a batch is read, which lets those who wait go on, until it is in the ring; 2 more
	 * after a batch. Whoever sees the same even number twice knows that no event was read in between.
	 */
	_Atomic uint64_t epoch;
	/* The ring has room for UFFDREADER_RING; head is the reader's, tail the consumer's. */
	_Atomic uint64_t head, tail;
	_Atomic uint32_t overflow; /* events were lost */
	_Atomic uint64_t events;   /* read so far */
	struct uffdreader_event ring[UFFDREADER_RING];
};

/* Whether there is one for this machine's processor. */
int uffdreader_supported(void);
/* Starts it. Its process id, or a negative errno. The caller's signal mask becomes its own and is restored.
 */
pid_t uffdreader_start(struct uffdreader *r);

#endif
