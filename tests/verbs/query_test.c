/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The device list, the context as programs read it, and what device, port, GIDs and partition keys answer. */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/select.h>
#include <unistd.h>

#include "nic/caps.h"
#include "nic/gid.h"
#include "verbs/newer.h"

static struct ibv_context *ctx;

static int setup(void **state)
{
	ctx = client_open();
	return 0;
}

static int teardown(void **state)
{
	return ibv_close_device(ctx);
}

static struct ibv_device *ours(struct ibv_device **list)
{
	for (int i = 0; list[i]; i++)
		if (list[i] == ctx->device)
			return list[i];
	return NULL;
}

static void the_list_is_counted_terminated_and_holds_our_device(void **state)
{
	int n = -1;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_non_null(list);
	assert_true(n >= 1);
	assert_null(list[n]);
	assert_non_null(ours(list));
	ibv_free_device_list(list);
}

static void lists_are_freed_in_any_order(void **state)
{
	struct ibv_device **a = ibv_get_device_list(NULL), **b = ibv_get_device_list(NULL),
			  **c = ibv_get_device_list(NULL);

	assert_true(a != b && b != c);
	assert_ptr_equal(ours(a), ours(c));
	ibv_free_device_list(b);
	ibv_free_device_list(c);
	ibv_free_device_list(a);
}

/* Which the manual page does not have, and programs do. */
static void a_list_may_be_freed_by_free(void **state)
{
	for (int i = 0; i < 20; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL);

		assert_non_null(ours(list));
		if (i % 3)
			free(list);
		else
			ibv_free_device_list(list);
	}
}

static void the_device_says_what_it_is(void **state)
{
	struct ibv_device *device = ctx->device;
	struct ibv_device_attr attr;

	assert_string_equal(device->name, ibv_get_device_name(device));
	assert_int_equal(device->node_type, IBV_NODE_CA);
	assert_int_equal(device->transport_type, IBV_TRANSPORT_IB);
	assert_non_null(strstr(device->ibdev_path, device->name));
	assert_int_equal(ibv_get_device_index(device), -1);
	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_true(ibv_get_device_guid(device) != 0);
	assert_true(ibv_get_device_guid(device) == attr.node_guid);
	assert_int_equal(((uint8_t *)&attr.node_guid)[0] & 3, 2); /* locally administered, of one device */
}

/* libmlx5 and libefa compare this word with tables of theirs and may follow it. */
static void the_word_behind_the_device_is_a_table_of_nobody(void **state)
{
	void *const *ops = *(void *const *const *)(ctx->device + 1);

	assert_non_null(ops);
	assert_string_equal((const char *)ops[0], "unpin");
	assert_null(ops[1]);
}

static void the_context_is_an_extended_one(void **state)
{
	struct verbs_context *v = verbs_get_ctx(ctx);

	assert_ptr_equal(ctx->abi_compat, (void *)UINTPTR_MAX);
	assert_non_null(v);
	assert_int_equal(v->sz, sizeof(*v));
	assert_non_null(v->query_port);
	assert_non_null(v->query_device_ex);
	assert_non_null(v->create_qp_ex);
	assert_non_null(v->close_xrcd); /* its inline function does not check */
	assert_int_equal(ctx->num_comp_vectors, NIC_COMP_VECTORS);
}

static void the_legacy_table_has_no_hole(void **state)
{
	const struct ibv_context_ops *ops = &ctx->ops;

	assert_non_null(ops->alloc_mw);
	assert_non_null(ops->bind_mw);
	assert_non_null(ops->dealloc_mw);
	assert_non_null(ops->poll_cq);
	assert_non_null(ops->req_notify_cq);
	assert_non_null(ops->post_srq_recv);
	assert_non_null(ops->post_send);
	assert_non_null(ops->post_recv);
}

static void descriptors_are_valid_fit_for_select_and_close_on_exec(void **state)
{
	const int fds[] = { ctx->cmd_fd, ctx->async_fd };
	char byte;

	for (int i = 0; i < 2; i++) {
		assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
		assert_true(fds[i] < FD_SETSIZE / 2);
	}
	/* Nothing can be done to the command descriptor by mistake. */
	assert_int_equal(write(ctx->cmd_fd, "x", 1), -1);
	assert_int_equal(read(ctx->cmd_fd, &byte, 1), -1);
}

static void two_contexts_are_two(void **state)
{
	struct ibv_context *other = client_open();

	assert_ptr_not_equal(other, ctx);
	assert_ptr_equal(other->device, ctx->device);
	assert_int_not_equal(other->async_fd, ctx->async_fd);
	assert_int_equal(ibv_close_device(other), 0);
}

/* --- device --------------------------------------------------------------------------------------- */

static void the_device_offers_exactly_what_works(void **state)
{
	struct ibv_device_attr_ex a;

	assert_int_equal(ibv_query_device_ex(ctx, NULL, &a), 0);
	assert_string_equal(a.orig_attr.fw_ver, UNPIN_VERSION);
	assert_int_equal(a.orig_attr.max_qp, NIC_MAX_QP);
	assert_int_equal(a.orig_attr.max_qp_wr, NIC_MAX_QP_WR);
	assert_int_equal(a.orig_attr.max_sge, NIC_MAX_SGE);
	assert_int_equal(a.orig_attr.max_cqe, NIC_MAX_CQE);
	assert_int_equal(a.orig_attr.max_qp_rd_atom, NIC_MAX_RD_ATOM);
	assert_int_equal(a.orig_attr.phys_port_cnt, 1);
	assert_int_equal(a.phys_port_cnt_ex, 1);
	assert_int_equal(a.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(a.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	assert_int_equal(a.odp_caps.per_transport_caps.rc_odp_caps,
		IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
			IBV_ODP_SUPPORT_ATOMIC);
	/* What is absent says so. */
	assert_int_equal(a.odp_caps.per_transport_caps.uc_odp_caps, 0);
	assert_int_equal(a.odp_caps.per_transport_caps.ud_odp_caps, 0);
	assert_int_equal(a.xrc_odp_caps, 0);
	assert_int_equal(a.orig_attr.max_srq, 0);
	assert_int_equal(a.orig_attr.max_mw, 0);
	assert_int_equal(a.orig_attr.max_ah, 0);
	assert_int_equal(a.orig_attr.max_mcast_grp, 0);
	assert_int_equal(a.orig_attr.max_raw_ethy_qp, 0);
	assert_int_equal(a.max_dm_size, 0);
	assert_int_equal(a.raw_packet_caps, 0);
	assert_int_equal(a.orig_attr.device_cap_flags &
				 (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
					 IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
					 IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_SRQ_RESIZE |
					 IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_MANAGED_FLOW_STEERING),
		0);
}

#define GUARD 0xa5

/* Programs built with older and newer headers give less and more room. */
static void query_device_ex_fills_the_room_it_is_given(void **state)
{
	struct verbs_context *v = verbs_get_ctx(ctx);
	struct ibv_device_attr_ex whole;
	const size_t sizes[] = { sizeof(struct ibv_device_attr),
		offsetof(struct ibv_device_attr_ex, odp_caps), offsetof(struct ibv_device_attr_ex, tso_caps),
		sizeof(whole), sizeof(whole) + 64 };
	uint8_t room[sizeof(whole) + 128] __attribute__((aligned(8)));

	assert_int_equal(v->query_device_ex(ctx, NULL, &whole, sizeof(whole)), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t known = sizes[i] < sizeof(whole) ? sizes[i] : sizeof(whole);

		memset(room, GUARD, sizeof(room));
		assert_int_equal(v->query_device_ex(ctx, NULL, (void *)room, sizes[i]), 0);
		assert_memory_equal(room, &whole, known);
		for (size_t b = known; b < sizes[i]; b++)
			assert_int_equal(room[b], 0);
		for (size_t b = sizes[i]; b < sizeof(room); b++)
			assert_int_equal(room[b], GUARD);
	}
}

static void query_device_ex_refuses_what_it_does_not_know(void **state)
{
	struct verbs_context *v = verbs_get_ctx(ctx);
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_device_attr_ex a;

	assert_int_equal(v->query_device_ex(ctx, &input, &a, sizeof(a)), EINVAL);
	assert_int_equal(v->query_device_ex(ctx, NULL, &a, sizeof(a.orig_attr) - 1), EINVAL);
}

/* --- port ----------------------------------------------------------------------------------------- */

static void the_port_is_an_active_ethernet_port(void **state)
{
	struct ibv_port_attr a;

	assert_int_equal(___ibv_query_port(ctx, 1, &a), 0);
	assert_int_equal(a.state, IBV_PORT_ACTIVE);
	assert_int_equal(a.phys_state, 5);
	assert_int_equal(a.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(a.max_mtu, IBV_MTU_4096);
	assert_int_equal(a.active_mtu, IBV_MTU_4096);
	assert_int_equal(a.gid_tbl_len, NIC_GID_TABLE_LEN);
	assert_int_equal(a.pkey_tbl_len, 1);
	assert_int_equal(a.max_msg_sz, NIC_MAX_MSG);
	assert_int_equal(a.lid, 0);
}

static void the_old_query_port_writes_the_old_size(void **state)
{
	const size_t old = offsetof(struct ibv_port_attr, port_cap_flags2);
	uint8_t room[sizeof(struct ibv_port_attr) + 16] __attribute__((aligned(8)));
	struct ibv_port_attr now;

	memset(room, GUARD, sizeof(room));
	assert_int_equal(ibv_query_port(ctx, 1, (void *)room), 0);
	assert_int_equal(___ibv_query_port(ctx, 1, &now), 0);
	assert_int_equal(old, 48);
	assert_memory_equal(room, &now, old);
	for (size_t b = old; b < sizeof(room); b++)
		assert_int_equal(room[b], GUARD);
}

static void there_is_one_port(void **state)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr a;
	union ibv_gid gid;
	uint64_t speed;
	__be16 pkey;
	unsigned type;

	for (int port = 0; port < 256; port += port == 0 ? 2 : 1) {
		assert_int_equal(___ibv_query_port(ctx, (uint8_t)port, &a), EINVAL);
		assert_int_equal(ibv_query_port(ctx, (uint8_t)port, (void *)&a), EINVAL);
		assert_int_equal(ibv_query_gid_ex(ctx, (uint32_t)port, 0, &entry, 0), EINVAL);
		assert_int_equal(ibv_query_port_speed(ctx, (uint32_t)port, &speed), EINVAL);
		errno = 0;
		assert_int_equal(ibv_query_gid(ctx, (uint8_t)port, 0, &gid), -1);
		assert_int_equal(errno, EINVAL);
		errno = 0;
		assert_int_equal(ibv_query_gid_type(ctx, (uint8_t)port, 0, &type), -1);
		assert_int_equal(errno, EINVAL);
		assert_int_equal(ibv_query_pkey(ctx, (uint8_t)port, 0, &pkey), -1);
		assert_int_equal(ibv_get_pkey_index(ctx, (uint8_t)port, htons(0xffff)), -1);
	}
	assert_int_equal(ibv_query_port_speed(ctx, 257, &speed), EINVAL);
	assert_int_equal(ibv_query_port_speed(ctx, 1, &speed), 0);
	assert_int_equal(speed, 1000);
}

/* --- GIDs and keys -------------------------------------------------------------------------------- */

static void every_gid_call_tells_the_same(void **state)
{
	struct ibv_gid_entry table[NIC_GID_TABLE_LEN], entry;
	ssize_t n = ibv_query_gid_table(ctx, table, NIC_GID_TABLE_LEN, 0);
	static const union ibv_gid none;
	union ibv_gid gid;
	ssize_t used = 0;
	unsigned type;

	assert_true(n >= 1);
	for (int i = 0; i < NIC_GID_TABLE_LEN; i++) {
		int ret = ibv_query_gid_ex(ctx, 1, (uint32_t)i, &entry, 0);

		assert_int_equal(ibv_query_gid(ctx, 1, i, &gid), 0);
		assert_int_equal(ibv_query_gid_type(ctx, 1, (unsigned)i, &type), 0);
		if (ret) {
			assert_int_equal(ret, ENODATA);
			assert_memory_equal(&gid, &none, sizeof(gid));
			assert_int_equal(type, 0);
			continue;
		}
		assert_memory_equal(&gid, &entry.gid, sizeof(gid));
		assert_memory_equal(&entry, &table[used], sizeof(entry));
		assert_int_equal(entry.gid_index, i);
		assert_int_equal(entry.port_num, 1);
		assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
		assert_int_equal(type, 1);
		used++;
	}
	assert_int_equal(used, n);
}

static void gid_calls_refuse_what_is_out_of_range(void **state)
{
	struct ibv_gid_entry entry, table[NIC_GID_TABLE_LEN];
	union ibv_gid gid;
	unsigned type;

	errno = 0;
	assert_int_equal(ibv_query_gid(ctx, 1, NIC_GID_TABLE_LEN, &gid), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_query_gid(ctx, 1, -1, &gid), -1);
	assert_int_equal(ibv_query_gid_type(ctx, 1, NIC_GID_TABLE_LEN, &type), -1);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, NIC_GID_TABLE_LEN, &entry, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, &entry, 1), EOPNOTSUPP);
	assert_int_equal(ibv_query_gid_table(ctx, table, NIC_GID_TABLE_LEN, 1), -EOPNOTSUPP);
	assert_int_equal(ibv_query_gid_table(ctx, table, 0, 0), -EINVAL);
}

static void gid_entries_have_the_size_of_the_caller(void **state)
{
	struct ibv_gid_entry one;
	struct {
		struct ibv_gid_entry entry;
		uint64_t later;
	} big[NIC_GID_TABLE_LEN];
	ssize_t n;

	memset(big, GUARD, sizeof(big));
	n = _ibv_query_gid_table(ctx, &big[0].entry, NIC_GID_TABLE_LEN, 0, sizeof(big[0]));
	assert_true(n >= 1);
	for (ssize_t i = 0; i < n; i++) {
		assert_int_equal(ibv_query_gid_ex(ctx, 1, big[i].entry.gid_index, &one, 0), 0);
		assert_memory_equal(&one, &big[i].entry, sizeof(one));
		assert_int_equal(big[i].later, 0);
	}
}

static void there_is_one_partition_key(void **state)
{
	__be16 pkey = 0;

	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	assert_int_equal(ntohs(pkey), 0xffff);
	errno = 0;
	assert_int_equal(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_query_pkey(ctx, 1, -1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, htons(0xffff)), 0);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, htons(0x7fff)), -1);
}

/* --- events and fork ------------------------------------------------------------------------------ */

static void the_event_descriptor_can_be_made_nonblocking(void **state)
{
	struct ibv_async_event event;
	int flags = fcntl(ctx->async_fd, F_GETFL);

	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
	errno = 0;
	assert_int_equal(ibv_get_async_event(ctx, &event), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, flags), 0);
}

static void an_event_of_the_port_needs_no_object(void **state)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_PORT_ACTIVE, .element.port_num = 1 };

	ibv_ack_async_event(&event);
	event.event_type = IBV_EVENT_DEVICE_FATAL;
	ibv_ack_async_event(&event);
	event.event_type = 99; /* of a newer library */
	ibv_ack_async_event(&event);
}

static void fork_needs_no_preparation(void **state)
{
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	assert_int_equal(ibv_dontfork_range(&ctx, sizeof(ctx)), 0);
	assert_int_equal(ibv_dofork_range(&ctx, sizeof(ctx)), 0);
}

/* In the child: 0 when all is as it should be, else which step was not. */
static int inherited(void)
{
	struct ibv_device_attr attr;
	struct ibv_async_event event;
	struct ibv_context *fresh;

	errno = 0;
	if (ibv_alloc_pd(ctx) || errno != EIO)
		return 1;
	if (ibv_get_async_event(ctx, &event) != -1 || errno != EIO)
		return 2;
	if (ibv_query_device(ctx, &attr)) /* asks nothing of the device */
		return 3;
	if (ibv_close_device(ctx))
		return 4;
	fresh = client_open();
	if (!ibv_alloc_pd(fresh))
		return 5;
	return 0;
}

static void a_child_drops_what_it_inherited_and_opens_its_own(void **state)
{
	int status;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	print_message("skipped: ThreadSanitizer allows no threads in a child of a program that has some\n");
	skip();
#endif
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(inherited());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(fcntl(ctx->async_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static void nothing_can_be_imported(void **state)
{
	assert_null(ibv_import_device(ctx->cmd_fd));
	errno = 0;
	assert_null(ibv_import_pd(ctx, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	assert_null(ibv_import_dm(ctx, 0));
	assert_int_equal(errno, EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_list_is_counted_terminated_and_holds_our_device),
		cmocka_unit_test(lists_are_freed_in_any_order),
		cmocka_unit_test(a_list_may_be_freed_by_free),
		cmocka_unit_test(the_device_says_what_it_is),
		cmocka_unit_test(the_word_behind_the_device_is_a_table_of_nobody),
		cmocka_unit_test(the_context_is_an_extended_one),
		cmocka_unit_test(the_legacy_table_has_no_hole),
		cmocka_unit_test(descriptors_are_valid_fit_for_select_and_close_on_exec),
		cmocka_unit_test(two_contexts_are_two),
		cmocka_unit_test(the_device_offers_exactly_what_works),
		cmocka_unit_test(query_device_ex_fills_the_room_it_is_given),
		cmocka_unit_test(query_device_ex_refuses_what_it_does_not_know),
		cmocka_unit_test(the_port_is_an_active_ethernet_port),
		cmocka_unit_test(the_old_query_port_writes_the_old_size),
		cmocka_unit_test(there_is_one_port),
		cmocka_unit_test(every_gid_call_tells_the_same),
		cmocka_unit_test(gid_calls_refuse_what_is_out_of_range),
		cmocka_unit_test(gid_entries_have_the_size_of_the_caller),
		cmocka_unit_test(there_is_one_partition_key),
		cmocka_unit_test(the_event_descriptor_can_be_made_nonblocking),
		cmocka_unit_test(an_event_of_the_port_needs_no_object),
		cmocka_unit_test(fork_needs_no_preparation),
		cmocka_unit_test(a_child_drops_what_it_inherited_and_opens_its_own),
		cmocka_unit_test(nothing_can_be_imported),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
