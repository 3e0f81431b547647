/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Answers about an id: its addresses, its device, its path. cm_lock is held. */
#ifndef UNPIN_RDMACM_QUERY_H
#define UNPIN_RDMACM_QUERY_H

#include "rdmacm/id.h"

void query_fill_route(const struct cm_id *id, struct rdma_ucm_query_route_resp *r);
void query_fill_addr(const struct cm_id *id, struct rdma_ucm_query_addr_resp *r);
/* The GIDs, in the form of InfiniBand addresses. */
void query_fill_gid(const struct cm_id *id, struct rdma_ucm_query_addr_resp *r);
/* One path, as a record of the subnet administrator's form; none until the route is resolved. */
void query_fill_path(
	const struct cm_id *id, struct rdma_ucm_query_path_resp *head, struct ib_path_rec_data *path);

#endif
