/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The commands of /dev/infiniband/rdma_cm (<rdma/rdma_user_cm.h>, version 4): what the kernel does when a
 * program writes to the device, done here.
 */
#ifndef UNPIN_RDMACM_UCMA_H
#define UNPIN_RDMACM_UCMA_H

#include <stddef.h>
#include <sys/types.h>

struct event_channel;

/*
 * One write(2) of len bytes at buf to the channel, which the caller holds. len, or a negative errno. All of
 * the program's memory is read and written so that a bad pointer gives -EFAULT. GET_EVENT may wait: then it
 * is a cancellation point, and a signal gives -EINTR. Takes cm_lock.
 */
ssize_t ucma_write(struct event_channel *c, const void *buf, size_t len);

#endif
