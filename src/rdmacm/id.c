/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/id.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "rdmacm/address.h"
#include "rdmacm/link.h"
#include "rdmacm/service.h"

/* --- numbers -------------------------------------------------------------------------------------- */

/* Numbers are given out anew as soon as they are free, lowest first, as the kernel does: librdmacm keeps a
 * table of them. */
static struct {
	struct cm_id **id;
	uint32_t room;
	uint32_t lowest; /* none below is free */
} numbers;

static int take_number(struct cm_id *id)
{
	uint32_t n = numbers.lowest, room = numbers.room * 2 + 64;
	struct cm_id **more;

	while (n < numbers.room && numbers.id[n])
		n++;
	if (n == numbers.room) {
		more = realloc(numbers.id, room * sizeof(struct cm_id *));
		if (!more)
			return -ENOMEM;
		memset(more + n, 0, (room - n) * sizeof(struct cm_id *));
		numbers.id = more;
		numbers.room = room;
	}
	numbers.id[n] = id;
	numbers.lowest = n + 1;
	id->number = n;
	return 0;
}

static void give_number(uint32_t n)
{
	numbers.id[n] = NULL;
	if (n < numbers.lowest)
		numbers.lowest = n;
}

int id_find(struct event_channel *c, uint32_t number, struct cm_id **out)
{
	if (number >= numbers.room || !numbers.id[number])
		return -ENOENT;
	*out = numbers.id[number];
	return (*out)->channel == c ? 0 : -EINVAL;
}

void id_abandon(void)
{
	/* The parent may have been changing the table when it forked: it is left as it is. */
	memset(&numbers, 0, sizeof(numbers));
}

/* --- coming and going ----------------------------------------------------------------------------- */

int id_make(struct event_channel *c, struct cm_id **out)
{
	struct cm_id *id = calloc(1, sizeof(*id));
	int err = id ? take_number(id) : -ENOMEM;

	if (err) {
		free(id);
		return err;
	}
	id->channel = c;
	id->claim.fd = -1;
	id->listener.fd = -1;
	if (syscall(SYS_getrandom, &id->seq, sizeof(id->seq), GRND_NONBLOCK) != sizeof(id->seq))
		id->seq = (uint32_t)clock_ns();
	id->seq &= 0xffffff;
	list_init(&id->listening);
	list_add_tail(&c->ids, &id->of_channel);
	*out = id;
	return 0;
}

int id_create(struct event_channel *c, uint64_t uid, uint16_t ps, uint8_t qp_type, struct cm_id **out)
{
	int err;

	/* Datagrams (RDMA_PS_UDP, RDMA_PS_IPOIB) are not offered. */
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB)
		return -EINVAL;
	if (ps == RDMA_PS_IB && qp_type != IBV_QPT_RC)
		return -EINVAL;
	err = id_make(c, out);
	if (err)
		return err;
	(*out)->uid = uid;
	(*out)->ps = ps;
	return 0;
}

/* A request that is itself being destroyed makes room for another one. */
static void free_event(struct ucma_event *e, const struct cm_id *dying)
{
	if (e->request == dying)
		e->id->backlog++;
	if (e->request && e->request != dying)
		id_destroy(e->request);
	free(e);
}

uint32_t id_destroy(struct cm_id *id)
{
	uint32_t reported = id->events_reported;
	struct list events = LIST_INIT(events);
	struct list *node;

	if (id->listener.fd >= 0)
		link_unlisten(id);
	if (id->link)
		connection_release(id);
	event_channel_withdraw(id->channel, id, &events);
	while ((node = list_pop(&events)))
		free_event(container_of(node, struct ucma_event, node), id);
	claim_drop(&id->claim);
	list_del(&id->of_channel);
	give_number(id->number);
	free(id);
	return reported;
}

void id_migrate(struct cm_id *id, struct event_channel *to)
{
	struct event_channel *from = id->channel;

	id->channel = to;
	list_del(&id->of_channel);
	list_add_tail(&to->ids, &id->of_channel);
	event_channel_move(from, to, id);
}

/* --- events --------------------------------------------------------------------------------------- */

struct ucma_event *id_event(struct cm_id *id, enum ucma_event_type type, int status)
{
	struct ucma_event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->id = id;
	e->resp.uid = id->uid;
	e->resp.id = id->number;
	e->resp.event = type;
	e->resp.status = (uint32_t)status;
	return e;
}

static int post(struct cm_id *id, enum ucma_event_type type, int status)
{
	struct ucma_event *e = id_event(id, type, status);

	if (!e)
		return -ENOMEM;
	event_channel_post(id->channel, e);
	return 0;
}

/* --- addresses ------------------------------------------------------------------------------------ */

/* A link-local address means nothing without its interface. */
static int check_scope(const union address *a)
{
	if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr) && !a->in6.sin6_scope_id)
		return -EINVAL;
	return 0;
}

int id_take_device(struct cm_id *id)
{
	int err = address_gid_local(&id->src, id->sgid, &id->sgid_index);

	id->has_device = !err;
	return err;
}

static bool bind_v6_only(void)
{
	char text = '0';
	int fd = fd_open("/proc/sys/net/ipv6/bindv6only", O_RDONLY);

	if (fd < 0)
		return false;
	if (syscall(SYS_read, fd, &text, 1) != 1)
		text = '0';
	fd_close(fd);
	return text == '1';
}

static int take_port(struct cm_id *id)
{
	int err;

	if (!id->afonly_set)
		id->afonly = id->src.sa.sa_family == AF_INET || bind_v6_only();
	id->claim.port = (struct port_claim){
		.ps = id->ps, .addr = id->src, .reuse = id->reuse, .afonly = id->afonly
	};
	err = claim_take(&id->claim);
	if (!err)
		address_set_port(&id->src, address_port(&id->claim.port.addr));
	return err;
}

int id_bind(struct cm_id *id, const union address *a)
{
	int err = 0;

	if (id->state != ID_IDLE)
		return -EINVAL;
	err = check_scope(a);
	if (err)
		return err;
	id->src = *a;
	if (!address_any(a))
		err = address_is_local(a) ? id_take_device(id) : -EADDRNOTAVAIL;
	if (!err)
		err = take_port(id);
	if (err) {
		memset(&id->src, 0, sizeof(id->src));
		id->has_device = false;
		return err;
	}
	id->state = ID_BOUND;
	return 0;
}

/* The address of the same family that means any. */
static union address any_of(const union address *a)
{
	union address any = { 0 };

	any.sa.sa_family = a->sa.sa_family;
	if (a->sa.sa_family == AF_INET6)
		any.in6.sin6_scope_id = a->in6.sin6_scope_id;
	return any;
}

/* The wildcard as a destination means this host. */
static union address destination(const union address *dst)
{
	union address to = *dst;

	if (address_any(dst) && dst->sa.sa_family == AF_INET)
		to.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else if (address_any(dst))
		to.in6.sin6_addr = in6addr_loopback;
	return to;
}

/* 0; or a negative errno that the ADDR_ERROR event tells. */
static int find_peer(struct cm_id *id)
{
	unsigned index;
	int err;

	if (!address_is_local(&id->dst))
		return -EHOSTUNREACH;
	err = id->has_device ? 0 : id_take_device(id);
	return err ? err : address_gid_local(&id->dst, id->dgid, &index);
}

int id_resolve_addr(struct cm_id *id, const union address *src, const union address *dst)
{
	union address any = any_of(dst), to = destination(dst), from;
	int err;

	if (id->state == ID_IDLE) {
		err = id_bind(id, src ? src : &any);
		if (err)
			return err;
	}
	if (id->state != ID_BOUND || id->src.sa.sa_family != dst->sa.sa_family)
		return -EINVAL;
	err = check_scope(&to);
	from = id->src;
	if (!err)
		err = address_route(&to, &from);
	if (!err)
		err = service_start();
	if (err)
		return err;
	id->dst = to;
	id->src = from;
	err = find_peer(id);
	if (err)
		return post(id, UCMA_EVENT_ADDR_ERROR, err);
	id->state = ID_ADDR_RESOLVED;
	return post(id, UCMA_EVENT_ADDR_RESOLVED, 0);
}

int id_resolve_route(struct cm_id *id)
{
	if (id->state != ID_ADDR_RESOLVED)
		return -EINVAL;
	id->state = ID_ROUTE_RESOLVED;
	id->has_route = true;
	return post(id, UCMA_EVENT_ROUTE_RESOLVED, 0);
}

int id_set_path(struct cm_id *id)
{
	return id_resolve_route(id);
}

/* --- options -------------------------------------------------------------------------------------- */

int id_set_reuse(struct cm_id *id, bool on)
{
	if (id->state != ID_IDLE && !(on && id->state != ID_LISTEN))
		return -EINVAL;
	id->reuse = on;
	return claim_change(&id->claim, id->reuse, id->afonly);
}

int id_set_afonly(struct cm_id *id, bool on)
{
	if (id->state != ID_IDLE && id->state != ID_BOUND)
		return -EINVAL;
	id->afonly = on;
	id->afonly_set = true;
	return claim_change(&id->claim, id->reuse, id->afonly);
}

/* A value of 5 bits: the exponent of the time that a request waits for its acknowledgement. */
int id_set_ack_timeout(struct cm_id *id, uint8_t value)
{
	if (value > 31)
		return -EINVAL;
	id->ack_timeout = value;
	id->ack_timeout_set = true;
	return 0;
}

/* --- listening ------------------------------------------------------------------------------------ */

int id_listen(struct cm_id *id, uint32_t backlog)
{
	union address any = { .in = { .sin_family = AF_INET } };
	int err;

	if (id->state != ID_BOUND) {
		err = id_bind(id, &any);
		if (err)
			return err;
	}
	err = claim_own(&id->claim);
	if (!err)
		err = service_start();
	if (!err)
		err = link_listen(id);
	if (err)
		return err;
	id->reuse = false;
	id->backlog = backlog;
	id->state = ID_LISTEN;
	return 0;
}
