/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/channel.h"
#include "wire/inbound.h"
#include "wire/meet.h"
#include "wire/names.h"

#define RETRY_NS NSEC_PER_MSEC
#define GRACE_NS NSEC_PER_SEC	     /* between the end of a dying process's sockets and its own */
#define SHORT_NS (10 * NSEC_PER_SEC) /* without descriptors or memory to meet somebody: given up then */

int peer_watch(struct wire *w, int fd, struct source *s)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = s };

	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

void peer_unwatch(struct wire *w, int fd)
{
	if (fd >= 0)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
}

struct peer *peer_of(struct wire *w, uint32_t slot)
{
	return slot < LAYOUT_QPS ? w->peers[slot] : NULL;
}

struct peer *peer_new(struct wire *w, uint32_t slot)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->w = w;
	p->slot = slot;
	p->pidfd = -1;
	p->on_tx = (struct source){ SOURCE_TX, p };
	p->on_rx = (struct source){ SOURCE_RX, p };
	p->on_process = (struct source){ SOURCE_PROCESS, p };
	list_init(&p->node);
	w->peers[slot] = p;
	return p;
}

void peer_free(struct peer *p)
{
	fds_close(&p->w->fds, &p->pidfd);
	free(p);
}

int peer_know(struct peer *p, const struct meet_peer *who)
{
	int pidfd = who->pidfd, err = pidfd < 0 ? 0 : peer_watch(p->w, pidfd, &p->on_process);

	if (err) {
		fds_close(&p->w->fds, &pidfd);
		return err;
	}
	p->pid = who->pid;
	p->key = who->key;
	p->pidfd = pidfd;
	return 0;
}

static void say_no_pidfds(void)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		log_warn("the kernel, or a filter, permits no pidfds (SO_PEERPIDFD, pidfd_open): that a peer "
			 "has "
			 "died is known when its sockets have closed, which a child of it can delay");
}

int peer_identify(struct wire *w, int sock, struct meet_peer *who)
{
	int fd = meet_pidfd(sock, who->pid), err = 0;

	if (fd == -EOPNOTSUPP)
		say_no_pidfds();
	else if (fd < 0)
		return fd;
	if (!who->pid)
		who->key = meet_key(fd);
	if (!who->key)
		err = -EXDEV;
	else if (w->vague_user && who->pid != getpid() && !meet_same_user(fd, who->pid))
		err = -EACCES;
	if (fd < 0 || err) {
		if (fd >= 0)
			fd_close(fd);
		return err;
	}
	who->pidfd = fds_add(&w->fds, fd);
	return who->pidfd < 0 ? who->pidfd : 0;
}

static void hang_up(struct peer *p, int sock)
{
	peer_unwatch(p->w, sock);
	meet_leave(sock);
	shutdown(sock, SHUT_RDWR);
}

void peer_end(struct peer *p, bool drain)
{
	if (p->ending)
		return;
	p->ending = true;
	p->drain = drain;
	list_add_tail(&p->w->ending, &p->node);
	peer_unwatch(p->w, p->pidfd);
	if (p->rx) {
		hang_up(p, p->rx->sock);
		inbound_end(p->rx, drain);
	}
	if (p->tx) {
		if (p->tx->sock >= 0)
			hang_up(p, p->tx->sock);
		channel_set_state(p->tx, CHANNEL_DEAD);
		if (!list_linked(&p->tx->dropping))
			list_add_tail(&p->w->dropping, &p->tx->dropping);
	}
}

/* A socket has ended. Without goodbye the process is dying, and closes its files before it is dead. Where no
 * pidfd will tell us, that has to do. */
void peer_end_of_socket(struct peer *p, int why)
{
	if (why == -ENOTCONN && !p->ending) {
		p->dead = p->pidfd < 0;
		p->grace = p->dead ? 0 : clock_ns() + GRACE_NS;
	}
	peer_end(p, true);
}

/* It may live, but to us it is as good as dead: whoever is connected to it learns that at once. */
static void peer_never(struct peer *p)
{
	p->never = true;
	peer_end(p, false);
}

static void throw_out(struct peer *p, const char *why)
{
	if (p->ending)
		return;
	complain(p->w, "process %d (slot %u) %s: its connection is closed", (int)p->pid, p->slot, why);
	peer_end(p, false);
}

/* --- ours to them --- */

/* Says hello on a fresh connection whose other end has been checked. */
static int say_hello(struct peer *p, int sock)
{
	struct wire_channel *c = p->tx;
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, p->w->slot };
	int fd[2] = { c->memfd, p->w->door.fd };
	int err = peer_watch(p->w, sock, &p->on_tx);

	if (err)
		return err;
	/* Before hello is out: an answer and packets may cross. */
	c->sock = sock;
	err = meet_send(sock, &m, fd, 2);
	if (err) {
		peer_unwatch(p->w, sock);
		c->sock = -1;
		return err;
	}
	channel_set_state(c, CHANNEL_HELLO);
	if (!c->keep_memfd)
		fds_close(&p->w->fds, &c->memfd);
	return 0;
}

/* Who answered under the slot's name? */
static int check_callee(struct peer *p, int sock)
{
	struct wire *w = p->w;
	struct meet_peer who;
	int err = meet_credentials(sock, &who);

	if (err) {
		complain(w, "who holds slot %u is not known: the kernel refuses SO_PEERCRED: %s", p->slot,
			strerror(-err));
		return err;
	}
	if (who.euid != w->euid) {
		complain(w, "slot %u of %s is held by another user (%u)", p->slot, w->device,
			(unsigned)who.euid);
		return -EACCES;
	}
	if (!p->key || !who.key)
		err = peer_identify(w, sock, &who);
	if (err == -EXDEV)
		complain(w,
			"slot %u is held by a process in another pid namespace: before Linux 6.9 the two can "
			"meet only if they share one",
			p->slot);
	if (err == -EACCES)
		complain(w, "slot %u is held by another user, whom this user namespace does not map either",
			p->slot);
	if (err)
		return err;
	if (!p->key)
		return peer_know(p, &who);
	fds_close(&w->fds, &who.pidfd);
	return p->key == who.key ? 0 : -EBUSY; /* else its predecessor's end has not reached us yet */
}

static int call(struct peer *p)
{
	int sock, err;

	sock = names_call(p->w->euid, p->w->device, p->slot);
	if (sock == -EPERM || sock == -EACCES || sock == -ENOSYS)
		complain(p->w, "the kernel refuses to connect to slot %u: %s", p->slot, strerror(-sock));
	if (sock < 0)
		return sock;
	sock = fds_add(&p->w->fds, sock);
	if (sock < 0)
		return sock;
	err = check_callee(p, sock);
	if (!err)
		err = say_hello(p, sock);
	if (err)
		fds_close(&p->w->fds, &sock);
	return err;
}

static bool nobody_there(int err)
{
	return err == -ECONNREFUSED || err == -EACCES || err == -EPERM || err == -ESRCH || err == -EBUSY ||
	       err == -EINVAL || err == -ENAMETOOLONG || err == -EPROTOTYPE || err == -EXDEV ||
	       err == -ENOSYS;
}

/* A full backlog belongs to somebody. So, perhaps, does a name for which we lack descriptors or memory: they
 * may be there soon. But not for ever: a name may be held by another user. */
static bool may_be_met(struct wire_channel *c, int err, uint64_t now)
{
	if (nobody_there(err)) {
		c->short_since = 0;
		return false;
	}
	if (!c->short_since) {
		c->short_since = now;
		complain(c->w, "slot %u cannot be connected to for now: %s", c->slot, strerror(-err));
	}
	return now - c->short_since < SHORT_NS;
}

void peer_seek(struct peer *p, uint64_t now)
{
	struct wire_channel *c = p->tx;
	int err;

	if (p->ending || c->sock >= 0 || now < c->retry_at)
		return;
	c->retry_at = now + RETRY_NS;
	err = call(p);
	if (!err)
		return;
	if (err == -EXDEV) {
		/* It is there, and will never be met. */
		channel_set_state(c, CHANNEL_ABSENT);
		peer_never(p);
		wire_kick(p->w);
		return;
	}
	if (!may_be_met(c, err, now)) {
		/* Packets were kept for somebody who has gone; their senders have to be told, and whoever has
		 * the slot next must not get them. */
		if (channel_set_state(c, CHANNEL_ABSENT) == CHANNEL_CALLING) {
			peer_end_of_socket(p, -ENOTCONN);
			wire_kick(p->w);
		}
		return;
	}
	channel_set_state(c, CHANNEL_CALLING);
	if (!p->w->calling) {
		p->w->calling = true;
		wire_kick(p->w); /* the engine tries again, should nobody else */
	}
}

void peer_unused(struct peer *p)
{
	struct wire *w = p->w;

	if (p->ending || p->rx || p->tx->sock >= 0)
		return;
	peer_unwatch(w, p->pidfd);
	w->peers[p->slot] = NULL;
	channel_put(p->tx);
	peer_free(p);
}

/* A descriptor that is kept for when there is no other. */
void peer_take_spare(struct wire *w)
{
	/* Any file will do, and this one is there whatever the root directory is. */
	w->spare = (int)syscall(SYS_fcntl, w->door.fd, F_DUPFD_CLOEXEC, FD_HIGH);
	if (w->spare < 0)
		w->spare = (int)syscall(SYS_fcntl, w->door.fd, F_DUPFD_CLOEXEC, 0);
	if (w->spare >= 0)
		w->spare = fds_add(&w->fds, w->spare);
}

static void hear_answer(struct peer *p)
{
	struct layout_message m;
	struct doorbell bell = { .page = NULL };
	int fd = -1, err;

	/* It comes but once, and brings a descriptor. */
	fds_close(&p->w->fds, &p->w->spare);
	err = meet_receive(p->tx->sock, LAYOUT_ANSWER_MAGIC, &m, &fd, 1);
	if (err == -EAGAIN)
		return;
	if (!err)
		err = m.slot == p->slot ? doorbell_open(&bell, fd) : -EPROTO;
	if (!err) {
		fd_close(fd);
		channel_opened(p->tx, &bell);
		if (bell.lossy && !list_linked(&p->tx->dropping))
			list_add_tail(&p->w->dropping, &p->tx->dropping);
		return;
	}
	fds_discard(fd);
	if (err == -ECONNABORTED) {
		complain(p->w, "process %d (slot %u) cannot meet this one: its own messages say why",
			(int)p->pid, p->slot);
		peer_never(p);
	} else if (err == -ENOTCONN || err == -ESHUTDOWN)
		peer_end_of_socket(p, err);
	else
		throw_out(p, err == -EMFILE	       ? "answered, but too many files are open"
			     : err == -EPROTONOSUPPORT ? "speaks another version of unpin"
						       : "answered nonsense");
}

static enum channel_state state_of(struct wire_channel *c)
{
	enum channel_state state;

	lock_take(&c->lock);
	state = c->state;
	lock_drop(&c->lock);
	return state;
}

static void hear_wakes(struct peer *p, int sock)
{
	uint32_t nudges = 0;
	int err = meet_hear(sock, &nudges);

	if (nudges)
		atomic_fetch_add(&p->w->nudges, nudges);
	if (err == -ENOTCONN || err == -ESHUTDOWN)
		peer_end_of_socket(p, err);
}

void peer_tx_event(struct peer *p)
{
	if (p->ending)
		return;
	if (state_of(p->tx) == CHANNEL_HELLO) {
		hear_answer(p);
		if (p->w->spare < 0)
			peer_take_spare(p->w);
		return;
	}
	/* It is a wake-up for the engine, or says that there are drop notices; look for both. */
	if (!list_linked(&p->tx->dropping))
		list_add_tail(&p->w->dropping, &p->tx->dropping);
	hear_wakes(p, p->tx->sock);
}

void peer_rx_event(struct peer *p)
{
	if (!p->ending)
		hear_wakes(p, p->rx->sock);
}

void peer_process_event(struct peer *p)
{
	peer_end(p, true);
}

/* --- time --- */

static void end_broken(struct wire *w)
{
	for (uint32_t i = 1; i < LAYOUT_QPS; i++) {
		struct peer *p = w->peers[i];

		if (p && ((p->rx && atomic_load(&p->rx->broken)) || (p->tx && atomic_load(&p->tx->broken))))
			throw_out(p, "wrote what it must not into shared memory");
	}
}

static void call_again(struct wire *w, uint64_t now)
{
	w->calling = false;
	for (uint32_t i = 1; i < LAYOUT_QPS; i++) {
		struct peer *p = w->peers[i];

		if (!p || !p->tx || p->ending || state_of(p->tx) != CHANNEL_CALLING)
			continue;
		peer_seek(p, now);
		w->calling |= state_of(p->tx) == CHANNEL_CALLING;
	}
	w->hurry |= w->calling;
}

void peer_tick(struct wire *w, uint64_t now)
{
	if (atomic_exchange(&w->broken, false))
		end_broken(w);
	if (w->calling)
		call_again(w, now);
}

/* Who connected to the slot while its peer was ending meant whoever has it next, if anybody. */
static void inherit(struct peer *p, uint64_t now)
{
	struct peer *next = p->w->peers[p->slot] ? NULL : peer_new(p->w, p->slot);

	if (next) {
		next->tx = p->heir;
		peer_seek(next, now);
	} else {
		channel_set_state(p->heir, CHANNEL_DEAD);
		channel_put(p->heir);
	}
	p->heir = NULL;
}

struct peer *peer_next_gone(struct wire *w, uint64_t now)
{
	list_for_each_safe (node, &w->ending) {
		struct peer *p = container_of(node, struct peer, node);
		bool dead = p->pidfd >= 0 ? meet_dead(p->pidfd) : p->dead;

		if ((!dead && now < p->grace) || (p->rx && !inbound_drain(p->rx))) {
			w->hurry = true;
			continue;
		}
		list_del(&p->node);
		if (w->peers[p->slot] == p)
			w->peers[p->slot] = NULL;
		if (p->heir)
			inherit(p, now);
		p->dead = dead || p->never;
		return p;
	}
	return NULL;
}

void peer_close_all(struct wire *w)
{
	for (uint32_t i = 1; i < LAYOUT_QPS; i++)
		if (w->peers[i])
			peer_end(w->peers[i], false);
	while (!list_empty(&w->ending)) {
		struct peer *p = container_of(list_pop(&w->ending), struct peer, node);

		w->peers[p->slot] = NULL;
		if (p->tx) {
			list_del(&p->tx->dropping);
			channel_put(p->tx);
		}
		if (p->rx)
			inbound_put(p->rx);
		peer_free(p);
	}
}
