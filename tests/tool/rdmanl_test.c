/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What is read out of answers of rdma netlink, good and bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <unistd.h>

#include "tool/rdmanl.h"

/* --- messages --------------------------------------------------------------------------------------------
 */

static char bytes[8192] __attribute__((aligned(8)));
static size_t used;
static struct nlmsghdr *head;
static struct rdmanl_answer got;

static int setup(void **state)
{
	(void)state;
	memset(bytes, 0, sizeof(bytes));
	used = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rdmanl_answer_free(&got);
	return 0;
}

static void begin(int command)
{
	head = mnl_nlmsg_put_header(bytes + used);
	head->nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
	head->nlmsg_flags = NLM_F_MULTI;
	head->nlmsg_seq = 7;
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_DEV_INDEX, 3);
	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_0");
}

static void end(void)
{
	used += MNL_ALIGN(head->nlmsg_len);
}

static void control(uint16_t type, int err)
{
	head = mnl_nlmsg_put_header(bytes + used);
	head->nlmsg_type = type;
	head->nlmsg_seq = 7;
	memcpy(mnl_nlmsg_put_extra_header(head, sizeof(err)), &err, sizeof(err));
	end();
}

static struct nlattr *nest(uint16_t type)
{
	return mnl_attr_nest_start(head, type);
}

static void close_nest(struct nlattr *n)
{
	mnl_attr_nest_end(head, n);
}

static void put_counter(const char *name, uint64_t value)
{
	struct nlattr *n = nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);

	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
	mnl_attr_put_u64(head, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
	close_nest(n);
}

static void put_region(uint32_t number, uint64_t length, uint32_t pid)
{
	struct nlattr *n = nest(RDMA_NLDEV_ATTR_RES_MR_ENTRY);

	mnl_attr_put_u64(head, RDMA_NLDEV_ATTR_RES_MRLEN, length);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_MRN, number);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_PDN, 9);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_PID, pid);
	close_nest(n);
}

static int parse(enum rdmanl_question what)
{
	return rdmanl_parse(&got, what, 7, bytes, used);
}

/* --- what is told ----------------------------------------------------------------------------------------
 */

static void devices_have_a_name_and_firmware(void **state)
{
	begin(RDMA_NLDEV_CMD_GET);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_PORT_INDEX, 2);
	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_FW_VERSION, "16.35\n\033[2J");
	end();
	control(NLMSG_DONE, 0);
	assert_int_equal(parse(RDMANL_DEVICES), 0);
	assert_int_equal(got.devices, 1);
	assert_int_equal(got.device[0].index, 3);
	assert_int_equal(got.device[0].ports, 2);
	assert_string_equal(got.device[0].name, "mlx5_0");
	assert_string_equal(got.device[0].firmware, "16.35??[2J");
	assert_string_equal(got.device[0].protocol, "");
}

static void a_region_has_what_is_told_of_it_and_no_more(void **state)
{
	struct nlattr *table, *entry, *driver;

	begin(RDMA_NLDEV_CMD_RES_MR_GET);
	table = nest(RDMA_NLDEV_ATTR_RES_MR);
	put_region(18, 1ull << 36, 4242);
	entry = nest(RDMA_NLDEV_ATTR_RES_MR_ENTRY);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_LKEY, 0x1f01c4);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_RKEY, 0x1f01c5);
	mnl_attr_put_u64(head, RDMA_NLDEV_ATTR_RES_IOVA, 0x7f0000001000);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_MRN, 2);
	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core");
	driver = nest(RDMA_NLDEV_ATTR_DRIVER);
	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_DRIVER_STRING, "odp");
	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_DRIVER_STRING, "explicit");
	mnl_attr_put_strz(head, RDMA_NLDEV_ATTR_DRIVER_STRING, "level");
	mnl_attr_put_u8(head, RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE, 1);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_DRIVER_S32, (uint32_t)-5);
	close_nest(driver);
	close_nest(entry);
	close_nest(table);
	end();
	control(NLMSG_DONE, 0);
	assert_int_equal(parse(RDMANL_REGIONS), 0);
	assert_int_equal(got.regions, 2);
	assert_int_equal(got.region[0].number, 18);
	assert_int_equal(got.region[0].length, 1ull << 36);
	assert_int_equal(got.region[0].owner.pid, 4242);
	assert_int_equal(got.region[0].owner.pd, 9);
	assert_false(got.region[0].keys_told || got.region[0].iova_told);
	assert_string_equal(got.region[0].details, "");
	assert_true(got.region[1].keys_told && got.region[1].iova_told);
	assert_int_equal(got.region[1].rkey, 0x1f01c5);
	assert_int_equal(got.region[1].iova, 0x7f0000001000);
	assert_int_equal(got.region[1].owner.pid, 0);
	assert_int_equal(got.region[1].owner.pd, RDMANL_NONE);
	assert_string_equal(got.region[1].owner.module, "ib_core");
	assert_string_equal(got.region[1].details, "odp=explicit level=-5");
}

static void queue_pairs_have_peers_or_not(void **state)
{
	struct nlattr *table, *entry;

	begin(RDMA_NLDEV_CMD_RES_QP_GET);
	table = nest(RDMA_NLDEV_ATTR_RES_QP);
	entry = nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_LQPN, 17);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_RQPN, 18);
	mnl_attr_put_u8(head, RDMA_NLDEV_ATTR_RES_TYPE, 2);
	mnl_attr_put_u8(head, RDMA_NLDEV_ATTR_RES_STATE, 3);
	close_nest(entry);
	entry = nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_LQPN, 1);
	/* A number of another size is not told. */
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_TYPE, 2);
	mnl_attr_put_u64(head, RDMA_NLDEV_ATTR_RES_PID, 5);
	close_nest(entry);
	close_nest(nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY)); /* nameless */
	close_nest(table);
	end();
	assert_int_equal(parse(RDMANL_QPS), 1);
	assert_int_equal(got.qps, 2);
	assert_int_equal(got.qp[0].number, 17);
	assert_int_equal(got.qp[0].peer, 18);
	assert_int_equal(got.qp[0].state, 3);
	assert_int_equal(got.qp[1].peer, RDMANL_NONE);
	assert_int_equal(got.qp[1].type, RDMANL_NONE);
	assert_int_equal(got.qp[1].owner.pid, 0);
}

static void counters_belong_to_their_region(void **state)
{
	struct nlattr *table, *entry, *counters;

	begin(RDMA_NLDEV_CMD_STAT_GET);
	table = nest(RDMA_NLDEV_ATTR_RES_MR);
	put_region(1, 4096, 7);
	entry = nest(RDMA_NLDEV_ATTR_RES_MR_ENTRY);
	counters = nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	put_counter("page_faults", 1ull << 40);
	put_counter("page_prefetch", 3);
	close_nest(counters);
	mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_MRN, 18);
	close_nest(entry);
	close_nest(table);
	end();
	assert_int_equal(parse(RDMANL_REGION_COUNTERS), 1);
	assert_int_equal(got.counters, 2);
	assert_int_equal(got.counter[0].of, 18);
	assert_string_equal(got.counter[0].name, "page_faults");
	assert_int_equal(got.counter[0].value, 1ull << 40);
	assert_int_equal(got.counter[1].value, 3);
}

static void put_qp_counter(unsigned qps, uint64_t value)
{
	struct nlattr *entry = nest(RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY), *list, *n;

	list = nest(RDMA_NLDEV_ATTR_RES_QP);
	for (uint32_t i = 0; i < qps; i++) {
		n = nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY);
		mnl_attr_put_u32(head, RDMA_NLDEV_ATTR_RES_LQPN, 0x40 + i);
		close_nest(n);
	}
	close_nest(list);
	n = nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	put_counter("packet_seq_err", value);
	close_nest(n);
	close_nest(entry);
}

static void a_counter_that_queue_pairs_share_is_none_of_theirs(void **state)
{
	struct nlattr *table;

	begin(RDMA_NLDEV_CMD_STAT_GET);
	table = nest(RDMA_NLDEV_ATTR_STAT_COUNTER);
	put_qp_counter(2, 5);
	put_qp_counter(1, 6);
	put_qp_counter(0, 7);
	close_nest(table);
	end();
	assert_int_equal(parse(RDMANL_QP_COUNTERS), 1);
	assert_int_equal(got.counters, 1);
	assert_int_equal(got.counter[0].of, 0x40);
	assert_int_equal(got.counter[0].value, 6);
}

static void many_rows_are_kept(void **state)
{
	for (uint32_t i = 0; i < 1000; i++) {
		struct nlattr *table;

		used = 0;
		begin(RDMA_NLDEV_CMD_RES_MR_GET);
		table = nest(RDMA_NLDEV_ATTR_RES_MR);
		put_region(i, i * 16ull, 1);
		close_nest(table);
		end();
		assert_int_equal(parse(RDMANL_REGIONS), 1);
	}
	assert_int_equal(got.regions, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		assert_true(got.region[i].number == i && got.region[i].length == i * 16ull);
}

/* --- what goes wrong -------------------------------------------------------------------------------------
 */

static void errors_of_the_kernel_are_told(void **state)
{
	control(NLMSG_ERROR, -EPERM);
	assert_int_equal(parse(RDMANL_QPS), -EPERM);
	used = 0;
	control(NLMSG_DONE, -EMSGSIZE);
	assert_int_equal(parse(RDMANL_QPS), -EMSGSIZE);
	used = 0;
	control(NLMSG_OVERRUN, 0);
	assert_int_equal(parse(RDMANL_QPS), -EOVERFLOW);
	/* What is no errno of the kernel. */
	used = 0;
	control(NLMSG_ERROR, 5);
	assert_int_equal(parse(RDMANL_QPS), -EBADMSG);
	used = 0;
	control(NLMSG_DONE, INT32_MIN);
	assert_int_equal(parse(RDMANL_QPS), -EBADMSG);
	used = 0;
	control(NLMSG_ERROR, 0);
	((struct nlmsghdr *)bytes)->nlmsg_len = NLMSG_HDRLEN;
	used = NLMSG_HDRLEN;
	assert_int_equal(parse(RDMANL_QPS), -EBADMSG);
}

static void an_interrupted_dump_is_told(void **state)
{
	begin(RDMA_NLDEV_CMD_RES_QP_GET);
	head->nlmsg_flags |= NLM_F_DUMP_INTR;
	end();
	assert_int_equal(parse(RDMANL_QPS), -EINTR);
}

static void messages_of_others_are_passed_over(void **state)
{
	begin(RDMA_NLDEV_CMD_GET);
	head->nlmsg_seq = 6;
	end();
	begin(RDMA_NLDEV_CMD_PORT_GET);
	end();
	assert_int_equal(parse(RDMANL_DEVICES), 1);
	assert_int_equal(got.devices, 0);
	assert_int_equal(rdmanl_parse(&got, RDMANL_DEVICES, 0, bytes, used), 1);
	assert_int_equal(got.devices, 1);
}

/* A good message of one region, of which each test breaks something. Returns the region's nest. */
static struct nlattr *one_region(struct nlattr **table)
{
	begin(RDMA_NLDEV_CMD_RES_MR_GET);
	*table = nest(RDMA_NLDEV_ATTR_RES_MR);
	put_region(1, 4096, 7);
	close_nest(*table);
	end();
	return (struct nlattr *)((char *)*table + NLA_HDRLEN);
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
	static const uint16_t wrong[] = { 0, 1, 3, 400, UINT16_MAX };
	struct nlattr *table, *entry = one_region(&table);
	struct nlattr *first = (struct nlattr *)((char *)entry + NLA_HDRLEN);
	struct nlattr *const victims[] = { table, entry, first };

	for (size_t v = 0; v < 3; v++) {
		uint16_t right = victims[v]->nla_len;

		for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
			victims[v]->nla_len = wrong[i];
			assert_int_equal(parse(RDMANL_REGIONS), -EBADMSG);
		}
		victims[v]->nla_len = right;
	}
	assert_int_equal(parse(RDMANL_REGIONS), 1);
}

static void messages_that_are_cut_are_refused(void **state)
{
	struct nlattr *table;
	size_t whole;

	one_region(&table);
	whole = used;
	for (used = 1; used < whole; used++)
		assert_int_equal(parse(RDMANL_REGIONS), -EBADMSG);
	used = 0;
	assert_int_equal(parse(RDMANL_REGIONS), 1);
	used = whole;
	/* A length above 2 GiB is not a negative one. */
	((struct nlmsghdr *)bytes)->nlmsg_len = 0x80000000u + (uint32_t)whole;
	assert_int_equal(parse(RDMANL_REGIONS), -EBADMSG);
	((struct nlmsghdr *)bytes)->nlmsg_len = 15;
	assert_int_equal(parse(RDMANL_REGIONS), -EBADMSG);
	assert_int_equal(got.regions, 0);
}

static void nests_in_nests_are_not_followed(void **state)
{
	struct nlattr *n[200];

	begin(RDMA_NLDEV_CMD_RES_MR_GET);
	for (int i = 0; i < 200; i++)
		n[i] = nest(i % 2 ? RDMA_NLDEV_ATTR_RES_MR_ENTRY : RDMA_NLDEV_ATTR_RES_MR);
	for (int i = 199; i >= 0; i--)
		close_nest(n[i]);
	end();
	assert_int_equal(parse(RDMANL_REGIONS), 1);
	assert_int_equal(got.regions, 1);
	assert_int_equal(got.region[0].number, RDMANL_NONE);
}

/* --- records ---------------------------------------------------------------------------------------------
 */

struct file {
	const char *path, *text;
};

static char *read_file(void *arg, const char *path)
{
	for (const struct file *f = arg; f->path; f++)
		if (strcmp(f->path, path) == 0)
			return strdup(f->text);
	errno = ENOENT;
	return NULL;
}

#define HEAD(length, type, flags) length "000000" type flags "01000000 00000000"
/* DEV_INDEX 0, DEV_NAME "a" or "b" */
#define DEVICE_A HEAD("20", "0114", "0200") "08000100 00000000 06000200 61000000 # a\n"
#define DEVICE_B HEAD("20", "0114", "0200") "08000100 01000000 06000200 62000000\n"
#define BROKEN	 HEAD("10", "0114", "1200") /* interrupted */
#define DONE	 HEAD("14", "0300", "0200") "00000000\n"

static void each_time_has_its_answer(void **state)
{
	struct file files[] = { { "/netlink/devices", DEVICE_A DONE },
		{ "/netlink/devices.2", DEVICE_B DONE }, { 0 } };
	struct rdmanl *nl = rdmanl_recorded(read_file, files);
	struct rdmanl_device d;

	assert_int_equal(rdmanl_find(nl, "a", &d), 0);
	assert_int_equal(rdmanl_find(nl, "b", &d), 0);
	assert_int_equal(d.index, 1);
	assert_int_equal(rdmanl_find(nl, "b", &d), 0); /* the last one again */
	assert_int_equal(rdmanl_find(nl, "a", &d), -ENODEV);
	rdmanl_close(nl);
}

static void what_was_interrupted_is_asked_again(void **state)
{
	struct file files[] = { { "/netlink/devices", DEVICE_A BROKEN }, { "/netlink/devices.2", BROKEN },
		{ "/netlink/devices.3", DEVICE_B DONE }, { 0 } };
	struct rdmanl *nl = rdmanl_recorded(read_file, files);

	assert_int_equal(rdmanl_ask(nl, RDMANL_DEVICES, NULL, &got), 0);
	assert_int_equal(got.devices, 1);
	assert_string_equal(got.device[0].name, "b");
	rdmanl_close(nl);
	files[2].path = NULL;
	nl = rdmanl_recorded(read_file, files);
	assert_int_equal(rdmanl_ask(nl, RDMANL_DEVICES, NULL, &got), -EAGAIN);
	rdmanl_close(nl);
}

static void a_record_may_be_incomplete_or_nonsense(void **state)
{
	static const char *const nonsense[] = { "", "0", "xy", "10", DEVICE_A, "# a comment", DEVICE_A "0" };
	struct rdmanl_device of = { .name = "a" };
	struct file files[] = { { "/netlink/a.regions", "" }, { 0 } };
	struct rdmanl *nl = rdmanl_recorded(read_file, files);

	assert_int_equal(rdmanl_ask(nl, RDMANL_DEVICES, NULL, &got), -EOPNOTSUPP);
	assert_int_equal(rdmanl_ask(nl, RDMANL_QPS, &of, &got), -EOPNOTSUPP);
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		files[0].text = nonsense[i];
		assert_int_equal(rdmanl_ask(nl, RDMANL_REGIONS, &of, &got), -EBADMSG);
	}
	files[0].text = "0a \n 0B#zz\n";
	assert_int_equal(rdmanl_ask(nl, RDMANL_REGIONS, &of, &got), -EBADMSG);
	rdmanl_close(nl);
}

static void every_error_has_a_sentence(void **state)
{
	static const int errors[] = { -EPROTONOSUPPORT, -EOPNOTSUPP, -ENODEV, -EBADMSG, -EAGAIN, -EPERM,
		-EIO };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		assert_true(strlen(rdmanl_error(errors[i])) > 8);
}

/* This machine's kernel, which may have no rdma at all. */
static void the_kernel_answers_or_says_why_not(void **state)
{
	struct rdmanl *nl = rdmanl_live();
	int err = rdmanl_ask(nl, RDMANL_DEVICES, NULL, &got);

	if (err)
		print_message("the kernel answered: %s\n", rdmanl_error(err));
	assert_true(err <= 0);
	for (size_t i = 0; i < got.devices; i++)
		assert_int_equal(rdmanl_ask(nl, RDMANL_REGIONS, &got.device[i], &got), 0);
	rdmanl_close(nl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		CASE(devices_have_a_name_and_firmware),
		CASE(a_region_has_what_is_told_of_it_and_no_more),
		CASE(queue_pairs_have_peers_or_not),
		CASE(counters_belong_to_their_region),
		CASE(a_counter_that_queue_pairs_share_is_none_of_theirs),
		CASE(many_rows_are_kept),
		CASE(errors_of_the_kernel_are_told),
		CASE(an_interrupted_dump_is_told),
		CASE(messages_of_others_are_passed_over),
		CASE(lengths_that_do_not_fit_are_refused),
		CASE(messages_that_are_cut_are_refused),
		CASE(nests_in_nests_are_not_followed),
		CASE(each_time_has_its_answer),
		CASE(what_was_interrupted_is_asked_again),
		CASE(a_record_may_be_incomplete_or_nonsense),
		CASE(every_error_has_a_sentence),
		CASE(the_kernel_answers_or_says_why_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
