/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/link.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "nic/device.h"
#include "rdmacm/own.h"

#define BACKLOG	   4096
#define GRACE_NS   (200 * NSEC_PER_MSEC) /* for a listener to appear */
#define RETRY_NS   (10 * NSEC_PER_MSEC)
#define ANSWER_NS  (20 * NSEC_PER_SEC) /* for a listener with a full backlog to take us */
#define REQUEST_NS (10 * NSEC_PER_SEC) /* for the first message of who has connected */
#define MESSAGES   64		       /* read of one link at a time */

static struct list links = LIST_INIT(links);
static struct list listening = LIST_INIT(listening);

static void readable(struct watch *w);

/* --- sockets -------------------------------------------------------------------------------------- */

static socklen_t make_name(struct sockaddr_un *addr, const char *name, int len)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	memcpy(addr->sun_path + 1, name, (size_t)len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static int make_socket(void)
{
	return own_fd((int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* Anybody may take any name, and connect to any. */
static bool same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid();
}

/* --- links ---------------------------------------------------------------------------------------- */

static struct link *new_link(void)
{
	static uint64_t last;
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->route = ++last;
	l->watch = (struct watch){ .fd = -1, .readable = readable };
	l->began = clock_ns();
	list_add_tail(&links, &l->node);
	return l;
}

void link_close(struct link *l)
{
	service_unwatch(&l->watch);
	own_close(&l->watch.fd);
	list_del(&l->node);
	connection_forget(l);
	free(l);
}

static void look_at(struct link *l, uint64_t at)
{
	l->at = at;
	service_deadline(at);
}

struct link *link_find(uint64_t route)
{
	list_for_each (node, &links) {
		struct link *l = container_of(node, struct link, node);

		if (l->route == route)
			return l;
	}
	return NULL;
}

void link_send(struct link *l, const void *message)
{
	if (!l)
		return;
	if (l->watch.fd >= 0) {
		syscall(SYS_sendto, l->watch.fd, message, (size_t)CM_MAD_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL,
			NULL, 0);
		return;
	}
	memcpy(l->pending, message, CM_MAD_BYTES);
	l->has_pending = true;
}

/* --- connecting ----------------------------------------------------------------------------------- */

/* One try at one name: a socket, or a negative errno. */
static int connect_to(const char *name, int len)
{
	struct sockaddr_un addr;
	socklen_t size = make_name(&addr, name, len);
	int fd = make_socket(), err = 0;

	if (fd < 0)
		return fd;
	if (syscall(SYS_connect, fd, &addr, size))
		err = -errno;
	else if (!same_user(fd))
		err = -ECONNREFUSED;
	if (err)
		own_close(&fd);
	return err ? err : fd;
}

/* One round over the names; -ECONNREFUSED: nobody has any of them. */
static int connect_any(const struct cm_id *id)
{
	char name[PORT_NAME_MAX];
	int fd = -ECONNREFUSED, len;

	for (unsigned n = 0; fd == -ECONNREFUSED; n++) {
		len = port_target_name(id->ps, &id->dst, geteuid(), nic_device_name(), n, name);
		if (len <= 0)
			break;
		fd = connect_to(name, len);
	}
	return fd;
}

static void attempt(struct link *l, uint64_t now)
{
	int fd = connect_any(l->id), err;

	if (fd >= 0) {
		l->at = 0;
		l->watch.fd = fd;
		err = service_watch(&l->watch);
		if (err)
			connection_unreachable(l, err);
		else if (l->has_pending)
			link_send(l, l->pending);
	} else if (fd == -ECONNREFUSED && now - l->began >= GRACE_NS) {
		connection_refused(l);
	} else if (now - l->began >= ANSWER_NS) {
		connection_unreachable(l, -ETIMEDOUT);
	} else {
		look_at(l, now + RETRY_NS);
	}
}

int link_open(struct cm_id *id)
{
	struct link *l = new_link();

	if (!l)
		return -ENOMEM;
	l->id = id;
	id->link = l;
	return 0;
}

void link_start(struct link *l)
{
	attempt(l, clock_ns());
}

/* --- messages ------------------------------------------------------------------------------------- */

/* 1: a message; 0: none at present; negative: the other end is gone. */
static int receive(struct link *l, uint8_t *message)
{
	long n = syscall(SYS_recvfrom, l->watch.fd, message, (size_t)CM_MAD_BYTES, MSG_DONTWAIT | MSG_TRUNC,
		NULL, NULL);

	/* An end that was closed over unread messages is reported before what it had sent. */
	if (n < 0 && errno == ECONNRESET)
		n = syscall(SYS_recvfrom, l->watch.fd, message, (size_t)CM_MAD_BYTES,
			MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n != CM_MAD_BYTES)
		return -ENOTCONN; /* the end, or no message of ours */
	return 1;
}

/* It has to be a request that its listener takes. */
static void first_message(struct link *l, const uint8_t *message)
{
	l->at = 0;
	connection_message(l, message, CM_MAD_BYTES);
	if (!l->id)
		link_close(l);
}

static void readable(struct watch *w)
{
	struct link *l = container_of(w, struct link, watch);
	uint8_t message[CM_MAD_BYTES];

	for (unsigned i = 0; i < MESSAGES; i++) {
		int got = receive(l, message);

		if (!got)
			return;
		if (got < 0 && !l->id) {
			link_close(l);
			return;
		}
		if (got < 0) {
			/* Nothing more is to be heard; the connection says when the link is closed. */
			service_unwatch(w);
			connection_lost(l);
			return;
		}
		if (!l->id) {
			first_message(l, message);
			return; /* if there is more, the descriptor stays readable */
		}
		connection_message(l, message, CM_MAD_BYTES);
	}
}

/* --- listening ------------------------------------------------------------------------------------ */

static void welcome(struct cm_id *id, int fd)
{
	struct link *l = same_user(fd) ? new_link() : NULL;

	if (!l) {
		own_close(&fd);
		return;
	}
	l->watch.fd = fd;
	l->listener = id;
	if (service_watch(&l->watch))
		link_close(l);
	else
		look_at(l, l->began + REQUEST_NS);
}

static void knocked(struct watch *w)
{
	struct cm_id *id = container_of(w, struct cm_id, listener);

	for (;;) {
		int fd = own_fd((int)syscall(SYS_accept4, w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

		if (fd >= 0) {
			welcome(id, fd);
			continue;
		}
		if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
			/* It would stay readable: look again soon. */
			service_unwatch(w);
			id->listener_paused = true;
			service_deadline(clock_ns() + RETRY_NS);
		}
		if (fd != -EINTR && fd != -ECONNABORTED)
			return;
	}
}

int link_listen(struct cm_id *id)
{
	char name[PORT_NAME_MAX];
	struct sockaddr_un addr;
	socklen_t size;
	int len = port_listener_name(&id->claim.port, geteuid(), nic_device_name(), name), err = 0;

	if (len < 0)
		return len;
	id->listener = (struct watch){ .fd = make_socket(), .readable = knocked };
	if (id->listener.fd < 0) {
		err = id->listener.fd;
		id->listener.fd = -1;
		return err;
	}
	size = make_name(&addr, name, len);
	if (syscall(SYS_bind, id->listener.fd, &addr, size) || syscall(SYS_listen, id->listener.fd, BACKLOG))
		err = -errno;
	if (!err)
		err = service_watch(&id->listener);
	if (!err)
		err = connection_listen(id);
	if (err) {
		service_unwatch(&id->listener);
		own_close(&id->listener.fd);
		return err;
	}
	list_add_tail(&listening, &id->listening);
	return 0;
}

void link_unlisten(struct cm_id *id)
{
	service_unwatch(&id->listener);
	own_close(&id->listener.fd);
	list_del(&id->listening);
	connection_unlisten(id);
	list_for_each_safe (node, &links) {
		struct link *l = container_of(node, struct link, node);

		if (!l->id && l->listener == id)
			link_close(l);
	}
}

/* --- time ----------------------------------------------------------------------------------------- */

static void resume_listeners(void)
{
	list_for_each (node, &listening) {
		struct cm_id *id = container_of(node, struct cm_id, listening);

		if (!id->listener_paused)
			continue;
		id->listener_paused = false;
		if (service_watch(&id->listener)) {
			id->listener_paused = true;
			service_deadline(clock_ns() + RETRY_NS);
		}
	}
}

static void tick(struct link *l, uint64_t now)
{
	if (!l->at || now < l->at)
		return;
	l->at = 0;
	if (l->id)
		attempt(l, now);
	else
		link_close(l);
}

void link_tick(uint64_t now)
{
	resume_listeners();
	connection_tick(now);
	/* A link may end itself, and none of the others. */
	list_for_each_safe (node, &links)
		tick(container_of(node, struct link, node), now);
	list_for_each (node, &links) {
		const struct link *l = container_of(node, struct link, node);

		if (l->at)
			service_deadline(l->at);
	}
}

void link_abandon(void)
{
	list_init(&links);
	list_init(&listening);
	connection_abandon();
}
