/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Slots whose plain names are all taken: names that nobody can hold beforehand, and how peers find them. */
#include "party.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "wire/layout.h"
#include "wire/names.h"

static int held[LAYOUT_APART];

/* Bound is enough; nobody listens. */
static int hold_plain_names(void **state)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	for (uint32_t slot = 1; slot < LAYOUT_APART; slot++) {
		struct meet_name name;

		meet_name(&name, geteuid(), party_device(), slot);
		held[slot] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (held[slot] < 0 || bind(held[slot], (void *)&name.addr, name.len))
			return -1;
	}
	return 0;
}

static int let_go_of_names(void **state)
{
	for (uint32_t slot = 1; slot < LAYOUT_APART; slot++)
		close(held[slot]);
	return 0;
}

static int listen_in(uint32_t slot, uid_t owner)
{
	struct meet_name name;
	int sock;

	assert_int_equal(names_make(&name, owner, party_device(), slot), 0);
	sock = meet_listen(&name);
	assert_true(sock >= 0);
	return sock;
}

static void two_meet_whose_plain_names_are_taken(void **state)
{
	struct wire_flow there, back;
	struct party a, b;

	party_open(&a, 64);
	party_open(&b, 64);
	assert_in_range(wire_slot(a.w), LAYOUT_APART, LAYOUT_QPS - 1);
	assert_in_range(wire_slot(b.w), LAYOUT_APART, LAYOUT_QPS - 1);
	assert_int_not_equal(wire_slot(a.w), wire_slot(b.w));
	party_flow(&there, &a, wire_slot(b.w));
	party_flow(&back, &b, wire_slot(a.w));
	assert_int_equal(party_send(&there, wire_slot(b.w), 1, 64, 7), 0);
	assert_int_equal(party_send(&back, wire_slot(a.w), 1, 64, 8), 0);
	party_until(&a, &b, a.ngot == 1 && b.ngot == 1);
	party_end_flow(&there);
	party_end_flow(&back);
	party_close(&b);
	party_close(&a);
}

static void one_that_has_left_is_not_there(void **state)
{
	struct wire_flow f;
	struct party a, b;
	uint32_t slot;

	party_open(&a, 64);
	party_open(&b, 64);
	slot = wire_slot(b.w);
	party_close(&b);
	party_flow(&f, &a, slot);
	assert_int_equal(party_send(&f, slot, 1, 8, 0), -EPIPE);
	party_end_flow(&f);
	party_close(&a);
}

static void a_slot_is_given_once(void **state)
{
	int other[LAYOUT_QPS - LAYOUT_APART];
	const uint32_t left = 3900;
	struct party a;

	for (uint32_t slot = LAYOUT_APART; slot < LAYOUT_QPS; slot++)
		other[slot - LAYOUT_APART] = slot == left ? -1 : listen_in(slot, geteuid());
	party_open(&a, 64);
	assert_int_equal(wire_slot(a.w), left);
	party_close(&a);
	for (uint32_t slot = LAYOUT_APART; slot < LAYOUT_QPS; slot++)
		if (slot != left)
			close(other[slot - LAYOUT_APART]);
}

static void what_only_looks_like_a_name_is_none(void **state)
{
	static const char *const ends[] = { "", "/", "/0123456789abcde", "/0123456789abcdef0",
		"x0123456789abcdef" };
	int sock[sizeof(ends) / sizeof(*ends)];
	struct meet_name name;

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		assert_int_equal(meet_name(&name, geteuid(), party_device(), 3999), 0);
		strcat(name.addr.sun_path + 1, ends[i]);
		name.len += (socklen_t)strlen(ends[i]);
		sock[i] = meet_listen(&name);
		assert_true(sock[i] >= 0);
	}
	assert_int_equal(names_find(geteuid(), party_device(), 3999, NULL, 0), 0);
	assert_int_equal(names_call(geteuid(), party_device(), 3999), -ECONNREFUSED);
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		close(sock[i]);
}

/* In a child, as another user: holds the slot until it is killed. */
static pid_t another_user_in(uint32_t slot)
{
	uid_t victim = geteuid();
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setresuid(65534, 65534, 65534))
			_exit(7);
		listen_in(slot, victim);
		_exit(write(ready[1], "", 1) == 1 ? pause() : 1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void a_name_that_another_user_made_is_not_seen(void **state)
{
	pid_t pid;

	if (geteuid()) {
		print_message("skipped: only root can become another user\n");
		skip();
	}
	pid = another_user_in(4000);
	assert_int_equal(names_find(geteuid(), party_device(), 4000, NULL, 0), 0);
	assert_int_equal(names_find(65534, party_device(), 4000, NULL, 0), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static bool forbid_sockets(int err)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(f) / sizeof(*f), f };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void without_the_list_there_is_no_such_name(void **state)
{
	static const int errors[] = { EPERM, EAFNOSUPPORT };

	for (int i = 0; i < 2; i++) {
		int status = 0;
		pid_t pid = fork();

		if (!pid) {
			struct party a;

			if (!forbid_sockets(errors[i]))
				_exit(1);
			if (names_call(geteuid(), party_device(), 4000) != -errors[i])
				_exit(2);
			_exit(party_try_open(&a, 16) == -EADDRINUSE ? 0 : 3);
		}
		waitpid(pid, &status, 0);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_meet_whose_plain_names_are_taken),
		cmocka_unit_test(one_that_has_left_is_not_there),
		cmocka_unit_test(a_slot_is_given_once),
		cmocka_unit_test(what_only_looks_like_a_name_is_none),
		cmocka_unit_test(a_name_that_another_user_made_is_not_seen),
		cmocka_unit_test(without_the_list_there_is_no_such_name),
	};

	return cmocka_run_group_tests(tests, hold_plain_names, let_go_of_names);
}
