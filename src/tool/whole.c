/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/whole.h"

#include <errno.h>
#include <unistd.h>

#include "tool/alloc.h"

#define MOST ((size_t)8 << 20)

char *whole_read(int fd)
{
	size_t used = 0, room = 4096;
	char *text = alloc_grow(NULL, room, 1);
	ssize_t n;

	while (used < MOST &&
		((n = read(fd, text + used, room - used - 1)) > 0 || (n < 0 && errno == EINTR))) {
		used += n > 0 ? (size_t)n : 0;
		if (room - used < 1024) {
			room *= 2;
			text = alloc_grow(text, room, 1);
		}
	}
	text[used] = 0;
	return text;
}
