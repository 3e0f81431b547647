/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A gigabyte of fresh anonymous memory is registered for on-demand paging: it takes microseconds, pins
 *nothing and brings no page into memory. Then the device writes one page of it, through a queue pair that is
 *connected to itself, and that page is there.
 *
 *	cc on_demand.c -libverbs -o on_demand && unpin run -- ./on_demand
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LENGTH (1ul << 30)
#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "on_demand: line %d: %s failed\n", __LINE__, #what);                 \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

/* "VmRSS" or "VmPin" of this process in KiB. */
static long memory(const char *name)
{
	char line[128];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "r");

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, name, strlen(name)) == 0)
			sscanf(line + strlen(name) + 1, "%ld", &kib);
	fclose(f);
	return kib;
}

/* A queue pair whose other end it is itself. */
static struct ibv_qp *loopback(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp ? qp->qp_num : 0,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1 };

	CHECK(qp && !ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC));
	return qp;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
	const char *wanted = argc > 1 ? argv[1] : getenv("UNPIN_DEVICE"), *name = wanted ? wanted : "unpin0";
	struct timespec before, after;

	for (int i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			device = list[i];
	if (!device) {
		fprintf(stderr, "on_demand: no device %s here; start me with 'unpin run --'\n", name);
		return 1;
	}
	struct ibv_context *context = ibv_open_device(device);
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp *qp = loopback(context, pd, cq);

	/* The point of it all. */
	char *memory_of_ours = mmap(
		NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory_of_ours != MAP_FAILED);
	long pinned = memory("VmPin"), resident = memory("VmRSS");
	clock_gettime(CLOCK_MONOTONIC, &before);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory_of_ours, LENGTH,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND);
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK(mr);
	pinned = memory("VmPin") - pinned;
	resident = memory("VmRSS") - resident;
	printf("registered 1 GiB in %.1f us; pinned %ld KiB, resident %+ld KiB\n",
		(double)(after.tv_sec - before.tv_sec) * 1e6 + (double)(after.tv_nsec - before.tv_nsec) / 1e3,
		pinned, resident);
	CHECK(pinned == 0 && resident < 1024);

	/* The device writes one page far inside, from another one that we have written. */
	char *source = memory_of_ours, *target = memory_of_ours + LENGTH / 2;
	strcpy(source, "faulted in by the device");
	struct ibv_sge sge = { (uintptr_t)source, 4096, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)target, .rkey = mr->rkey } },
			   *bad;
	struct ibv_wc wc;
	int n;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	printf("the device wrote a page: '%s'; pinned %ld KiB\n", target, memory("VmPin"));
	CHECK(strcmp(target, "faulted in by the device") == 0 && memory("VmPin") == 0);

	ibv_dereg_mr(mr);
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
