/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The shared-memory wire: packets between processes of one host (and within one process: no special case).
 *
 * A *slot* is one end: an abstract unix socket "unpin/<euid>/<device>/<slot>" (SOCK_SEQPACKET) that the
 * process listens on. 12 bits of every queue pair number are its slot, so a number tells where to connect.
 * Slot 0 is never used. The last 256 have names with a random end (names.h), for when the others are taken.
 *
 * A *channel* is one direction between two slots. The sending side makes it: it creates a memfd (sealed
 * against growing, shrinking and sealing; control part preallocated), connects to the receiver's socket
 * without blocking, and passes the memfd. The receiver checks credentials (same effective user), seals and
 * size before mapping, confirms that the claimed slot belongs to the connecting process, and answers with its
 * *door*: a read-only page with its wake state. Packets may be written before the answer arrives. That a peer
 * has died is told by its pidfd; a side that closes the device and lives on says goodbye. Wake-ups go over
 * the same socket: a send with MSG_DONTWAIT cannot block, whatever the other side does to its end, which a
 * write to an eventfd of its could.
 *
 * Memory of a channel: a header page (sender's line, receiver's line, released-slot bitmap), a ring of
 * 128-byte descriptors (headers, and up to WIRE_INLINE payload bytes in place), and WIRE_SLOTS payload slots
 * of WIRE_SEGMENT bytes, released in any order. Until it carries traffic a channel costs two pages; the rest
 * is sparse and is preallocated by the sender before use, so that a full memory ends in an error and not in
 * SIGBUS. Everything in it is hostile: descriptors are copied out once and validated; a channel that breaks
 * the rules is closed, with one warning, and its peer treated as gone.
 *
 * Quotas: each sending queue pair is a *flow*. Up to 32 flows whose packets are not released (parked at the
 * receiver) leave at least two slots to every other; slots.h has the rule. Packets of up to WIRE_INLINE bytes
 * need no slot.
 *
 * Wake-up: two states in the door page. POLLED: senders do not wake, but nudge when their packet stays where
 * it is (watch.h). ARMED: the receiver sleeps; a sender commits, full fence, reads the state and wakes by a
 * message, once per arming (the state word carries an epoch). POLLED becomes ARMED only through wire_arm():
 * store ARMED, full fence, recheck every ring.
 *
 * An impaired fabric (struct wire_impairment) holds packets back on the sending side. They are sent by
 * wire_poll() and wire_service(), and a timer makes wire_fd() readable when they are due. Those of a process
 * that dies, or for a receiver that does, are lost.
 *
 * Threads: every function may be called from any thread unless it says otherwise. Of the locks (base/lock.h:
 * WIRE to WATCH) none is held across a copy of payload, and none but WIRE and WIRE_RX across a callback, of
 * which only get and put run under them.
 */
#ifndef UNPIN_WIRE_SHM_H
#define UNPIN_WIRE_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/segment.h"

#define WIRE_SLOT_BITS 12
#define WIRE_SEGMENT   16384u /* payload bytes of one packet at most */
#define WIRE_SLOTS     192u   /* payload slots of one channel */
#define WIRE_RING      512u   /* descriptors of one channel */
#define WIRE_INLINE    64u    /* payload bytes that need no slot */
#define WIRE_HDR       48u    /* header bytes of one packet at most */

/* The upper half of a queue pair number is the slot it lives in. */
static inline uint32_t wire_qpn_slot(uint32_t qpn)
{
	return qpn >> WIRE_SLOT_BITS;
}

struct wire;
struct wire_channel; /* the sending side of a channel; reference counted */

/* A received packet: a private copy of the descriptor; payload lies in the slot (or in inline_data) until
 * wire_release(). */
struct wire_rx {
	struct list node; /* the owner's, between get/put and release */
	uint32_t src_slot;
	uint32_t src_qpn,
		dest_qpn; /* as the descriptor says: unverified, but src_qpn's slot bits equal src_slot */
	uint32_t hdrlen, paylen;
	const void *payload;
	void *channel; /* the wire's */
	uint32_t slot;
	uint8_t hdr[WIRE_HDR] __attribute__((aligned(8))); /* bytes from hdrlen on mean nothing */
	uint8_t inline_data[WIRE_INLINE] __attribute__((aligned(8)));
};

/* A sending queue pair's account with one channel. Owned by the caller; one thread at a time; wire_flow_init
 * at first. */
struct wire_flow {
	struct wire_channel *channel;
	struct list waiting; /* on the channel's list while it waits for credit */
	uint32_t held;	     /* slots in use */
	void *owner;
	uint32_t account; /* the wire's: who pays for the slots, while held is not 0 */
	bool wants_slot;  /* the wire's: what it waits for */
	bool response;	  /* the owner's, set after init: carries responses, which may use the slots kept for
			     them */
};

/* A reserved place for one packet. */
struct wire_tx {
	void *payload; /* where the gather goes: a slot or inline_data */
	uint32_t slot;
	uint32_t paylen;
	uint8_t inline_data[WIRE_INLINE] __attribute__((aligned(8)));
};

struct wire_ops {
	/* A buffer for one received packet, or NULL: the wire stops taking packets for now (they stay where
	 * they are, wire_arm() goes on saying that there is work, and a dead peer is not gone before they are
	 * taken). Called under the rx lock. */
	struct wire_rx *(*get)(void *ctx);
	/* Takes over a received packet (to be wire_release()d later) or gives back an unused buffer when
	 * rx->hdrlen is 0. Called under the rx lock, in the order the peer sent; must only queue
	 * (wire_release() is allowed). */
	void (*put)(void *ctx, struct wire_rx *rx);
	/* The peer dropped packets that queue pair qpn of ours had sent (qpn 0: any that talks to peer_slot;
	 * it is also said once when the peer has answered that its packets may be lost: wire_lossy() is true
	 * now). From wire_service(), without wire locks. */
	void (*dropped)(void *ctx, uint32_t peer_slot, uint32_t qpn);
	/* Credit came back, or the peer has gone: the flow may try again. From wire_poll() and
	 * wire_service(), without wire locks. wire_flow_fini() of another thread waits for it, so it must not
	 * wait for a lock that is held around that. */
	void (*credit)(void *ctx, struct wire_flow *flow);
	/* The peer process has died (dead) or has closed the device or was thrown out (not dead); everything
	 * it had sent has been put() before. Called without wire locks, from wire_service(). Once per peer,
	 * whatever the number of channels. Later sends to it are lost until a new channel is made. */
	void (*gone)(void *ctx, uint32_t peer_slot, bool dead);
};

/*
 * An impaired fabric, for what this process sends (impair.h): of a million packets so many are lost, so many
 * are overtaken by up to eight later ones; every packet is late. From the seed, the same for the same
 * packets. All 0: not there. Shares up to 1000000, delay up to a day.
 */
struct wire_impairment {
	uint32_t loss_ppm, reorder_ppm;
	uint64_t delay_ns, seed;
};

struct wire_cfg {
	const char *device; /* e.g. "unpin0": part of the socket name; less than 64 bytes, no slash */
	const struct wire_ops *ops;
	void *ctx;
	/* Counted here: tx_no_credit, wakes_sent, what the impaired fabric does, and malformed packets in
	 * rx_dropped. NULL: not at all. */
	struct unpin_device_counters *counters;
	struct wire_impairment impairment;
};

/* Listens on a free slot. 0; -EADDRINUSE: all 4095 are taken, or all with plain names and the kernel's list
 * of sockets is refused; -ENAMETOOLONG, -EINVAL: the device's name; -EFBIG: RLIMIT_FSIZE is smaller than what
 * is shared; -EINVAL also: an impairment out of range; other negative errno (descriptors, memory). */
int wire_open(const struct wire_cfg *cfg, struct wire **out);
/* No flow, no channel reference and no unreleased packet may be left; no other thread inside. Peers see the
 * device closed after everything that was committed and not lost; what an impaired fabric holds back is sent
 * at once. */
void wire_close(struct wire *w);
uint32_t wire_slot(const struct wire *w);

/* For the engine: a descriptor that is readable when wire_service() has work: meetings, deaths, wake-ups. */
int wire_fd(const struct wire *w);
/* Accepts, answers, notices deaths; clears wake-ups; hands out drop notices. Never blocks. One caller at a
 * time (the engine thread, or a test), who polls before it sleeps again. now: CLOCK_MONOTONIC in ns. */
void wire_service(struct wire *w, uint64_t now);

/* The channel to a slot, made if need be; never blocks, never fails for reasons of the peer (a peer that is
 * not there yet loses packets, and is looked for again at most once per millisecond). NULL: no memory or
 * descriptors, EFBIG as wire_open, EHOSTUNREACH: it is there and can never be met (a warning says why), or
 * EINVAL: slot out of range (errno). Each success is a reference, given
 * back by wire_disconnect() after the flows have ended. */
struct wire_channel *wire_connect(struct wire *w, uint32_t slot);
void wire_disconnect(struct wire_channel *c);
/*
 * Can packets of either direction be lost without notice, because this side or the other impairs what it
 * sends? Of the other side it is known when it has answered, and dropped() says so then.
 */
bool wire_lossy(const struct wire_channel *c);

void wire_flow_init(struct wire_flow *f, struct wire_channel *c, void *owner);
/* Forgets slots the flow still holds (they return to the pool when the peer releases them) and any wait. When
 * it returns, no credit() for the flow is running (but the caller's own) and none will. */
void wire_flow_fini(struct wire_flow *f);

/*
 * A place for a packet with paylen payload bytes. 0, and exactly one of commit and cancel follows, soon;
 * -EAGAIN: no credit, credit() will be called; -EPIPE: the peer is gone or not there (the packet counts as
 * lost); -ENOMEM: there is no memory for a slot, and none in use that could come back; -EMSGSIZE: longer than
 * WIRE_SEGMENT.
 */
int wire_reserve(struct wire_flow *f, uint32_t paylen, struct wire_tx *tx);
/* Sends it: in order with the flow's other commits, but on an impaired fabric, which may also lose it. Wakes
 * the peer when it sleeps. hdrlen <= WIRE_HDR. */
void wire_commit(struct wire_flow *f, struct wire_tx *tx, uint32_t src_qpn, uint32_t dest_qpn,
	const void *hdr, uint32_t hdrlen);
void wire_cancel(struct wire_flow *f, struct wire_tx *tx);

/* Takes up to budget packets from every channel, through get/put, unless another thread is doing that; hands
 * out credit. Returns packets taken. Cheap when there is nothing (one cache line per channel). */
int wire_poll(struct wire *w, int budget);
/* Takes what the peer has sent up to now, through get/put (as far as get() allows), waiting for a thread that
 * is doing so: what is on the way of a queue pair's last connection must not arrive in its next one. */
void wire_catch_up(struct wire *w, uint32_t peer_slot);
/* Gives the payload slot back (any thread, any order) and the channel's reference; wakes a sender that waits
 * for credit. */
void wire_release(struct wire *w, struct wire_rx *rx);
/* Tells the sender that packets of its queue pair qpn (0: all) were dropped. Never lost; the same one twice
 * may be told once. */
void wire_notify_dropped(struct wire *w, uint32_t peer_slot, uint32_t qpn);

/* The two-state wake-up. wire_arm: returns true when work came meanwhile, or another thread is taking packets
 * (the caller handles it and tries again; the state is then POLLED). wire_disarm: POLLED. wire_kick: makes
 * wire_fd readable (another thread wants the engine). */
bool wire_arm(struct wire *w);
void wire_disarm(struct wire *w);
bool wire_armed(const struct wire *w);
void wire_kick(struct wire *w);
/* How often peers had to wake us although the door said POLLED, since the last call (counted by
 * wire_service). */
uint32_t wire_nudges(struct wire *w);

/* In a forked child: drops every inherited descriptor without locks, waking nobody; memory is left. */
void wire_abandon(struct wire *w);

#endif
