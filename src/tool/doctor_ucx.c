/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What UCX asks of a device before it uses it: a node in /dev/infiniband that it may open, shared receive
 * queues for its reliable transport, datagrams for its connections. A device without one of them is passed
 * over without a word.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/doctor_reality.h"

/* Why UCX would not take the node; NULL: it would. */
static const char *node_trouble(const char *name)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "/dev/infiniband/%s", name);
	if (stat(path, &st))
		return strerror(errno);
	if (!S_ISCHR(st.st_mode))
		return "it is no character device";
	return access(path, R_OK | W_OK) ? strerror(errno) : NULL;
}

static bool has_srq(struct doctor *d)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(d->e.pd, &init);

	return srq && !ibv_destroy_srq(srq);
}

static bool has_datagrams(struct doctor *d)
{
	struct ibv_qp_init_attr init = { .send_cq = d->e.cq,
		.recv_cq = d->e.cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD };
	struct ibv_qp *qp = ibv_create_qp(d->e.pd, &init);

	return qp && !ibv_destroy_qp(qp);
}

void doctor_ucx_check(struct doctor *d, struct doctor_result *r)
{
	const char *name = d->e.context->device->dev_name, *node = node_trouble(name);
	bool srq = has_srq(d), datagrams = has_datagrams(d);
	char lacks[256] = "";

	if (node)
		doctor_append(lacks, sizeof(lacks), "/dev/infiniband/%s: %s", name, node);
	if (!srq)
		doctor_append(lacks, sizeof(lacks), "no shared receive queues");
	if (!datagrams)
		doctor_append(lacks, sizeof(lacks), "no datagrams (UD)");
	if (!lacks[0]) {
		doctor_say(r, DOCTOR_OK, "/dev/infiniband/%s, shared receive queues, datagrams", name);
		return;
	}
	doctor_say(r, DOCTOR_WARN, "%s", lacks);
	doctor_mean(r,
		"UCX does not use this device, and does not say so: it takes shared memory or TCP. Open MPI "
		"over UCX and MPICH over UCX do the same.");
	doctor_advise(r, "%s",
		d->device.kind == DOCTOR_KIND_UNPIN
			? "Use programs over plain verbs, librdmacm or libfabric's verbs provider with this "
			  "device; Open MPI with --mca pml cm --mca mtl ofi."
		: node && (!srq || !datagrams)
			? "Give the program the node, and see the kernel log for what the "
			  "driver lacks."
		: node ? "modprobe ib_uverbs; in a container pass the node with --device=/dev/infiniband; "
			 "its "
			 "rights must let the user read and write."
		       : "Update the driver; the device's own manual says what it offers.");
}
