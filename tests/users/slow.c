/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "slow.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

static int open_uffd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		check_skip("no userfaultfd for faults in the kernel: %m");
	return fd;
}

void slow_need(void)
{
	close(open_uffd());
}

void slow_open(struct slow *s, size_t length, bool shared)
{
	struct uffdio_api api = { .api = UFFD_API, .features = shared ? UFFD_FEATURE_MISSING_SHMEM : 0 };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int memfd = -1;

	s->length = length;
	s->fd = open_uffd();
	check_sys(ioctl(s->fd, UFFDIO_API, &api) == 0);
	if (shared) {
		check_sys((memfd = memfd_create("slow", MFD_CLOEXEC)) >= 0);
		check_sys(ftruncate(memfd, (off_t)length) == 0);
	}
	s->memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, memfd, 0);
	check_sys(s->memory != MAP_FAILED);
	if (shared)
		close(memfd);
	range.range.start = (uintptr_t)s->memory;
	range.range.len = length;
	check_sys(ioctl(s->fd, UFFDIO_REGISTER, &range) == 0);
}

long slow_fault(struct slow *s, int ms)
{
	struct pollfd p = { .fd = s->fd, .events = POLLIN };
	struct uffd_msg msg;

	for (;;) {
		int n = poll(&p, 1, ms);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		if (read(s->fd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		check_int(msg.event, UFFD_EVENT_PAGEFAULT);
		return (long)((msg.arg.pagefault.address & ~(PAGE - 1)) - (uintptr_t)s->memory);
	}
}

void slow_answer(struct slow *s, long offset, unsigned char byte)
{
	static __thread char page[4096] __attribute__((aligned(4096)));
	struct uffdio_copy copy = {
		.dst = (uintptr_t)s->memory + (uintptr_t)offset, .src = (uintptr_t)page, .len = PAGE
	};

	memset(page, byte, PAGE);
	check_sys(ioctl(s->fd, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
}

void slow_close(struct slow *s)
{
	close(s->fd);
}
