/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ib/sq.h"

#include <errno.h>
#include <stdlib.h>

enum { WQE_ALIGN = 64 };

static uint32_t round_up_pow2(uint32_t n)
{
	return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}

int ib_sq_init(struct ib_sq *sq, uint32_t max_wr, uint32_t max_sge, uint32_t max_inline)
{
	uint64_t sge = (uint64_t)max_sge * sizeof(struct ibv_sge);
	uint64_t stride = sizeof(struct ib_wqe) + (sge > max_inline ? sge : max_inline);

	stride = (stride + WQE_ALIGN - 1) & ~(uint64_t)(WQE_ALIGN - 1);
	*sq = (struct ib_sq){ .max_wr = max_wr, .max_sge = max_sge, .max_inline = max_inline };
	if (stride > UINT32_MAX || max_wr > 1u << 31)
		return -ENOMEM;
	sq->stride = (uint32_t)stride;
	sq->size = round_up_pow2(max_wr);
	sq->ring = calloc(sq->size, sq->stride); /* large rings cost memory only where they are used */
	return sq->ring ? 0 : -ENOMEM;
}

void ib_sq_fini(struct ib_sq *sq)
{
	free(sq->ring);
	sq->ring = NULL;
}
