/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/connection.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "cm/cm.h"
#include "nic/caps.h"
#include "nic/device.h"
#include "nic/gid.h"
#include "rdmacm/address.h"
#include "rdmacm/link.h"

#define HOP_LIMIT 64
/* The exponent of the time that a packet may be under way: what the kernel takes for Ethernet ports. */
#define LIFE_TIME 16

static struct cm *manager;

static struct cm *get_manager(void)
{
	struct cm_config config = { .ca_guid = be64toh(nic_gid_eui64(nic_device_name())) };

	if (manager)
		return manager;
	if (syscall(SYS_getrandom, &config.seed, sizeof(config.seed), GRND_NONBLOCK) != sizeof(config.seed))
		config.seed = clock_ns();
	manager = cm_new(&config);
	return manager;
}

/* --- events --------------------------------------------------------------------------------------- */

static void fill_data(struct rdma_ucm_event_resp *resp, const uint8_t *data, size_t len)
{
	resp->param.conn.private_data_len = (uint8_t)len;
	memcpy(resp->param.conn.private_data, data, len);
}

/* The peer's depth for requests is our resources for them, and the other way round. */
static void fill_req(struct rdma_ucm_event_resp *resp, const struct cm_msg *m)
{
	const struct cm_req *r = &m->req;

	resp->param.conn = (struct rdma_ucm_conn_param){
		.qp_num = r->qpn,
		.responder_resources = r->initiator_depth,
		.initiator_depth = r->responder_resources,
		.flow_control = r->flow_control,
		.retry_count = r->retry_count,
		.rnr_retry_count = r->rnr_retry,
		.srq = r->srq,
	};
	resp->ece = (struct rdma_ucm_ece){ r->vendor_id, r->ece_options };
	fill_data(resp, m->private_data + CM_IP_HEADER, CM_REQ_USER_PRIVATE);
}

static void fill_rep(struct rdma_ucm_event_resp *resp, const struct cm_msg *m)
{
	const struct cm_rep *r = &m->rep;

	resp->param.conn = (struct rdma_ucm_conn_param){
		.qp_num = r->qpn,
		.responder_resources = r->initiator_depth,
		.initiator_depth = r->responder_resources,
		.flow_control = r->flow_control,
		.rnr_retry_count = r->rnr_retry,
		.srq = r->srq,
	};
	resp->ece = (struct rdma_ucm_ece){ r->vendor_id, r->ece_options };
	fill_data(resp, m->private_data, cm_private_bytes(CM_REP));
}

/* An id that is not accepted yet hears nothing. m: the message that it is about, or NULL. */
static void tell(struct cm_id *id, enum ucma_event_type type, int status, const struct cm_msg *m)
{
	struct ucma_event *e = id->uid ? id_event(id, type, status) : NULL;

	if (!e)
		return;
	if (m && m->type == CM_REP)
		fill_rep(&e->resp, m);
	else if (m && m->type == CM_REJ)
		fill_data(&e->resp, m->private_data, cm_private_bytes(CM_REJ));
	event_channel_post(id->channel, e);
}

static void disconnected(struct cm_id *id, int status)
{
	id->state = ID_DISCONNECT;
	tell(id, UCMA_EVENT_DISCONNECTED, status, NULL);
}

/* What the manager says of a connection whose id exists. */
static void of_id(struct cm_id *id, const struct cm_event *e)
{
	if (e->type == CM_EV_TIMEWAIT_EXIT && id->state == ID_DISCONNECT)
		tell(id, UCMA_EVENT_TIMEWAIT_EXIT, 0, NULL);
	if (id->state != ID_CONNECT)
		return;
	switch (e->type) {
	case CM_EV_REP_RECEIVED:
		tell(id, UCMA_EVENT_CONNECT_RESPONSE, 0, &e->msg);
		return;
	case CM_EV_RTU_RECEIVED:
	case CM_EV_USER_ESTABLISHED:
		tell(id, UCMA_EVENT_ESTABLISHED, 0, NULL);
		return;
	case CM_EV_REJ_RECEIVED:
		tell(id, UCMA_EVENT_REJECTED, e->msg.rej.reason, &e->msg);
		return;
	case CM_EV_REQ_ERROR:
	case CM_EV_REP_ERROR:
		tell(id, UCMA_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
		return;
	case CM_EV_DREQ_RECEIVED:
	case CM_EV_DREP_RECEIVED:
		disconnected(id, 0);
		return;
	case CM_EV_DREQ_ERROR:
		disconnected(id, -ETIMEDOUT);
		return;
	default:
		return;
	}
}

/* --- a request that has come ---------------------------------------------------------------------- */

static union address get_address(uint8_t version, const uint8_t from[16], uint16_t port)
{
	union address a = { 0 };

	a.sa.sa_family = version == 4 ? AF_INET : AF_INET6;
	if (version == 4)
		memcpy(&a.in.sin_addr, from + 12, 4);
	else
		memcpy(&a.in6.sin6_addr, from, 16);
	address_set_port(&a, port);
	return a;
}

static bool meant_for(const struct cm_id *listener, uint64_t service, const union address *to)
{
	const struct port_claim *c = &listener->claim.port;

	if (service != cm_service_id((uint16_t)c->ps, address_port(&c->addr)))
		return false;
	if (address_any(&c->addr))
		return c->addr.sa.sa_family == to->sa.sa_family || !c->afonly;
	/* A link-local address came without the interface, which is this side's to know. */
	return c->addr.sa.sa_family == to->sa.sa_family &&
	       (to->sa.sa_family == AF_INET ? address_equal(&c->addr, to)
					    : !memcmp(&c->addr.in6.sin6_addr, &to->in6.sin6_addr, 16));
}

static struct cm_id *new_id(
	struct cm_id *listener, const union address *to, const union address *from, uint8_t traffic_class)
{
	struct cm_id *id;
	unsigned index;

	if (id_make(listener->channel, &id))
		return NULL;
	id->ps = listener->ps;
	id->src = *to;
	id->dst = *from;
	if (to->sa.sa_family == AF_INET6 && listener->src.sa.sa_family == AF_INET6)
		id->src.in6.sin6_scope_id = id->dst.in6.sin6_scope_id = listener->src.in6.sin6_scope_id;
	id->tos = traffic_class;
	if (id_take_device(id) || address_gid_local(&id->dst, id->dgid, &index)) {
		id_destroy(id);
		return NULL;
	}
	id->has_route = true;
	id->state = ID_CONNECT;
	return id;
}

/* Makes an id of it; 0, or the reason for its rejection. */
static uint16_t welcome(struct link *l, const struct cm_event *ev)
{
	struct cm_id *listener = l->listener, *id;
	struct cm_ip_header ip;
	union address to, from;
	struct ucma_event *e;

	if (cm_get_ip_header(ev->msg.private_data, &ip))
		return CM_REJ_CONSUMER_DEFINED;
	to = get_address(ip.ip_version, ip.dst, address_port(&listener->claim.port.addr));
	from = get_address(ip.ip_version, ip.src, ip.port);
	if (!meant_for(listener, ev->msg.req.service_id, &to))
		return CM_REJ_INVALID_SERVICE_ID;
	e = listener->backlog ? id_event(listener, UCMA_EVENT_CONNECT_REQUEST, 0) : NULL;
	id = e ? new_id(listener, &to, &from, ev->msg.req.path.traffic_class) : NULL;
	if (!id) {
		free(e);
		return CM_REJ_CONSUMER_DEFINED;
	}
	id->link = l;
	id->conn = ev->conn;
	l->id = id;
	cm_set_user(ev->conn, id);
	listener->backlog--;
	fill_req(&e->resp, &ev->msg);
	e->resp.id = id->number;
	e->request = id;
	event_channel_post(listener->channel, e);
	return 0;
}

static void of_request(const struct cm_event *e)
{
	uint64_t now = clock_ns();
	struct cm_info info;
	uint16_t reason = CM_REJ_INVALID_SERVICE_ID;
	struct link *l;

	cm_query(e->conn, &info);
	l = link_find(info.route);
	if (l && !l->id && l->listener)
		reason = welcome(l, e);
	if (!reason) {
		/* A program may take its time to answer: the peer is told so if it asks again. */
		cm_send_mra(manager, e->conn, CM_DEFAULT_MRA_TIMEOUT, true, NULL, 0, now);
		return;
	}
	cm_send_rej(manager, e->conn, reason, NULL, 0, NULL, 0, now);
	cm_destroy(manager, e->conn, now);
}

/* --- carrying out what the manager wants ---------------------------------------------------------- */

static void carry_out(void)
{
	struct cm_action a;
	uint64_t at;

	if (!manager)
		return;
	while (cm_next_action(manager, &a)) {
		if (a.type == CM_SEND)
			link_send(link_find(a.send.route), a.send.mad);
		else if (a.event.type == CM_EV_REQ_RECEIVED)
			of_request(&a.event);
		else if (a.event.user)
			of_id(a.event.user, &a.event);
	}
	at = cm_next_deadline(manager);
	if (at != UINT64_MAX)
		service_deadline(at);
}

void connection_message(struct link *l, const void *bytes, size_t length)
{
	if (!manager)
		return;
	cm_receive(manager, l->route, bytes, length, clock_ns());
	carry_out();
}

void connection_tick(uint64_t now)
{
	if (!manager)
		return;
	cm_tick(manager, now);
	carry_out();
}

/* The attempt is over before a message of it has gone anywhere. */
static void give_up(struct link *l)
{
	struct cm_conn *conn = l->id->conn;

	l->id->conn = NULL;
	if (conn)
		cm_destroy(manager, conn, clock_ns());
	carry_out();
}

void connection_refused(struct link *l)
{
	give_up(l);
	tell(l->id, UCMA_EVENT_REJECTED, CM_REJ_INVALID_SERVICE_ID, NULL);
}

void connection_unreachable(struct link *l, int why)
{
	give_up(l);
	tell(l->id, UCMA_EVENT_UNREACHABLE, why, NULL);
}

void connection_lost(struct link *l)
{
	uint64_t now = clock_ns();

	cm_peer_gone(manager, l->route, now);
	connection_tick(now);
}

void connection_forget(struct link *l)
{
	if (manager)
		connection_lost(l);
}

/* --- listening ------------------------------------------------------------------------------------ */

/* Ids of several addresses may listen on one port; to the manager that is one service. */
struct service_user {
	struct list node;
	uint64_t id;
	struct cm_conn *conn;
	unsigned users;
};

static struct list services = LIST_INIT(services);

static struct service_user *find_service(uint64_t id)
{
	list_for_each (node, &services) {
		struct service_user *s = container_of(node, struct service_user, node);

		if (s->id == id)
			return s;
	}
	return NULL;
}

static uint64_t service_of(const struct cm_id *id)
{
	return cm_service_id(id->ps, address_port(&id->src));
}

int connection_listen(struct cm_id *id)
{
	struct service_user *s = find_service(service_of(id));
	struct cm *cm = get_manager();
	int err;

	if (!cm)
		return -ENOMEM;
	if (s) {
		s->users++;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct service_user){ .id = service_of(id), .conn = cm_create(cm, NULL), .users = 1 };
	err = s->conn ? cm_listen(cm, s->conn, s->id) : -ENOMEM;
	if (err) {
		if (s->conn)
			cm_destroy(cm, s->conn, clock_ns());
		free(s);
		return err;
	}
	list_add_tail(&services, &s->node);
	return 0;
}

void connection_unlisten(struct cm_id *id)
{
	struct service_user *s = find_service(service_of(id));

	if (!s || --s->users)
		return;
	cm_destroy(manager, s->conn, clock_ns());
	carry_out();
	list_del(&s->node);
	free(s);
}

/* --- commands ------------------------------------------------------------------------------------- */

static uint8_t at_most_7(uint8_t n)
{
	return n < 7 ? n : 7;
}

static void put_address(uint8_t to[16], const union address *a)
{
	memset(to, 0, 16);
	if (a->sa.sa_family == AF_INET)
		memcpy(to + 12, &a->in.sin_addr, 4);
	else
		memcpy(to, &a->in6.sin6_addr, 16);
}

static void make_path(const struct cm_id *id, struct cm_path *path)
{
	*path = (struct cm_path){
		.local_lid = 0xffff,
		.remote_lid = 0xffff,
		.rate = IBV_RATE_100_GBPS,
		.traffic_class = id->tos,
		.hop_limit = HOP_LIMIT,
	};
	memcpy(path->local_gid, id->sgid, sizeof(path->local_gid));
	memcpy(path->remote_gid, id->dgid, sizeof(path->remote_gid));
}

static void make_req(const struct cm_id *id, const struct rdma_ucm_conn_param *p,
	const struct rdma_ucm_ece *ece, struct cm_req *req)
{
	*req = (struct cm_req){
		.vendor_id = ece->vendor_id,
		.ece_options = ece->attr_mod,
		.service_id = cm_service_id(id->ps, address_port(&id->dst)),
		.qpn = p->qp_num,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.remote_response_timeout = CM_DEFAULT_RESPONSE_TIMEOUT,
		.transport = CM_RC,
		.flow_control = p->flow_control,
		.starting_psn = id->seq,
		.local_response_timeout = CM_DEFAULT_RESPONSE_TIMEOUT,
		.retry_count = at_most_7(p->retry_count),
		.pkey = NIC_PKEY,
		.mtu = IBV_MTU_4096,
		.rnr_retry = at_most_7(p->rnr_retry_count),
		.max_cm_retries = CM_DEFAULT_RETRIES,
		.srq = p->srq,
	};
	make_path(id, &req->path);
}

static int send_req(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	struct cm_ip_header ip = { .ip_version = id->src.sa.sa_family == AF_INET ? 4 : 6,
		.port = address_port(&id->src) };
	uint8_t data[CM_IP_HEADER + CM_REQ_USER_PRIVATE];
	uint8_t life = id->ack_timeout_set && id->ack_timeout ? id->ack_timeout - 1 : LIFE_TIME;
	struct cm_req req;

	make_req(id, p, ece, &req);
	put_address(ip.src, &id->src);
	put_address(ip.dst, &id->dst);
	cm_put_ip_header(&ip, data);
	memcpy(data + CM_IP_HEADER, p->private_data, p->private_data_len);
	return cm_send_req(manager, id->conn, id->link->route, &req, life, data,
		CM_IP_HEADER + (size_t)p->private_data_len, clock_ns());
}

int connection_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	int err;

	if (id->state != ID_ROUTE_RESOLVED || p->private_data_len > CM_REQ_USER_PRIVATE)
		return -EINVAL;
	if (!get_manager())
		return -ENOMEM;
	err = link_open(id);
	if (err)
		return err;
	id->conn = cm_create(manager, id);
	err = id->conn ? send_req(id, p, ece) : -ENOMEM;
	if (err) {
		connection_release(id);
		return err;
	}
	id->state = ID_CONNECT;
	carry_out();
	link_start(id->link);
	return 0;
}

static int send_rep(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	struct cm_rep rep = {
		.vendor_id = ece->vendor_id,
		.ece_options = ece->attr_mod,
		.qpn = p->qp_num,
		.starting_psn = id->seq,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.flow_control = p->flow_control,
		.rnr_retry = at_most_7(p->rnr_retry_count),
		.srq = p->srq,
	};

	return cm_send_rep(manager, id->conn, &rep, p->private_data, p->private_data_len, clock_ns());
}

int connection_accept(
	struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece, uint64_t uid)
{
	int err;

	if (id->state != ID_CONNECT || !id->conn)
		return -EINVAL;
	err = p ? send_rep(id, p, ece) : cm_send_rtu(manager, id->conn, NULL, 0, clock_ns());
	if (err)
		connection_reject(id, NULL, 0, CM_REJ_CONSUMER_DEFINED);
	else if (p)
		id->uid = uid;
	carry_out();
	return err;
}

int connection_reject(struct cm_id *id, const void *data, uint8_t len, uint8_t reason)
{
	int err;

	if (!reason)
		reason = CM_REJ_CONSUMER_DEFINED;
	if (reason != CM_REJ_CONSUMER_DEFINED && reason != CM_REJ_VENDOR_OPTION_NOT_SUPPORTED)
		return -EINVAL;
	if (!id->conn)
		return -EINVAL;
	err = cm_send_rej(manager, id->conn, reason, NULL, 0, data, len, clock_ns());
	carry_out();
	return err;
}

int connection_disconnect(struct cm_id *id)
{
	uint64_t now = clock_ns();

	if (!id->conn)
		return -EINVAL;
	if (cm_send_dreq(manager, id->conn, NULL, 0, now))
		cm_send_drep(manager, id->conn, NULL, 0, now);
	carry_out();
	return 0;
}

int connection_notify(struct cm_id *id, uint32_t event)
{
	int err;

	if (!id->conn || event != IBV_EVENT_COMM_EST)
		return -EINVAL;
	err = cm_establish(manager, id->conn);
	carry_out();
	return err;
}

void connection_release(struct cm_id *id)
{
	struct link *l = id->link;

	if (id->conn)
		cm_destroy(manager, id->conn, clock_ns());
	carry_out();
	id->conn = NULL;
	id->link = NULL;
	link_close(l);
}

/* --- the queue pair's attributes ------------------------------------------------------------------ */

static void attr_init(const struct cm_info *info, struct ib_uverbs_qp_attr *out)
{
	out->qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	out->port_num = 1;
	if (!info)
		return;
	out->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (info->responder_resources)
		out->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static void attr_rtr(const struct cm_id *id, const struct cm_info *info, struct ib_uverbs_qp_attr *out)
{
	struct ib_uverbs_ah_attr *a = &out->ah_attr;

	out->qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	a->is_global = 1;
	a->port_num = 1;
	memcpy(a->grh.dgid, id->dgid, sizeof(a->grh.dgid));
	a->grh.sgid_index = (uint8_t)id->sgid_index;
	a->grh.hop_limit = info->path.hop_limit;
	a->grh.traffic_class = info->path.traffic_class;
	a->grh.flow_label = info->path.flow_label;
	out->path_mtu = info->mtu;
	out->dest_qp_num = info->remote_qpn;
	out->rq_psn = id->seq; /* what the request or the reply tells the peer to begin with */
	out->max_dest_rd_atomic = info->responder_resources;
}

static void attr_rts(const struct cm_info *info, struct ib_uverbs_qp_attr *out)
{
	out->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	out->sq_psn = info->sq_psn;
	out->timeout = info->ack_timeout;
	out->retry_cnt = info->retry_count;
	out->rnr_retry = info->rnr_retry;
	out->max_rd_atomic = info->initiator_depth;
}

/* Both sides' numbers are known, and neither has said goodbye. */
static bool met(enum cm_state state)
{
	switch (state) {
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
	case CM_ESTABLISHED:
		return true;
	default:
		return false;
	}
}

int connection_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *out)
{
	struct cm_info info;

	memset(out, 0, sizeof(*out));
	out->qp_state = (uint8_t)state;
	if (!id->has_device || (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS))
		return -EINVAL;
	if (id->conn)
		cm_query(id->conn, &info);
	if (state == IBV_QPS_INIT && !id->conn && !id->link) {
		attr_init(NULL, out);
		return 0;
	}
	if (!id->conn ||
		!(met(info.state) || (state == IBV_QPS_INIT &&
					     (info.state == CM_REQ_SENT || info.state == CM_MRA_REQ_RCVD))))
		return -EINVAL;
	if (state == IBV_QPS_INIT)
		attr_init(&info, out);
	else if (state == IBV_QPS_RTR)
		attr_rtr(id, &info, out);
	else
		attr_rts(&info, out);
	return 0;
}

void connection_abandon(void)
{
	manager = NULL;
	list_init(&services);
}
