/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device list, and the calls on a device that is not open (ibv_get_device_list(3), ibv_open_device(3)).
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "verbs/object.h"
#include "verbs/real.h"

/* Stands where providers expect their own operation table: no function of ours is called through it. */
static const struct {
	const char *name;
	void *none[31];
} device_ops = { .name = "unpin" };

static char sysfs_room[PRIVATE_ROOM];
static pthread_once_t named = PTHREAD_ONCE_INIT;

struct device unpin_device = {
	.ibv = { .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB },
	.ops = &device_ops,
	.refcount = 1,
	.sysfs = sysfs_room,
};

static void name_device(void)
{
	struct ibv_device *d = &unpin_device.ibv;
	const char *name = nic_device_name();

	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->dev_name, sizeof(d->dev_name), "%s", name);
	snprintf(d->dev_path, sizeof(d->dev_path), "/sys/class/infiniband_verbs/%s", name);
	snprintf(d->ibdev_path, sizeof(d->ibdev_path), "/sys/class/infiniband/%s", name);
	unpin_device.entry[0] = unpin_device.entry[1] = unpin_device.entry;
}

/*
 * Lists that are out. The array given to the program is ours, so the real one is kept beside it until it is
 * freed. A list that is not found here came from the real library directly and goes back there. The array is
 * a block of malloc's own: programs free(3) it themselves, as they may with the real library's (qperf does).
 */
struct list_out {
	struct list node;
	struct ibv_device **real, **device;
};

static struct list lists = LIST_INIT(lists);
static struct lock lists_lock = LOCK_INIT(LOCK_LISTS);

/* Set once the real library has listed a device. */
static _Atomic bool real_seen;

static struct ibv_device **real_list(int *n)
{
	__typeof__(&ibv_get_device_list) get = REAL(ibv_get_device_list);
	struct ibv_device **list;

	*n = 0;
	if (!get)
		return NULL;
	list = get(n);
	if (!list)
		*n = 0;
	if (*n)
		atomic_store(&real_seen, true);
	return list;
}

static void real_list_free(struct ibv_device **list)
{
	__typeof__(&ibv_free_device_list) put = REAL(ibv_free_device_list);

	if (list && put)
		put(list);
}

static struct list_out *take_list(struct ibv_device **list)
{
	struct list_out *found = NULL;

	lock_take(&lists_lock);
	list_for_each (node, &lists) {
		struct list_out *out = container_of(node, struct list_out, node);

		if (out->device == list) {
			list_del(node);
			found = out;
			break;
		}
	}
	lock_drop(&lists_lock);
	return found;
}

/* All but the array. */
static void forget_list(struct list_out *out)
{
	if (out)
		real_list_free(out->real);
	free(out);
}

UNPIN_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **real;
	struct list_out *out;
	int n;

	pthread_once(&named, name_device);
	if (num_devices)
		*num_devices = 0;
	real = real_list(&n);
	out = calloc(1, sizeof(*out));
	if (out)
		out->device = calloc((size_t)n + 2, sizeof(out->device[0]));
	if (!out || !out->device) {
		free(out);
		real_list_free(real);
		return NO_POINTER(ENOMEM);
	}
	out->real = real;
	if (n)
		memcpy(out->device, real, (size_t)n * sizeof(real[0]));
	out->device[n] = &unpin_device.ibv;

	/* Of a list that the program has freed itself. */
	forget_list(take_list(out->device));
	lock_take(&lists_lock);
	list_add_tail(&lists, &out->node);
	lock_drop(&lists_lock);
	if (num_devices)
		*num_devices = n + 1;
	return out->device;
}

UNPIN_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	struct list_out *out = take_list(list);

	if (!out) {
		real_list_free(list);
		return;
	}
	free(out->device);
	forget_list(out);
}

UNPIN_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	if (!device_is_ours(device))
		return PASS(ibv_get_device_name, device->name, device);
	return device->name;
}

UNPIN_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (!device_is_ours(device))
		return PASS(ibv_get_device_guid, 0, device);
	return nic_gid_eui64(device->name);
}

/* The index of a kernel device: ours is none, which the call can say. */
UNPIN_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	if (!device_is_ours(device))
		return PASS(ibv_get_device_index, -1, device);
	return -1;
}

UNPIN_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (!device_is_ours(device))
		return PASS(ibv_open_device, NO_POINTER(ENODEV), device);
	return context_open();
}

UNPIN_EXPORT int ibv_close_device(struct ibv_context *context)
{
	if (!context_is_ours(context))
		return PASS(ibv_close_device, NO_INT(ENODEV), context);
	return context_close(context);
}

/*
 * A device is imported by the character device behind cmd_fd. Ours has none, so it is never the one that is
 * meant.
 */
UNPIN_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	return PASS(ibv_import_device, NO_POINTER(EOPNOTSUPP), cmd_fd);
}

/* Obsolete since 2006; does nothing in the real library either. */
UNPIN_EXPORT void ibv_register_driver(const char *name, void *init_func)
{
}

/* --- fork: our device needs nothing done (ibv_fork_init(3)) --------------------------------------- */

/*
 * Are there real devices? Asking the real library for its list would be wrong here: it calls the public
 * ibv_fork_init, that is us, while the list is locked (RDMAV_FORK_SAFE). So we look where it looks. In doubt
 * it is told.
 */
static bool real_devices(void)
{
	char path[IBV_SYSFS_PATH_MAX + 32];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	if (atomic_load(&real_seen))
		return true;
	snprintf(path, sizeof(path), "%s/class/infiniband_verbs", ibv_get_sysfs_path());
	dir = opendir(path);
	if (!dir)
		return errno != ENOENT || access("/sys/class", X_OK);
	while (!found && (entry = readdir(dir)))
		found = !strncmp(entry->d_name, "uverbs", 6);
	closedir(dir);
	return found;
}

/* The real library would mark every registered page MADV_DONTFORK; only memory of real devices needs that. */
UNPIN_EXPORT int ibv_fork_init(void)
{
	return real_devices() ? PASS(ibv_fork_init, 0) : 0;
}

UNPIN_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return real_devices() ? PASS(ibv_is_fork_initialized, IBV_FORK_UNNEEDED) : IBV_FORK_UNNEEDED;
}

UNPIN_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	return PASS(ibv_dontfork_range, 0, base, size);
}

UNPIN_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	return PASS(ibv_dofork_range, 0, base, size);
}
