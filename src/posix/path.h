/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Functions of libc that take a path: open, open64, openat, openat64 and their checked forms (path.c).
 *
 * Each calls the function behind it first, with the arguments as they are. So the kernel judges a pointer
 * that cannot be read, and a call that is not about the device costs nothing but a look at its outcome. Only
 * when the path was read by the kernel (the call succeeded, or failed with one of path_was_read()) is it
 * looked at here.
 *
 * Async-signal-safe where libc's is, cancellation points where libc's are.
 */
#ifndef UNPIN_POSIX_PATH_H
#define UNPIN_POSIX_PATH_H

#include <stdbool.h>

enum path_kind {
	PATH_PLAIN,  /* not ours */
	PATH_SYSFS,  /* /sys/class/infiniband, and the device in it */
	PATH_RDMA_CM /* /dev/infiniband/rdma_cm */
};

/*
 * What a path is about; the string is readable. dirfd is that of openat(2); it counts for relative paths
 * only. errno is kept.
 */
enum path_kind path_classify(int dirfd, const char *path);

/* Whether a call that failed with this errno has read the whole path. */
bool path_was_read(int err);

#endif
