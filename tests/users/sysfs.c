/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device in /sys, for programs that look there and not at the verbs: what it says is what the verbs
 * answer, its counters move, and the look-ups of NCCL (net_ib) and UCX (uct_ib_device), which cannot run
 * here, find what they look for.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define CLASS "/sys/class/infiniband"

static const char *device(void)
{
	const char *name = getenv("UNPIN_DEVICE");

	return name && *name ? name : "unpin0";
}

/* As rdma-core reads such a file: its length without the newline, or -1. */
static ssize_t say(const char *file, unsigned row, char *text, size_t size)
{
	char path[PATH_MAX], part[128];
	ssize_t n;
	int fd;

	snprintf(part, sizeof(part), file, row);
	snprintf(path, sizeof(path), CLASS "/%s/%s", device(), part);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	if (n && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	return n;
}

static uint64_t value_of(const char *file)
{
	char text[64];

	check(say(file, 0, text, sizeof(text)) > 0);
	return strtoull(text, NULL, 10);
}

static void says(const char *file, unsigned row, const char *wanted)
{
	char text[128];

	check_sys(say(file, row, text, sizeof(text)) >= 0);
	if (strcmp(text, wanted))
		check_failed(__FILE__, __LINE__, "%s (%u) says \"%s\", not \"%s\"", file, row, text, wanted);
}

static void guid_text(__be64 guid, char text[20])
{
	const uint8_t *b = (const uint8_t *)&guid;

	sprintf(text, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
}

static void it_says_of_the_device_what_the_verbs_answer(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	char text[64];

	check_int(ibv_query_device(ctx, &attr), 0);
	check_int(ibv_query_port(ctx, 1, &port), 0);
	guid_text(attr.node_guid, text);
	says("node_guid", 0, text);
	guid_text(attr.sys_image_guid, text);
	says("sys_image_guid", 0, text);
	says("fw_ver", 0, attr.fw_ver);
	says("node_type", 0, "1: CA");
	snprintf(text, sizeof(text), "%d: %s", port.state, port.state == IBV_PORT_ACTIVE ? "ACTIVE" : "?");
	says("ports/1/state", 0, text);
	snprintf(text, sizeof(text), "0x%x", port.lid);
	says("ports/1/lid", 0, text);
	snprintf(text, sizeof(text), "0x%x", port.sm_lid);
	says("ports/1/sm_lid", 0, text);
	snprintf(text, sizeof(text), "%u", port.lmc);
	says("ports/1/lid_mask_count", 0, text);
	/* The kernel adds this bit for the verbs only. */
	snprintf(text, sizeof(text), "0x%08x", port.port_cap_flags & ~(uint32_t)IBV_PORT_IP_BASED_GIDS);
	says("ports/1/cap_mask", 0, text);
	says("ports/1/link_layer", 0, port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	check_int(ibv_close_device(ctx), 0);
}

static void its_tables_are_those_of_the_verbs(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_port_attr port;
	char text[128], name[IF_NAMESIZE];
	__be16 pkey;

	check_int(ibv_query_port(ctx, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry row;
		union ibv_gid gid;
		int n = 0;

		check_int(ibv_query_gid(ctx, 1, i, &gid), 0);
		for (int b = 0; b < 16; b++)
			n += sprintf(text + n, "%02x%s", gid.raw[b], b % 2 && b < 15 ? ":" : "");
		says("ports/1/gids/%u", (unsigned)i, text);
		if (ibv_query_gid_ex(ctx, 1, (uint32_t)i, &row, 0)) {
			errno = 0;
			check_int(say("ports/1/gid_attrs/types/%u", (unsigned)i, text, sizeof(text)), -1);
			check_int(errno, EINVAL);
			continue;
		}
		says("ports/1/gid_attrs/types/%u", (unsigned)i,
			row.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
		if (row.ndev_ifindex && if_indextoname(row.ndev_ifindex, name))
			says("ports/1/gid_attrs/ndevs/%u", (unsigned)i, name);
	}
	check_int(say("ports/1/gids/%u", (unsigned)port.gid_tbl_len, text, sizeof(text)), -1);
	for (int i = 0; i < port.pkey_tbl_len; i++) {
		check_int(ibv_query_pkey(ctx, 1, i, &pkey), 0);
		snprintf(text, sizeof(text), "0x%04x", ntohs(pkey));
		says("ports/1/pkeys/%u", (unsigned)i, text);
	}
	check_int(ibv_close_device(ctx), 0);
}

#define MESSAGE 4096
#define TIMES	50

static void its_counters_move_with_the_traffic(void)
{
	static const char *const data[] = { "ports/1/counters/port_xmit_data",
		"ports/1/counters/port_rcv_data" };
	static const char *const packets[] = { "ports/1/counters/port_xmit_packets",
		"ports/1/hw_counters/tx_packets" };
	char *from = fresh(MESSAGE), *to = fresh(MESSAGE), path[PATH_MAX];
	uint64_t before[2], faults;
	struct ibv_mr *here, *there;
	struct pair p;
	int counters, fd;
	ssize_t n;

	check_int(value_of("ports/1/counters/port_xmit_data"), 0); /* the device is not open */
	pair_open(&p, NULL);
	here = reg(&p.a, from, MESSAGE, LOCAL);
	there = reg(&p.b, to, MESSAGE, REMOTE | ODP);
	faults = value_of("ports/1/hw_counters/page_faults");
	for (int i = 0; i < 2; i++)
		before[i] = value_of(data[i]);
	for (int i = 0; i < TIMES; i++) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, from, MESSAGE, to, there->rkey);
		check_int(wait_any(&p.a).status, IBV_WC_SUCCESS);
	}
	/* In units of four octets. */
	for (int i = 0; i < 2; i++)
		check(value_of(data[i]) - before[i] >= TIMES * MESSAGE / 4);
	for (int i = 0; i < 2; i++)
		check(value_of(data[i]) - before[i] < TIMES * MESSAGE);
	for (int i = 0; i < 2; i++)
		check(value_of(packets[i]) >= TIMES);
	check(value_of("ports/1/hw_counters/page_faults") > faults);

	/* Also where the path does not say what it is about. */
	snprintf(path, sizeof(path), CLASS "/%s/ports/1/counters", device());
	counters = open(path, O_RDONLY | O_DIRECTORY);
	check_sys(counters >= 0);
	fd = openat(counters, "port_xmit_packets", O_RDONLY);
	check_sys(fd >= 0);
	n = read(fd, path, sizeof(path) - 1);
	check(n > 0);
	path[n] = '\0';
	check(strtoull(path, NULL, 10) >= TIMES);
	close(fd);
	close(counters);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

/* ncclIbGetGidIndex(), ncclIbRoceGetVersionNum(), ncclIbGetPciPath() of NCCL 2.2x: realpath of the missing
 * device link only warns. */
static void nccl_finds_a_gid_and_its_type(void)
{
	char path[PATH_MAX], text[64];
	struct ibv_context *ctx = device_open();
	struct ibv_port_attr port;
	int usable = 0;

	snprintf(path, sizeof(path), CLASS "/%s/device", device());
	errno = 0;
	check(!realpath(path, NULL));
	check_int(errno, ENOENT);
	check_int(ibv_query_port(ctx, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		int version = 0;
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), CLASS "/%s/ports/1/gid_attrs/types/%d", device(), i);
		fd = open(path, O_RDONLY);
		check_sys(fd >= 0);
		memset(text, 0, sizeof(text));
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (n < 0) {
			check_int(errno, EINVAL); /* which NCCL takes for an empty row */
			continue;
		}
		if (!strncmp(text, "IB/RoCE v1", 10) || !strncmp(text, "RoCE v1", 7))
			version = 1;
		else if (!strncmp(text, "RoCE v2", 7))
			version = 2;
		check(version);
		usable += version == 2;
	}
	check(usable > 0);
	check_int(ibv_close_device(ctx), 0);
}

/* uct_ib_device_init(), uct_ib_device_get_roce_ndev_name(), uct_ib_device_query_gid_info() of UCX 1.13
 * to 1.20. */
static void ucx_finds_what_it_reads_and_no_node(void)
{
	char path[PATH_MAX], text[64], *real;
	struct stat st;

	snprintf(path, sizeof(path), CLASS "/%s", device());
	real = realpath(path, NULL);
	check(real);
	snprintf(path, sizeof(path), "/sys/devices/virtual/infiniband/%s", device());
	check(!strcmp(real, path));
	free(real);
	check_int(say("device/numa_node", 0, text, sizeof(text)), -1); /* virtual */
	check_int(say("device/local_cpus", 0, text, sizeof(text)), -1);
	check_int(say("tc/1/traffic_class", 0, text, sizeof(text)), -1);
	check(say("ports/1/gid_attrs/types/%u", 0, text, sizeof(text)) > 0);
	snprintf(path, sizeof(path), "/dev/infiniband/%s", device());
	check_int(stat(path, &st), -1);
	check_int(errno, ENOENT);
	check_int(access(path, R_OK | W_OK), -1);
	snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/%s", device());
	check_int(access(path, F_OK), -1);
}

/* hwloc's osdev: from a descriptor of the root, without the leading slash. */
static void hwloc_finds_it_below_a_descriptor_of_the_root(void)
{
	int root = open("/", O_RDONLY | O_DIRECTORY), fd, found = 0;
	char path[PATH_MAX], text[64];
	DIR *dir;

	fd = openat(root, "sys/class/infiniband", O_RDONLY | O_DIRECTORY);
	check_sys(fd >= 0);
	dir = fdopendir(fd);
	check(dir);
	for (struct dirent *d; (d = readdir(dir));)
		found += !strcmp(d->d_name, device());
	closedir(dir);
	check_int(found, 1);
	snprintf(path, sizeof(path), "sys/class/infiniband/%s", device());
	check(readlinkat(root, path, text, sizeof(text)) > 0);
	check(!strncmp(text, "../../devices/virtual/infiniband/", 33)); /* which hwloc takes for virtual */
	close(root);
}

/* A child that is forked, and one that runs another program, see it too. */
static void children_see_it(void)
{
	char path[PATH_MAX];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), CLASS "/%s/node_type", device());
	check_int(access(path, R_OK), 0);
	for (int i = 0; i < 2; i++) {
		pid = fork();
		check_sys(pid >= 0);
		if (!pid && i)
			execlp("grep", "grep", "-q", "1: CA", path, (char *)NULL);
		if (!pid)
			_exit(access(path, R_OK) != 0);
		check_int(waitpid(pid, &status, 0), pid);
		check_int(status, 0);
	}
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(it_says_of_the_device_what_the_verbs_answer),
		CASE(its_tables_are_those_of_the_verbs),
		CASE(its_counters_move_with_the_traffic),
		CASE(nccl_finds_a_gid_and_its_type),
		CASE(ucx_finds_what_it_reads_and_no_node),
		CASE(hwloc_finds_it_below_a_descriptor_of_the_root),
		CASE(children_see_it),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
