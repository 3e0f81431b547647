/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Ports, claimed by several processes: what conflicts, what a process that ends gives back, and races. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdmacm/claim.h"
#include "rdmacm/own.h"

/* Of its own, so that a test that runs beside this one does not meet it. */
static uint32_t port_space;

static struct claim claim_of(uint32_t host, uint16_t port)
{
	struct claim c = { .port.ps = port_space, .port.afonly = true, .fd = -1 };

	c.port.addr.in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = { htonl(host) } };
	address_set_port(&c.port.addr, port);
	return c;
}

static void taken_and_given_back(void **state)
{
	struct claim a = claim_of(0x7f000001, 7174), b = claim_of(0x7f000001, 7174),
		     other = claim_of(0x7f000002, 7174), any = claim_of(0, 7174);

	assert_int_equal(claim_take(&a), 0);
	assert_int_equal(claim_take(&b), -EADDRINUSE);
	assert_int_equal(claim_take(&any), -EADDRNOTAVAIL);
	assert_int_equal(claim_take(&other), 0);
	claim_drop(&a);
	assert_int_equal(claim_take(&b), 0);
	claim_drop(&b);
	claim_drop(&other);
	assert_int_equal(claim_take(&any), 0);
	claim_drop(&any);
}

static void reuse_until_somebody_listens(void **state)
{
	struct claim a = claim_of(0x7f000001, 7175), b = a, c = a;

	a.port.reuse = b.port.reuse = c.port.reuse = true;
	assert_int_equal(claim_take(&a), 0);
	assert_int_equal(claim_take(&b), 0);
	assert_int_equal(claim_own(&a), -EADDRINUSE);
	assert_true(a.port.reuse);
	claim_drop(&b);
	assert_int_equal(claim_own(&a), 0);
	assert_int_equal(claim_take(&c), -EADDRINUSE);
	claim_drop(&a);
}

static void ephemeral_ports_differ(void **state)
{
	struct claim c[32];

	for (unsigned i = 0; i < 32; i++) {
		c[i] = claim_of(0x7f000001, 0);
		assert_int_equal(claim_take(&c[i]), 0);
		assert_true(address_port(&c[i].port.addr) > 0);
		for (unsigned k = 0; k < i; k++)
			assert_int_not_equal(address_port(&c[i].port.addr), address_port(&c[k].port.addr));
	}
	for (unsigned i = 0; i < 32; i++)
		claim_drop(&c[i]);
}

static void privileged_ports(void **state)
{
	struct claim c = claim_of(0x7f000001, 1);
	int status;
	pid_t pid = fork();

	if (!pid) {
		int err;

		if (!geteuid() && setuid(65534))
			_exit(77);
		err = claim_take(&c);
		_exit(err == -EACCES ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A process takes a port and waits for its end. */
static pid_t holder(uint16_t port)
{
	struct claim c = claim_of(0x7f000001, port);
	int ready[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		if (claim_take(&c))
			_exit(1);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void a_dead_process_holds_nothing(void **state)
{
	struct claim c = claim_of(0x7f000001, 7176);
	pid_t pid = holder(7176);

	assert_int_equal(claim_take(&c), -EADDRINUSE);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(claim_take(&c), 0);
	claim_drop(&c);
}

static void a_child_holds_nothing_either(void **state)
{
	struct claim c = claim_of(0x7f000001, 7177), again = c;
	int go[2], done[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(go) | pipe(done), 0);
	assert_int_equal(claim_take(&c), 0);
	pid = fork();
	if (!pid) {
		own_abandon();
		_exit(write(done[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1 ? 0 : 1);
	}
	assert_int_equal(read(done[0], &byte, 1), 1);
	claim_drop(&c);
	assert_int_equal(claim_take(&again), 0);
	claim_drop(&again);
	assert_int_equal(write(go[1], &byte, 1), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define RACERS 6
#define ROUNDS 40

/* All want the same port at once, again and again: each time one gets it. */
static void one_of_many_gets_it(void **state)
{
	pid_t pid[RACERS];
	int gate[2], outcome[2], release[2];

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint16_t port = (uint16_t)(20000 + round);
		unsigned got = 0;
		char byte;

		assert_int_equal(pipe(gate) | pipe(outcome) | pipe(release), 0);
		for (unsigned i = 0; i < RACERS; i++) {
			pid[i] = fork();
			if (!pid[i]) {
				struct claim c = claim_of(0x7f000001, port);

				close(gate[1]);
				close(release[1]);
				if (read(gate[0], &byte, 1))
					_exit(1);
				byte = claim_take(&c) ? 'n' : 'y';
				if (write(outcome[1], &byte, 1) != 1 || read(release[0], &byte, 1))
					_exit(1);
				_exit(0);
			}
		}
		close(gate[1]);
		for (unsigned i = 0; i < RACERS; i++) {
			assert_int_equal(read(outcome[0], &byte, 1), 1);
			got += byte == 'y';
		}
		close(release[1]);
		for (unsigned i = 0; i < RACERS; i++)
			assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
		close(gate[0]);
		close(outcome[0]);
		close(outcome[1]);
		close(release[0]);
		assert_int_equal(got, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(taken_and_given_back),
		cmocka_unit_test(reuse_until_somebody_listens),
		cmocka_unit_test(ephemeral_ports_differ),
		cmocka_unit_test(privileged_ports),
		cmocka_unit_test(a_dead_process_holds_nothing),
		cmocka_unit_test(a_child_holds_nothing_either),
		cmocka_unit_test(one_of_many_gets_it),
	};

	port_space = 0x10000u + (uint32_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
