/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Commands as they are written to /dev/infiniband/rdma_cm: what the kernel answers, and what hostile ones do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mm/sigchain.h"
#include "rdmacm/channel.h"
#include "rdmacm/id.h"
#include "rdmacm/ucma.h"

#define BAD 16 /* an address where nothing is */

static int fd;
static struct event_channel *channel;

static int setup(void **state)
{
	fd = event_channel_open(O_CLOEXEC | O_NONBLOCK);
	assert_true(fd >= 0);
	channel = event_channel_get(fd);
	assert_non_null(channel);
	return 0;
}

static int teardown(void **state)
{
	event_channel_put(channel);
	event_channel_closed(fd);
	close(fd);
	assert_false(event_channel_any());
	return 0;
}

static ssize_t command_on(
	struct event_channel *c, uint32_t number, const void *in, size_t in_len, uint16_t out_len)
{
	struct {
		struct rdma_ucm_cmd_hdr head;
		uint8_t body[1024];
	} buf = { .head = { number, (uint16_t)in_len, out_len } };
	size_t len = sizeof(buf.head) + in_len;
	ssize_t r;

	memcpy(buf.body, in, in_len);
	r = ucma_write(c, &buf, len);
	return r == (ssize_t)len ? 0 : r;
}

#define COMMAND(number, in, out_len)                                                                         \
	command_on(channel, RDMA_USER_CM_CMD_##number, &(in), sizeof(in), (uint16_t)(out_len))

static uint32_t create(uint64_t uid)
{
	struct rdma_ucm_create_id_resp resp = { 0 };
	struct rdma_ucm_create_id in = { .uid = uid, .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP };

	assert_int_equal(COMMAND(CREATE_ID, in, sizeof(resp)), 0);
	return resp.id;
}

static ssize_t destroy(uint32_t id, uint32_t *events)
{
	struct rdma_ucm_destroy_id_resp resp = { 77 };
	struct rdma_ucm_destroy_id in = { .response = (uintptr_t)&resp, .id = id };
	ssize_t r = COMMAND(DESTROY_ID, in, sizeof(resp));

	if (events)
		*events = resp.events_reported;
	return r;
}

static ssize_t bind_to(uint32_t id, const char *host, uint16_t port)
{
	struct rdma_ucm_bind_ip in = { .id = id };
	struct sockaddr_in *a = (void *)&in.addr;

	if (strchr(host, ':')) {
		in.addr.sin6_family = AF_INET6;
		inet_pton(AF_INET6, host, &in.addr.sin6_addr);
		in.addr.sin6_port = htons(port);
	} else {
		a->sin_family = AF_INET;
		inet_pton(AF_INET, host, &a->sin_addr);
		a->sin_port = htons(port);
	}
	return COMMAND(BIND_IP, in, 0);
}

static ssize_t resolve(uint32_t id, const char *host)
{
	struct rdma_ucm_resolve_ip in = { .id = id, .timeout_ms = 1000 };
	struct sockaddr_in *a = (void *)&in.dst_addr;

	a->sin_family = AF_INET;
	inet_pton(AF_INET, host, &a->sin_addr);
	a->sin_port = htons(7174);
	return COMMAND(RESOLVE_IP, in, 0);
}

static ssize_t event(struct rdma_ucm_event_resp *resp)
{
	struct rdma_ucm_get_event in = { .response = (uintptr_t)resp };

	memset(resp, 0, sizeof(*resp));
	return COMMAND(GET_EVENT, in, sizeof(*resp));
}

static bool readable(void)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void ids_come_and_go(void **state)
{
	uint32_t id = create(1), second = create(2), events;

	assert_int_not_equal(id, second);
	assert_int_equal(destroy(id, &events), 0);
	assert_int_equal(events, 0);
	assert_int_equal(destroy(id, NULL), -ENOENT);
	assert_int_equal(create(3), id); /* the lowest free number */
	assert_int_equal(destroy(12345678, NULL), -ENOENT);
}

static void what_is_not_offered(void **state)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id in = { .response = (uintptr_t)&resp, .ps = RDMA_PS_UDP };
	struct rdma_ucm_bind bind = { .id = create(1), .addr_size = sizeof(struct sockaddr_in) };
	struct rdma_ucm_query query = { .id = bind.id, .option = 9 };

	assert_int_equal(COMMAND(CREATE_ID, in, sizeof(resp)), -EINVAL);
	in.ps = RDMA_PS_IPOIB;
	assert_int_equal(COMMAND(CREATE_ID, in, sizeof(resp)), -EINVAL);
	bind.addr.ss_family = 27; /* AF_IB */
	assert_int_equal(COMMAND(BIND, bind, 0), -ENODEV);
	assert_int_equal(COMMAND(QUERY, query, 600), -ENOSYS);
	assert_int_equal(COMMAND(GET_OPTION, query, 0), -ENOSYS);
	assert_int_equal(command_on(channel, 23, &query, sizeof(query), 0), -ENOSYS);
	assert_int_equal(command_on(channel, 24, &query, sizeof(query), 0), -ENOSYS);
	assert_int_equal(command_on(channel, 25, &query, sizeof(query), 0), -EINVAL);
}

static void addresses(void **state)
{
	uint32_t a = create(1), b = create(2), c = create(3);

	assert_int_equal(bind_to(a, "192.0.2.1", 0), -EADDRNOTAVAIL);
	assert_int_equal(bind_to(a, "127.0.0.1", 0), 0);
	assert_int_equal(bind_to(a, "127.0.0.1", 0), -EINVAL);
	assert_int_equal(bind_to(b, "fe80::1", 0), -EINVAL); /* of which interface? */
	assert_int_equal(bind_to(b, "0.0.0.0", 0), 0);
	assert_int_equal(resolve(c, "127.0.0.1"), 0);
	assert_true(readable());
}

static void the_order_of_states(void **state)
{
	struct rdma_ucm_resolve_route route = { .id = create(9) };
	struct rdma_ucm_connect connect = { .id = route.id, .conn_param.valid = 1 };
	struct rdma_ucm_accept accept = { .id = route.id, .conn_param.valid = 1 };
	struct rdma_ucm_disconnect disconnect = { .id = route.id };
	struct rdma_ucm_event_resp resp;
	uint32_t events;

	assert_int_equal(COMMAND(RESOLVE_ROUTE, route, 0), -EINVAL);
	assert_int_equal(COMMAND(CONNECT, connect, 0), -EINVAL);
	assert_int_equal(COMMAND(ACCEPT, accept, 0), -EINVAL);
	assert_int_equal(COMMAND(DISCONNECT, disconnect, 0), -EINVAL);
	assert_int_equal(event(&resp), -EAGAIN);
	assert_int_equal(resolve(route.id, "127.0.0.1"), 0);
	assert_int_equal(COMMAND(CONNECT, connect, 0), -EINVAL);
	assert_int_equal(COMMAND(RESOLVE_ROUTE, route, 0), 0);
	assert_int_equal(event(&resp), 0);
	assert_int_equal(resp.event, UCMA_EVENT_ADDR_RESOLVED);
	assert_int_equal(resp.uid, 9);
	assert_int_equal(resp.id, route.id);
	assert_int_equal(event(&resp), 0);
	assert_int_equal(resp.event, UCMA_EVENT_ROUTE_RESOLVED);
	assert_false(readable());
	connect.conn_param.private_data_len = 57;
	assert_int_equal(COMMAND(CONNECT, connect, 0), -EINVAL);
	assert_int_equal(destroy(route.id, &events), 0);
	assert_int_equal(events, 2);
}

static void waiting_events_go_with_their_id(void **state)
{
	struct rdma_ucm_event_resp resp;
	uint32_t a = create(1), b = create(2);

	assert_int_equal(resolve(a, "127.0.0.1"), 0);
	assert_int_equal(resolve(b, "127.0.0.1"), 0);
	assert_int_equal(destroy(a, NULL), 0);
	assert_int_equal(event(&resp), 0);
	assert_int_equal(resp.uid, 2);
	assert_int_equal(event(&resp), -EAGAIN);
	assert_false(readable());
}

static void an_event_that_cannot_be_delivered_stays(void **state)
{
	struct rdma_ucm_get_event in = { .response = BAD };
	struct rdma_ucm_event_resp resp;

	assert_int_equal(resolve(create(1), "127.0.0.1"), 0);
	assert_int_equal(COMMAND(GET_EVENT, in, sizeof(resp)), -EFAULT);
	assert_true(readable());
	assert_int_equal(event(&resp), 0);
	assert_int_equal(resp.event, UCMA_EVENT_ADDR_RESOLVED);
}

static void migration(void **state)
{
	int other = event_channel_open(O_CLOEXEC | O_NONBLOCK);
	struct event_channel *to = event_channel_get(other);
	struct rdma_ucm_migrate_resp resp = { 77 };
	struct rdma_ucm_migrate_id in = { .response = (uintptr_t)&resp, .id = create(5), .fd = (uint32_t)fd };
	struct rdma_ucm_event_resp e;
	struct rdma_ucm_get_event get = { .response = (uintptr_t)&e };

	assert_int_equal(resolve(in.id, "127.0.0.1"), 0);
	assert_int_equal(command_on(to, RDMA_USER_CM_CMD_MIGRATE_ID, &in, sizeof(in), sizeof(resp)), 0);
	assert_int_equal(resp.events_reported, 0);
	assert_false(readable());
	assert_int_equal(event(&e), -EAGAIN);
	assert_int_equal(command_on(to, RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof(get), sizeof(e)), 0);
	assert_int_equal(e.uid, 5);
	assert_int_equal(destroy(in.id, NULL), -EINVAL); /* the other channel's */
	in.fd = 1000000;
	assert_int_equal(command_on(to, RDMA_USER_CM_CMD_MIGRATE_ID, &in, sizeof(in), sizeof(resp)), -ENOENT);
	in.fd = 0;
	assert_int_not_equal(command_on(to, RDMA_USER_CM_CMD_MIGRATE_ID, &in, sizeof(in), sizeof(resp)), 0);
	event_channel_put(to);
	event_channel_closed(other);
	close(other);
}

static void options(void **state)
{
	int on = 1;
	struct rdma_ucm_set_option in = { .optval = (uintptr_t)&on,
		.id = create(1),
		.optname = RDMA_OPTION_ID_REUSEADDR,
		.optlen = sizeof(on) };
	uint32_t second = create(2);

	assert_int_equal(COMMAND(SET_OPTION, in, 0), 0);
	in.id = second;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), 0);
	in.optlen = 1;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), -EINVAL);
	in.optlen = UINT32_MAX;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), -EINVAL);
	in.optlen = sizeof(on);
	in.optval = BAD;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), -EFAULT);
	in.optname = 77;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), -ENOSYS);
	in.level = RDMA_OPTION_IB;
	in.optname = RDMA_OPTION_IB_PATH;
	in.optlen = 72;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), -EFAULT);
	in.level = 5;
	assert_int_equal(COMMAND(SET_OPTION, in, 0), -ENOSYS);
}

static void headers(void **state)
{
	struct rdma_ucm_cmd_hdr head = { .cmd = RDMA_USER_CM_CMD_DESTROY_ID, .in = 16, .out = 4 };

	assert_int_equal(ucma_write(channel, &head, 7), -EINVAL);
	assert_int_equal(ucma_write(channel, &head, 8), -EINVAL); /* in goes beyond what was written */
	assert_int_equal(ucma_write(channel, (void *)BAD, 8), -EFAULT);
	head.in = 0;
	head.out = 3;
	assert_int_equal(ucma_write(channel, &head, 8), -ENOSPC);
	head.cmd = UINT32_MAX;
	assert_int_equal(ucma_write(channel, &head, 8), -EINVAL);
}

/* Random commands with random contents, at the end of a page behind which nothing is: no signal, no hang. */
static void random_commands(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static uint8_t out[4096];

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
	srand(7);
	for (unsigned i = 0; i < 20000; i++) {
		size_t len = (size_t)(rand() % 400);
		uint8_t *at = map + page - len;
		struct rdma_ucm_cmd_hdr head = { .cmd = (uint32_t)(rand() % 26),
			.in = (uint16_t)(rand() % 4 ? (len > 8 ? len - 8 : 0) : (size_t)rand()),
			.out = (uint16_t)(rand() % 3 ? 600 : rand()) };
		uint64_t response = rand() % 4 ? (uintptr_t)out : BAD;

		for (size_t k = 0; k < len; k++)
			at[k] = (uint8_t)(rand() % 3 ? 0 : rand() % 4 ? rand() % 12 : rand());
		memcpy(at, &head, len < sizeof(head) ? len : sizeof(head));
		if (len >= 32)
			memcpy(at + (rand() % 2 ? 8 : 16), &response, sizeof(response));
		ucma_write(channel, at, len);
	}
	munmap(map, 2 * page);
}

static void a_child_has_none_of_it(void **state)
{
	uint32_t id = create(1);
	int status;
	pid_t pid = fork();

	if (!pid) {
		bool inherited = false;
		int own;

		if (!event_channel_is(fd, &inherited) || !inherited || event_channel_get(fd))
			_exit(1);
		event_channel_closed(fd);
		own = event_channel_open(O_NONBLOCK);
		channel = event_channel_get(own);
		_exit(own >= 0 && channel && create(1) == 0 ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(destroy(id, NULL), 0);
}

static void copies_and_ranges(void **state)
{
	int copy = dup(fd), own = event_channel_open(0), other;
	bool inherited;

	event_channel_copied(fd, copy);
	assert_true(event_channel_is(copy, &inherited));
	assert_false(inherited);
	event_channel_closed_range((unsigned)copy, (unsigned)own);
	assert_false(event_channel_is(copy, &inherited) || event_channel_is(own, &inherited));
	assert_true(event_channel_is(fd, &inherited));
	close(copy);
	close(own);
	/* A channel that was closed behind our back, and its number is a file's. */
	own = event_channel_open(0);
	other = open("/dev/null", O_RDONLY);
	assert_int_equal(dup2(other, own), own);
	assert_null(event_channel_get(own));
	assert_false(event_channel_is(own, &inherited));
	close(own);
	close(other);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ids_come_and_go),
		TEST(what_is_not_offered),
		TEST(addresses),
		TEST(the_order_of_states),
		TEST(waiting_events_go_with_their_id),
		TEST(an_event_that_cannot_be_delivered_stays),
		TEST(migration),
		TEST(options),
		TEST(headers),
		TEST(random_commands),
		TEST(copies_and_ranges),
		TEST(a_child_has_none_of_it),
	};

	sigchain_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
