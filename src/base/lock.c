/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The other half of the checks: what is said before the program ends. */
#include "base/lock.h"

#ifdef UNPIN_DEBUG_CHECKS

#include <stdlib.h>

#include "base/log.h"

_Thread_local uint64_t lock_held __attribute__((tls_model("initial-exec")));

static const char *const name[] = {
#define LOCK_X(n) #n,
	LOCK_RANKS(LOCK_X)
#undef LOCK_X
};

/* Of the innermost lock held. */
static const char *innermost(void)
{
	return lock_held ? name[63 - __builtin_clzll(lock_held)] : "nothing";
}

void lock_refuse_take(enum lock_rank rank)
{
	log_error("lock order: %s taken while %s is held", name[rank], innermost());
	abort();
}

void lock_refuse_again(enum lock_rank rank)
{
	log_error("lock order: a second %s taken while one is held", name[rank]);
	abort();
}

void lock_refuse_drop(enum lock_rank rank)
{
	log_error("lock order: %s dropped and not held; the innermost held is %s", name[rank], innermost());
	abort();
}

void lock_refuse_wait(enum lock_rank rank)
{
	log_error("lock order: a wait under %s while the innermost held is %s", name[rank], innermost());
	abort();
}

#endif
