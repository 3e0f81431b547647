/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/channel.h"
#include "wire/inbound.h"
#include "wire/meet.h"

#define RETRY_NS       NSEC_PER_MSEC
#define HELLO_NS       NSEC_PER_SEC /* a connection that says nothing for so long is closed */
#define GRACE_NS       NSEC_PER_SEC /* between the end of a dying process's sockets and its own */
#define VERIFY_NS      (10 * NSEC_PER_SEC)
#define SHORT_NS       (10 * NSEC_PER_SEC) /* without descriptors or memory to meet somebody: given up then */
#define MAX_SILENT     64u		   /* of those at a time; the oldest makes room */
#define MAX_ACCEPTS    256		   /* in one service call */
#define MAX_COMPLAINTS 32u

/* A warning for the person; a hostile peer must not fill the log. */
#define complain(w, ...)                                                                                     \
	do {                                                                                                 \
		if ((w)->complaints < MAX_COMPLAINTS) {                                                      \
			(w)->complaints++;                                                                   \
			log_warn(__VA_ARGS__);                                                               \
		}                                                                                            \
	} while (0)

static int watch(struct wire *w, int fd, struct source *s)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = s };

	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

static void unwatch(struct wire *w, int fd)
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

/* The process behind the peer is known from now on: its death is the peer's. Takes over pidfd. */
static int know(struct peer *p, pid_t pid, int pidfd)
{
	int err = watch(p->w, pidfd, &p->on_process);

	if (err) {
		fds_close(&p->w->fds, &pidfd);
		return err;
	}
	p->pid = pid;
	p->pidfd = pidfd;
	return 0;
}

/* A pidfd in our table, or a negative errno. */
static int open_pidfd(struct wire *w, int sock, pid_t pid)
{
	int fd = meet_pidfd(sock, pid);

	return fd < 0 ? fd : fds_add(&w->fds, fd);
}

static void hang_up(struct peer *p, int sock)
{
	unwatch(p->w, sock);
	meet_leave(sock);
	shutdown(sock, SHUT_RDWR);
}

static void end(struct peer *p, bool drain)
{
	if (p->ending)
		return;
	p->ending = true;
	p->drain = drain;
	list_add_tail(&p->w->ending, &p->node);
	unwatch(p->w, p->pidfd);
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
static void end_of_socket(struct peer *p, int why)
{
	if (why == -ENOTCONN && !p->ending) {
		p->dead = p->pidfd < 0;
		p->grace = p->dead ? 0 : clock_ns() + GRACE_NS;
	}
	end(p, true);
}

static void throw_out(struct peer *p, const char *why)
{
	if (p->ending)
		return;
	complain(p->w, "process %d (slot %u) %s: its connection is closed", (int)p->pid, p->slot, why);
	end(p, false);
}

/* --- ours to them --- */

/* Says hello on a fresh connection whose other end has been checked. */
static int say_hello(struct peer *p, int sock)
{
	struct wire_channel *c = p->tx;
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, p->w->slot };
	int fd[2] = { c->memfd, p->w->door.fd };
	int err = watch(p->w, sock, &p->on_tx);

	if (err)
		return err;
	/* Before hello is out: an answer and packets may cross. */
	c->sock = sock;
	err = meet_send(sock, &m, fd, 2);
	if (err) {
		unwatch(p->w, sock);
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

	if (err)
		return err;
	if (who.euid != w->euid) {
		complain(w, "slot %u of %s is held by another user (%u)", p->slot, w->device,
			(unsigned)who.euid);
		return -EACCES;
	}
	if (!who.pid)
		return -ESRCH; /* in a pid namespace that we cannot look into */
	if (p->pid)
		return p->pid == who.pid ? 0 : -EBUSY; /* its predecessor's end has not reached us yet */
	who.pidfd = open_pidfd(w, sock, who.pid);
	return who.pidfd < 0 ? who.pidfd : know(p, who.pid, who.pidfd);
}

static int call(struct peer *p)
{
	struct meet_name name;
	int sock, err = meet_name(&name, p->w->euid, p->w->device, p->slot);

	if (err)
		return err;
	sock = meet_connect(&name);
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
	       err == -EINVAL || err == -ENAMETOOLONG || err == -EPROTOTYPE;
}

/* A full backlog belongs to somebody. So, perhaps, does a name for which we lack descriptors or memory: they
 * may be there soon. */
static bool may_be_met(struct wire_channel *c, int err, uint64_t now)
{
	if (err == -EAGAIN || nobody_there(err)) {
		c->short_since = 0;
		return err == -EAGAIN;
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
	if (!may_be_met(c, err, now)) {
		/* Packets were kept for somebody who has gone; their senders have to be told, and whoever has
		 * the slot next must not get them. */
		if (channel_set_state(c, CHANNEL_ABSENT) == CHANNEL_CALLING) {
			end_of_socket(p, -ENOTCONN);
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
	unwatch(w, p->pidfd);
	w->peers[p->slot] = NULL;
	channel_put(p->tx);
	peer_free(p);
}

/* A descriptor that is kept for when there is no other. */
static void take_spare(struct wire *w)
{
	w->spare = fd_open("/dev/null", O_RDONLY);
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
	if (err == -ENOTCONN || err == -ESHUTDOWN)
		end_of_socket(p, err);
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
		end_of_socket(p, err);
}

void peer_tx_event(struct peer *p)
{
	if (p->ending)
		return;
	if (state_of(p->tx) == CHANNEL_HELLO) {
		hear_answer(p);
		if (p->w->spare < 0)
			take_spare(p->w);
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
	end(p, true);
}

/* --- theirs to us --- */

static struct guest *guest_new(struct wire *w, int sock, uint64_t now)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->w = w;
	g->sock = sock;
	g->pidfd = g->memfd = g->doorfd = -1;
	g->deadline = now + HELLO_NS;
	g->on_sock = (struct source){ SOURCE_GUEST, g };
	list_add_tail(&w->guests, &g->node);
	w->nguests++;
	return g;
}

/* Events of this round may still point to it, so its memory goes later. Who is not told that we leave it
 * takes us for a dying process and waits for our death. */
static void guest_leave(struct guest *g)
{
	struct wire *w = g->w;
	struct peer *p = g->greeted ? peer_of(w, g->slot) : NULL;

	if (p && p->caller == g)
		p->caller = NULL;
	else
		p = NULL;
	if (!g->greeted)
		w->nguests--;
	if (g->waits)
		w->nwaiting--;
	g->greeted = true;
	g->waits = false;
	fds_discard(g->memfd);
	fds_discard(g->doorfd);
	g->memfd = g->doorfd = -1;
	unwatch(w, g->sock);
	if (g->sock >= 0) {
		meet_leave(g->sock);
		shutdown(g->sock, SHUT_RDWR);
	}
	fds_close(&w->fds, &g->sock);
	fds_close(&w->fds, &g->pidfd);
	list_del(&g->node);
	list_add_tail(&w->dead_guests, &g->node);
	if (p && !p->tx && !p->rx && !p->ending) {
		p->unmet = true;
		end(p, false);
	}
}

static void refuse(struct guest *g, const char *why)
{
	complain(g->w, "process %d %s: its connection is refused", (int)g->pid, why);
	guest_leave(g);
}

enum verdict { VERDICT_YES, VERDICT_NO, VERDICT_LATER };

/*
 * Does the slot belong to the process that says so? Its name must. A process that has just ended, or closed
 * the device, has no names any more, and its last words are to be heard: then it is enough that nobody else
 * has it. One that is about to end may lose its name before its connection.
 */
static enum verdict owns_slot(struct guest *g, uint64_t now)
{
	struct wire *w = g->w;
	struct meet_name name;
	struct meet_peer who;
	int sock, err;

	if (meet_name(&name, w->euid, w->device, g->slot))
		return VERDICT_NO;
	sock = meet_connect(&name);
	if (sock == -ECONNREFUSED && (meet_dead(g->pidfd) || meet_ended(g->sock)))
		return VERDICT_YES;
	if (sock == -ECONNREFUSED && now >= g->deadline)
		return VERDICT_NO;
	if (sock < 0)
		return VERDICT_LATER;
	err = meet_credentials(sock, &who);
	fd_close(sock);
	return !err && who.pid == g->pid && who.euid == w->euid ? VERDICT_YES : VERDICT_NO;
}

static int answer(struct guest *g)
{
	struct layout_message m = { LAYOUT_ANSWER_MAGIC, LAYOUT_VERSION, g->w->slot };

	return meet_send(g->sock, &m, &g->w->door.fd, 1);
}

/* The guest is a peer's sending half from now on. -EAGAIN: not yet. */
static int admit(struct guest *g, struct peer *p)
{
	struct wire *w = g->w;
	struct inbound *in;
	int err;

	err = inbound_new(w, g->slot, g->memfd, g->doorfd, g->sock, &in);
	if (err)
		return err;
	unwatch(w, g->sock);
	/* Before any thread can take a packet: it may wake the sender for credit, and the answer must be the
	 * first that comes. Without it the sender would wake nobody: a user may have but so many descriptors
	 * on their way. Of one that finds nobody the socket tells. */
	err = answer(g) && !meet_ended(g->sock) ? -EAGAIN : 0;
	if (!err && !p->pid && g->pidfd >= 0) {
		err = know(p, g->pid, g->pidfd);
		g->pidfd = -1;
	} else if (!err && !p->pid) {
		p->pid = g->pid;
	}
	if (!err)
		err = inbound_attach(in);
	if (err) {
		in->sock = -1; /* still the guest's */
		inbound_put(in);
		return err;
	}
	g->sock = -1;
	/* What they are is known now, and that closing them does not block. */
	fd_close(g->memfd);
	fd_close(g->doorfd);
	g->memfd = g->doorfd = -1;
	p->rx = in;
	err = p->ending ? 0 : watch(w, in->sock, &p->on_rx);
	if (err)
		end(p, true);
	else if (p->ending)
		inbound_end(in, true);
	/* It is there: no need to wait until we look for it again. */
	if (p->tx && p->tx->sock < 0) {
		p->tx->retry_at = 0;
		peer_seek(p, clock_ns());
	}
	/* Packets may be in the ring already, and the engine may be about to sleep. */
	wire_kick(w);
	return 0;
}

/* The peer's end has been seen before the connection that its process had made: what that brings belongs to
 * the same end. A connection that lives is a later device's. */
static bool are_last_words(const struct peer *p, const struct guest *g)
{
	return p->drain && !p->rx && p->pid == g->pid && (meet_dead(g->pidfd) || meet_ended(g->sock));
}

/* The peer record for a guest whose slot is verified, or the reason why there is none (yet). */
static enum verdict place_for(struct guest *g, struct peer **out)
{
	struct peer *p = peer_of(g->w, g->slot);
	uint32_t nudges = 0; /* of a socket that has ended: no matter */

	*out = p;
	if (!p) {
		*out = peer_new(g->w, g->slot);
		return *out ? VERDICT_YES : VERDICT_NO;
	}
	if (p->ending)
		return are_last_words(p, g) ? VERDICT_YES : VERDICT_LATER;
	if (p->pid && p->pid != g->pid) {
		/* The name has a new owner, so the old one is gone even if the news is still on its way. */
		end_of_socket(p, -ENOTCONN);
		return VERDICT_LATER;
	}
	/* One at a time. */
	if (!p->rx && p->caller && p->caller != g)
		return p->caller->pid != g->pid || meet_ended(p->caller->sock) ? VERDICT_LATER : VERDICT_NO;
	if (!p->rx)
		return VERDICT_YES;
	if (!meet_ended(p->rx->sock))
		return VERDICT_NO;
	end_of_socket(p, meet_hear(p->rx->sock, &nudges));
	return VERDICT_LATER;
}

static void wait_or_refuse(struct guest *g)
{
	struct wire *w = g->w;

	w->hurry = true;
	if (!g->waits && w->nwaiting >= MAX_SILENT) {
		refuse(g, "is one of too many that wait");
		return;
	}
	w->nwaiting += !g->waits;
	g->waits = true;
}

static void settle(struct guest *g, uint64_t now)
{
	struct wire *w = g->w;
	struct peer *p;
	enum verdict v = VERDICT_YES;
	int err;

	p = peer_of(w, g->slot);
	/* One that we reached under that name needs no second proof. */
	if (!p || p->ending || !p->tx || p->tx->sock < 0 || p->pid != g->pid)
		v = owns_slot(g, now);
	if (v == VERDICT_NO || (v == VERDICT_LATER && now >= g->deadline + VERIFY_NS)) {
		refuse(g, "claims a slot that is not its own");
		return;
	}
	if (v == VERDICT_YES)
		v = place_for(g, &p);
	if (v == VERDICT_LATER) {
		wait_or_refuse(g);
		return;
	}
	if (v == VERDICT_NO) {
		refuse(g, "has a channel to us already");
		return;
	}
	p->caller = g;
	err = admit(g, p);
	/* Whose slot is proven is one of as many as there are slots. */
	if (err == -EAGAIN && now < g->deadline + VERIFY_NS) {
		w->hurry = true;
		w->nwaiting -= g->waits;
		g->waits = false;
	} else if (err) {
		refuse(g, err == -EPROTO ? "offers memory that is no channel"
					 : "cannot be served (no memory or descriptors)");
	} else {
		guest_leave(g);
	}
}

static void hear_hello(struct guest *g, uint64_t now)
{
	struct layout_message m;
	int fd[2], err = meet_receive(g->sock, LAYOUT_HELLO_MAGIC, &m, fd, 2);

	if (err == -EAGAIN)
		return;
	if (err == -ENOTCONN || err == -ESHUTDOWN) {
		guest_leave(g); /* somebody who only looked whom the slot belongs to */
		return;
	}
	if (err) {
		refuse(g, err == -EMFILE	    ? "cannot be served: too many files are open"
			  : err == -EPROTONOSUPPORT ? "speaks another version of unpin"
						    : "says nonsense");
		return;
	}
	g->greeted = true;
	g->w->nguests--;
	g->memfd = fd[0];
	g->doorfd = fd[1];
	g->slot = m.slot;
	/* Nothing more is expected before it is a peer; its end would be reported again and again. */
	unwatch(g->w, g->sock);
	if (!m.slot || m.slot >= LAYOUT_QPS) {
		refuse(g, "claims a slot that does not exist");
		return;
	}
	g->pidfd = open_pidfd(g->w, g->sock, g->pid);
	/* Its process has ended, or has closed the device: there is nothing left to watch. */
	if (g->pidfd == -ESRCH && meet_ended(g->sock)) {
		g->pidfd = -1;
	} else if (g->pidfd < 0) {
		refuse(g, g->pidfd == -EMFILE || g->pidfd == -ENFILE
				  ? "cannot be watched: too many files are open"
				  : "cannot be watched");
		return;
	}
	settle(g, now);
}

void peer_guest_event(struct guest *g, uint64_t now)
{
	if (g->sock >= 0 && !g->greeted)
		hear_hello(g, now);
}

/* One that has just been accepted. */
static void send_away(int sock)
{
	meet_leave(sock);
	shutdown(sock, SHUT_RDWR);
	fd_close(sock);
}

static void welcome(struct wire *w, int sock, uint64_t now)
{
	struct meet_peer who;
	struct guest *g;

	if (meet_credentials(sock, &who) || !fds_discard_ready()) {
		send_away(sock);
		return;
	}
	if (!who.pid) {
		complain(w, "a process in a pid namespace that is not visible here tried to connect");
		send_away(sock);
		return;
	}
	if (who.euid != w->euid) {
		complain(w, "process %d of user %u tried to connect to slot %u", (int)who.pid,
			(unsigned)who.euid, w->slot);
		fd_close(sock); /* not a word */
		return;
	}
	sock = fds_add(&w->fds, sock);
	if (sock < 0)
		return;
	if (w->nguests >= MAX_SILENT)
		list_for_each (node, &w->guests) {
			struct guest *oldest = container_of(node, struct guest, node);

			if (!oldest->greeted) {
				guest_leave(oldest);
				break;
			}
		}
	g = guest_new(w, sock, now);
	if (!g) {
		meet_leave(sock);
		fds_close(&w->fds, &sock);
		return;
	}
	g->pid = who.pid;
	if (watch(w, sock, &g->on_sock))
		guest_leave(g);
	else
		hear_hello(g, now);
}

/* Out of descriptors, a waiting connection would keep the engine awake for ever: it is taken and closed. */
static bool turn_away(struct wire *w)
{
	int sock;

	fds_close(&w->fds, &w->spare);
	sock = meet_accept(w->listener);
	if (sock >= 0)
		send_away(sock);
	take_spare(w);
	complain(w, "too many open files: a peer was turned away");
	return sock >= 0;
}

void peer_accept(struct wire *w, uint64_t now)
{
	for (int i = 0; i < MAX_ACCEPTS; i++) {
		int sock = meet_accept(w->listener);

		if (sock >= 0)
			welcome(w, sock, now);
		else if (sock == -EAGAIN || ((sock == -EMFILE || sock == -ENFILE) && !turn_away(w)))
			return;
	}
}

void peer_hear_callers(struct wire *w, uint64_t now)
{
	peer_accept(w, now);
	list_for_each_safe (node, &w->guests) {
		struct guest *g = container_of(node, struct guest, node);

		if (g->greeted)
			settle(g, now);
		else
			hear_hello(g, now);
	}
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
	/* What they had connected before they ended is still in the backlog. */
	if (!list_empty(&w->ending))
		peer_accept(w, now);
	if (atomic_exchange(&w->broken, false))
		end_broken(w);
	list_for_each_safe (node, &w->guests) {
		struct guest *g = container_of(node, struct guest, node);

		if (g->greeted)
			settle(g, now);
		else if (now >= g->deadline)
			guest_leave(g);
	}
	if (w->calling)
		call_again(w, now);
	while (!list_empty(&w->dead_guests))
		free(container_of(list_pop(&w->dead_guests), struct guest, node));
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
		p->dead = dead;
		return p;
	}
	return NULL;
}

void peer_stop_listening(struct wire *w)
{
	int sock;

	/* Who calls from now on is refused, even if the name lives on in a child. */
	shutdown(w->listener, SHUT_RDWR);
	while ((sock = meet_accept(w->listener)) >= 0)
		send_away(sock);
	fds_close(&w->fds, &w->listener);
}

void peer_close_all(struct wire *w)
{
	list_for_each_safe (node, &w->guests)
		guest_leave(container_of(node, struct guest, node));
	while (!list_empty(&w->dead_guests))
		free(container_of(list_pop(&w->dead_guests), struct guest, node));
	for (uint32_t i = 1; i < LAYOUT_QPS; i++)
		if (w->peers[i])
			end(w->peers[i], false);
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
