/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/user.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "mm/safecopy.h"

/* Through a pipe: where the two signals are blocked and process_vm is not to be had. */
static int through_pipe(void *dst, const void *src, size_t n)
{
	int pipe[2], err = 0;

	if (syscall(SYS_pipe2, pipe, O_CLOEXEC))
		return -errno;
	for (size_t done = 0; done < n && !err;) {
		size_t piece = n - done < PIPE_BUF ? n - done : PIPE_BUF;

		if (syscall(SYS_write, pipe[1], (const char *)src + done, piece) != (long)piece ||
			syscall(SYS_read, pipe[0], (char *)dst + done, piece) != (long)piece)
			err = -EFAULT;
		done += piece;
	}
	fd_close(pipe[0]);
	fd_close(pipe[1]);
	return err;
}

int user_read(void *dst, uint64_t from, size_t n)
{
	enum safecopy_path path = safecopy_path();
	const void *src = (const void *)(uintptr_t)from;

	if (path == SAFECOPY_NONE)
		return through_pipe(dst, src, n);
	return safecopy_from_user(path, dst, src, n, NULL) == n ? 0 : -EFAULT;
}

int user_write(uint64_t to, const void *src, size_t n)
{
	enum safecopy_path path = safecopy_path();
	void *dst = (void *)(uintptr_t)to;

	if (path == SAFECOPY_NONE)
		return through_pipe(dst, src, n);
	return safecopy_to_user(path, dst, src, n, NULL) == n ? 0 : -EFAULT;
}
