/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "verbs/real.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "base/log.h"

static const struct {
	const char *name, *version;
} names[REAL_COUNT] = {
#define VERB(node, name)	{ #name, "IBVERBS_" #node },
#define PRIVATE_VERB(abi, name) { #name, "IBVERBS_PRIVATE_" #abi },
#include "verbs/symbols.def"
#undef VERB
#undef PRIVATE_VERB
};

/* A value no function and no handle has: looked for and not there. */
#define ABSENT ((void *)1)

static _Atomic(void *) handle;		      /* NULL: not looked for yet */
static _Atomic(void *) functions[REAL_COUNT]; /* the same */

/*
 * Two threads may both load the library; that only raises its reference count. A lock or pthread_once here
 * could be entered again by a constructor of what is being loaded.
 */
static void *real_handle(void)
{
	void *h = atomic_load_explicit(&handle, memory_order_acquire);

	if (h)
		return h;
	h = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (!h) {
		log_debug("no libibverbs.so.1 behind us: %s", dlerror());
		h = ABSENT;
	}
	atomic_store_explicit(&handle, h, memory_order_release);
	return h;
}

void *real_find(enum real_id id)
{
	void *f = atomic_load_explicit(&functions[id], memory_order_acquire);

	if (!f) {
		void *h = real_handle();

		/* By handle, which does not look at us although we stand in front. */
		f = h == ABSENT ? NULL : dlvsym(h, names[id].name, names[id].version);
		if (!f)
			f = ABSENT;
		atomic_store_explicit(&functions[id], f, memory_order_release);
	}
	return f == ABSENT ? NULL : f;
}
