/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int spawn(struct peer *p, int fd)
{
	char number[16], self[PATH_MAX];
	char *argv[] = { (char *)"unpin", (char *)"bench", (char *)"--peer", number, NULL };

	snprintf(number, sizeof(number), "%d", fd);
	/* By its name, which lists of processes then show; by the link when a newer build has taken the name.
	 */
	if (!realpath("/proc/self/exe", self))
		strcpy(self, "/proc/self/exe");
	return -posix_spawn(&p->pid, self, NULL, NULL, argv, environ);
}

int peer_start(struct peer *p)
{
	int fd[2], err;

	memset(p, 0, sizeof(*p));
	p->fd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd))
		return -errno;
	/* Only the other end is inherited. */
	fcntl(fd[0], F_SETFD, FD_CLOEXEC);
	err = spawn(p, fd[1]);
	close(fd[1]);
	if (err) {
		close(fd[0]);
		p->pid = 0;
		return err;
	}
	p->fd = fd[0];
	return 0;
}

static int ended(struct peer *p)
{
	p->answer.err = -EPIPE;
	snprintf(p->answer.why, sizeof(p->answer.why), "the second process of the bench has ended");
	return -EPIPE;
}

int peer_finish(struct peer *p)
{
	ssize_t n;

	do {
		n = recv(p->fd, &p->answer, sizeof(p->answer), 0);
	} while (n < 0 && errno == EINTR && !endpoint_stop);
	if (n < 0 && errno == EINTR) {
		p->answer.err = -EINTR;
		snprintf(p->answer.why, sizeof(p->answer.why), "interrupted");
		return -EINTR;
	}
	if (n != (ssize_t)sizeof(p->answer))
		return ended(p);
	p->answer.why[sizeof(p->answer.why) - 1] = 0;
	return p->answer.err;
}

int peer_call(struct peer *p, const struct peer_request *request)
{
	if (send(p->fd, request, sizeof(*request), MSG_NOSIGNAL) != (ssize_t)sizeof(*request))
		return ended(p);
	return peer_finish(p);
}

void peer_stop(struct peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	if (p->pid > 0) {
		/* It may be in the middle of something that will not end now that we go. */
		kill(p->pid, SIGTERM);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	p->pid = 0;
}
