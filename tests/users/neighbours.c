/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Another library in front of libc (neighbour.c) sees the same calls whether libunpin.so is loaded or not,
 * and whichever of the two comes first; and the device is told of changes to memory all the same.
 *
 * And so do the memory hooks of UCX, where that is installed: they patch libc's functions, or the tables by
 * which libraries find them, and UCX tries whether they see the calls.
 *
 * Each case runs this program again with its own LD_PRELOAD; that process makes the calls and prints what the
 * neighbour has counted.
 */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "neighbour.h"
#include "pair.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char *const names[] = {
#define X(name) #name,
	NEIGHBOUR_LIST(X)
#undef X
};

static void memory_calls(void)
{
	char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *q = mmap64(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = sbrk(0);
	int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);

	check(p != MAP_FAILED && q != MAP_FAILED);
	check_sys(madvise(p, PAGE, MADV_DONTNEED) == 0);
	check_int(posix_madvise(p, PAGE, POSIX_MADV_WILLNEED), 0);
	check_int(posix_madvise(p, PAGE, POSIX_MADV_DONTNEED), 0);
	check_sys(mprotect(p, PAGE, PROT_READ) == 0);
	check_sys(pkey_mprotect(p, PAGE, PROT_READ | PROT_WRITE, -1) == 0);
	check_sys(mremap(p, 4 * PAGE, 2 * PAGE, 0) == p);
	check_sys(mremap(p, 2 * PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	check_sys(munmap(q, PAGE) == 0);
	check_sys(sbrk(PAGE) == at);
	check_sys(sbrk(-(intptr_t)PAGE) == at + PAGE);
	check_sys(brk(at + PAGE) == 0);
	check_sys(brk(at) == 0);
	check(sbrk(0) == at);
	if (id >= 0) {
		p = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		check_sys(p != (void *)-1);
		check_sys(shmdt(p) == 0);
	}
}

static void ignore(int sig)
{
	(void)sig;
}

static void signal_calls(void)
{
	struct sigaction act = { .sa_handler = ignore };

	check_sys(sigaction(SIGUSR1, &act, NULL) == 0);
	check(signal(SIGUSR1, SIG_DFL) == ignore);
	check(sysv_signal(SIGUSR2, ignore) == SIG_DFL);
	check_sys(siginterrupt(SIGUSR2, 1) == 0);
	check_sys(sigignore(SIGUSR2) == 0);
	check(sigset(SIGUSR2, SIG_DFL) == SIG_IGN);
}

/* The device drops its entries when memory that it has touched is unmapped. */
static void the_device_is_told(void)
{
	char *mine = fresh(PAGE), *memory = fresh_apart(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;
	uint64_t before;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	before = counter(getpid(), "page_invalidations_handled");
	check_sys(munmap(memory, PAGE) == 0);
	check(counter(getpid(), "page_invalidations_handled") > before);
	dereg(there);
	dereg(here);
	pair_close(&p);
}

/* ---- UCX ---- */

/* ucm/api/ucm.h: mmap, munmap, mremap, shmat, shmdt, madvise, brk. Without sbrk, whose hook fails in UCX 1.13
 * with and without the device. */
#define UCM_NATIVE_EVENTS 0xdf
#define UCM_EVENT_MUNMAP  0x2
typedef void ucm_callback(unsigned type, void *event, void *arg);

static void count_event(unsigned type, void *event, void *arg)
{
	(void)event;
	*(int *)arg += type == UCM_EVENT_MUNMAP;
}

static int hook_and_call(void)
{
	/* It reads UCX's settings and brings libucm with it. */
	void *ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);
	int (*set)(int, int, ucm_callback *, void *) = NULL;
	int (*test)(int) = NULL;
	struct ibv_context *ctx;
	int seen = 0, before;
	void *page;

	if (ucs) {
		set = (int (*)(int, int, ucm_callback *, void *))dlsym(ucs, "ucm_set_event_handler");
		test = (int (*)(int))dlsym(ucs, "ucm_test_events");
	}
	check(set && test);
	ctx = device_open();
	check_int(set(UCM_NATIVE_EVENTS, 0, count_event, &seen), 0);
	check_int(test(UCM_NATIVE_EVENTS), 0);
	page = fresh(PAGE);
	before = seen;
	drop(page, PAGE);
	check_int(seen, before + 1);
	ibv_close_device(ctx);
	return 0;
}

static bool ours_is_loaded(void)
{
	const char *list = getenv("LD_PRELOAD");

	return list && strstr(list, "libunpin");
}

/* The process that makes the calls. */
static int call_and_print(void)
{
	void (*count)(bool) = (void (*)(bool))dlsym(RTLD_DEFAULT, "neighbour_count");
	unsigned (*counted)(unsigned) = (unsigned (*)(unsigned))dlsym(RTLD_DEFAULT, "neighbour_counted");
	struct ibv_context *ctx = ours_is_loaded() ? device_open() : NULL;

	check(count && counted);
	if (ctx)
		the_device_is_told();
	count(true);
	memory_calls();
	signal_calls();
	check_int(ioctl(1, NEIGHBOUR_REQUEST, NULL), NEIGHBOUR_ANSWER);
	count(false);
	for (unsigned i = 0; i < NEIGHBOUR_CALLS; i++)
		printf("%s %u\n", names[i], counted(i));
	if (ctx)
		ibv_close_device(ctx);
	return 0;
}

/* What such a process prints with these libraries. */
static void run_with(const char *preload, const char *what, char *text, size_t size)
{
	char command[PATH_MAX + 32], self[PATH_MAX] = "";
	size_t n;
	FILE *f;

	check_sys(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(command, sizeof(command), "'%s' %s", self, what);
	check_sys(setenv("LD_PRELOAD", preload, 1) == 0);
	f = popen(command, "re");
	check_sys(f);
	n = fread(text, 1, size - 1, f);
	text[n] = '\0';
	check_int(pclose(f), 0);
}

static char neighbour[PATH_MAX], unpin[PATH_MAX];

/* Where the two libraries lie; what `unpin run` has put into LD_PRELOAD begins with ours. */
static void find(void)
{
	const char *list = getenv("LD_PRELOAD");
	char self[PATH_MAX] = "";

	check_sys(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	*strrchr(self, '/') = '\0';
	snprintf(neighbour, sizeof(neighbour), "%.4000s/libneighbour.so", self);
	check_sys(access(neighbour, R_OK) == 0);
	check(list);
	snprintf(unpin, sizeof(unpin), "%.*s", (int)strcspn(list, ": "), list);
}

static void same_as_alone(const char *first, const char *second)
{
	char alone[2048], together[2048], list[2 * PATH_MAX + 1];

	snprintf(list, sizeof(list), "%s:%s", first, second);
	run_with(list, "calls", together, sizeof(together));
	run_with(neighbour, "calls", alone, sizeof(alone));
	check(strstr(alone, "munmap 1\n"));
	if (strcmp(alone, together))
		check_failed(__FILE__, __LINE__, "alone:\n%sbeside the device:\n%s", alone, together);
}

static void a_library_behind_ours_sees_what_it_sees_without_us(void)
{
	find();
	same_as_alone(unpin, neighbour);
}

static void a_library_before_ours_sees_what_it_sees_without_us(void)
{
	find();
	same_as_alone(neighbour, unpin);
}

static void hooks_see_the_calls(const char *mode)
{
	char text[64], list[2 * PATH_MAX + 1];

	if (!dlopen("libucs.so.0", RTLD_LAZY | RTLD_LOCAL))
		check_skip("UCX is not installed");
	find();
	check_sys(setenv("UCX_MEM_MMAP_HOOK_MODE", mode, 1) == 0);
	run_with(unpin, "hooks", text, sizeof(text));
	snprintf(list, sizeof(list), "%s:libucs.so.0", unpin);
	run_with(list, "hooks", text, sizeof(text));
	snprintf(list, sizeof(list), "libucs.so.0:%s", unpin);
	run_with(list, "hooks", text, sizeof(text));
}

static void hooks_in_the_code_of_libc_see_the_calls(void)
{
	hooks_see_the_calls("bistro");
}

static void hooks_in_the_tables_of_libraries_see_the_calls(void)
{
	hooks_see_the_calls("reloc");
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_library_behind_ours_sees_what_it_sees_without_us),
		CASE(a_library_before_ours_sees_what_it_sees_without_us),
		CASE(hooks_in_the_code_of_libc_see_the_calls),
		CASE(hooks_in_the_tables_of_libraries_see_the_calls),
	};

	if (argc > 1 && !strcmp(argv[1], "calls"))
		return call_and_print();
	if (argc > 1 && !strcmp(argv[1], "hooks"))
		return hook_and_call();
	return check_main(cases, COUNT(cases), argc, argv);
}
