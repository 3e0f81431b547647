/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/procread.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/procfd.h"

int procread_open(struct procread *r, const char *path)
{
	r->fd = procfd_open(path);
	r->err = 0;
	r->at = r->have = 0;
	return r->fd < 0 ? r->fd : 0;
}

void procread_close(struct procread *r)
{
	procfd_close(r->fd);
}

static void fill(struct procread *r)
{
	int saved = errno;
	long n;

	do {
		n = syscall(SYS_read, r->fd, r->buf, sizeof(r->buf));
	} while (n < 0 && errno == EINTR);
	r->err = n < 0 ? -errno : 0;
	r->have = n > 0 ? (size_t)n : 0;
	r->at = 0;
	errno = saved;
}

int procread_get(struct procread *r)
{
	if (r->at == r->have)
		fill(r);
	return r->at < r->have ? (unsigned char)r->buf[r->at++] : -1;
}

uint64_t procread_number(struct procread *r, unsigned base, int *stop)
{
	uint64_t value = 0;
	int c;

	for (;;) {
		c = procread_get(r);
		if (c >= '0' && c <= '9')
			value = value * base + (unsigned)(c - '0');
		else if (base == 16 && c >= 'a' && c <= 'f')
			value = value * base + (unsigned)(c - 'a' + 10);
		else
			break;
	}
	*stop = c;
	return value;
}

static int collect(struct procread *r, int c, bool word, char *out, size_t size)
{
	size_t n = 0;

	while (c == ' ')
		c = procread_get(r);
	for (; c >= 0 && c != '\n' && !(word && c == ' '); c = procread_get(r))
		if (n + 1 < size)
			out[n++] = (char)c;
	out[n] = '\0';
	return c;
}

int procread_word(struct procread *r, int c, char *out, size_t size)
{
	return collect(r, c, true, out, size);
}

int procread_rest(struct procread *r, int c, char *out, size_t size)
{
	return collect(r, c, false, out, size);
}
