/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The program's memory, read and written as the kernel does: 0 or -EFAULT, never a signal. Any thread,
 * whatever signals it blocks.
 */
#ifndef UNPIN_RDMACM_USER_H
#define UNPIN_RDMACM_USER_H

#include <stddef.h>
#include <stdint.h>

int user_read(void *dst, uint64_t from, size_t n);
int user_write(uint64_t to, const void *src, size_t n);

#endif
