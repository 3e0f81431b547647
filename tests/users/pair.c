/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "pair.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/segment.h"

struct ibv_context *device_open(void)
{
	const char *name = getenv("UNPIN_DEVICE");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	if (!name || !*name)
		name = "unpin0";
	check_sys(list != NULL);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			check_sys((ctx = ibv_open_device(list[i])) != NULL);
	ibv_free_device_list(list);
	if (!ctx)
		check_failed(__FILE__, __LINE__, "no device %s: is this run by `unpin run`?", name);
	return ctx;
}

static void defaults(struct options *o)
{
	o->send_wr = o->send_wr ? o->send_wr : 128;
	o->recv_wr = o->recv_wr ? o->recv_wr : 128;
	o->sge = o->sge ? o->sge : 4;
	o->cqe = o->cqe ? o->cqe : 512;
	if (!o->retry_set) {
		o->retry_cnt = o->retry_cnt ? o->retry_cnt : 7;
		o->rnr_retry = o->rnr_retry ? o->rnr_retry : 7;
	}
	o->min_rnr_timer = o->min_rnr_timer ? o->min_rnr_timer : 1;
	o->timeout = o->timeout ? o->timeout : 14;
	o->rd_atomic = o->rd_atomic ? o->rd_atomic : 16;
	o->mtu = o->mtu ? o->mtu : IBV_MTU_1024;
}

static void to_init(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE };

	check_int(ibv_modify_qp(
			  e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

void end_make_qp(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = e->opt.sig_all,
		.cap = { .max_send_wr = e->opt.send_wr,
			.max_recv_wr = e->opt.recv_wr,
			.max_send_sge = e->opt.sge,
			.max_recv_sge = e->opt.sge,
			.max_inline_data = e->opt.inline_data },
	};

	check_sys((e->qp = ibv_create_qp(e->pd, &init)) != NULL);
	e->psn = 0xfffff0 + (e->qp->qp_num & 7); /* wraps soon */
	to_init(e);
}

void end_open(struct end *e, const struct options *opt)
{
	memset(e, 0, sizeof(*e));
	if (opt)
		e->opt = *opt;
	defaults(&e->opt);
	e->ctx = device_open();
	check_sys((e->pd = ibv_alloc_pd(e->ctx)) != NULL);
	if (e->opt.events)
		check_sys((e->channel = ibv_create_comp_channel(e->ctx)) != NULL);
	check_sys((e->cq = ibv_create_cq(e->ctx, e->opt.cqe, NULL, e->channel, 0)) != NULL);
	end_make_qp(e);
}

struct address end_address(struct end *e)
{
	struct address a = { .qpn = e->qp->qp_num, .psn = e->psn };

	check_int(ibv_query_gid(e->ctx, 1, e->opt.gid, &a.gid), 0);
	return a;
}

int end_try_connect(struct end *e, const struct address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->opt.mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = e->opt.rd_atomic,
		.min_rnr_timer = e->opt.min_rnr_timer,
		.ah_attr = { .is_global = 1,
			.port_num = 1,
			.grh = { .dgid = peer->gid, .sgid_index = e->opt.gid, .hop_limit = 1 } },
	};

	int err = ibv_modify_qp(e->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

	if (err)
		return err;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = e->opt.timeout,
		.retry_cnt = e->opt.retry_cnt,
		.rnr_retry = e->opt.rnr_retry,
		.sq_psn = e->psn,
		.max_rd_atomic = e->opt.rd_atomic,
	};
	check_int(ibv_modify_qp(e->qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		0);
	return 0;
}

void end_connect(struct end *e, const struct address *peer)
{
	check_int(end_try_connect(e, peer), 0);
}

void end_reset(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	check_int(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	/* A packet of the old connection that is still under way must not be taken for one of the new. */
	e->psn = (e->psn + 0x1000) & 0xffffff;
	to_init(e);
}

void end_close(struct end *e)
{
	check_int(ibv_destroy_qp(e->qp), 0);
	check_int(ibv_destroy_cq(e->cq), 0);
	if (e->channel)
		check_int(ibv_destroy_comp_channel(e->channel), 0);
	check_int(ibv_dealloc_pd(e->pd), 0);
	check_int(ibv_close_device(e->ctx), 0);
}

static void pair_connect(struct pair *p)
{
	struct address a = end_address(&p->a), b = end_address(&p->b);

	end_connect(&p->a, &b);
	end_connect(&p->b, &a);
}

void pair_open(struct pair *p, const struct options *opt)
{
	end_open(&p->a, opt);
	end_open(&p->b, opt);
	pair_connect(p);
}

void pair_reconnect(struct pair *p)
{
	struct ibv_wc wc;

	end_reset(&p->a);
	end_reset(&p->b);
	while (ibv_poll_cq(p->a.cq, 1, &wc) > 0 || ibv_poll_cq(p->b.cq, 1, &wc) > 0)
		;
	pair_connect(p);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

struct ibv_mr *reg(struct end *e, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(e->pd, addr, length, access);

	if (!mr)
		check_failed(__FILE__, __LINE__, "ibv_reg_mr of %zu bytes, access %#x: %m", length, access);
	return mr;
}

void dereg(struct ibv_mr *mr)
{
	check_int(ibv_dereg_mr(mr), 0);
}

int try_post(struct end *e, enum ibv_wr_opcode op, const struct ibv_mr *mr, void *local, size_t length,
	const void *remote, uint32_t rkey, unsigned flags)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local, .length = (uint32_t)length, .lkey = mr ? mr->lkey : 0
	};
	struct ibv_send_wr wr = {
		.wr_id = length, .sg_list = &sge, .num_sge = local ? 1 : 0, .opcode = op, .send_flags = flags
	};
	struct ibv_send_wr *bad = NULL;
	int err;

	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)remote;
		wr.wr.rdma.rkey = rkey;
	}
	err = ibv_post_send(e->qp, &wr, &bad);
	check(!err || bad == &wr);
	return err;
}

void post(struct end *e, enum ibv_wr_opcode op, const struct ibv_mr *mr, void *local, size_t length,
	const void *remote, uint32_t rkey)
{
	check_int(try_post(e, op, mr, local, length, remote, rkey, IBV_SEND_SIGNALED), 0);
}

void post_recv(struct end *e, const struct ibv_mr *mr, void *local, size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local, .length = (uint32_t)length, .lkey = mr ? mr->lkey : 0
	};
	struct ibv_recv_wr wr = { .wr_id = length, .sg_list = &sge, .num_sge = local ? 1 : 0 }, *bad;

	check_int(ibv_post_recv(e->qp, &wr, &bad), 0);
}

bool poll_for(struct end *e, struct ibv_wc *wc, int ms)
{
	double end = now() + ms / 1e3;
	unsigned spins = 0;
	int n;

	do {
		n = ibv_poll_cq(e->cq, 1, wc);
		check(n >= 0);
		/* Do not fight for the processor with whom we wait for. */
		if (!n && ++spins > 2000)
			nap(1);
	} while (!n && now() < end);
	return n;
}

struct ibv_wc wait_any(struct end *e)
{
	struct ibv_wc wc;

	if (!poll_for(e, &wc, WAIT_SECONDS * 1000))
		check_failed(__FILE__, __LINE__, "no completion within %d s", WAIT_SECONDS);
	return wc;
}

struct ibv_wc wait_for(struct end *e, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_any(e);

	if (wc.status != status)
		check_failed(__FILE__, __LINE__, "completed with %s, not %s", ibv_wc_status_str(wc.status),
			ibv_wc_status_str(status));
	return wc;
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check_int(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

struct peer peer_start(void (*function)(int sock, void *arg), void *arg)
{
	struct peer p;
	int s[2];

	check_sys(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) == 0);
	fflush(NULL);
	check_sys((p.pid = fork()) >= 0);
	if (!p.pid) {
		close(s[0]);
		function(s[1], arg);
		exit(0);
	}
	close(s[1]);
	p.sock = s[0];
	return p;
}

int peer_wait(struct peer *p)
{
	double end = now() + WAIT_SECONDS;
	int status;

	close(p->sock);
	while (waitpid(p->pid, &status, WNOHANG) != p->pid) {
		if (now() > end)
			check_failed(__FILE__, __LINE__, "the peer does not end");
		nap(1);
	}
	return status;
}

void peer_done(struct peer *p)
{
	int status = peer_wait(p);

	if (!WIFEXITED(status) || WEXITSTATUS(status))
		check_failed(__FILE__, __LINE__, "the peer ended with wait status %#x", (unsigned)status);
}

void tell(int sock, const void *data, size_t length)
{
	check_sys(send(sock, data, length, MSG_NOSIGNAL) == (ssize_t)length);
}

void hear(int sock, void *data, size_t length)
{
	char *p = data;

	while (length) {
		ssize_t n = read(sock, p, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			check_failed(__FILE__, __LINE__, "the other side is gone");
		p += n;
		length -= (size_t)n;
	}
}

void meet(int sock)
{
	char word = 'm';

	tell(sock, &word, 1);
	hear(sock, &word, 1);
	check_int(word, 'm');
}

void exchange(struct end *e, int sock)
{
	struct address mine = end_address(e), theirs;

	tell(sock, &mine, sizeof(mine));
	hear(sock, &theirs, sizeof(theirs));
	end_connect(e, &theirs);
	meet(sock);
}

struct window window_of(const struct ibv_mr *mr)
{
	return (struct window){ .addr = (uintptr_t)mr->addr, .length = mr->length, .rkey = mr->rkey };
}

static const struct name {
	const char *name;
	size_t offset;
} names[] = {
#define X(field, name, what) { name, offsetof(struct unpin_segment, odp.field) },
	UNPIN_ODP_COUNTERS(X)
#undef X
#define X(field, name, what) { name, offsetof(struct unpin_segment, dev.field) },
		UNPIN_DEVICE_COUNTERS(X)
#undef X
};

/* The segment of the process, mapped for reading, or NULL. */
static const struct unpin_segment *segment_of(pid_t pid)
{
	const struct unpin_segment *seg = NULL;
	char path[320], link[256];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	check_sys(dir != NULL);
	while (!seg && (d = readdir(dir))) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, d->d_name);
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (!strstr(link, "memfd:" UNPIN_SEGMENT_NAME))
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		seg = mmap(NULL, sizeof(*seg), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (seg == MAP_FAILED)
			seg = NULL;
		else if (seg->magic != UNPIN_SEGMENT_MAGIC || seg->pid != pid) {
			/* The counters of a parent's segment are not this process's. */
			munmap((void *)(uintptr_t)seg, sizeof(*seg));
			seg = NULL;
		}
	}
	closedir(dir);
	return seg;
}

static const struct unpin_segment *segment_must(pid_t pid)
{
	const struct unpin_segment *seg = segment_of(pid);

	if (!seg)
		check_failed(__FILE__, __LINE__, "process %d exports no segment", (int)pid);
	return seg;
}

struct storm storm_of(pid_t pid)
{
	const struct unpin_segment *seg = segment_must(pid);
	struct storm s = { seg->storm.cause, seg->storm.count };

	munmap((void *)(uintptr_t)seg, sizeof(*seg));
	return s;
}

uint64_t counter(pid_t pid, const char *name)
{
	const struct unpin_segment *seg = segment_must(pid);

	for (size_t i = 0; i < COUNT(names); i++)
		if (!strcmp(names[i].name, name)) {
			uint64_t value = *(const _Atomic uint64_t *)((const char *)seg + names[i].offset);

			munmap((void *)(uintptr_t)seg, sizeof(*seg));
			return value;
		}
	check_failed(__FILE__, __LINE__, "no counter %s", name);
}

void wait_counter(pid_t pid, const char *name, uint64_t value)
{
	double end = now() + WAIT_SECONDS;

	while (counter(pid, name) < value) {
		if (now() > end)
			check_failed(__FILE__, __LINE__, "%s stays at %llu, below %llu", name,
				(unsigned long long)counter(pid, name), (unsigned long long)value);
		nap(1);
	}
}
