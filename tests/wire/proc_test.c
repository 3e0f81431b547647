/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The wire between processes: death, stopping, forking, other users, no memory. */
#include "party.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "wire/meet.h"
#include "wire/state.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static struct party me;

/* What parent and child tell each other besides. */
static struct {
	_Atomic uint32_t slot, ready, go;
} * shared;

static int open_me(void **state)
{
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	party_open(&me, 1024);
	return 0;
}

static int close_me(void **state)
{
	party_close(&me);
	munmap(shared, 4096);
	return 0;
}

static void child_waits(_Atomic uint32_t *flag)
{
	uint64_t end = clock_ns() + 2 * PARTY_WAIT;

	while (!atomic_load(flag)) {
		if (clock_ns() > end)
			_exit(9);
		usleep(200);
	}
}

/* A child that has a device of its own; in it, 0. The parent's wire is dropped as a library would. */
static pid_t child_with(struct party *p, struct wire_flow *f)
{
	uint32_t parent = wire_slot(me.w);
	pid_t pid = fork();

	if (pid)
		return pid;
	wire_abandon(me.w);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	party_open(p, 1024);
	party_flow(f, p, parent);
	atomic_store(&shared->slot, wire_slot(p->w));
	return 0;
}

static int end_of(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static const uint32_t sizes[] = { 0, 8, 64, 65, 4096, 16384 };
#define NSIZES (sizeof(sizes) / sizeof(*sizes))

static void check_all(unsigned n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wire_rx *rx = party_next(&me);

		assert_non_null(rx);
		assert_true(party_intact(rx, sizes[i % NSIZES], i));
		party_release(&me, rx);
	}
	assert_null(party_next(&me));
}

/* 40 packets of all sizes fit without anybody's help. */
#define WORDS 40u

static void say_words(struct wire_flow *f)
{
	for (uint32_t i = 0; i < WORDS; i++)
		if (party_send(f, wire_slot(me.w), 1, sizes[i % NSIZES], i))
			_exit(1);
}

static void forget(void)
{
	me.ngot = me.ngone = me.ndead = me.got_at_gone = 0;
}

static void last_words_are_heard_before_the_death(void **state)
{
	struct party p;
	struct wire_flow f;
	int status = 0;

	for (int round = 0; round < 20; round++) {
		pid_t pid;

		forget();
		pid = child_with(&p, &f);
		if (!pid) {
			say_words(&f);
			_exit(0);
		}
		/* Even rounds: it is dead and reaped before we have heard of it. Odd ones: we watch. */
		if (round % 2 == 0)
			status = end_of(pid);
		party_until(&me, &me, me.ngone == 1);
		if (round % 2)
			status = end_of(pid);
		assert_int_equal(status, 0);
		assert_int_equal(me.got_at_gone, WORDS);
		assert_int_equal(me.ndead, 1);
		assert_int_equal(me.gone_slot, shared->slot);
		check_all(WORDS);
	}
}

/* A dying process lets go of its descriptors one by one: of its name, perhaps, before its connection. */
static void who_has_lost_its_name_is_heard_when_it_ends(void **state)
{
	struct party p;
	struct wire_flow f;
	pid_t pid = child_with(&p, &f);

	if (!pid) {
		say_words(&f);
		fds_close(&p.w->fds, &p.w->listener);
		atomic_store(&shared->ready, 1);
		child_waits(&shared->go);
		_exit(0);
	}
	child_waits(&shared->ready);
	for (int i = 0; i < 20; i++)
		party_pump(&me);
	assert_int_equal(me.ngot + me.ngone, 0);
	atomic_store(&shared->go, 1);
	assert_int_equal(end_of(pid), 0);
	party_until(&me, &me, me.ngone == 1);
	assert_int_equal(me.got_at_gone, WORDS);
	assert_int_equal(me.ndead, 1);
	check_all(WORDS);
}

/* We have a channel to it, and hear there that it has ended, before we accept the one it made to us. */
static void the_end_of_one_channel_waits_for_the_words_of_the_other(void **state)
{
	struct party p;
	struct wire_flow f, back;
	pid_t pid = fork();

	if (!pid) {
		wire_abandon(me.w);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		party_open(&p, 1024);
		atomic_store(&shared->slot, wire_slot(p.w));
		party_until(&p, &p, p.ngot == 1);
		atomic_store(&shared->ready, 1);
		child_waits(&shared->go);
		/* It makes our channel to it the first to be looked at. */
		wire_notify_dropped(p.w, wire_slot(me.w), 0);
		party_flow(&f, &p, wire_slot(me.w));
		say_words(&f);
		_exit(0);
	}
	child_waits(&shared->slot);
	party_flow(&back, &me, shared->slot);
	assert_int_equal(party_send(&back, shared->slot, 1, 8, 0), 0);
	child_waits(&shared->ready);
	for (int i = 0; i < 20; i++)
		party_pump(&me);
	atomic_store(&shared->go, 1);
	assert_int_equal(end_of(pid), 0);
	party_until(&me, &me, me.ngone == 1);
	assert_int_equal(me.got_at_gone, WORDS);
	assert_int_equal(me.ndead, 1);
	for (int i = 0; i < 20; i++)
		party_pump(&me);
	assert_int_equal(me.ngone, 1);
	check_all(WORDS);
	party_end_flow(&back);
}

static void without_buffers_the_death_waits(void **state)
{
	struct party p;
	struct wire_flow f;
	pid_t pid = child_with(&p, &f);

	if (!pid) {
		say_words(&f);
		_exit(0);
	}
	assert_int_equal(end_of(pid), 0);
	me.starve = true;
	for (int i = 0; i < 20; i++)
		party_pump(&me);
	assert_int_equal(me.ngone, 0);
	me.starve = false;
	party_until(&me, &me, me.ngone == 1);
	assert_int_equal(me.got_at_gone, WORDS);
	check_all(WORDS);
}

/* A forked child of the victim keeps its sockets, names and memory descriptors. */
static void killing_is_noticed_though_a_child_of_the_victim_lives(void **state)
{
	struct party p;
	struct wire_flow f, back;
	pid_t heir, pid = child_with(&p, &f);

	if (!pid) {
		say_words(&f);
		heir = fork();
		if (heir) {
			atomic_store(&shared->go, (uint32_t)heir);
			for (;;)
				party_pump(&p);
		}
		for (;;)
			pause();
	}
	child_waits(&shared->go);
	party_flow(&back, &me, shared->slot);
	party_until(&me, &me, me.ngot == WORDS);
	assert_int_equal(party_send(&back, shared->slot, 1, 4096, 0), 0);
	assert_int_equal(me.ngone, 0);
	kill(pid, SIGKILL);
	party_until(&me, &me, me.ngone == 1);
	assert_int_equal(me.ndead, 1);
	assert_int_equal(party_send(&back, shared->slot, 1, 4096, 0), -EPIPE);
	assert_int_equal(kill((pid_t)shared->go, 0), 0);
	/* The name lives on in the heir, but nobody is behind it. */
	party_end_flow(&back);
	party_flow(&back, &me, shared->slot);
	party_until(&me, &me, party_send(&back, shared->slot, 1, 8, 0) == -EPIPE);
	kill((pid_t)shared->go, SIGKILL);
	end_of(pid);
	check_all(WORDS);
	party_end_flow(&back);
}

static void closing_works_though_a_child_holds_everything_open(void **state)
{
	struct party other;
	struct wire_flow out, unheard;
	uint32_t slot;
	pid_t heir;

	party_open(&other, 64);
	slot = wire_slot(other.w);
	party_flow(&out, &me, slot);
	assert_int_equal(party_send(&out, slot, 1, 8, 0), 0);
	party_until(&me, &other, other.ngot == 1);
	heir = fork();
	if (!heir)
		for (;;)
			pause();
	party_close(&other);
	party_until(&me, &me, me.ngone == 1);
	assert_int_equal(me.ndead, 0);
	party_end_flow(&out);
	party_flow(&unheard, &me, slot);
	assert_int_equal(party_send(&unheard, slot, 1, 8, 0), -EPIPE);
	party_end_flow(&unheard);
	kill(heir, SIGKILL);
	end_of(heir);
}

/* A call that was never answered ends too. */
static void a_call_that_was_not_accepted_ends_with_the_device(void **state)
{
	struct party other;
	struct wire_flow out;
	uint32_t slot;
	pid_t heir;

	party_open(&other, 64);
	slot = wire_slot(other.w);
	party_flow(&out, &me, slot);
	assert_int_equal(party_send(&out, slot, 1, 8, 0), 0);
	heir = fork();
	if (!heir)
		for (;;)
			pause();
	party_close(&other);
	party_until(&me, &me, me.ngone == 1);
	assert_int_equal(me.ndead, 0);
	party_end_flow(&out);
	kill(heir, SIGKILL);
	end_of(heir);
}

/* Sends back whatever comes until the parent goes or says so. */
static void echo(struct party *p, struct wire_flow *f)
{
	uint32_t tag = 0;

	while (!p->ngone && !atomic_load(&shared->go)) {
		struct wire_rx *rx;

		party_pump(p);
		while ((rx = party_next(p))) {
			uint32_t len = rx->paylen;

			if (!party_intact(rx, len, tag))
				_exit(2);
			party_release(p, rx);
			while (party_send(f, wire_slot(me.w), 1, len, tag))
				party_pump(p);
			tag++;
		}
	}
	_exit(0);
}

static void a_stopped_peer_is_waited_for(void **state)
{
	struct party p;
	struct wire_flow f, out;
	uint32_t sent = 0, until;
	pid_t pid = child_with(&p, &f);

	if (!pid)
		echo(&p, &f);
	child_waits(&shared->slot);
	party_flow(&out, &me, shared->slot);
	for (; sent < WORDS; sent++)
		party_until(&me, &me, !party_send(&out, shared->slot, 1, sizes[sent % NSIZES], sent));
	party_until(&me, &me, me.ngot == WORDS);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	/* Until nothing more fits; then for a while. */
	while (!party_send(&out, shared->slot, 1, sizes[sent % NSIZES], sent))
		sent++;
	for (int i = 0; i < 200; i++) {
		party_pump(&me);
		usleep(500);
	}
	assert_int_equal(me.ngone, 0);
	assert_int_equal(me.ngot, WORDS);
	kill(pid, SIGCONT);
	party_release_all(&me);
	me.release = true;
	party_until(&me, &me, me.ngot == sent);
	for (until = sent + 200; sent < until; sent++)
		party_until(&me, &me, !party_send(&out, shared->slot, 1, sizes[sent % NSIZES], sent));
	party_until(&me, &me, me.ngot == until);
	assert_int_equal(me.ngone, 0);
	atomic_store(&shared->go, 1);
	assert_int_equal(end_of(pid), 0);
	party_end_flow(&out);
}

/* It has a name, but has never accepted us. */
static void what_is_sent_to_one_that_is_stopped_from_the_start_arrives(void **state)
{
	struct party p;
	struct wire_flow f, out;
	pid_t pid = child_with(&p, &f);

	if (!pid) {
		raise(SIGSTOP);
		party_until(&p, &p, p.ngot == WORDS);
		_exit(0);
	}
	waitpid(pid, NULL, WUNTRACED);
	party_flow(&out, &me, shared->slot);
	for (uint32_t i = 0; i < WORDS; i++)
		assert_int_equal(party_send(&out, shared->slot, 1, sizes[i % NSIZES], i), 0);
	party_pump(&me);
	kill(pid, SIGCONT);
	assert_int_equal(end_of(pid), 0);
	party_until(&me, &me, me.ngone == 1);
	party_end_flow(&out);
}

static bool become_nobody(void)
{
	return !setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534);
}

/* 0: the stranger was hung up on without an answer. */
static int stranger(uint32_t slot, uid_t euid)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, 77 };
	struct meet_name name;
	char byte;
	int s, fd[2] = { 0, 0 };

	if (!become_nobody())
		return 7;
	meet_name(&name, euid, party_device(), slot);
	s = meet_connect(&name);
	if (s < 0)
		return 3;
	meet_send(s, &m, fd, 2);
	fcntl(s, F_SETFL, 0);
	return recv(s, &byte, 1, 0) > 0 ? 4 : 0;
}

static void another_user_cannot_connect(void **state)
{
	pid_t pid;

	if (geteuid()) {
		print_message("skipped: only root can become another user\n");
		skip();
	}
	pid = fork();
	if (!pid)
		_exit(stranger(wire_slot(me.w), geteuid()));
	for (uint64_t end = clock_ns() + PARTY_WAIT; clock_ns() < end;) {
		int status;

		party_pump(&me);
		if (waitpid(pid, &status, WNOHANG) == pid) {
			assert_int_equal(status, 0);
			assert_int_equal(me.ngone + me.ngot, 0);
			return;
		}
	}
	fail_msg("the stranger was left waiting");
}

/* Whoever calls has a place among the silent ones for a while; strangers have but a few. */
static void strangers_do_not_push_out_who_is_ours(void **state)
{
	struct meet_name name;
	int mine, ended = 0;
	pid_t pid;

	if (geteuid()) {
		print_message("skipped: only root can become another user\n");
		skip();
	}
	meet_name(&name, geteuid(), party_device(), wire_slot(me.w));
	mine = meet_connect(&name);
	assert_true(mine >= 0);
	party_pump(&me);
	pid = fork();
	if (!pid) {
		int sock[100];

		if (!become_nobody())
			_exit(7);
		for (int i = 0; i < 100; i++)
			if ((sock[i] = meet_connect(&name)) < 0)
				_exit(8);
		atomic_store(&shared->ready, 1);
		child_waits(&shared->go);
		for (int i = 0; i < 100; i++)
			ended += meet_ended(sock[i]);
		_exit(ended);
	}
	party_until(&me, &me, atomic_load(&shared->ready));
	party_pump(&me);
	assert_int_equal(me.w->nstrangers, 8);
	assert_int_equal(me.w->nguests, 9);
	assert_false(meet_ended(mine));
	atomic_store(&shared->go, 1);
	assert_int_equal(WEXITSTATUS(end_of(pid)), 92);
	close(mine);
	party_until(&me, &me, !me.w->nguests && !me.w->nstrangers);
}

/* Abstract names have no permissions: somebody else may listen under one of ours. He must not get our memory.
 */
static void a_name_held_by_another_user_is_nobodys(void **state)
{
	struct meet_name name;
	struct wire_flow out;
	uint32_t slot = wire_slot(me.w) + 1 >= LAYOUT_APART ? 1 : wire_slot(me.w) + 1;
	pid_t pid;

	if (geteuid()) {
		print_message("skipped: only root can become another user\n");
		skip();
	}
	meet_name(&name, geteuid(), party_device(), slot);
	pid = fork();
	if (!pid) {
		char byte;
		int l, s;

		if (!become_nobody())
			_exit(7);
		l = meet_listen(&name);
		atomic_store(&shared->ready, 1);
		child_waits(&shared->go);
		s = meet_accept(l);
		_exit(s < 0 ? 3 : recv(s, &byte, 1, MSG_DONTWAIT) > 0 ? 4 : 0);
	}
	child_waits(&shared->ready);
	party_flow(&out, &me, slot);
	assert_int_equal(party_send(&out, slot, 1, 8, 0), -EPIPE);
	atomic_store(&shared->go, 1);
	assert_int_equal(end_of(pid), 0);
	assert_int_equal(me.ngone, 0);
	party_end_flow(&out);
}

/* From now on the kernel has no memory for what is asked in advance. */
static bool refuse_memory(uint32_t populate, uint32_t allocate)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 2, 1),
		BPF_STMT(BPF_RET | BPF_K, allocate ? SECCOMP_RET_ERRNO | allocate : SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | populate),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* From now on a socket's other end has no pidfd, as before Linux 6.5 (ENOPROTOOPT), or when it has been
 * reaped (EINVAL). */
static bool refuse_pidfds(uint32_t err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 77 /* SO_PEERPIDFD */, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* In a child, which becomes the one that hears: of a process that dies, or only closes its device. */
static int hear_without_pidfds(uint32_t err, bool dies)
{
	struct party p;
	struct wire_flow f;
	pid_t pid;

	wire_abandon(me.w);
	party_open(&me, 1024);
	pid = child_with(&p, &f);
	if (!pid) {
		say_words(&f);
		if (!dies) {
			party_end_flow(&f);
			party_close(&p);
		}
		_exit(0);
	}
	if (end_of(pid))
		return 11;
	if (!refuse_pidfds(err))
		return 77;
	party_until(&me, &me, me.ngone == 1);
	return me.got_at_gone != WORDS ? 12 : me.ndead != dies ? 13 : 0;
}

static void without_a_pidfd_last_words_are_heard_too(void **state)
{
	static const uint32_t err[] = { ENOPROTOOPT, EINVAL };

	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();
		int status;

		if (!pid)
			_exit(hear_without_pidfds(err[i / 2], i % 2));
		status = end_of(pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			print_message("skipped: seccomp filters are not allowed\n");
			skip();
		}
		assert_int_equal(status, 0);
	}
}

static int send_without_memory(struct party *p, struct wire_flow *f)
{
	uint32_t slot = wire_slot(me.w);

	/* Two slots have memory already. */
	if (party_send(f, slot, 1, 4096, 0) || party_send(f, slot, 1, 4096, 1))
		return 11;
	if (!refuse_memory(ENOMEM, ENOSPC))
		return 77;
	/* A third has not, but one will come back. (The parent has not taken anything yet.) */
	if (party_send(f, slot, 1, 4096, 2) != -EAGAIN)
		return 12;
	atomic_store(&shared->ready, 1);
	if (party_send(f, slot, 1, 8, 2))
		return 13;
	party_until(p, p, !party_send(f, slot, 1, 4096, 3));
	errno = 0;
	/* A channel to ourselves needs memory at once. */
	if (wire_connect(p->w, wire_slot(p->w)) || errno != ENOMEM)
		return 14;
	return 0;
}

static void without_memory_slots_are_refused_and_nobody_is_hurt(void **state)
{
	static const uint32_t len[] = { 4096, 4096, 8, 4096 };
	struct party p;
	struct wire_flow f;
	int status = -1;
	pid_t pid = child_with(&p, &f);

	if (!pid)
		_exit(send_without_memory(&p, &f));
	while (!atomic_load(&shared->ready) && waitpid(pid, &status, WNOHANG) != pid)
		usleep(200);
	for (uint32_t i = 0; i < 4; i++) {
		struct wire_rx *rx;

		/* Its last packet may be found after it has ended well. */
		party_until(&me, &me,
			(rx = party_next(&me)) || (waitpid(pid, &status, WNOHANG) == pid && status));
		if (!rx)
			break;
		assert_true(party_intact(rx, len[i], i));
		party_release(&me, rx);
	}
	if (status == -1)
		status = end_of(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: seccomp filters are not allowed\n");
		skip();
	}
	assert_int_equal(status, 0);
	assert_int_equal(me.ngot, 4);
}

static void with_no_slot_at_all_it_is_enomem(void **state)
{
	struct party p;
	struct wire_flow f;
	int status;
	pid_t pid = child_with(&p, &f);

	if (!pid) {
		if (!refuse_memory(ENOMEM, ENOSPC))
			_exit(77);
		if (party_send(&f, wire_slot(me.w), 1, 65, 0) != -ENOMEM)
			_exit(1);
		_exit(party_send(&f, wire_slot(me.w), 1, 64, 0) ? 2 : 0);
	}
	status = end_of(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: seccomp filters are not allowed\n");
		skip();
	}
	assert_int_equal(status, 0);
	party_until(&me, &me, me.ngot == 1);
}

static void without_populate_memory_comes_through_its_descriptor(void **state)
{
	struct party p;
	struct wire_flow f;
	int status;
	pid_t pid = fork();

	if (!pid) {
		wire_abandon(me.w);
		if (!refuse_memory(EINVAL, 0))
			_exit(77);
		party_open(&p, 64);
		party_flow(&f, &p, wire_slot(me.w));
		say_words(&f);
		_exit(0);
	}
	status = end_of(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: seccomp filters are not allowed\n");
		skip();
	}
	assert_int_equal(status, 0);
	party_until(&me, &me, me.ngot == WORDS);
	check_all(WORDS);
}

/* After fork the child lets go of everything, and the parent's conversation goes on. */
static void a_forked_child_drops_what_it_inherited(void **state)
{
	struct party p;
	struct wire_flow f, out;
	pid_t heir, pid = child_with(&p, &f);
	unsigned before;

	if (!pid)
		echo(&p, &f);
	child_waits(&shared->slot);
	party_flow(&out, &me, shared->slot);
	assert_int_equal(party_send(&out, shared->slot, 1, 4096, 0), 0);
	party_until(&me, &me, me.ngot == 1);
	before = open_descriptors();
	heir = fork();
	if (!heir) {
		wire_abandon(me.w);
		/* epoll, kick, timer, spare, door, listener, and for the peer two sockets and a pidfd. */
		_exit(open_descriptors() + 9 != before);
	}
	assert_int_equal(end_of(heir), 0);
	party_release_all(&me);
	me.release = true;
	for (uint32_t i = 1; i < 100; i++)
		party_until(&me, &me, !party_send(&out, shared->slot, 1, sizes[i % NSIZES], i));
	party_until(&me, &me, me.ngot == 100);
	assert_int_equal(me.ngone, 0);
	atomic_store(&shared->go, 1);
	assert_int_equal(end_of(pid), 0);
	party_end_flow(&out);
}

static bool maps_a_channel(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, "unpin-channel") || strstr(line, "unpin-door");
	if (f)
		fclose(f);
	return found;
}

/* The memory of channels does not exist in a child. */
static void channel_memory_is_not_inherited(void **state)
{
	struct wire_flow self;
	pid_t pid;

	party_flow(&self, &me, wire_slot(me.w));
	assert_int_equal(party_send(&self, wire_slot(me.w), 1, 4096, 0), 0);
	party_until(&me, &me, me.ngot == 1);
	assert_true(maps_a_channel());
	pid = fork();
	if (!pid)
		_exit(maps_a_channel());
	assert_int_equal(end_of(pid), 0);
	party_end_flow(&self);
}

#define with_me(f) cmocka_unit_test_setup_teardown(f, open_me, close_me)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_me(last_words_are_heard_before_the_death),
		with_me(who_has_lost_its_name_is_heard_when_it_ends),
		with_me(the_end_of_one_channel_waits_for_the_words_of_the_other),
		with_me(without_a_pidfd_last_words_are_heard_too),
		with_me(without_buffers_the_death_waits),
		with_me(killing_is_noticed_though_a_child_of_the_victim_lives),
		with_me(closing_works_though_a_child_holds_everything_open),
		with_me(a_call_that_was_not_accepted_ends_with_the_device),
		with_me(a_stopped_peer_is_waited_for),
		with_me(what_is_sent_to_one_that_is_stopped_from_the_start_arrives),
		with_me(another_user_cannot_connect),
		with_me(strangers_do_not_push_out_who_is_ours),
		with_me(a_name_held_by_another_user_is_nobodys),
		with_me(without_memory_slots_are_refused_and_nobody_is_hurt),
		with_me(with_no_slot_at_all_it_is_enomem),
		with_me(without_populate_memory_comes_through_its_descriptor),
		with_me(a_forked_child_drops_what_it_inherited),
		with_me(channel_memory_is_not_inherited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
