/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Completion queues and channels (ibv_create_cq(3), ibv_create_comp_channel(3), ibv_get_cq_event(3),
 * ibv_poll_cq(3), ibv_req_notify_cq(3)).
 */
#include <stdlib.h>

#include "verbs/object.h"
#include "verbs/real.h"

/* --- channels ------------------------------------------------------------------------------------- */

UNPIN_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *ch;
	int ret;

	if (!context_is_ours(context))
		return PASS(ibv_create_comp_channel, NO_POINTER(ENODEV), context);
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NO_POINTER(ENOMEM);
	ret = nic_channel_create(to_context(context)->nic, &ch->nic);
	if (ret) {
		free(ch);
		return NO_POINTER(-ret);
	}
	ch->ibv.context = context;
	ch->ibv.fd = ch->nic->queue.fd;
	return &ch->ibv;
}

/* Programs may look at a channel's refcnt; it changes under the context's mutex. What it is then; 0 in a
 * forked child, which takes no lock that another thread may have held. */
static int channel_count(struct ibv_comp_channel *channel, int by)
{
	int count;

	if (!channel || nic_context_check(to_context(channel->context)->nic))
		return 0;
	pthread_mutex_lock(&channel->context->mutex);
	count = channel->refcnt += by;
	pthread_mutex_unlock(&channel->context->mutex);
	return count;
}

UNPIN_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	int ret;

	if (!context_is_ours(channel->context))
		return PASS(ibv_destroy_comp_channel, EOPNOTSUPP, channel);
	/* A queue that is being destroyed lets go of the channel in nic/ first, and last here. */
	if (channel_count(channel, 0))
		return EBUSY;
	ret = nic_channel_destroy(to_channel(channel)->nic);
	if (ret)
		return -ret;
	free(to_channel(channel));
	return 0;
}

UNPIN_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	void *cookie;
	int ret;

	if (!context_is_ours(channel->context))
		return PASS(ibv_get_cq_event, NO_INT(ENODEV), channel, cq, cq_context);
	ret = nic_channel_get_event(to_channel(channel)->nic, &cookie);
	if (ret)
		return NO_INT(-ret);
	*cq = cookie;
	*cq_context = (*cq)->cq_context;
	return 0;
}

UNPIN_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (!context_is_ours(cq->context)) {
		PASS(ibv_ack_cq_events, (void)0, cq, nevents);
		return;
	}
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_mutex_unlock(&cq->mutex);
	nic_cq_ack_events(to_cq(cq)->nic, nevents);
}

/* --- queues --------------------------------------------------------------------------------------- */

UNPIN_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	struct ibv_comp_channel *channel, int comp_vector)
{
	struct cq *cq;
	int ret;

	if (!context_is_ours(context))
		return PASS(
			ibv_create_cq, NO_POINTER(ENODEV), context, cqe, cq_context, channel, comp_vector);
	if (comp_vector < 0 || comp_vector >= context->num_comp_vectors)
		return NO_POINTER(EINVAL);
	if (channel && channel->context != context)
		return NO_POINTER(EINVAL);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NO_POINTER(ENOMEM);
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	/* From here on an event may name the object. */
	ret = nic_cq_create(to_context(context)->nic, cqe, channel ? to_channel(channel)->nic : NULL,
		&cq->ibv, &cq->nic, &cq->ibv.cqe);
	if (ret) {
		free(cq);
		return NO_POINTER(-ret);
	}
	channel_count(channel, 1);
	return &cq->ibv;
}

UNPIN_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!context_is_ours(cq->context))
		return PASS(ibv_resize_cq, EOPNOTSUPP, cq, cqe);
	return -nic_cq_resize(to_cq(cq)->nic, cqe, &cq->cqe);
}

UNPIN_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	int ret;

	if (!context_is_ours(cq->context))
		return PASS(ibv_destroy_cq, EOPNOTSUPP, cq);
	ret = nic_cq_destroy(to_cq(cq)->nic);
	if (ret)
		return -ret;
	channel_count(cq->channel, -1);
	pthread_mutex_destroy(&cq->mutex);
	pthread_cond_destroy(&cq->cond);
	free(to_cq(cq));
	return 0;
}

int cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return nic_cq_poll(to_cq(cq)->nic, n, wc);
}

int cq_req_notify(struct ibv_cq *cq, int solicited_only)
{
	return -nic_cq_req_notify(to_cq(cq)->nic, solicited_only != 0);
}
