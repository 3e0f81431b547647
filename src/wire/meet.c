/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/meet.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "wire/fds.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446
#endif

#define BACKLOG	  4096
#define MAX_FDS	  2
#define MAX_RINGS 64 /* read at a time: who floods us gets no more of our time than that */

int meet_name(struct meet_name *n, uid_t euid, const char *device, uint32_t slot)
{
	size_t room = sizeof(n->addr.sun_path) - 1;
	int len;

	if (!*device || strchr(device, '/'))
		return -EINVAL;
	memset(n, 0, sizeof(*n));
	n->addr.sun_family = AF_UNIX;
	/* sun_path[0] stays 0: abstract. */
	len = snprintf(n->addr.sun_path + 1, room, "unpin/%u/%s/%u", (unsigned)euid, device, slot);
	if (len < 0 || (size_t)len >= room)
		return -ENAMETOOLONG;
	n->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
	return 0;
}

static int make_socket(void)
{
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return s < 0 ? log_refused("socket", -errno) : s;
}

int meet_listen(const struct meet_name *n)
{
	int s = make_socket(), err;

	if (s < 0)
		return s;
	if (!bind(s, (const struct sockaddr *)&n->addr, n->len) && !listen(s, BACKLOG))
		return s;
	err = log_refused("bind or listen", -errno);
	fd_close(s);
	return err;
}

/* System calls, except for the thread sanitizer, as in base/fd.h. */
static long accept_call(int listener)
{
#ifdef __SANITIZE_THREAD__
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
#else
	return syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
#endif
}

static long receive_call(int sock, struct msghdr *h)
{
#ifdef __SANITIZE_THREAD__
	return recvmsg(sock, h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
#else
	return syscall(SYS_recvmsg, sock, h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
#endif
}

int meet_connect(const struct meet_name *n)
{
	int s = make_socket(), err;

	if (s < 0)
		return s;
	if (!syscall(SYS_connect, s, &n->addr, n->len))
		return s;
	err = -errno;
	fd_close(s);
	return err;
}

int meet_accept(int listener)
{
	long s = accept_call(listener);

	return s < 0 ? -errno : (int)s;
}

int meet_credentials(int sock, struct meet_peer *p)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	p->pid = cred.pid;
	p->euid = cred.uid;
	p->pidfd = -1;
	p->key = (uint64_t)cred.pid;
	return 0;
}

/* The kernel does not have it, or a filter forbids it. */
static bool is_refusal(int err)
{
	return err == ENOPROTOOPT || err == ENOSYS || err == EPERM || err == EACCES || err == EOPNOTSUPP;
}

int meet_pidfd(int sock, pid_t pid)
{
	socklen_t len = sizeof(int);
	int fd = -1;

	if (!getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len))
		return fd;
	/* Before Linux 6.16 there is none of a process that has been reaped. */
	if (errno == EINVAL || errno == ENODATA || errno == ESRCH)
		return -ESRCH;
	if (!is_refusal(errno))
		return -errno;
	if (!pid)
		return -EXDEV;
	/* Before Linux 6.5. The number may have been given to another process since; that the peer still
	 * holds its end makes it very likely the right one (a child that inherited the socket could outlive
	 * it). */
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return is_refusal(errno) ? -EOPNOTSUPP : -errno;
	if (meet_ended(sock)) {
		fd_close(fd);
		return -ESRCH;
	}
	return fd;
}

uint64_t meet_key(int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(pidfd, &fs) || fs.f_type != PID_FS_MAGIC || fstat(pidfd, &st))
		return 0;
	return st.st_ino | 1ull << 63;
}

bool meet_same_user(int pidfd, pid_t pid)
{
	if (pidfd >= 0)
		return !syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0);
	return pid > 0 && !kill(pid, 0);
}

static int events_now(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	struct timespec zero = { 0, 0 };

	return syscall(SYS_ppoll, &p, 1, &zero, NULL, 0) == 1 ? p.revents : 0;
}

bool meet_dead(int pidfd)
{
	return events_now(pidfd, POLLIN) & POLLIN;
}

bool meet_ended(int sock)
{
	return events_now(sock, POLLRDHUP) & (POLLRDHUP | POLLHUP | POLLERR);
}

int meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n)
{
	union {
		char space[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec io = { (void *)(uintptr_t)m, sizeof(*m) };
	struct msghdr h = { .msg_iov = &io, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (n) {
		h.msg_control = control.space;
		h.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fd, n * sizeof(int));
	}
	if (!fd_is_ours(sock))
		return -EBADF;
	return syscall(SYS_sendmsg, sock, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The descriptors of a received message, or as many as came. */
static unsigned take_descriptors(struct msghdr *h, int *fd)
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		size_t got;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < got && n < MAX_FDS; i++, n++)
			memcpy(&fd[n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	return n;
}

int meet_receive(int sock, uint64_t magic, struct layout_message *m, int *fd, unsigned n)
{
	union {
		char space[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec io = { m, sizeof(*m) };
	struct msghdr h = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control.space };
	long got;
	unsigned nfd;
	int all[MAX_FDS];

	/* Room for what is expected and no more: the kernel drops what does not fit and says so. */
	h.msg_controllen = CMSG_SPACE(n * sizeof(int));
	got = receive_call(sock, &h);
	/* An end that was closed over unread messages is reported before what it had sent. */
	if (got < 0 && errno == ECONNRESET)
		got = receive_call(sock, &h);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ENOTCONN;
	nfd = take_descriptors(&h, all);
	if (got == sizeof(*m) && nfd == n && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && m->magic == magic &&
		m->version == LAYOUT_VERSION) {
		memcpy(fd, all, n * sizeof(int));
		return 0;
	}
	for (unsigned i = 0; i < nfd; i++)
		fds_discard(all[i]);
	if (nfd < n && (h.msg_flags & MSG_CTRUNC))
		return -EMFILE;
	if (!got)
		return -ENOTCONN;
	if (got == 1 && *(char *)m == LAYOUT_GOODBYE)
		return -ESHUTDOWN;
	if (got == 1 && *(char *)m == LAYOUT_NEVER)
		return -ECONNABORTED;
	return got == sizeof(*m) && m->magic == magic && m->version != LAYOUT_VERSION ? -EPROTONOSUPPORT
										      : -EPROTO;
}

int meet_peek(int sock, struct layout_message *m)
{
	long got = syscall(SYS_recvfrom, sock, m, sizeof(*m), MSG_DONTWAIT | MSG_PEEK, NULL, NULL);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPROTO;
	return got == sizeof(*m) ? 0 : -EPROTO;
}

static void say(int sock, char what)
{
	if (fd_is_ours(sock))
		syscall(SYS_sendto, sock, &what, 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

void meet_ring(int sock)
{
	say(sock, LAYOUT_WAKE);
}

void meet_nudge(int sock)
{
	say(sock, LAYOUT_NUDGE);
}

void meet_leave(int sock)
{
	say(sock, LAYOUT_GOODBYE);
}

void meet_refuse(int sock)
{
	say(sock, LAYOUT_NEVER);
}

int meet_hear(int sock, uint32_t *nudges)
{
	char what;

	/* No room for descriptors: the kernel lets go of any that are sent along. */
	for (int i = 0; i < MAX_RINGS; i++) {
		long got = syscall(SYS_recvfrom, sock, &what, 1, MSG_DONTWAIT, NULL, NULL);

		if (got < 0 && errno == ECONNRESET)
			continue; /* what it had sent comes now */
		if (got < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -ENOTCONN;
		if (!got)
			return -ENOTCONN;
		if (what == LAYOUT_GOODBYE)
			return -ESHUTDOWN;
		*nudges += what == LAYOUT_NUDGE;
	}
	return 0;
}

int meet_rehearse(void)
{
	char byte = LAYOUT_WAKE;
	struct iovec io = { &byte, 1 };
	struct msghdr out = { .msg_iov = &io, .msg_iovlen = 1 }, in = { .msg_iov = &io, .msg_iovlen = 1 };
	int s[2], err = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s))
		return 0; /* nothing is known */
	if (syscall(SYS_sendto, s[0], &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) < 0)
		err = log_refused("sendto", -errno);
	else if (syscall(SYS_recvfrom, s[1], &byte, 1, MSG_DONTWAIT, NULL, NULL) < 0)
		err = log_refused("recvfrom", -errno);
	else if (syscall(SYS_sendmsg, s[0], &out, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		err = log_refused("sendmsg", -errno);
	else if (receive_call(s[1], &in) < 0)
		err = log_refused("recvmsg", -errno);
	fd_close(s[0]);
	fd_close(s[1]);
	return err;
}
