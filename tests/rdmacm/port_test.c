/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Who may bind a port beside whom, as the kernel's rdma_cm decides it, and the names that say so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/port.h"

#define USER 1000
#define TCP  0x106
#define UDP  0x111

static union address address(const char *host, uint16_t port)
{
	union address a = { 0 };

	if (inet_pton(AF_INET, host, &a.in.sin_addr) == 1) {
		a.in.sin_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, host, &a.in6.sin6_addr), 1);
		a.in6.sin6_family = AF_INET6;
	}
	address_set_port(&a, port);
	return a;
}

/* flags: r reuse, f of its own family only, u the other port space. */
static struct port_claim claim(const char *host, uint16_t port, const char *flags)
{
	return (struct port_claim){ .ps = strchr(flags, 'u') ? UDP : TCP,
		.addr = address(host, port),
		.reuse = strchr(flags, 'r'),
		.afonly = strchr(flags, 'f'),
		.owner = 7 };
}

static const struct {
	const char *host[2];
	const char *flags[2];
	int conflict, conflict_listening;
} cases[] = {
	{ { "10.0.0.1", "10.0.0.1" }, { "f", "f" }, -EADDRINUSE, -EADDRINUSE },
	{ { "10.0.0.1", "10.0.0.2" }, { "f", "f" }, 0, 0 },
	{ { "10.0.0.1", "0.0.0.0" }, { "f", "f" }, -EADDRNOTAVAIL, -EADDRNOTAVAIL },
	{ { "0.0.0.0", "0.0.0.0" }, { "f", "f" }, -EADDRNOTAVAIL, -EADDRNOTAVAIL },
	{ { "10.0.0.1", "10.0.0.1" }, { "fu", "f" }, 0, 0 },
	/* Two families: apart when both keep to their own. */
	{ { "0.0.0.0", "::" }, { "f", "f" }, 0, 0 },
	{ { "0.0.0.0", "::" }, { "f", "" }, -EADDRNOTAVAIL, -EADDRNOTAVAIL },
	{ { "10.0.0.1", "::" }, { "f", "" }, -EADDRNOTAVAIL, -EADDRNOTAVAIL },
	{ { "10.0.0.1", "2001:db8::1" }, { "f", "" }, 0, 0 },
	{ { "2001:db8::1", "2001:db8::1" }, { "", "f" }, -EADDRINUSE, -EADDRINUSE },
	{ { "2001:db8::1", "2001:db8::2" }, { "", "" }, 0, 0 },
	/* Reuse: when both agree, and not for who listens. */
	{ { "10.0.0.1", "10.0.0.1" }, { "fr", "fr" }, 0, -EADDRINUSE },
	{ { "10.0.0.1", "10.0.0.1" }, { "fr", "f" }, -EADDRINUSE, -EADDRINUSE },
	{ { "0.0.0.0", "10.0.0.1" }, { "fr", "fr" }, 0, -EADDRNOTAVAIL },
};

static void conflicts(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (unsigned turn = 0; turn < 2; turn++) {
			struct port_claim a = claim(cases[i].host[turn], 7174, cases[i].flags[turn]);
			struct port_claim b = claim(cases[i].host[!turn], 7174, cases[i].flags[!turn]);

			if (port_conflict(&a, &b, true) != cases[i].conflict ||
				port_conflict(&a, &b, false) != cases[i].conflict_listening)
				fail_msg("case %zu, turn %u", i, turn);
			address_set_port(&b.addr, 7175);
			assert_int_equal(port_conflict(&a, &b, false), 0);
		}
	}
}

static void claims_are_read_as_written(void **state)
{
	const char *hosts[] = { "0.0.0.0", "255.255.255.255", "10.1.2.3", "::", "2001:db8::1", "fe80::1",
		"::ffff:10.0.0.1" };
	const char *flags[] = { "", "r", "f", "rf", "u" };

	for (size_t h = 0; h < 7; h++) {
		for (size_t f = 0; f < 5; f++) {
			struct port_claim c = claim(hosts[h], 65535, flags[f]), read;
			char name[PORT_NAME_MAX];
			int len;

			if (h == 5)
				c.addr.in6.sin6_scope_id = UINT32_MAX;
			c.owner = UINT64_MAX;
			len = port_claim_name(&c, UINT32_MAX - 1, name);
			assert_true(len > 0);
			assert_true(port_claim_parse(name, (size_t)len, UINT32_MAX - 1, &read));
			assert_true(address_equal(&read.addr, &c.addr));
			assert_int_equal(address_port(&read.addr), 65535);
			assert_int_equal(read.ps, c.ps);
			assert_int_equal(read.reuse, c.reuse);
			assert_int_equal(read.afonly, c.afonly);
			assert_int_equal(read.owner, c.owner);
			assert_false(port_claim_parse(name, (size_t)len, USER, &read));
		}
	}
}

/* Anybody may give a socket any name. */
static void hostile_names(void **state)
{
	struct port_claim c = claim("10.0.0.1", 1, ""), read;
	char name[PORT_NAME_MAX], bad[PORT_NAME_MAX];
	int len = port_claim_name(&c, USER, name);

	srand(1);
	for (unsigned i = 0; i < 100000; i++) {
		memcpy(bad, name, sizeof(bad));
		for (int n = rand() % 3; n >= 0; n--)
			bad[rand() % len] =
				(char)(rand() % 4 ? "0123456789abcdef/%-rf +"[rand() % 23] : rand());
		if (port_claim_parse(bad, (size_t)(rand() % 8 ? len : rand() % (len + 1)), USER, &read)) {
			assert_true(address_size(&read.addr) > 0);
			assert_int_equal(port_claim_name(&read, USER, name) > 0, 1);
			len = port_claim_name(&c, USER, name);
		}
	}
	memset(bad, 'x', sizeof(bad));
	assert_false(port_claim_parse(bad, sizeof(bad), USER, &read));
	assert_false(port_claim_parse(bad, 4000, USER, &read));
	assert_false(port_claim_parse("", 0, USER, &read));
}

/* Whether who goes to `to` finds who listens with the claim. */
static bool finds(const char *to, struct port_claim c)
{
	union address target = address(to, 7174);
	char listens[PORT_NAME_MAX], goes[PORT_NAME_MAX];

	assert_true(port_listener_name(&c, USER, "unpin0", listens) > 0);
	for (unsigned n = 0; port_target_name(TCP, &target, USER, "unpin0", n, goes) > 0; n++)
		if (!strcmp(listens, goes))
			return true;
	return false;
}

static void listeners_are_found(void **state)
{
	assert_true(finds("10.0.0.1", claim("10.0.0.1", 7174, "f")));
	assert_false(finds("10.0.0.2", claim("10.0.0.1", 7174, "f")));
	assert_false(finds("10.0.0.1", claim("10.0.0.1", 7175, "f")));
	assert_false(finds("10.0.0.1", claim("10.0.0.1", 7174, "fu")));
	assert_true(finds("10.0.0.1", claim("0.0.0.0", 7174, "f")));
	assert_true(finds("10.0.0.1", claim("::", 7174, "")));
	assert_false(finds("10.0.0.1", claim("::", 7174, "f")));
	assert_true(finds("2001:db8::1", claim("::", 7174, "")));
	assert_true(finds("2001:db8::1", claim("::", 7174, "f")));
	assert_false(finds("2001:db8::1", claim("0.0.0.0", 7174, "f")));
	assert_true(finds("::ffff:10.0.0.1", claim("10.0.0.1", 7174, "f")));
	assert_true(finds("10.0.0.1", claim("::ffff:10.0.0.1", 7174, "")));
}

static void the_longest_names_fit(void **state)
{
	struct port_claim c = claim("fe80::1", 65535, "rf");
	char name[PORT_NAME_MAX], device[32];

	memset(device, 'd', 31);
	device[31] = '\0';
	c.addr.in6.sin6_scope_id = UINT32_MAX;
	c.ps = UINT16_MAX;
	assert_true(port_listener_name(&c, UINT32_MAX, device, name) > 0);
	assert_true(port_lock_name(c.ps, 65535, UINT32_MAX, name) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conflicts),
		cmocka_unit_test(claims_are_read_as_written),
		cmocka_unit_test(hostile_names),
		cmocka_unit_test(listeners_are_found),
		cmocka_unit_test(the_longest_names_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
