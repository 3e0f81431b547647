/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Meeting: abstract unix sockets (unix(7)) with names made from user, device and slot; who is at the other
 * end; the two messages with descriptors. Nothing here blocks. No state, any thread. Descriptors that are
 * returned are close-on-exec and belong to the caller.
 */
#ifndef UNPIN_WIRE_MEET_H
#define UNPIN_WIRE_MEET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "wire/layout.h"

struct meet_name {
	struct sockaddr_un addr;
	socklen_t len;
};

/*
 * Who is at the other end: as the kernel recorded it when the other end called connect or listen. Two ends
 * with the same key, not 0, are of one process: its pid, or, for one in a pid namespace that cannot be looked
 * into from here (pid is 0), what meet_key() says.
 */
struct meet_peer {
	pid_t pid;
	uid_t euid;
	int pidfd;
	uint64_t key;
};

/* "unpin/<euid>/<device>/<slot>". -ENAMETOOLONG; -EINVAL: the device's name is empty or has a slash. */
int meet_name(struct meet_name *n, uid_t euid, const char *device, uint32_t slot);
/* A listening socket with that name. -EADDRINUSE and others. */
int meet_listen(const struct meet_name *n);
/* Whether messages can be sent and received here at all. 0, or the negative errno of a call that is refused,
 * of which a message tells. */
int meet_rehearse(void);
/* A connected socket. -ECONNREFUSED: nobody has the name; -EAGAIN: its backlog is full; others. */
int meet_connect(const struct meet_name *n);
/* The next waiting connection. -EAGAIN: none; -EMFILE, -ENFILE. */
int meet_accept(int listener);
/* Pid and user of the other end. 0 or a negative errno; pidfd is -1, and key is 0 when pid is. */
int meet_credentials(int sock, struct meet_peer *p);
/* A pidfd of the other end's process. -ESRCH: it has died and been reaped, or (before Linux 6.5) has closed
 * its end, so that nothing says any more whose number it is. -EOPNOTSUPP: the kernel has, or permits, no
 * pidfds; -EXDEV: none of a process in another pid namespace (pid is 0). Other negative errno
 * (descriptors). */
int meet_pidfd(int sock, pid_t pid);
/* The key of a process by its pidfd: the number of its inode, which no other process gets. 0: before Linux
 * 6.9 there is none. */
uint64_t meet_key(int pidfd);
/*
 * Does the kernel take this process and the other for the same user's? The numbers of users may not tell: all
 * that a user namespace does not map look alike. Asks with signal 0, by pidfd, or by pid when that is -1.
 */
bool meet_same_user(int pidfd, pid_t pid);
/* Reads the message that waits, and leaves it and its descriptors where they are. 0, -EAGAIN, -EPROTO. */
int meet_peek(int sock, struct layout_message *m);
/* Has the process behind the pidfd died? */
bool meet_dead(int pidfd);
/* Has the other end closed or shut down its socket? (What it sent before may still be unread.) */
bool meet_ended(int sock);

/* Sends a message with n descriptors (n <= 2). 0, -EAGAIN, -EPIPE, ... */
int meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n);
/* Receives a message that must have exactly this magic and n descriptors (n <= 2). 0: fd[] are the caller's,
 * of unknown kind (fds_discard()). -EAGAIN: nothing yet; -ESHUTDOWN: goodbye; -ECONNABORTED: we can
 * never meet; -ENOTCONN: the other end has closed without; -EMFILE: no room for the descriptors, which are
 * lost; -EPROTO: anything else (all closed); -EPROTONOSUPPORT: right, but of version m->version. */
int meet_receive(int sock, uint64_t magic, struct layout_message *m, int *fd, unsigned n);
/* Sends a wake-up; a full queue is as good as one. */
void meet_ring(int sock);
/* Wakes the owner of a door that said POLLED and did not poll. */
void meet_nudge(int sock);
/* Says goodbye. */
void meet_leave(int sock);
/* Says, in place of an answer, that there will never be one. */
void meet_refuse(int sock);
/* Reads wake-ups away; adds the nudges among them to *nudges. 0; -ESHUTDOWN: goodbye; -ENOTCONN: the other
 * end has closed without. Reads no more than a few dozen: what is left keeps the socket readable. */
int meet_hear(int sock, uint32_t *nudges);

#endif
