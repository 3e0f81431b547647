/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The GID table, in network namespaces of the test's own where the kernel lets it make one (in a user
 * namespace).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "nic/gid.h"

/* Runs fn in a child; its return value, 0 for success, is the test's. 77: skip. */
static void in_child(int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("skipped: the kernel does not let us make a network namespace\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int own_namespace(void)
{
	return unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET) ? 77 : 0;
}

/* Sets the loopback interface's flags, or its first IPv4 address. */
static int loopback_flags(short flags)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_flags = flags };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ret = ioctl(fd, SIOCSIFFLAGS, &req);

	close(fd);
	return ret;
}

static int add_address(const char *label, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct ifreq req;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ret;

	memset(&req, 0, sizeof(req));
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%.*s", IFNAMSIZ - 1, label);
	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&req.ifr_addr, &in, sizeof(in));
	ret = ioctl(fd, SIOCSIFADDR, &req);
	close(fd);
	return ret;
}

/* The index of an IPv4 address in the table, or -1. */
static int index_of(const char *address)
{
	union ibv_gid want = { .raw = { [10] = 0xff, [11] = 0xff } }, gid;

	inet_pton(AF_INET, address, &want.raw[12]);
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++)
		if (!nic_gid_get(i, &gid, NULL) && !memcmp(&gid, &want, sizeof(gid)))
			return (int)i;
	return -1;
}

static int used_rows(void)
{
	union ibv_gid gid;
	int n = 0;

	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++)
		n += !nic_gid_get(i, &gid, NULL);
	return n;
}

/* Longer than a reading of the addresses is kept. */
static void let_it_age(void)
{
	nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 50000000 }, NULL);
}

static void indices_out_of_range_are_refused(void **state)
{
	union ibv_gid gid;

	assert_int_equal(nic_gid_get(NIC_GID_TABLE_LEN, &gid, NULL), -EINVAL);
	assert_int_equal(nic_gid_get(~0u, &gid, NULL), -EINVAL);
}

static void the_first_row_is_never_empty(void **state)
{
	union ibv_gid gid;
	uint32_t ifindex;

	assert_int_equal(nic_gid_get(0, &gid, &ifindex), 0);
	assert_int_equal(nic_gid_get(NIC_GID_TABLE_LEN - 1, &gid, NULL), -ENODATA);
}

static int without_addresses(void)
{
	union ibv_gid gid;
	uint32_t ifindex = 99;
	int ret = own_namespace();

	if (ret)
		return ret;
	if (nic_gid_get(0, &gid, &ifindex))
		return 1;
	if (gid.raw[0] != 0xfe || gid.raw[1] != 0x80)
		return 2;
	if (ifindex || used_rows() != 1)
		return 3;
	return nic_gid_is_here(&gid) ? 0 : 4;
}

static void without_any_address_there_is_one_of_the_host(void **state)
{
	in_child(without_addresses);
}

static int with_loopback(void)
{
	union ibv_gid gid;
	uint32_t ifindex = 0;
	int ret = own_namespace();

	if (ret)
		return ret;
	if (loopback_flags(IFF_UP))
		return 1;
	if (index_of("127.0.0.1") != 0)
		return 2;
	if (nic_gid_get(0, &gid, &ifindex) || ifindex != if_nametoindex("lo"))
		return 3;
	return 0;
}

static void an_address_is_shown_as_a_mapped_one(void **state)
{
	in_child(with_loopback);
}

static int keeping(void)
{
	int ret = own_namespace();

	if (ret)
		return ret;
	/* Networks of their own: the first address of a network takes the others with it. */
	if (loopback_flags(IFF_UP) || add_address("lo:1", "10.1.2.3") || add_address("lo:2", "11.1.2.4"))
		return 1;
	int first = index_of("10.1.2.3"), second = index_of("11.1.2.4");

	if (first < 0 || second < 0 || first == second)
		return 2;
	/* One goes and another comes: the one that stays keeps its index, the new one takes the empty row. */
	if (add_address("lo:1", "0.0.0.0") || add_address("lo:3", "12.1.2.5"))
		return 3;
	let_it_age();
	if (index_of("11.1.2.4") != second)
		return 4;
	if (index_of("10.1.2.3") != -1)
		return 5;
	return index_of("12.1.2.5") == first ? 0 : 6;
}

static void rows_keep_their_index_while_their_address_exists(void **state)
{
	in_child(keeping);
}

static int crowded(void)
{
	int ret = own_namespace();

	if (ret)
		return ret;
	if (loopback_flags(IFF_UP))
		return 1;
	for (int i = 1; i <= NIC_GID_TABLE_LEN + 10; i++) {
		char label[24], address[24];

		snprintf(label, sizeof(label), "lo:%d", i);
		snprintf(address, sizeof(address), "10.7.0.%d", i);
		if (add_address(label, address))
			return 2;
	}
	return used_rows() == NIC_GID_TABLE_LEN ? 0 : 3;
}

static void more_addresses_than_rows_fill_the_table(void **state)
{
	in_child(crowded);
}

static int down(void)
{
	int ret = own_namespace();

	if (ret)
		return ret;
	if (loopback_flags(IFF_UP) || add_address("lo:1", "10.1.2.3") || loopback_flags(0))
		return 1;
	return index_of("10.1.2.3") == -1 && used_rows() == 1 ? 0 : 2;
}

static void interfaces_that_are_down_have_no_rows(void **state)
{
	in_child(down);
}

/* --- two rows per address ------------------------------------------------------------------------- */

static bool row_is(unsigned index, enum ibv_gid_type type, const union ibv_gid *gid, uint32_t ifindex)
{
	struct ibv_gid_entry row;

	return !nic_gid_row(NIC_GID_PAIRS, index, &row) && row.gid_type == type && row.gid_index == index &&
	       row.port_num == 1 && row.ndev_ifindex == ifindex && !memcmp(&row.gid, gid, sizeof(*gid));
}

static void each_row_is_one_of_version_1_and_one_of_version_2(void **state)
{
	struct ibv_gid_entry port[2], row;

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(nic_gid_row(NIC_GID_PAIRS, i, &port[i]), 0);
	assert_int_equal(port[0].gid_type, IBV_GID_TYPE_ROCE_V1);
	assert_int_equal(port[1].gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_memory_equal(&port[0].gid, &port[1].gid, sizeof(port[0].gid));
	assert_int_equal(port[0].gid.raw[0], 0xfe);
	assert_int_equal(nic_gid_rows(NIC_GID_SINGLE), NIC_GID_TABLE_LEN);
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++) {
		union ibv_gid gid;
		uint32_t ifindex;

		if (nic_gid_get(i, &gid, &ifindex)) {
			assert_int_equal(nic_gid_row(NIC_GID_PAIRS, 2 * i + 2, &row), -ENODATA);
			assert_int_equal(nic_gid_row(NIC_GID_PAIRS, 2 * i + 3, &row), -ENODATA);
			continue;
		}
		assert_true(row_is(2 * i + 2, IBV_GID_TYPE_ROCE_V1, &gid, ifindex));
		assert_true(row_is(2 * i + 3, IBV_GID_TYPE_ROCE_V2, &gid, ifindex));
		assert_int_equal(nic_gid_row(NIC_GID_SINGLE, i, &row), 0);
		assert_int_equal(row.gid_type, IBV_GID_TYPE_ROCE_V2);
		assert_memory_equal(&row.gid, &gid, sizeof(gid));
	}
	assert_int_equal(nic_gid_row(NIC_GID_PAIRS, nic_gid_rows(NIC_GID_PAIRS), &row), -EINVAL);
	assert_int_equal(nic_gid_row(NIC_GID_SINGLE, NIC_GID_TABLE_LEN, &row), -EINVAL);
}

static int ipv4_only(void)
{
	union ibv_gid lo = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } };
	int ret = own_namespace();

	if (ret)
		return ret;
	/* Without any address there is a row 3 too. */
	if (nic_gid_row(NIC_GID_PAIRS, 3, &(struct ibv_gid_entry){ .gid_index = 0 }))
		return 1;
	if (loopback_flags(IFF_UP))
		return 2;
	let_it_age();
	return row_is(3, IBV_GID_TYPE_ROCE_V2, &lo, if_nametoindex("lo")) ? 0 : 3;
}

static void row_3_is_version_2_with_the_first_IPv4_address(void **state)
{
	in_child(ipv4_only);
}

/* --- whose it is ---------------------------------------------------------------------------------- */

static bool is_here(const char *address)
{
	union ibv_gid gid = { .raw = { 0 } };

	if (strchr(address, ':')) {
		inet_pton(AF_INET6, address, &gid);
	} else {
		gid.raw[10] = gid.raw[11] = 0xff;
		inet_pton(AF_INET, address, &gid.raw[12]);
	}
	return nic_gid_is_here(&gid);
}

static int whose(void)
{
	struct ibv_gid_entry row;
	int ret = own_namespace();

	if (ret)
		return ret;
	if (loopback_flags(IFF_UP) || !is_here("127.0.0.1") || is_here("10.1.2.3"))
		return 1;
	/* At once, though the table is not read again yet. */
	if (add_address("lo:1", "10.1.2.3") || !is_here("10.1.2.3") || is_here("10.1.2.4"))
		return 2;
	if (!is_here("127.9.8.7") || !is_here("::1") || is_here("::") || is_here("::2") || is_here("fe80::1"))
		return 3;
	for (unsigned i = 0; i < nic_gid_rows(NIC_GID_PAIRS); i++)
		if (!nic_gid_row(NIC_GID_PAIRS, i, &row) && !nic_gid_is_here(&row.gid))
			return 4;
	return 0;
}

static void only_addresses_of_the_namespace_are_here(void **state)
{
	in_child(whose);
}

/* --- the host's identity -------------------------------------------------------------------------- */

static int same_in_a_child(void)
{
	static __be64 before;

	if (!before)
		before = nic_gid_eui64("unpin0");
	return nic_gid_eui64("unpin0") == before ? 0 : 1;
}

static void the_guid_is_of_the_host_and_the_name(void **state)
{
	__be64 a = nic_gid_eui64("unpin0"), b = nic_gid_eui64("unpin1"), none = nic_gid_eui64("");

	assert_true(a && b && none);
	assert_true(a != b && a != none);
	assert_true(a == nic_gid_eui64("unpin0"));
	assert_int_equal(same_in_a_child(), 0);
	in_child(same_in_a_child);
	assert_int_equal(((uint8_t *)&a)[0] & 3, 2);
}

/* --- threads and forks ---------------------------------------------------------------------------- */

static _Atomic bool stop;

static void *reader(void *arg)
{
	union ibv_gid gid;

	while (!stop)
		if (nic_gid_get(0, &gid, NULL))
			return (void *)1;
	return NULL;
}

static int one_look(void)
{
	union ibv_gid gid;

	alarm(10);
	return nic_gid_get(0, &gid, NULL) ? 1 : 0;
}

/* The lock may be held by another thread at the moment of the fork. */
static void a_child_of_a_busy_program_can_ask(void **state)
{
	pthread_t thread[3];
	void *result;

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, reader, NULL), 0);
	for (int i = 0; i < 100; i++)
		in_child(one_look);
	stop = true;
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &result);
		assert_null(result);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(indices_out_of_range_are_refused),
		cmocka_unit_test(the_first_row_is_never_empty),
		cmocka_unit_test(without_any_address_there_is_one_of_the_host),
		cmocka_unit_test(an_address_is_shown_as_a_mapped_one),
		cmocka_unit_test(rows_keep_their_index_while_their_address_exists),
		cmocka_unit_test(more_addresses_than_rows_fill_the_table),
		cmocka_unit_test(interfaces_that_are_down_have_no_rows),
		cmocka_unit_test(each_row_is_one_of_version_1_and_one_of_version_2),
		cmocka_unit_test(row_3_is_version_2_with_the_first_IPv4_address),
		cmocka_unit_test(only_addresses_of_the_namespace_are_here),
		cmocka_unit_test(the_guid_is_of_the_host_and_the_name),
		cmocka_unit_test(a_child_of_a_busy_program_can_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
