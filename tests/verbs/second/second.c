/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A libibverbs.so.1 with one device: stands where the real library stands, behind libunpin.so. Every public
 * symbol exists, in its node, and records that it was called and with what; the device list works, with the
 * habits of the real one that matter to who stands in front: it is counted, locked, and calls the public
 * ibv_fork_init while it is locked.
 */
#include "second.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/newer.h"

#define VISIBLE __attribute__((visibility("default")))

static struct second_log seen;
static struct ibv_device device = { .node_type = IBV_NODE_CA, .name = SECOND_NAME };
static struct ibv_context context = { .device = &device, .cmd_fd = -1, .async_fd = -1 };
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int list_locked;
static struct ibv_device **out; /* the last list */

VISIBLE struct second_log *second_log(void);
VISIBLE struct second_log *second_log(void)
{
	return &seen;
}

static long get_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	pthread_mutex_lock(&list_lock);
	list_locked = 1;
	ibv_fork_init(); /* as with RDMAV_FORK_SAFE; reaches whoever stands in front */
	list[0] = &device;
	if (n)
		*n = 1;
	seen.listed++;
	out = list;
	list_locked = 0;
	pthread_mutex_unlock(&list_lock);
	return (long)list;
}

static long free_list(struct ibv_device **list)
{
	if (list != out || list[0] != &device) {
		seen.wrong_free++;
		return 0;
	}
	seen.freed++;
	out = NULL;
	free(list);
	return 0;
}

static long record(const char *name, const long *arg)
{
	if (!strcmp(name, "ibv_get_device_list"))
		return get_list((int *)arg[0]);
	if (!strcmp(name, "ibv_free_device_list"))
		return free_list((struct ibv_device **)arg[0]);
	if (list_locked)
		seen.locked_calls++;
	seen.calls++;
	seen.name = name;
	memcpy(seen.arg, arg, sizeof(seen.arg));
	if (!strcmp(name, "ibv_open_device"))
		return (long)&context;
	if (!strcmp(name, "ibv_get_device_name"))
		return (long)device.name;
	return SECOND_RESULT;
}

/*
 * One definition fits all: arguments are words, and so are results. The assembler's name avoids the declared
 * types.
 */
#define RECORDER(symbol, called)                                                                             \
	VISIBLE long second_##symbol(long, long, long, long, long, long) __asm__(called);                    \
	VISIBLE long second_##symbol(long a, long b, long c, long d, long e, long f)                         \
	{                                                                                                    \
		const long arg[SECOND_ARGS] = { a, b, c, d, e, f };                                          \
                                                                                                             \
		return record(#symbol, arg);                                                                 \
	}
#define VERB(node, name) RECORDER(name, #name)
#define PRIVATE_VERB(abi, name)
#include "verbs/symbols.def"

RECORDER(ibv_query_gid_type, "private_query_gid_type")
__asm__(".symver private_query_gid_type, ibv_query_gid_type@@IBVERBS_PRIVATE_34");
