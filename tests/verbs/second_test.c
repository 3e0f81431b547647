/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A program linked with libibverbs as any other, run by preload_test.py with libunpin.so preloaded and the
 * library of second/ where the system's would be: both devices are there, and calls on the second one reach
 * its library. With the arguments "fork passed" or "fork unneeded" it only asks for fork safety. With "alone"
 * there is no library behind us: our device works, and what would pass is refused.
 */
#include "client.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "second/second.h"
#include "verbs/newer.h"

static struct second_log *seen;
static struct ibv_context *second; /* of the second device, or one that only looks so */
static void *behind;		   /* the library, if there is one */

/* --- the list ------------------------------------------------------------------------------------- */

static struct ibv_device *find(struct ibv_device **list, const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

static void both_devices_are_listed(void **state)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_int_equal(n, 2);
	assert_non_null(find(list, SECOND_NAME));
	assert_string_equal(
		list[0]->name, SECOND_NAME); /* real ones first: they stay what a program takes by default */
	assert_string_not_equal(list[1]->name, SECOND_NAME);
	assert_null(list[2]);
	ibv_free_device_list(list);
}

static void lists_go_back_where_they_came_from(void **state)
{
	int listed = seen->listed, freed = seen->freed;
	struct ibv_device **list = ibv_get_device_list(NULL);
	__typeof__(&ibv_get_device_list) direct = dlvsym(behind, "ibv_get_device_list", "IBVERBS_1.1");

	assert_int_equal(seen->listed, listed + 1);
	ibv_free_device_list(list);
	assert_int_equal(seen->freed, freed + 1);
	/* One that the program got behind our back. */
	ibv_free_device_list(direct(NULL));
	assert_int_equal(seen->freed, freed + 2);
	assert_int_equal(seen->wrong_free, 0);
}

/* Its list is locked when it calls us, and would be for ever if we asked for the list in turn. */
static void the_library_may_call_us_while_it_is_listed(void **state)
{
	int locked = seen->locked_calls;

	ibv_free_device_list(ibv_get_device_list(NULL));
	assert_int_equal(seen->locked_calls, locked + 1);
}

static void fork_is_prepared_for_the_real_device(void **state)
{
	seen->name = NULL;
	assert_int_equal(ibv_fork_init(), SECOND_RESULT);
	assert_string_equal(seen->name, "ibv_fork_init");
	assert_int_equal(ibv_is_fork_initialized(), SECOND_RESULT);
	assert_string_equal(seen->name, "ibv_is_fork_initialized");
}

static void our_device_never_reaches_it(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_async_event event = { .event_type = IBV_EVENT_CQ_ERR };
	struct client c;

	client_make(&c, true, 4096, IBV_ACCESS_LOCAL_WRITE);
	seen->calls = 0;
	assert_int_equal(ibv_query_device(c.ctx, &attr), 0);
	assert_null(ibv_create_srq(c.pd, NULL));
	event.element.cq = c.cq;
	ibv_ack_async_event(&event);
	client_unmake(&c);
	assert_int_equal(seen->calls, 0);
}

/* --- dispatch, all symbols ------------------------------------------------------------------------ */

enum first { CONTEXT, DEVICE, PD, MR, CQ, CHANNEL, QP, SRQ, AH, DM, ANY, EVENT, NONE };
enum result { INT, POINTER, VOID };

/*
 * What each call looks at to tell whose it is, how many arguments it passes on, and what it gives when nobody
 * can serve it.
 */
static const struct verb {
	const char *name;
	enum first first;
	int args;
	enum result result;
	int missing; /* POINTER: errno; INT: the result, -1 with errno set */
} verbs[] = {
	{ "ibv_get_device_guid", DEVICE, 1, POINTER, 0 },
	{ "ibv_get_device_index", DEVICE, 1, INT, -1 },
	{ "ibv_close_device", CONTEXT, 1, INT, -1 },
	{ "ibv_get_async_event", CONTEXT, 2, INT, -1 },
	{ "ibv_ack_async_event", EVENT, 1, VOID, 0 },
	{ "ibv_query_device", CONTEXT, 2, INT, ENODEV },
	{ "ibv_query_port", CONTEXT, 3, INT, ENODEV },
	{ "ibv_query_port_speed", CONTEXT, 3, INT, EOPNOTSUPP },
	{ "ibv_query_gid", CONTEXT, 4, INT, -1 },
	{ "ibv_query_gid_type", CONTEXT, 4, INT, -1 },
	{ "_ibv_query_gid_ex", CONTEXT, 6, INT, EOPNOTSUPP },
	{ "_ibv_query_gid_table", CONTEXT, 5, INT, -EOPNOTSUPP },
	{ "ibv_query_pkey", CONTEXT, 4, INT, -1 },
	{ "ibv_get_pkey_index", CONTEXT, 3, INT, -1 },
	{ "ibv_alloc_pd", CONTEXT, 1, POINTER, ENODEV },
	{ "ibv_dealloc_pd", PD, 1, INT, EOPNOTSUPP },
	{ "ibv_import_pd", CONTEXT, 2, POINTER, EOPNOTSUPP },
	{ "ibv_unimport_pd", PD, 1, VOID, 0 },
	{ "ibv_reg_mr", PD, 4, POINTER, EOPNOTSUPP },
	{ "ibv_reg_mr_iova", PD, 5, POINTER, EOPNOTSUPP },
	{ "ibv_reg_mr_iova2", PD, 5, POINTER, EOPNOTSUPP },
	{ "ibv_reg_mr_ex", PD, 2, POINTER, EOPNOTSUPP },
	{ "ibv_reg_dmabuf_mr", PD, 6, POINTER, EOPNOTSUPP },
	{ "ibv_reg_buf_mr", PD, 5, POINTER, EOPNOTSUPP },
	{ "ibv_rereg_mr", MR, 6, INT, IBV_REREG_MR_ERR_INPUT },
	{ "ibv_dereg_mr", MR, 1, INT, EOPNOTSUPP },
	{ "ibv_import_mr", PD, 2, POINTER, EOPNOTSUPP },
	{ "ibv_unimport_mr", MR, 1, VOID, 0 },
	{ "ibv_create_comp_channel", CONTEXT, 1, POINTER, ENODEV },
	{ "ibv_destroy_comp_channel", CHANNEL, 1, INT, EOPNOTSUPP },
	{ "ibv_get_cq_event", CHANNEL, 3, INT, -1 },
	{ "ibv_ack_cq_events", CQ, 2, VOID, 0 },
	{ "ibv_create_cq", CONTEXT, 5, POINTER, ENODEV },
	{ "ibv_resize_cq", CQ, 2, INT, EOPNOTSUPP },
	{ "ibv_destroy_cq", CQ, 1, INT, EOPNOTSUPP },
	{ "ibv_create_qp", PD, 2, POINTER, EOPNOTSUPP },
	{ "ibv_qp_to_qp_ex", QP, 1, POINTER, 0 },
	{ "ibv_modify_qp", QP, 3, INT, EOPNOTSUPP },
	{ "ibv_query_qp", QP, 4, INT, EOPNOTSUPP },
	{ "ibv_query_qp_data_in_order", QP, 3, INT, 0 },
	{ "ibv_destroy_qp", QP, 1, INT, EOPNOTSUPP },
	{ "ibv_set_ece", QP, 2, INT, EOPNOTSUPP },
	{ "ibv_query_ece", QP, 2, INT, EOPNOTSUPP },
	{ "ibv_create_srq", PD, 2, POINTER, EOPNOTSUPP },
	{ "ibv_modify_srq", SRQ, 3, INT, EOPNOTSUPP },
	{ "ibv_query_srq", SRQ, 2, INT, EOPNOTSUPP },
	{ "ibv_destroy_srq", SRQ, 1, INT, EOPNOTSUPP },
	{ "ibv_create_ah", PD, 2, POINTER, EOPNOTSUPP },
	{ "ibv_init_ah_from_wc", CONTEXT, 5, INT, -1 },
	{ "ibv_create_ah_from_wc", PD, 4, POINTER, EOPNOTSUPP },
	{ "ibv_destroy_ah", AH, 1, INT, EOPNOTSUPP },
	{ "ibv_resolve_eth_l2_from_gid", CONTEXT, 4, INT, -EOPNOTSUPP },
	{ "ibv_attach_mcast", QP, 3, INT, EOPNOTSUPP },
	{ "ibv_detach_mcast", QP, 3, INT, EOPNOTSUPP },
	{ "ibv_import_dm", CONTEXT, 2, POINTER, EOPNOTSUPP },
	{ "ibv_unimport_dm", DM, 1, VOID, 0 },
	{ "ibv_dm_export_dmabuf_fd", DM, 1, INT, -1 },
	{ "ibv_alloc_dmah", CONTEXT, 2, POINTER, EOPNOTSUPP },
	{ "ibv_dealloc_dmah", ANY, 1, INT, EOPNOTSUPP },
	{ "ibv_alloc_buf", PD, 3, POINTER, EOPNOTSUPP },
	{ "ibv_free_buf", NONE, 1, VOID, 0 },
	{ "ibv_export_buf_dmabuf_fd", NONE, 1, INT, -1 },
	{ "_ibv_query_comp_cntr_caps", CONTEXT, 3, INT, EOPNOTSUPP },
	{ "ibv_create_comp_cntr", CONTEXT, 2, POINTER, EOPNOTSUPP },
	{ "ibv_destroy_comp_cntr", ANY, 1, INT, EOPNOTSUPP },
	{ "ibv_set_comp_cntr", ANY, 2, INT, EOPNOTSUPP },
	{ "ibv_set_err_comp_cntr", ANY, 2, INT, EOPNOTSUPP },
	{ "ibv_inc_comp_cntr", ANY, 2, INT, EOPNOTSUPP },
	{ "ibv_inc_err_comp_cntr", ANY, 2, INT, EOPNOTSUPP },
	{ "ibv_read_comp_cntr", ANY, 2, INT, EOPNOTSUPP },
	{ "ibv_read_err_comp_cntr", ANY, 2, INT, EOPNOTSUPP },
	{ "ibv_qp_attach_comp_cntr", QP, 3, INT, EOPNOTSUPP },
	{ "ibv_import_device", NONE, 1, POINTER, EOPNOTSUPP },
	{ "ibv_open_device", DEVICE, 1, POINTER, ENODEV },
	{ "ibv_get_device_name", DEVICE, 1, POINTER, -1 }, /* the name is in the structure */
	{ "ibv_dontfork_range", NONE, 2, INT, 0 },
	{ "ibv_dofork_range", NONE, 2, INT, 0 },
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

/* Served by us without looking at any object, or tested above. */
static const char *const own[] = { "ibv_get_device_list", "ibv_free_device_list", "ibv_fork_init",
	"ibv_is_fork_initialized", "ibv_register_driver", "ibv_rate_to_mult", "mult_to_ibv_rate",
	"ibv_rate_to_mbps", "mbps_to_ibv_rate", "ibv_node_type_str", "ibv_port_state_str",
	"ibv_event_type_str", "ibv_wc_status_str", "ibv_copy_ah_attr_from_kern", "ibv_copy_qp_attr_from_kern",
	"ibv_copy_path_rec_from_kern", "ibv_copy_path_rec_to_kern", "ibv_get_sysfs_path",
	"ibv_read_sysfs_file" };

static const char *const exported[] = {
#define VERB(node, name)	#name,
#define PRIVATE_VERB(abi, name) #name,
#include "verbs/symbols.def"
#undef VERB
#undef PRIVATE_VERB
};

static bool known(const char *name)
{
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(verbs[i].name, name))
			return true;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(own[i], name))
			return true;
	return false;
}

static void the_tables_know_every_symbol(void **state)
{
	for (size_t i = 0; i < sizeof(exported) / sizeof(exported[0]); i++)
		if (!known(exported[i]))
			fail_msg("%s is in no table of this test", exported[i]);
}

/* One of each, all of the second device. */
static struct {
	struct ibv_pd pd;
	struct ibv_mr mr;
	struct ibv_cq cq;
	struct ibv_comp_channel channel;
	struct ibv_qp qp;
	struct ibv_srq srq;
	struct ibv_ah ah;
	struct ibv_dm dm;
	struct ibv_context *any;
	struct ibv_async_event event;
} object;

static void make_objects(void)
{
	memset(&object, 0, sizeof(object));
	object.pd.context = object.mr.context = object.cq.context = object.channel.context =
		object.qp.context = second;
	object.srq.context = object.ah.context = object.dm.context = object.any = second;
	object.event.event_type = IBV_EVENT_SRQ_ERR;
	object.event.element.srq = &object.srq;
}

static long first_argument(enum first first)
{
	void *const of[] = {
		[CONTEXT] = second,
		[DEVICE] = second->device,
		[PD] = &object.pd,
		[MR] = &object.mr,
		[CQ] = &object.cq,
		[CHANNEL] = &object.channel,
		[QP] = &object.qp,
		[SRQ] = &object.srq,
		[AH] = &object.ah,
		[DM] = &object.dm,
		[ANY] = &object.any,
		[EVENT] = &object.event,
		[NONE] = &object,
	};

	return (long)of[first];
}

/* The private name as Debian's programs ask for it; the others have one version. */
static long call(const struct verb *v, long first)
{
	bool private = !strcmp(v->name, "ibv_query_gid_type");
	long (*fn)(long, long, long, long, long, long) = (long (*)(long, long, long, long, long, long))(
		private ? dlvsym(RTLD_DEFAULT, v->name, "IBVERBS_PRIVATE_34") : dlsym(RTLD_DEFAULT, v->name));

	assert_non_null(fn);
	errno = 0;
	return fn(first, 11, 12, 13, 14, 15);
}

/* What the call gives when it arrived. */
static long result_of(const struct verb *v)
{
	if (!strcmp(v->name, "ibv_open_device"))
		return (long)second;
	if (!strcmp(v->name, "ibv_get_device_name"))
		return (long)second->device->name;
	return SECOND_RESULT;
}

static void every_call_on_the_second_device_reaches_its_library(void **state)
{
	for (size_t i = 0; i < VERBS; i++) {
		const struct verb *v = &verbs[i];
		long first = first_argument(v->first);
		long result;

		seen->calls = 0;
		seen->name = NULL;
		result = call(v, first);
		if (seen->calls != 1 || strcmp(seen->name, v->name))
			fail_msg("%s: %d calls arrived, the last of %s", v->name, seen->calls,
				seen->name ? seen->name : "none");
		if (v->first == NONE && !strcmp(v->name, "ibv_import_device"))
			assert_int_equal((int)seen->arg[0], (int)first);
		else
			assert_int_equal(seen->arg[0], first);
		for (int a = 1; a < v->args; a++)
			if ((int)seen->arg[a] != 10 + a)
				fail_msg("%s: argument %d arrived as %ld", v->name, a, seen->arg[a]);
		if (v->result == INT && (int)result != SECOND_RESULT)
			fail_msg("%s gave %ld", v->name, result);
		if (v->result == POINTER && result != result_of(v))
			fail_msg("%s gave %ld", v->name, result);
	}
}

/* The private name has a node per version of rdma-core; a program asks for the one it was linked with. */
static void the_private_name_is_in_every_node(void **state)
{
	const char *const nodes[] = { "IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59",
		"IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65" };
	struct ibv_context *ours = client_open();
	unsigned type;

	for (int i = 0; i < 5; i++) {
		__typeof__(&ibv_query_gid_type) fn = dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", nodes[i]);

		assert_non_null(fn);
		assert_int_equal(fn(ours, 1, 0, &type), 0);
		assert_int_equal(type, 1);
		/* The second library has one of the nodes. */
		assert_int_equal(fn(second, 1, 0, &type), i == 0 ? SECOND_RESULT : -1);
	}
	assert_int_equal(ibv_close_device(ours), 0);
}

/* --- with nothing behind us ----------------------------------------------------------------------- */

static void our_device_is_listed_alone(void **state)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_int_equal(n, 1);
	assert_null(list[1]);
	ibv_free_device_list(list);
}

static void what_nobody_can_serve_is_refused(void **state)
{
	for (size_t i = 0; i < VERBS; i++) {
		const struct verb *v = &verbs[i];
		long result = call(v, first_argument(v->first));

		if (v->result == POINTER && v->missing >= 0 && (result || errno != v->missing))
			fail_msg("%s gave %ld with errno %d", v->name, result, errno);
		if (v->result == INT && (int)result != v->missing)
			fail_msg("%s gave %d, not %d", v->name, (int)result, v->missing);
		if (v->result == INT && v->missing == -1 && v->first != DEVICE && !errno)
			fail_msg("%s set no errno", v->name);
	}
}

static void fork_needs_nothing_without_real_devices(void **state)
{
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static int alone(void)
{
	static struct ibv_device device = { .name = "nobody0" };
	static struct ibv_context context = { .device = &device };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(our_device_is_listed_alone),
		cmocka_unit_test(what_nobody_can_serve_is_refused),
		cmocka_unit_test(fork_needs_nothing_without_real_devices),
	};

	second = &context;
	make_objects();
	return cmocka_run_group_tests_name("alone", tests, NULL, NULL);
}

/* As programs do, before anything is listed. */
static int fork_first(const char *what)
{
	int passed = ibv_fork_init() == SECOND_RESULT;

	passed += ibv_is_fork_initialized() == SECOND_RESULT;
	return passed == (strcmp(what, "passed") ? 0 : 2) ? 0 : 1;
}

static int with_second(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_devices_are_listed),
		cmocka_unit_test(lists_go_back_where_they_came_from),
		cmocka_unit_test(the_library_may_call_us_while_it_is_listed),
		cmocka_unit_test(fork_is_prepared_for_the_real_device),
		cmocka_unit_test(our_device_never_reaches_it),
		cmocka_unit_test(the_tables_know_every_symbol),
		cmocka_unit_test(every_call_on_the_second_device_reaches_its_library),
		cmocka_unit_test(the_private_name_is_in_every_node),
	};
	struct ibv_device **list = ibv_get_device_list(NULL);

	behind = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	second_log_fn *log = behind ? (second_log_fn *)dlsym(behind, "second_log") : NULL;
	if (!list || !log || !find(list, SECOND_NAME)) {
		print_error("the second library is not behind us\n");
		return 1;
	}
	seen = log();
	second = ibv_open_device(find(list, SECOND_NAME));
	ibv_free_device_list(list);
	make_objects();
	return cmocka_run_group_tests_name("second", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "fork"))
		return fork_first(argv[2]);
	return argc > 1 && !strcmp(argv[1], "alone") ? alone() : with_second();
}
