/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An ordinary verbs program: prints the names of the devices and opens ours. Also built with
 * AddressSanitizer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

int main(int argc, char **argv)
{
	const char *want = argc > 1 ? argv[1] : "unpin0";
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++) {
		puts(ibv_get_device_name(list[i]));
		if (!strcmp(ibv_get_device_name(list[i]), want))
			ctx = ibv_open_device(list[i]);
	}
	if (list)
		ibv_free_device_list(list);
	if (ctx) {
		struct ibv_pd *pd = ibv_alloc_pd(ctx);
		void *mem = malloc(10000);
		struct ibv_mr *mr = ibv_reg_mr(pd, mem, 10000, IBV_ACCESS_LOCAL_WRITE);

		puts(mr ? "registered" : "refused");
		if (mr)
			ibv_dereg_mr(mr);
		free(mem);
		ibv_dealloc_pd(pd);
	}
	return ctx && !ibv_close_device(ctx) ? 0 : 1;
}
