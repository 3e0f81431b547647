/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The tree: a real directory that stands for those parts of /sys in which the device is, so that listing it,
 * symbolic links and ".." need no help of ours.
 *
 *   ROOT/class/infiniband/NAME          a link, as the kernel's, to
 *   ROOT/devices/virtual/infiniband/NAME the device (sysfs/entry.h)
 *   ROOT/class/infiniband/mlx5_0        the kernel's devices: their links, copied; ROOT/devices has links to
 *                                       /sys/devices, so that they lead where they led
 *
 * ROOT is unpin-sysfs-UID-HASH in XDG_RUNTIME_DIR, or else in /dev/shm or /tmp. HASH is of all that the tree
 * holds, so processes of one user share it. It is built under another name and renamed, so who finds it finds
 * it whole; a directory that is not this user's, or that others may write to, is not used. Each process that
 * uses the tree holds a shared lock (flock) on it; at exit, who finds no other holder removes it. A process
 * that is killed leaves it to the next one: a tree is reused, and making one removes those of the same user
 * that nobody holds. A tree that has gone, or that a chroot has put out of reach, is made anew.
 *
 * The files that are live (struct sysfs_entry) hold what they said when the tree was made; sysfs_live() gives
 * what they say at this moment.
 *
 * Any thread. Signals are blocked meanwhile, nothing but nic_gid_get() allocates, no call is a cancellation
 * point. errno is kept.
 */
#ifndef UNPIN_SYSFS_TREE_H
#define UNPIN_SYSFS_TREE_H

#include <stdbool.h>
#include <stddef.h>

#define SYSFS_ROOT_MAX 512
#define SYSFS_PREFIX   "unpin-sysfs-"

/*
 * The root of the tree, made if need be. 0; -EEXIST: the kernel has a device of this name, which is the one
 * to show; other negative errno: there is no place for a tree (logged once).
 */
int sysfs_tree(char root[SYSFS_ROOT_MAX]);

/*
 * For a path below the device ("ports/1/gids/3"): a new descriptor, close-on-exec, that reads what the file
 * says at this moment; -ENOENT: it is no live file. Others: no such descriptor could be had.
 */
int sysfs_live(const char *path);

/*
 * Whether an absolute path is in a tree, this process's or another's: then where in /sys that is ("class/…"),
 * else NULL.
 */
const char *sysfs_inside(const char *path);

#endif
