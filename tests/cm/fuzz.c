/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A fuzzer's entry. The input is a script of steps, each an opcode byte and what it needs: a message in full,
 * a message whose ids are those of a connection that exists (so that it gets past the look-up), a call of the
 * user, time that passes, the death of a peer. Whatever is in it: no bad access, what is sent is a valid
 * message, an event names a connection that exists, what has a deadline has one that comes, and in the end
 * all can be destroyed.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined -Isrc -D_GNU_SOURCE tests/cm/fuzz.c
 * src/cm/[a-z]*.c
 */
#include "../fuzz_driver.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"

#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);       \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

#define MSEC UINT64_C(1000000)

enum { CONNS = 16, ROUTES = 2 };

static struct run {
	struct cm *cm;
	struct cm_conn *conns[CONNS];
	uint8_t tids[CONNS][8]; /* of the last message that each has sent, as on the wire */
	uint64_t now;
	const uint8_t *in;
	size_t left;
} r;

static uint8_t byte(void)
{
	if (!r.left)
		return 0;
	r.left--;
	return *r.in++;
}

static struct cm_conn **slot_of(const struct cm_conn *conn)
{
	for (unsigned i = 0; i < CONNS; i++)
		if (r.conns[i] == conn)
			return &r.conns[i];
	return NULL;
}

static void on_event(const struct cm_event *event)
{
	struct cm_conn **slot = slot_of(event->conn);
	bool request = event->type == CM_EV_REQ_RECEIVED || event->type == CM_EV_SIDR_REQ_RECEIVED;

	must(request == (event->listener != NULL));
	if (!request) {
		must(slot);
		return;
	}
	must(!slot);
	slot = slot_of(NULL);
	if (slot)
		*slot = event->conn;
	else
		cm_destroy(r.cm, event->conn, r.now);
}

static void keep_tid(const uint8_t mad[CM_MAD_BYTES], uint32_t local_id)
{
	struct cm_info info;

	for (unsigned i = 0; i < CONNS; i++) {
		if (!r.conns[i])
			continue;
		cm_query(r.conns[i], &info);
		if (info.local_id == local_id)
			memcpy(r.tids[i], mad + 8, 8);
	}
}

static uint32_t local_id_of(const struct cm_msg *msg)
{
	return msg->type == CM_REQ   ? msg->req.local_id
	       : msg->type == CM_REP ? msg->rep.local_id
				     : msg->rtu.local_id;
}

static void drain(void)
{
	struct cm_action action;
	struct cm_msg msg;

	while (cm_next_action(r.cm, &action)) {
		if (action.type == CM_EVENT) {
			on_event(&action.event);
			continue;
		}
		must(!cm_decode(action.send.mad, CM_MAD_BYTES, &msg));
		keep_tid(action.send.mad,
			msg.type == CM_SIDR_REQ ? msg.sidr_req.request_id : local_id_of(&msg));
	}
}

/* Any bytes, as a message: the header is right so that more of them are looked at. */
static void receive(struct cm_conn *conn)
{
	uint8_t mad[CM_MAD_BYTES], type = byte(), route = byte() % ROUTES, n;
	struct cm_info info = { .route = route };
	size_t length = sizeof(mad);

	memset(mad, 0, sizeof(mad));
	memcpy(mad, "\x01\x07\x02\x03", 4);
	mad[17] = (uint8_t)(CM_REQ + type % (CM_TYPES + 1));
	if (conn && !(type & 0x80))
		memcpy(mad + 8, r.tids[slot_of(conn) - r.conns], 8);
	if (type & 0x40) { /* a REJ of a requester that has given up */
		mad[24 + 9] = 8 << 1;
		mad[24 + 11] = CM_REJ_TIMEOUT;
		mad[24 + 19] = 1;
	}
	for (n = byte(); n; n--) {
		uint8_t at = byte();

		mad[at] = byte();
	}
	if (conn) {
		cm_query(conn, &info);
		for (unsigned i = 0; i < 4; i++) {
			mad[24 + i] = (uint8_t)(info.remote_id >> (24 - 8 * i));
			mad[28 + i] = (uint8_t)(info.local_id >> (24 - 8 * i));
		}
		if (mad[17] == CM_SIDR_REP)
			memcpy(mad + 24, mad + 28, 4);
	} else if (type & 0x80) {
		length = byte();
	}
	must(!cm_receive(r.cm, info.route, mad, length, r.now));
}

static void call(struct cm_conn *conn)
{
	struct cm_req req = { .service_id = byte() % 4,
		.qpn = byte() % 4,
		.mtu = 1,
		.remote_response_timeout = byte() % 32,
		.local_response_timeout = byte() % 32,
		.max_cm_retries = byte() % 17,
		.transport = byte() % 4 };
	struct cm_rep rep = { .qpn = byte() % 4 };
	struct cm_sidr_rep answer = { .info_length = byte() };
	static const uint8_t data[256];
	size_t length = byte();

	switch (byte() % 11) {
	case 0:
		cm_listen(r.cm, conn, req.service_id);
		break;
	case 1:
		cm_send_req(r.cm, conn, byte() % ROUTES, &req, byte() % 33, data, length, r.now);
		break;
	case 2:
		cm_send_rep(r.cm, conn, &rep, data, length, r.now);
		break;
	case 3:
		cm_send_rtu(r.cm, conn, data, length, r.now);
		break;
	case 4:
		cm_send_rej(r.cm, conn, byte(), data, byte(), data, length, r.now);
		break;
	case 5:
		cm_send_mra(r.cm, conn, byte(), length & 1, data, length, r.now);
		break;
	case 6:
		cm_send_dreq(r.cm, conn, data, length, r.now);
		break;
	case 7:
		cm_send_drep(r.cm, conn, data, length, r.now);
		break;
	case 8:
		cm_establish(r.cm, conn);
		break;
	case 9:
		cm_send_sidr_req(r.cm, conn, byte() % ROUTES, req.service_id, 0xffff,
			byte() ? byte() * MSEC : UINT64_MAX, byte(), data, length, r.now);
		break;
	default:
		cm_send_sidr_rep(r.cm, conn, &answer, data, length, r.now);
	}
}

static void step(void)
{
	struct cm_conn **slot = &r.conns[byte() % CONNS];

	switch (byte() % 8) {
	case 0:
	case 1:
		receive(NULL);
		break;
	case 2:
		if (*slot)
			receive(*slot);
		break;
	case 3:
		if (!*slot)
			*slot = cm_create(r.cm, NULL);
		break;
	case 4:
		if (*slot)
			call(*slot);
		break;
	case 5:
		if (*slot)
			(byte() & 1 ? cm_destroy : cm_drop)(r.cm, *slot, r.now);
		*slot = NULL;
		break;
	case 6:
		r.now += byte() * 20 * MSEC;
		if (byte() & 1 && cm_next_deadline(r.cm) != UINT64_MAX && cm_next_deadline(r.cm) > r.now)
			r.now = cm_next_deadline(r.cm);
		cm_tick(r.cm, r.now);
		must(cm_next_deadline(r.cm) > r.now);
		break;
	default:
		cm_peer_gone(r.cm, byte() % ROUTES, r.now);
		cm_tick(r.cm, r.now);
	}
	drain();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cm_config config = { .ca_guid = 1, .seed = 5, .max_conns = 2 * CONNS };

	memset(&r, 0, sizeof(r));
	r.in = data;
	r.left = size;
	r.cm = cm_new(&config);
	must(r.cm);
	while (r.left)
		step();
	for (unsigned i = 0; i < CONNS; i++) {
		if (r.conns[i])
			cm_destroy(r.cm, r.conns[i], r.now);
		r.conns[i] = NULL;
		drain();
	}
	while (cm_next_deadline(r.cm) != UINT64_MAX) {
		must(cm_next_deadline(r.cm) >= r.now);
		r.now = cm_next_deadline(r.cm);
		cm_tick(r.cm, r.now);
		drain();
	}
	must(!cm_count(r.cm));
	cm_free(r.cm);
	return 0;
}
