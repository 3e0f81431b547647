/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * `unpin doctor`: the system calls that unpin's own device makes and that no facility row is about. A filter
 * of system calls, as containers have, may refuse any of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tool/doctor.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef NETLINK_SOCK_DIAG
#define NETLINK_SOCK_DIAG 4
#endif

/* Each returns 0 or the errno. */

static int given(int fd)
{
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int try_epoll(void)
{
	return given(epoll_create1(EPOLL_CLOEXEC));
}

static int try_epoll_pwait(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC), err;
	struct epoll_event e;

	if (fd < 0)
		return errno;
	err = syscall(SYS_epoll_pwait, fd, &e, 1, 0, NULL, 0ul) < 0 ? errno : 0;
	close(fd);
	return err;
}

static int try_epoll_pwait2(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC), err;
	struct timespec zero = { 0, 0 };
	struct epoll_event e;

	if (fd < 0)
		return errno;
	err = syscall(SYS_epoll_pwait2, fd, &e, 1, &zero, NULL, 0ul) < 0 ? errno : 0;
	close(fd);
	return err;
}

static int try_eventfd(void)
{
	return given(eventfd(0, EFD_CLOEXEC));
}

static int try_timerfd(void)
{
	return given(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

static int try_memfd(void)
{
	int fd = memfd_create("unpin-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;
	struct statfs fs;

	if (fd < 0)
		return errno;
	err = ftruncate(fd, getpagesize()) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) ||
			      fstatfs(fd, &fs)
		      ? errno
		      : 0;
	close(fd);
	return err;
}

static int try_advice(int advice)
{
	size_t page = (size_t)getpagesize();
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (p == MAP_FAILED)
		return errno;
	err = madvise(p, page, advice) ? errno : 0;
	munmap(p, page);
	return err;
}

static int try_dontfork(void)
{
	return try_advice(MADV_DONTFORK);
}

static int try_wipeonfork(void)
{
	return try_advice(MADV_WIPEONFORK);
}

/* A meeting: a name that the kernel makes up, a caller, and who it is. */
static int try_meeting(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), caller, called = -1, err = 0;
	socklen_t len = sizeof(name), size = sizeof(struct ucred);
	struct ucred cred;
	char byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (listener < 0)
		return errno;
	caller = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (caller < 0 || bind(listener, (void *)&name, sizeof(name.sun_family)) || listen(listener, 1) ||
		getsockname(listener, (void *)&name, &len) || connect(caller, (void *)&name, len) ||
		(called = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 ||
		getsockopt(called, SOL_SOCKET, SO_PEERCRED, &cred, &size) ||
		send(caller, "", 1, MSG_DONTWAIT) < 0 || recv(called, &byte, 1, MSG_DONTWAIT) < 0 ||
		sendmsg(caller, &m, MSG_DONTWAIT) < 0 || recvmsg(called, &m, MSG_DONTWAIT) < 0)
		err = errno;
	close(listener);
	if (caller >= 0)
		close(caller);
	if (called >= 0)
		close(called);
	return err;
}

static int try_pidfd(void)
{
	socklen_t size = sizeof(int);
	int s[2], fd = -1, err = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s))
		return errno;
	if (getsockopt(s[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &size))
		err = given((int)syscall(SYS_pidfd_open, getpid(), 0));
	else
		close(fd);
	close(s[0]);
	close(s[1]);
	return err;
}

static int try_sock_diag(void)
{
	return given(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
}

/* without: what follows; NULL: there is no device. */
static const struct call {
	const char *name, *without;
	int (*attempt)(void);
} calls[] = {
	{ "epoll_create1", NULL, try_epoll },
	{ "eventfd2", NULL, try_eventfd },
	{ "timerfd_create", NULL, try_timerfd },
	{ "memfd_create (with ftruncate, fstatfs and F_ADD_SEALS)", NULL, try_memfd },
	{ "madvise(MADV_DONTFORK)", NULL, try_dontfork },
	{ "madvise(MADV_WIPEONFORK)", NULL, try_wipeonfork },
	{ "unix sockets (socket, bind, listen, connect, accept4, SO_PEERCRED, send, recv, sendmsg, recvmsg)",
		NULL, try_meeting },
	{ "epoll_pwait", "the newer epoll_pwait2 takes its place", try_epoll_pwait },
	{ "epoll_pwait2", "ppoll takes its place", try_epoll_pwait2 },
	{ "SO_PEERPIDFD and pidfd_open", "the death of a peer is noticed when its sockets have closed",
		try_pidfd },
	{ "NETLINK_SOCK_DIAG sockets",
		"another user who takes all plain names of unpin's sockets keeps the device from opening",
		try_sock_diag },
};

void doctor_check_calls(struct doctor *d, struct doctor_result *r)
{
	/* Whom another device serves does not need unpin's. */
	bool others = d->open && d->device.kind != DOCTOR_KIND_UNPIN;
	const struct call *worst = NULL;
	char names[512] = "";
	int error = 0;
	size_t used = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int err = calls[i].attempt(), n;

		if (!err)
			continue;
		n = snprintf(names + used, sizeof(names) - used, "%s%s (%s)", used ? ", " : "", calls[i].name,
			strerror(err));
		used += n > 0 && (size_t)n < sizeof(names) - used ? (size_t)n : 0;
		if (!worst) {
			worst = &calls[i];
			error = err;
		}
	}
	if (!worst) {
		doctor_say(r, DOCTOR_OK, "none of those that unpin's device makes is refused");
		return;
	}
	doctor_say(r, worst->without || others ? DOCTOR_WARN : DOCTOR_FAIL, "refused: %s", names);
	if (worst->without)
		doctor_mean(r, "Without %s %s.", worst->name, worst->without);
	else
		doctor_mean(r, "unpin's device cannot be opened, or meets nobody.");
	doctor_advise(r, "%s",
		error == ENOSYS || error == EPERM || error == EACCES
			? "Allow it in the filter of system calls (seccomp): a container's profile "
			  "(--security-opt seccomp=FILE), or SystemCallFilter= of a systemd unit. A kernel "
			  "older than "
			  "5.14 may not have it."
			: "See what is short: descriptors (ulimit -n) or memory.");
}
