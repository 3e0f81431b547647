/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the device does not offer answers EOPNOTSUPP by each call's own convention, and words and rates are
 * what they are.
 */
#include "client.h"

#include <errno.h>
#include <string.h>

#include "verbs/newer.h"

static struct client c;

static int setup(void **state)
{
	client_make(&c, false, 0, 0);
	return 0;
}

static int teardown(void **state)
{
	client_unmake(&c);
	return 0;
}

#define NO_POINTER(call)                                                                                     \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		assert_null(call);                                                                           \
		assert_int_equal(errno, EOPNOTSUPP);                                                         \
	} while (0)
#define NO_ERRNO(call) assert_int_equal(call, EOPNOTSUPP)
#define NO_MINUS(call)                                                                                       \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		assert_int_equal(call, -1);                                                                  \
		assert_int_equal(errno, EOPNOTSUPP);                                                         \
	} while (0)

/* The context is what the library looks at first in any object. */
union object {
	struct ibv_context *context;
	struct ibv_srq srq;
	struct ibv_ah ah;
	struct ibv_mw mw;
	struct ibv_dm dm;
	struct ibv_xrcd xrcd;
};

static void shared_receive_queues_answer(void **state)
{
	union object o = { .context = c.ctx };
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex ex = { .comp_mask = IBV_SRQ_INIT_ATTR_XRCD };
	struct ibv_recv_wr wr = { 0 }, *bad = NULL;
	struct ibv_srq_attr attr;
	uint32_t num;

	NO_POINTER(ibv_create_srq(c.pd, &init));
	NO_POINTER(ibv_create_srq_ex(c.ctx, &ex));
	NO_ERRNO(ibv_modify_srq(&o.srq, &attr, 0));
	NO_ERRNO(ibv_query_srq(&o.srq, &attr));
	NO_ERRNO(ibv_destroy_srq(&o.srq));
	NO_ERRNO(ibv_get_srq_num(&o.srq, &num));
	NO_ERRNO(ibv_post_srq_recv(&o.srq, &wr, &bad));
	assert_ptr_equal(bad, &wr);
}

static void address_handles_and_multicast_answer(void **state)
{
	union object o = { .context = c.ctx };
	struct ibv_ah_attr attr = { .port_num = 1 };
	struct ibv_wc wc = { 0 };
	struct ibv_grh grh = { 0 };
	union ibv_gid gid = { { 0xff } };
	uint8_t mac[ETHERNET_LL_SIZE];
	uint16_t vid;

	NO_POINTER(ibv_create_ah(c.pd, &attr));
	NO_POINTER(ibv_create_ah_from_wc(c.pd, &wc, &grh, 1));
	NO_MINUS(ibv_init_ah_from_wc(c.ctx, 1, &wc, &grh, &attr));
	NO_ERRNO(ibv_destroy_ah(&o.ah));
	NO_ERRNO(ibv_attach_mcast(c.qp, &gid, 0));
	NO_ERRNO(ibv_detach_mcast(c.qp, &gid, 0));
	assert_int_equal(ibv_resolve_eth_l2_from_gid(c.ctx, &attr, mac, &vid), -EOPNOTSUPP);
}

static void memory_windows_answer(void **state)
{
	union object o = { .mw = { .context = c.ctx, .type = IBV_MW_TYPE_1 } };
	struct ibv_mw_bind bind = { 0 };

	NO_POINTER(ibv_alloc_mw(c.pd, IBV_MW_TYPE_1));
	NO_ERRNO(ibv_bind_mw(c.qp, &o.mw, &bind));
	NO_ERRNO(ibv_dealloc_mw(&o.mw));
}

static void the_inline_verbs_answer(void **state)
{
	union object o = { .context = c.ctx };
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_parent_domain_init_attr domain = { .pd = c.pd };
	struct ibv_qp_rate_limit_attr rate = { 0 };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_td_init_attr td = { 0 };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_wq_init_attr wq = { 0 };
	struct ibv_xrcd_init_attr xrcd = { 0 };
	struct ibv_qp_open_attr open = { 0 };
	struct ibv_flow_attr flow = { 0 };
	struct ibv_flow created = { .context = c.ctx };

	NO_POINTER(ibv_alloc_dm(c.ctx, &dm));
	NO_ERRNO(ibv_free_dm(&o.dm));
	NO_POINTER(ibv_reg_dm_mr(c.pd, &o.dm, 0, 64, 0));
	NO_POINTER(ibv_alloc_null_mr(c.pd));
	NO_POINTER(ibv_create_counters(c.ctx, &counters));
	NO_POINTER(ibv_alloc_parent_domain(c.ctx, &domain));
	NO_POINTER(ibv_alloc_td(c.ctx, &td));
	NO_ERRNO(ibv_modify_qp_rate_limit(c.qp, &rate));
	NO_POINTER(ibv_create_rwq_ind_table(c.ctx, &table));
	NO_ERRNO(ibv_query_rt_values_ex(c.ctx, &values));
	NO_POINTER(ibv_create_wq(c.ctx, &wq));
	NO_POINTER(ibv_open_xrcd(c.ctx, &xrcd));
	NO_ERRNO(ibv_close_xrcd(&o.xrcd));
	NO_POINTER(ibv_open_qp(c.ctx, &open));
	NO_POINTER(ibv_create_flow(c.qp, &flow));
	NO_ERRNO(ibv_destroy_flow(&created));
}

static void verbs_newer_than_the_headers_answer(void **state)
{
	union object o = { .context = c.ctx };
	struct ibv_comp_cntr *counter = (struct ibv_comp_cntr *)&o;
	struct ibv_dmah *dmah = (struct ibv_dmah *)&o;
	struct ibv_buf *buf = NULL;
	uint64_t value, caps[2];

	NO_POINTER(ibv_alloc_dmah(c.ctx, NULL));
	NO_ERRNO(ibv_dealloc_dmah(dmah));
	NO_POINTER(ibv_reg_mr_ex(c.pd, NULL));
	NO_MINUS(ibv_dm_export_dmabuf_fd(&o.dm));
	NO_POINTER(ibv_alloc_buf(c.pd, 4096, &buf));
	NO_POINTER(ibv_reg_buf_mr(c.pd, buf, NULL, 0, 0));
	NO_ERRNO(_ibv_query_comp_cntr_caps(c.ctx, (void *)caps, sizeof(caps)));
	NO_POINTER(ibv_create_comp_cntr(c.ctx, NULL));
	NO_ERRNO(ibv_destroy_comp_cntr(counter));
	NO_ERRNO(ibv_set_comp_cntr(counter, 0));
	NO_ERRNO(ibv_set_err_comp_cntr(counter, 0));
	NO_ERRNO(ibv_inc_comp_cntr(counter, 0));
	NO_ERRNO(ibv_inc_err_comp_cntr(counter, 0));
	NO_ERRNO(ibv_read_comp_cntr(counter, &value));
	NO_ERRNO(ibv_read_err_comp_cntr(counter, &value));
	NO_ERRNO(ibv_qp_attach_comp_cntr(c.qp, counter, NULL));
}

static void the_rest_answers(void **state)
{
	union object o = { .context = c.ctx };
	struct ibv_ece ece = { .vendor_id = 1 };

	NO_POINTER(ibv_reg_dmabuf_mr(c.pd, 0, 4096, 0, 0, 0));
	NO_POINTER(ibv_import_mr(c.pd, 0));
	NO_ERRNO(ibv_set_ece(c.qp, &ece));
	NO_ERRNO(ibv_query_ece(c.qp, &ece));
	/* These give nothing back: they must leave our objects alone. */
	ibv_unimport_pd(c.pd);
	ibv_unimport_dm(&o.dm);
}

/* --- words and rates ------------------------------------------------------------------------------ */

static void every_value_has_a_word(void **state)
{
	for (int i = IBV_NODE_CA; i <= IBV_NODE_UNSPECIFIED; i++)
		assert_string_not_equal(ibv_node_type_str(i), "unknown");
	for (int i = IBV_PORT_NOP; i <= IBV_PORT_ACTIVE_DEFER; i++)
		assert_string_not_equal(ibv_port_state_str(i), "unknown");
	for (int i = IBV_EVENT_CQ_ERR; i <= IBV_EVENT_WQ_FATAL; i++)
		assert_string_not_equal(ibv_event_type_str(i), "unknown");
	for (int i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		assert_string_not_equal(ibv_wc_status_str(i), "unknown");
	assert_string_equal(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
}

static void other_values_are_unknown(void **state)
{
	const int values[] = { -2, -1, 99, 1 << 30 };

	for (int i = 0; i < 4; i++) {
		assert_string_equal(ibv_node_type_str(values[i]), "unknown");
		assert_string_equal(ibv_port_state_str(values[i]), "unknown");
		assert_string_equal(ibv_event_type_str(values[i]), "unknown");
		assert_string_equal(ibv_wc_status_str(values[i]), "unknown");
	}
	assert_string_equal(ibv_node_type_str(0), "unknown");
}

static void rates_convert_both_ways(void **state)
{
	int known = 0, multiples = 0;

	for (int rate = 1; rate < 64; rate++) {
		int mult = ibv_rate_to_mult(rate), mbps = ibv_rate_to_mbps(rate);

		if (mult > 0) {
			assert_int_equal(mult_to_ibv_rate(mult), rate);
			multiples++;
		}
		if (mbps > 0) {
			assert_int_equal(mbps_to_ibv_rate(mbps), rate);
			known++;
		}
	}
	assert_int_equal(known, IBV_RATE_1200_GBPS - IBV_RATE_2_5_GBPS + 1);
	assert_int_equal(multiples, 15);
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
	assert_int_equal(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_MAX), -1);
	assert_int_equal(ibv_rate_to_mbps(77), -1);
	assert_int_equal(mult_to_ibv_rate(3), IBV_RATE_MAX);
	assert_int_equal(mult_to_ibv_rate(-1), IBV_RATE_MAX);
	assert_int_equal(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

/* --- for other rdma-core libraries ---------------------------------------------------------------- */

static void kernel_attributes_are_translated(void **state)
{
	struct ib_uverbs_qp_attr kern;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	for (size_t i = 0; i < sizeof(kern); i++)
		((uint8_t *)&kern)[i] = (uint8_t)(i * 7 + 1);
	ibv_copy_qp_attr_from_kern(&attr, &kern);
	assert_int_equal(attr.qp_state, IBV_QPS_SQD);
	assert_int_equal(attr.path_mtu, kern.path_mtu);
	assert_int_equal(attr.rq_psn, kern.rq_psn);
	assert_int_equal(attr.cap.max_inline_data, kern.max_inline_data);
	assert_int_equal(attr.alt_timeout, kern.alt_timeout);
	assert_memory_equal(attr.ah_attr.grh.dgid.raw, kern.ah_attr.grh.dgid, 16);
	assert_int_equal(attr.ah_attr.grh.flow_label, kern.ah_attr.grh.flow_label);
	assert_int_equal(attr.alt_ah_attr.dlid, kern.alt_ah_attr.dlid);
	assert_int_equal(attr.alt_ah_attr.port_num, kern.alt_ah_attr.port_num);
}

static void path_records_survive_the_way_there_and_back(void **state)
{
	struct ib_user_path_rec kern, back;
	struct ibv_sa_path_rec rec;

	for (size_t i = 0; i < sizeof(kern); i++)
		((uint8_t *)&kern)[i] = (uint8_t)(i * 5 + 3);
	kern.mtu &= 0xff; /* the public record has a byte for it */
	memset(&rec, 0, sizeof(rec));
	memset(&back, 0, sizeof(back));
	ibv_copy_path_rec_from_kern(&rec, &kern);
	ibv_copy_path_rec_to_kern(&back, &rec);
	assert_memory_equal(&kern, &back, offsetof(struct ib_user_path_rec, preference) + 1);
}

static void sysfs_files_are_read_without_their_newline(void **state)
{
	char text[64], small[2];

	assert_string_equal(ibv_get_sysfs_path(), "/sys");
	assert_true(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof(text)) == 5);
	assert_string_equal(text, "Linux");
	assert_int_equal(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", small, sizeof(small)), -1);
	assert_int_equal(ibv_read_sysfs_file("/proc/sys/kernel", "no such file", text, sizeof(text)), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_receive_queues_answer),
		cmocka_unit_test(address_handles_and_multicast_answer),
		cmocka_unit_test(memory_windows_answer),
		cmocka_unit_test(the_inline_verbs_answer),
		cmocka_unit_test(verbs_newer_than_the_headers_answer),
		cmocka_unit_test(the_rest_answers),
		cmocka_unit_test(every_value_has_a_word),
		cmocka_unit_test(other_values_are_unknown),
		cmocka_unit_test(rates_convert_both_ways),
		cmocka_unit_test(kernel_attributes_are_translated),
		cmocka_unit_test(path_records_survive_the_way_there_and_back),
		cmocka_unit_test(sysfs_files_are_read_without_their_newline),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
