/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The open device: the context with its operation tables, and its asynchronous events
 * (ibv_get_async_event(3)).
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "verbs/object.h"
#include "verbs/real.h"

/* --- operations of the tables that are not offered ------------------------------------------------ */

#define NOT_OFFERED(type, name, answer, ...)                                                                 \
	static type no_##name(__VA_ARGS__)                                                                   \
	{                                                                                                    \
		return REFUSED("ibv_" #name, answer);                                                        \
	}

NOT_OFFERED(struct ibv_mw *, alloc_mw, NO_POINTER(EOPNOTSUPP), struct ibv_pd *pd, enum ibv_mw_type type)
NOT_OFFERED(int, bind_mw, EOPNOTSUPP, struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
NOT_OFFERED(int, dealloc_mw, EOPNOTSUPP, struct ibv_mw *mw)
NOT_OFFERED(int, post_srq_recv, (*bad = wr, EOPNOTSUPP), struct ibv_srq *srq, struct ibv_recv_wr *wr,
	struct ibv_recv_wr **bad)
NOT_OFFERED(int, close_xrcd, EOPNOTSUPP, struct ibv_xrcd *xrcd)
NOT_OFFERED(struct ibv_cq_ex *, create_cq_ex, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_cq_init_attr_ex *attr)
NOT_OFFERED(struct ibv_srq *, create_srq_ex, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_srq_init_attr_ex *attr)
NOT_OFFERED(struct ibv_xrcd *, open_xrcd, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_xrcd_init_attr *attr)
NOT_OFFERED(struct ibv_qp *, open_qp, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_qp_open_attr *attr)
NOT_OFFERED(struct ibv_dm *, alloc_dm, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_alloc_dm_attr *attr)
NOT_OFFERED(struct ibv_pd *, alloc_parent_domain, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_parent_domain_init_attr *attr)
NOT_OFFERED(struct ibv_td *, alloc_td, NO_POINTER(EOPNOTSUPP), struct ibv_context *context,
	struct ibv_td_init_attr *attr)

/* --- the tables ----------------------------------------------------------------------------------- */

/*
 * What the inline functions of verbs.h call through the context. They check every pointer of verbs_context
 * but close_xrcd, and answer EOPNOTSUPP for one that is NULL; they check nothing of ops. Calls that make an
 * object have a function here all the same, which names them in the log.
 */
static void fill_tables(struct verbs_context *v)
{
	v->sz = sizeof(*v);
	v->query_device_ex = query_device_ex;
	v->query_port = query_port;
	v->advise_mr = advise_mr;
	v->create_qp_ex = qp_create_ex;
	v->close_xrcd = no_close_xrcd;
	v->create_cq_ex = no_create_cq_ex;
	v->create_srq_ex = no_create_srq_ex;
	v->open_xrcd = no_open_xrcd;
	v->open_qp = no_open_qp;
	v->alloc_dm = no_alloc_dm;
	v->alloc_parent_domain = no_alloc_parent_domain;
	v->alloc_td = no_alloc_td;

	v->context.ops = (struct ibv_context_ops){
		._compat_query_device = ibv_query_device,
		._compat_query_port = ibv_query_port,
		.alloc_mw = no_alloc_mw,
		.bind_mw = no_bind_mw,
		.dealloc_mw = no_dealloc_mw,
		.poll_cq = cq_poll,
		.req_notify_cq = cq_req_notify,
		.post_srq_recv = no_post_srq_recv,
		.post_send = qp_post_send,
		.post_recv = qp_post_recv,
	};
}

/* A descriptor that is valid and can do nothing: reads, writes, maps and ioctls on it fail. */
static int open_cmd_fd(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	/* The application sees it. */
	if (fd >= 0)
		fd_note(fd, false);
	return fd;
}

struct ibv_context *context_open(void)
{
	struct context *ctx = calloc(1, sizeof(*ctx));
	struct ibv_context *ibv;
	int ret = ENOMEM;

	if (!ctx)
		return NO_POINTER(ENOMEM);
	ibv = &ctx->verbs.context;
	ctx->private_room = calloc(1, PRIVATE_ROOM);
	if (!ctx->private_room)
		goto err_free;
	ibv->cmd_fd = open_cmd_fd();
	if (ibv->cmd_fd < 0) {
		ret = -log_refused("epoll_create1", -errno);
		goto err_free;
	}
	ret = -nic_context_open(&ctx->nic);
	if (ret)
		goto err_fd;

	ctx->verbs.priv = ctx->private_room;
	ibv->device = &unpin_device.ibv;
	ibv->async_fd = ctx->nic->async.fd;
	ibv->num_comp_vectors = NIC_COMP_VECTORS;
	ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&ibv->mutex, NULL);
	fill_tables(&ctx->verbs);
	return ibv;

err_fd:
	fd_close(ibv->cmd_fd);
err_free:
	free(ctx->private_room);
	free(ctx);
	return NO_POINTER(ret);
}

/*
 * As the man page has it, objects still alive are not freed with it; nic gives back what they hold. They name
 * the context when they are destroyed later, as programs and interpreters do at their end: its memory stays
 * then.
 */
int context_close(struct ibv_context *context)
{
	struct context *ctx = to_context(context);
	bool gone = nic_context_close(ctx->nic);

	fd_close(context->cmd_fd);
	context->cmd_fd = -1;
	if (!gone)
		return 0;
	pthread_mutex_destroy(&context->mutex);
	free(ctx->private_room);
	free(ctx);
	return 0;
}

/* --- asynchronous events -------------------------------------------------------------------------- */

/* What an event is about, by type; IBTA 11.6.3. A type not listed is about the port or the device. */
enum about { ABOUT_PORT, ABOUT_CQ, ABOUT_QP, ABOUT_SRQ, ABOUT_WQ };

static const unsigned char about[] = {
	[IBV_EVENT_CQ_ERR] = ABOUT_CQ,
	[IBV_EVENT_QP_FATAL] = ABOUT_QP,
	[IBV_EVENT_QP_REQ_ERR] = ABOUT_QP,
	[IBV_EVENT_QP_ACCESS_ERR] = ABOUT_QP,
	[IBV_EVENT_COMM_EST] = ABOUT_QP,
	[IBV_EVENT_SQ_DRAINED] = ABOUT_QP,
	[IBV_EVENT_PATH_MIG] = ABOUT_QP,
	[IBV_EVENT_PATH_MIG_ERR] = ABOUT_QP,
	[IBV_EVENT_QP_LAST_WQE_REACHED] = ABOUT_QP,
	[IBV_EVENT_SRQ_ERR] = ABOUT_SRQ,
	[IBV_EVENT_SRQ_LIMIT_REACHED] = ABOUT_SRQ,
	[IBV_EVENT_WQ_FATAL] = ABOUT_WQ,
};

static enum about event_about(int type)
{
	return type >= 0 && (size_t)type < sizeof(about) ? about[type] : ABOUT_PORT;
}

UNPIN_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct nic_event_source *source;
	struct context *ctx;
	void *cookie;
	int type, ret;

	if (!context_is_ours(context))
		return PASS(ibv_get_async_event, NO_INT(ENODEV), context, event);
	ctx = to_context(context);
	ret = nic_context_check(ctx->nic);
	if (!ret)
		ret = nic_event_get(&ctx->nic->async, &cookie, &type, &source);
	if (ret)
		return NO_INT(-ret);

	event->event_type = type;
	switch (event_about(type)) {
	case ABOUT_CQ:
		event->element.cq = cookie;
		atomic_store(&to_cq(cookie)->async_source, source);
		break;
	case ABOUT_QP:
		event->element.qp = cookie;
		atomic_store(&to_qp(cookie)->async_source, source);
		break;
	default: /* of the device or its port; nothing waits for its acknowledgement */
		event->element.port_num = PORT_NUM;
	}
	return 0;
}

static struct ibv_context *element_context(const struct ibv_async_event *event)
{
	switch (event_about(event->event_type)) {
	case ABOUT_CQ:
		return event->element.cq->context;
	case ABOUT_QP:
		return event->element.qp->context;
	case ABOUT_SRQ:
		return event->element.srq->context;
	case ABOUT_WQ:
		return event->element.wq->context;
	default:
		return NULL;
	}
}

UNPIN_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *context = element_context(event);
	struct nic_event_source *source = NULL;

	/* An event of a port names no device; nobody counts its acknowledgements, here or there. */
	if (!context)
		return;
	if (!context_is_ours(context)) {
		PASS(ibv_ack_async_event, (void)0, event);
		return;
	}
	if (event_about(event->event_type) == ABOUT_CQ) {
		struct ibv_cq *cq = event->element.cq;

		source = atomic_load(&to_cq(cq)->async_source);
		pthread_mutex_lock(&cq->mutex);
		cq->async_events_completed++;
		pthread_mutex_unlock(&cq->mutex);
	} else if (event_about(event->event_type) == ABOUT_QP) {
		struct ibv_qp *qp = event->element.qp;

		source = atomic_load(&to_qp(qp)->async_source);
		pthread_mutex_lock(&qp->mutex);
		qp->events_completed++;
		pthread_mutex_unlock(&qp->mutex);
	}
	if (source)
		nic_event_ack(&to_context(context)->nic->async, source, 1);
}
