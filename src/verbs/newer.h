/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Prototypes of exported functions that the oldest supported headers (rdma-core 44) do not declare: what 56
 * to 65 added, and names that never were in verbs.h. Compatible with the newer headers' own declarations, so
 * both may be seen.
 *
 * verbs.h makes macros of three exported functions; here they are functions.
 */
#ifndef UNPIN_VERBS_NEWER_H
#define UNPIN_VERBS_NEWER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <infiniband/verbs.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

/* Never in verbs.h; librdmacm and the providers call them. */
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
void ibv_register_driver(const char *name, void *init_func);
/* *type: 0 for InfiniBand and RoCE v1, 1 for RoCE v2. 0, or -1 with errno. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index, unsigned *type);

/* 1.15 and 1.16 */
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

/* 1.17 and 1.18 */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t caps_size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_qp_attach_comp_cntr(
	struct ibv_qp *qp, struct ibv_comp_cntr *counter, struct ibv_qp_attach_comp_cntr_attr *attr);

#endif
