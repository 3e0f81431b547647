/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/channel.h"
#include "wire/inbound.h"
#include "wire/meet.h"
#include "wire/names.h"
#include "wire/peer.h"

#define HELLO_NS    NSEC_PER_SEC /* a connection that says nothing for so long is closed */
#define VERIFY_NS   (10 * NSEC_PER_SEC)
#define MAX_SILENT  64u /* of those at a time; the oldest makes room */
#define MAX_STRANGE 8u	/* of those, of other users, likewise */
#define MAX_ACCEPTS 256 /* in one service call */

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
	if (g->stranger)
		w->nstrangers--;
	if (g->waits)
		w->nwaiting--;
	g->greeted = true;
	g->waits = false;
	fds_discard(g->memfd);
	fds_discard(g->doorfd);
	g->memfd = g->doorfd = -1;
	peer_unwatch(w, g->sock);
	if (g->sock >= 0) {
		if (!g->stranger)
			meet_leave(g->sock); /* to another user not a word */
		shutdown(g->sock, SHUT_RDWR);
	}
	g->stranger = false;
	fds_close(&w->fds, &g->sock);
	fds_close(&w->fds, &g->pidfd);
	list_del(&g->node);
	list_add_tail(&w->dead_guests, &g->node);
	if (p && !p->tx && !p->rx && !p->ending) {
		p->unmet = true;
		peer_end(p, false);
	}
}

/* What cannot become better: it need not wait. */
static void refuse_for_good(struct guest *g, const char *why)
{
	complain(g->w, "process %d %s: its connection is refused", (int)g->pid, why);
	meet_refuse(g->sock);
	guest_leave(g);
}

static void refuse(struct guest *g, const char *why)
{
	complain(g->w, "process %d %s: its connection is refused", (int)g->pid, why);
	guest_leave(g);
}

enum verdict { VERDICT_YES, VERDICT_NO, VERDICT_LATER };

/* Is it the guest's process that listens at the other end? It did so as our user. Closes the socket. */
static bool holds(struct guest *g, int sock)
{
	struct meet_peer who;
	bool yes = !meet_credentials(sock, &who) && who.euid == g->w->euid;
	int fd;

	if (yes && !who.pid) {
		fd = meet_pidfd(sock, 0);
		who.key = fd < 0 ? 0 : meet_key(fd);
		if (fd >= 0)
			fd_close(fd);
	}
	fd_close(sock);
	return yes && who.key && who.key == g->key;
}

/*
 * Does the slot belong to the process that says so? Its name must. A process that has just ended, or closed
 * the device, has no names any more, and its last words are to be heard: then it is enough that nobody else
 * has it. One that is about to end may lose its name before its connection.
 */
static enum verdict owns_slot(struct guest *g, uint64_t now)
{
	int sock = names_call(g->w->euid, g->w->device, g->slot);

	if (sock == -ECONNREFUSED && (meet_dead(g->pidfd) || meet_ended(g->sock)))
		return VERDICT_YES;
	if (sock == -ECONNREFUSED && now >= g->deadline)
		return VERDICT_NO;
	if (sock < 0)
		return VERDICT_LATER;
	return holds(g, sock) ? VERDICT_YES : VERDICT_NO;
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
	peer_unwatch(w, g->sock);
	/* Before any thread can take a packet: it may wake the sender for credit, and the answer must be the
	 * first that comes. Without it the sender would wake nobody: a user may have but so many descriptors
	 * on their way. Of one that finds nobody the socket tells. */
	err = answer(g) && !meet_ended(g->sock) ? -EAGAIN : 0;
	if (!err && !p->key) {
		err = peer_know(p, &(struct meet_peer){ g->pid, w->euid, g->pidfd, g->key });
		g->pidfd = -1;
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
	err = p->ending ? 0 : peer_watch(w, in->sock, &p->on_rx);
	if (err)
		peer_end(p, true);
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
	return p->drain && !p->rx && p->key == g->key && (meet_dead(g->pidfd) || meet_ended(g->sock));
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
	if (p->key && p->key != g->key) {
		/* The name has a new owner, so the old one is gone even if the news is still on its way. */
		peer_end_of_socket(p, -ENOTCONN);
		return VERDICT_LATER;
	}
	/* One at a time. */
	if (!p->rx && p->caller && p->caller != g)
		return p->caller->key != g->key || meet_ended(p->caller->sock) ? VERDICT_LATER : VERDICT_NO;
	if (!p->rx)
		return VERDICT_YES;
	if (!meet_ended(p->rx->sock))
		return VERDICT_NO;
	peer_end_of_socket(p, meet_hear(p->rx->sock, &nudges));
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
	if (!p || p->ending || !p->tx || p->tx->sock < 0 || p->key != g->key)
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
	/* VERDICT_YES comes with a peer. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
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

/*
 * A process that opened the device as our user and has become another since (setuid) keeps its slot, and with
 * it what it may do. Only its descriptors are of interest here, and they are left where they are until the
 * slot is proven.
 */
static bool stranger_proves(struct guest *g)
{
	struct wire *w = g->w;
	struct layout_message m;
	int sock, err = meet_peek(g->sock, &m);

	if (err == -EAGAIN)
		return false;
	if (!err && m.magic == LAYOUT_HELLO_MAGIC && m.slot && m.slot < LAYOUT_QPS) {
		sock = names_call(w->euid, w->device, m.slot);
		if (sock >= 0 && holds(g, sock)) {
			g->stranger = false;
			w->nstrangers--;
			return true;
		}
	}
	complain(w, "process %d of another user tried to connect to slot %u", (int)g->pid, w->slot);
	guest_leave(g);
	return false;
}

static void hear_hello(struct guest *g, uint64_t now)
{
	struct meet_peer who = { g->pid, g->w->euid, -1, g->key };
	struct layout_message m;
	int fd[2], err;

	if (g->stranger && !stranger_proves(g))
		return;
	err = meet_receive(g->sock, LAYOUT_HELLO_MAGIC, &m, fd, 2);

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
	peer_unwatch(g->w, g->sock);
	if (!m.slot || m.slot >= LAYOUT_QPS) {
		refuse(g, "claims a slot that does not exist");
		return;
	}
	err = peer_identify(g->w, g->sock, &who);
	g->pidfd = who.pidfd;
	g->key = who.key;
	/* Else its process has ended, or has closed the device: there is nothing left to watch. */
	if (!err || (err == -ESRCH && meet_ended(g->sock)))
		settle(g, now);
	else if (err == -EXDEV)
		refuse_for_good(g,
			"is in another pid namespace, and this kernel cannot tell who it is (Linux 6.9 "
			"can)");
	else if (err == -EACCES)
		refuse_for_good(g, "is of another user, whom this user namespace does not map either");
	else
		refuse(g, err == -EMFILE || err == -ENFILE ? "cannot be watched: too many files are open"
							   : "cannot be watched");
}

void guest_event(struct guest *g, uint64_t now)
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

/* The oldest that has said nothing makes room. */
static void make_room(struct wire *w, bool stranger)
{
	list_for_each (node, &w->guests) {
		struct guest *oldest = container_of(node, struct guest, node);

		if (!oldest->greeted && (oldest->stranger || !stranger)) {
			guest_leave(oldest);
			return;
		}
	}
}

static void welcome(struct wire *w, int sock, uint64_t now)
{
	struct meet_peer who;
	struct guest *g;
	bool stranger;

	int err = meet_credentials(sock, &who);

	if (err)
		complain(w, "a peer cannot be let in: the kernel refuses SO_PEERCRED: %s", strerror(-err));
	if (err || !fds_discard_ready()) {
		send_away(sock);
		return;
	}
	stranger = who.euid != w->euid && who.pid != getpid();
	if (stranger && !who.pid) { /* whom no slot could be proven of */
		complain(w, "process %d of user %u tried to connect to slot %u", (int)who.pid,
			(unsigned)who.euid, w->slot);
		fd_close(sock); /* not a word */
		return;
	}
	sock = fds_add(&w->fds, sock);
	if (sock < 0)
		return;
	if (stranger && w->nstrangers >= MAX_STRANGE)
		make_room(w, true);
	else if (w->nguests >= MAX_SILENT)
		make_room(w, false);
	g = guest_new(w, sock, now);
	if (!g) {
		meet_leave(sock);
		fds_close(&w->fds, &sock);
		return;
	}
	g->pid = who.pid;
	g->key = who.key;
	g->stranger = stranger;
	w->nstrangers += stranger;
	if (peer_watch(w, sock, &g->on_sock))
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
	peer_take_spare(w);
	complain(w, "too many open files: a peer was turned away");
	return sock >= 0;
}

static bool is_refusal(int err)
{
	return err == -EPERM || err == -EACCES || err == -ENOSYS;
}

void guest_accept(struct wire *w, uint64_t now)
{
	for (int i = 0; i < MAX_ACCEPTS && w->listener >= 0; i++) {
		int sock = meet_accept(w->listener);

		if (sock >= 0)
			welcome(w, sock, now);
		else if (is_refusal(sock)) {
			complain(w, "no peer can call this process: the kernel refuses accept4: %s",
				strerror(-sock));
			/* Who has called, or will, is refused then, and waits for nothing. */
			peer_unwatch(w, w->listener);
			fds_close(&w->fds, &w->listener);
			return;
		} else if (sock == -EAGAIN || ((sock == -EMFILE || sock == -ENFILE) && !turn_away(w)))
			return;
	}
}

void guest_hear_all(struct wire *w, uint64_t now)
{
	guest_accept(w, now);
	list_for_each_safe (node, &w->guests) {
		struct guest *g = container_of(node, struct guest, node);

		if (g->greeted)
			settle(g, now);
		else
			hear_hello(g, now);
	}
}

void guest_tick(struct wire *w, uint64_t now)
{
	/* What peers had connected before they ended is still in the backlog. */
	if (!list_empty(&w->ending))
		guest_accept(w, now);
	list_for_each_safe (node, &w->guests) {
		struct guest *g = container_of(node, struct guest, node);

		if (g->greeted)
			settle(g, now);
		else if (now >= g->deadline)
			guest_leave(g);
	}
	while (!list_empty(&w->dead_guests))
		free(container_of(list_pop(&w->dead_guests), struct guest, node));
}

void guest_stop_listening(struct wire *w)
{
	int sock;

	/* Who calls from now on is refused, even if the name lives on in a child. */
	shutdown(w->listener, SHUT_RDWR);
	while ((sock = meet_accept(w->listener)) >= 0)
		send_away(sock);
	fds_close(&w->fds, &w->listener);
}

void guest_close_all(struct wire *w)
{
	list_for_each_safe (node, &w->guests)
		guest_leave(container_of(node, struct guest, node));
	while (!list_empty(&w->dead_guests))
		free(container_of(list_pop(&w->dead_guests), struct guest, node));
}
