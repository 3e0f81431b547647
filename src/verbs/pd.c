/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Protection domains (ibv_alloc_pd(3)). */
#include <stdlib.h>

#include "verbs/object.h"
#include "verbs/real.h"

UNPIN_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static _Atomic uint32_t handles;
	struct pd *pd;
	int ret;

	if (!context_is_ours(context))
		return PASS(ibv_alloc_pd, NO_POINTER(ENODEV), context);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NO_POINTER(ENOMEM);
	ret = nic_pd_create(to_context(context)->nic, &pd->nic);
	if (ret) {
		free(pd);
		return NO_POINTER(-ret);
	}
	pd->ibv.context = context;
	pd->ibv.handle = atomic_fetch_add(&handles, 1);
	return &pd->ibv;
}

UNPIN_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int ret;

	if (!context_is_ours(pd->context))
		return PASS(ibv_dealloc_pd, EOPNOTSUPP, pd);
	ret = nic_pd_destroy(to_pd(pd)->nic);
	if (ret)
		return -ret;
	free(to_pd(pd));
	return 0;
}

/* Objects of another process cannot be shared: the device lives in this one. */
UNPIN_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	if (!context_is_ours(context))
		return PASS(ibv_import_pd, NO_POINTER(EOPNOTSUPP), context, pd_handle);
	return REFUSED("ibv_import_pd", NO_POINTER(EOPNOTSUPP));
}

UNPIN_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!context_is_ours(pd->context))
		PASS(ibv_unimport_pd, (void)0, pd);
}
