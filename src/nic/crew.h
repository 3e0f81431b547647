/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The threads behind the engine. One is at the helm and runs the engine's loop. A copy or a populate can hold
 * it up for as long as it likes (a page behind a userfaultfd, a file of a dead server), and it cannot be
 * interrupted; so a second thread looks out: when the helm has been busy with one thing for STUCK_NS, the
 * lookout takes the helm, and a new lookout is made. The thread that was stuck finds itself relieved when it
 * comes back; it ends, or looks out if nobody does.
 *
 * An idle process costs nothing: the lookout sleeps until the helm reports to be busy, ticks while it keeps
 * being busy, and goes back to sleep.
 *
 * Where the person wants more than one engine thread (engine-threads), hands help: when the helm has more
 * than one queue pair to run, or is busy while another becomes runnable, a hand makes progress beside it
 * until there is nothing left to do, and goes back to sleep. They are made when first wanted.
 *
 * Who has the helm is decided by one word: the helm writes the time when it gets busy and takes exactly that
 * value away when it is done; the lookout takes it away first, or not at all.
 */
#ifndef UNPIN_NIC_CREW_H
#define UNPIN_NIC_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

struct nic;

#define CREW_MOST 8u /* threads; when that many are stuck, the engine waits for the first of them */

struct crew {
	struct lock lock;	/* the fields below that are not atomic; a leaf */
	pthread_cond_t changed; /* wakes the lookout, and whoever waits for the threads to end */
	uint32_t threads;
	_Atomic bool have_lookout; /* written under the lock */
	bool stop;
	bool called;		     /* the sleeping lookout is wanted */
	_Atomic bool asleep;	     /* the lookout sleeps without a limit: whoever gets busy must call it */
	_Atomic uint64_t busy_since; /* of the helm, CLOCK_MONOTONIC ns; 0: it sleeps or looks for work */
	_Atomic uint32_t jobs;	     /* times the helm got busy: tells the lookout whether anything goes on */
	_Atomic uint32_t reliefs;    /* times a lookout took the helm */

	pthread_cond_t work;	      /* wakes a hand */
	uint32_t hands, hands_most;   /* threads; hands_most is fixed at the start */
	uint32_t hands_asleep, calls; /* calls that no hand has taken yet: at most hands_asleep */
	_Atomic uint32_t hands_free;  /* asleep and not called, or not made yet; written under the lock */
	_Atomic uint32_t hand_jobs;   /* times a hand began */
};

/* Starts a thread at the helm, which threads - 1 hands may come to help (threads >= 1). 0 or a negative
 * errno.
 */
int crew_start(struct nic *nic, uint32_t threads);
/* Ends all threads and waits for them, also for one that is stuck. The caller has set nic->engine_stop and
 * woken the helm. */
void crew_stop(struct nic *nic);

/* For the engine's loop: the helm is about to do something that may take long. now is the time, and never 0.
 */
void crew_busy(struct nic *nic, uint64_t now);
/* It is done with what it began then. false: it has been relieved, and its thread leaves the loop. */
bool crew_done(struct nic *nic, uint64_t now);

/* There is more to do than the helm can do at once. From any thread, without locks; cheap when no hand is
 * free.
 */
void crew_call_hand(struct nic *nic);

#endif
