/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What other rdma-core libraries ask of libibverbs about the kernel: its structures translated into the
 * public ones (librdmacm), and sysfs files (providers). They concern no device of ours and no object; they
 * are here because the names are public, and do what their callers expect.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "verbs/newer.h"
#include "verbs/real.h"

UNPIN_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src)
{
	*dst = (struct ibv_ah_attr) {
		.grh = {
			.flow_label = src->grh.flow_label,
			.sgid_index = src->grh.sgid_index,
			.hop_limit = src->grh.hop_limit,
			.traffic_class = src->grh.traffic_class,
		},
		.dlid = src->dlid,
		.sl = src->sl,
		.src_path_bits = src->src_path_bits,
		.static_rate = src->static_rate,
		.is_global = src->is_global,
		.port_num = src->port_num,
	};
	memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof(dst->grh.dgid.raw));
}

/* qp_state is the caller's business: what the kernel gives is a proposal for the next one. */
UNPIN_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src)
{
	*dst = (struct ibv_qp_attr) {
		.qp_state = dst->qp_state,
		.cur_qp_state = src->cur_qp_state,
		.path_mtu = src->path_mtu,
		.path_mig_state = src->path_mig_state,
		.qkey = src->qkey,
		.rq_psn = src->rq_psn,
		.sq_psn = src->sq_psn,
		.dest_qp_num = src->dest_qp_num,
		.qp_access_flags = src->qp_access_flags,
		.cap = {
			.max_send_wr = src->max_send_wr,
			.max_recv_wr = src->max_recv_wr,
			.max_send_sge = src->max_send_sge,
			.max_recv_sge = src->max_recv_sge,
			.max_inline_data = src->max_inline_data,
		},
		.pkey_index = src->pkey_index,
		.alt_pkey_index = src->alt_pkey_index,
		.en_sqd_async_notify = src->en_sqd_async_notify,
		.sq_draining = src->sq_draining,
		.max_rd_atomic = src->max_rd_atomic,
		.max_dest_rd_atomic = src->max_dest_rd_atomic,
		.min_rnr_timer = src->min_rnr_timer,
		.port_num = src->port_num,
		.timeout = src->timeout,
		.retry_cnt = src->retry_cnt,
		.rnr_retry = src->rnr_retry,
		.alt_port_num = src->alt_port_num,
		.alt_timeout = src->alt_timeout,
		.rate_limit = dst->rate_limit,
	};
	ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
	ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
}

/* The fields that both path records have under one name; their orders and widths differ. */
/* clang-format off */
#define PATH_FIELDS(X)                                                                                       \
	X(dlid) X(slid) X(raw_traffic) X(flow_label) X(hop_limit) X(traffic_class) X(reversible)             \
	X(numb_path) X(pkey) X(sl) X(mtu_selector) X(mtu) X(rate_selector) X(rate)                           \
	X(packet_life_time_selector) X(packet_life_time) X(preference)
/* clang-format on */
#define COPY_FIELD(name) dst->name = src->name;

UNPIN_EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src)
{
	memcpy(dst->dgid.raw, src->dgid, sizeof(dst->dgid.raw));
	memcpy(dst->sgid.raw, src->sgid, sizeof(dst->sgid.raw));
	PATH_FIELDS(COPY_FIELD)
}

UNPIN_EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src)
{
	memcpy(dst->dgid, src->dgid.raw, sizeof(dst->dgid));
	memcpy(dst->sgid, src->sgid.raw, sizeof(dst->sgid));
	PATH_FIELDS(COPY_FIELD)
}

/* --- sysfs ---------------------------------------------------------------------------------------- */

static char sysfs_path[IBV_SYSFS_PATH_MAX];
static pthread_once_t sysfs_once = PTHREAD_ONCE_INIT;

/* SYSFS_PATH counts unless the program runs with rights that its user does not have. */
static void find_sysfs(void)
{
	const char *env = secure_getenv("SYSFS_PATH");
	size_t len;

	snprintf(sysfs_path, sizeof(sysfs_path), "%s", env ? env : "/sys");
	for (len = strlen(sysfs_path); len && sysfs_path[len - 1] == '/'; len--)
		sysfs_path[len - 1] = '\0';
}

UNPIN_EXPORT const char *ibv_get_sysfs_path(void)
{
	pthread_once(&sysfs_once, find_sysfs);
	return sysfs_path;
}

/*
 * Bytes read without the final newline, which is cut and terminated; -1 when it cannot be read or does not
 * fit.
 */
UNPIN_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	long fd, len;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return NO_INT(ENAMETOOLONG);
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = syscall(SYS_read, (int)fd, buf, size);
	fd_close((int)fd);
	if (len <= 0)
		return (int)len;
	if (buf[len - 1] == '\n')
		buf[--len] = '\0';
	else if ((size_t)len < size)
		buf[len] = '\0';
	else
		return NO_INT(EOVERFLOW);
	return (int)len;
}
