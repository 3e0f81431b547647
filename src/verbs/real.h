/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The system's own libibverbs, behind us: found when it is first needed, never before, and not needed at all
 * for our device. Every exported function asks first whose object it was given; one of a real device goes
 * through PASS.
 */
#ifndef UNPIN_VERBS_REAL_H
#define UNPIN_VERBS_REAL_H

#include <errno.h>
#include <stdbool.h>

#include "verbs/newer.h"

/* Marks the functions that programs see; symbols.def says in which version node. */
#define UNPIN_EXPORT __attribute__((visibility("default")))

enum real_id {
#define VERB(node, name)	REAL_##name,
#define PRIVATE_VERB(abi, name) REAL_##name##_##abi,
#include "verbs/symbols.def"
#undef VERB
#undef PRIVATE_VERB
	REAL_COUNT
};

/*
 * The real library's function, or NULL when there is no library or when it is older than the function. The
 * first call loads the library; later ones are one load. Any thread, no lock is held (the library's
 * constructors may call us).
 */
void *real_find(enum real_id id);

/* The real library's function, or NULL, typed. */
#define REAL(name) ((__typeof__(&name))real_find(REAL_##name))

/* Calls the real library's function with the arguments, or gives "missing" when it has none. */
#define PASS(name, missing, ...)                                                                             \
	({                                                                                                   \
		__typeof__(&name) real_fn_ = REAL(name);                                                     \
		real_fn_ ? real_fn_(__VA_ARGS__) : (missing);                                                \
	})

/* What a call answers that cannot be served: by verbs' three conventions. */
#define NO_POINTER(err) (errno = (err), NULL)
#define NO_INT(err)	(errno = (err), -1)

/* The answer of a call that this device does not offer; the call is named at UNPIN_LOG=info (absent.c). */
#define REFUSED(call, answer) (verb_refused(call), (answer))
void verb_refused(const char *call);

#endif
