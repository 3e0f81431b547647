/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Functions of libc that take a path, in front of libc's: open (path.c), stat and access (stat.c), readlink
 * and realpath (link.c), opendir, scandir, glob and chdir (directory.c), fopen (stream.c), and their
 * relatives.
 *
 * Each calls the function behind it first, with the arguments as they are. So the kernel judges a pointer
 * that cannot be read, and a call that is not about the device costs nothing but a look at its outcome. Only
 * when the kernel has read the path (the call succeeded, or failed with an errno of path_was_read()) is it
 * looked at here, and only when it has the word "infiniband" in it is anything done. What the kernel has is
 * left in place: of calls that succeed only those are answered differently that open the class, whose
 * directory has to list our device too.
 *
 * Async-signal-safe where libc's is, but for the first use of a path of ours and for opening a file of the
 * GID table, which may ask the kernel for the host's addresses (nic/gid.h). Cancellation points where libc's
 * are.
 */
#ifndef UNPIN_POSIX_PATH_H
#define UNPIN_POSIX_PATH_H

#include <alloca.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define POSIX_EXPORT __attribute__((visibility("default")))

enum path_kind {
	PATH_PLAIN,  /* not ours */
	PATH_SYSFS,  /* in /sys: the class infiniband, and the device in it */
	PATH_RDMA_CM /* /dev/infiniband/rdma_cm */
};

/*
 * What a path is about; the string is readable. dirfd is that of openat(2); it counts for relative paths
 * only. errno is kept.
 */
enum path_kind path_classify(int dirfd, const char *path);

/* Whether a call that failed with this errno has read the whole path. */
bool path_was_read(int err);

/* Whether the path has a word in it by which paths of ours begin. */
bool path_has_word(const char *path);

/*
 * The path in the tree (sysfs/tree.h) that answers for one of kind PATH_SYSFS: buf, or NULL when it is not
 * ours or cannot be served. *sub, if sub is not NULL, is what of it is below the device, or NULL. errno is
 * kept.
 */
const char *path_in_tree(int dirfd, const char *path, char buf[PATH_MAX], const char **sub);

/* The same after a call that has failed; errno is its. The buffer is the caller's stack. */
#define PATH_SERVED(dirfd, path)                                                                             \
	(path_was_read(errno) && path_has_word(path) ? path_in_tree(dirfd, path, alloca(PATH_MAX), NULL)     \
						     : NULL)

/* Opens a path that path_in_tree() gave, as the kernel would open a file of sysfs: a descriptor, or -1. */
int path_open(const char *served, const char *sub, int flags);

/*
 * This process has a directory of the tree open, or is in one: from then on relative paths, which need not
 * have the word in them, are looked at too.
 */
void path_entered(void);
bool path_has_entered(void);

/*
 * After a relative path was opened: if that is a live file of the tree, the descriptor reads what the file
 * says at this moment. errno is kept.
 */
void path_refresh(int fd);

#endif
