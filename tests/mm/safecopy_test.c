/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "mm/facility.h"
#include "mm/page.h"
#include "mm/populate.h"
#include "mm/residency.h"
#include "mm/safecopy.h"
#include "mm/sigchain.h"
#include "tests/mm/child.h"

#define PAGE ((size_t)4096)

/* The paths that this machine, and UNPIN_DISABLE, leave. */
static enum safecopy_path paths[2];
static unsigned npaths;

/* How many of the pages are in memory. */
static int resident(const void *addr, size_t pages)
{
	unsigned char answer[16];

	assert_true(pages <= sizeof(answer));
	return residency_query(addr, pages, answer);
}

static int setup(void **state)
{
	assert_int_equal(sigchain_install(), 0);
	/* Makes what it keeps mapped now, and not in a hole that a test has dug. */
	resident((void *)((uintptr_t)&npaths & ~(PAGE - 1)), 1);
	if (safecopy_path() == SAFECOPY_FIXUP)
		paths[npaths++] = SAFECOPY_FIXUP;
	if (mm_have(MM_PROCESS_VM))
		paths[npaths++] = SAFECOPY_PROCESS_VM;
	return npaths ? 0 : -1;
}

static bool no_fixup(void)
{
	if (paths[0] == SAFECOPY_FIXUP)
		return false;
	print_message("no fixup copy on this machine\n");
	return true;
}

/* n pages of which the one with index hole (if below n) is not there. */
static unsigned char *map_with_hole(size_t n, size_t hole)
{
	unsigned char *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	if (hole < n)
		assert_int_equal(munmap(p + hole * PAGE, PAGE), 0);
	return p;
}

static size_t copy(enum safecopy_path path, bool to_user, unsigned char *user, unsigned char *private,
	size_t n, struct safecopy_fault *fault)
{
	return to_user ? safecopy_to_user(path, user, private, n, fault)
		       : safecopy_from_user(path, private, user, n, fault);
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

static void every_size_and_alignment_arrives_whole_and_touches_nothing_else(void **state)
{
	static unsigned char user[512], private[512], expect[512];

	for (unsigned p = 0; p < npaths; p++) {
		for (unsigned way = 0; way < 2; way++) {
			unsigned char *to = way ? user : private, *from = way ? private : user;
			size_t step = paths[p] == SAFECOPY_FIXUP ? 1 : 3;

			for (size_t n = 0; n < 300; n += step) {
				for (size_t uo = 0; uo < 16; uo += step) {
					size_t po = (uo * 5 + n) % 16;
					size_t to_off = way ? uo : po, from_off = way ? po : uo;

					fill(from, sizeof(user), (unsigned)(n + uo));
					memset(to, 0xee, sizeof(user));
					memset(expect, 0xee, sizeof(expect));
					memcpy(expect + to_off, from + from_off, n);
					assert_int_equal(
						copy(paths[p], way, user + uo, private + po, n, NULL), n);
					assert_memory_equal(to, expect, sizeof(expect));
				}
			}
		}
	}
}

static void a_copy_into_a_hole_tells_exactly_how_far_it_came(void **state)
{
	unsigned char *user = map_with_hole(3, 1);
	static unsigned char private[2 * PAGE];

	for (unsigned p = 0; p < npaths; p++) {
		for (unsigned way = 0; way < 2; way++) {
			for (size_t before = 0; before < 200; before++) {
				size_t n = before + 1 + before * 13 % 300;
				struct safecopy_fault fault = { 0, -1 };
				unsigned char *at = user + PAGE - before;

				fill(way ? private : at, before, (unsigned)before);
				memset(way ? at : private, 0, before);
				assert_int_equal(copy(paths[p], way, at, private, n, &fault), before);
				assert_ptr_equal(fault.addr, user + PAGE);
				assert_int_equal(fault.sig, paths[p] == SAFECOPY_FIXUP ? SIGSEGV : 0);
				assert_memory_equal(at, private, before);
			}
		}
	}
	munmap(user, 3 * PAGE);
}

static void a_long_copy_stops_at_the_hole_in_its_middle(void **state)
{
	const size_t pages = 300, hole = 257;
	unsigned char *user = map_with_hole(pages, hole), *private = malloc(pages * PAGE);
	struct safecopy_fault fault;

	memset(private, 9, pages * PAGE);
	for (unsigned p = 0; p < npaths; p++) {
		for (unsigned way = 0; way < 2; way++) {
			for (size_t off = 0; off < 70; off += 3) {
				assert_int_equal(
					copy(paths[p], way, user + off, private, pages * PAGE - off, &fault),
					hole * PAGE - off);
				assert_ptr_equal(fault.addr, user + hole * PAGE);
			}
		}
	}
	free(private);
	munmap(user, pages * PAGE);
}

static void what_may_not_be_written_is_not_and_what_may_not_be_read_is_not(void **state)
{
	unsigned char *user = map_with_hole(2, 2), private[64] = { 1 };
	struct safecopy_fault fault;

	memset(user, 5, 2 * PAGE);
	for (unsigned p = 0; p < npaths; p++) {
		mprotect(user + PAGE, PAGE, PROT_READ);
		assert_int_equal(safecopy_to_user(paths[p], user + PAGE - 8, private, 64, &fault), 8);
		assert_ptr_equal(fault.addr, user + PAGE);
		assert_int_equal(user[PAGE], 5);
		assert_int_equal(safecopy_from_user(paths[p], private, user + PAGE - 8, 64, &fault), 64);
		mprotect(user + PAGE, PAGE, PROT_NONE);
		assert_int_equal(safecopy_from_user(paths[p], private, user + PAGE - 8, 64, &fault), 8);
		mprotect(user + PAGE, PAGE, PROT_READ | PROT_WRITE);
		assert_int_equal(user[PAGE], 5);
	}
	munmap(user, 2 * PAGE);
}

static void past_the_end_of_a_file_is_a_fault_and_no_sigbus_of_the_program(void **state)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	unsigned char *user, private[64] = { 0 };
	struct safecopy_fault fault;

	assert_int_equal(ftruncate(fd, PAGE), 0);
	user = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (unsigned p = 0; p < npaths; p++) {
		assert_int_equal(safecopy_to_user(paths[p], user + PAGE - 20, private, 64, &fault), 20);
		assert_ptr_equal(fault.addr, user + PAGE);
		assert_int_equal(fault.sig, paths[p] == SAFECOPY_FIXUP ? SIGBUS : 0);
		assert_int_equal(safecopy_from_user(paths[p], private, user + PAGE, 8, &fault), 0);
	}
	munmap(user, 2 * PAGE);
	close(fd);
}

static void addresses_that_cannot_exist_are_faults(void **state)
{
	static const uintptr_t bad[] = { 0, 8, 0x00007fffffffffff, 0x0000800000000000, 0x8000000000000003,
		UINTPTR_MAX - 99, UINTPTR_MAX };
	unsigned char private[128] = { 0 };
	struct safecopy_fault fault;

	for (unsigned p = 0; p < npaths; p++) {
		for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			assert_int_equal(safecopy_to_user(paths[p], (void *)bad[i], private, 100, &fault), 0);
			assert_true(fault.addr == bad[i]);
			assert_int_equal(
				safecopy_from_user(paths[p], private, (void *)bad[i], 100, &fault), 0);
			assert_true(fault.addr == bad[i]);
		}
	}
}

static void nothing_is_copied_to_anywhere_without_a_look_at_the_address(void **state)
{
	for (unsigned p = 0; p < npaths; p++) {
		assert_int_equal(safecopy_to_user(paths[p], (void *)1, (void *)3, 0, NULL), 0);
		assert_int_equal(safecopy_from_user(paths[p], (void *)3, (void *)1, 0, NULL), 0);
	}
	assert_int_equal(safecopy_to_user(SAFECOPY_NONE, (void *)1, (void *)3, 8, NULL), 0);
}

static void a_thread_that_blocks_either_signal_takes_the_way_without_signals(void **state)
{
	static const int which[] = { SIGSEGV, SIGBUS };
	enum safecopy_path other = mm_have(MM_PROCESS_VM) ? SAFECOPY_PROCESS_VM : SAFECOPY_NONE;
	unsigned char *user = map_with_hole(2, 1), private[16] = { 0 };
	sigset_t set, old;

	for (unsigned i = 0; i < 2; i++) {
		sigemptyset(&set);
		sigaddset(&set, which[i]);
		pthread_sigmask(SIG_BLOCK, &set, &old);
		errno = 77;
		assert_int_equal(safecopy_path(), other);
		assert_int_equal(errno, 77);
		if (other == SAFECOPY_PROCESS_VM)
			assert_int_equal(safecopy_to_user(other, user + PAGE - 4, private, 16, NULL), 4);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	assert_int_equal(safecopy_path(), paths[0]);
	munmap(user, PAGE);
}

/* ---- Order: a thread polls on the memory that is written ---- */

static atomic_uint acked; /* number of the message that the poller has checked */
static atomic_bool stop;
static atomic_uint mistakes;
static unsigned char *slot; /* where messages arrive */
static size_t slot_bytes;

static void pause_a_little(unsigned *spins)
{
	if (++*spins > 200) {
		*spins = 0;
		sched_yield();
	}
}

/* Polls the last byte; when it is the message's, every byte must be. */
static void *poll_last_byte(void *arg)
{
	volatile unsigned char *s = slot;
	unsigned spins = 0;

	for (unsigned next = 1; !atomic_load(&stop);) {
		if (s[slot_bytes - 1] != (unsigned char)next) {
			pause_a_little(&spins);
			continue;
		}
		for (size_t i = slot_bytes - 1; i-- > 0;)
			if (s[i] != (unsigned char)next) {
				atomic_fetch_add(&mistakes, 1);
				break;
			}
		atomic_store(&acked, next++);
	}
	return NULL;
}

static void send_messages(enum safecopy_path path, size_t n, size_t offset, unsigned count)
{
	static unsigned char message[65536 + 64];
	static unsigned char area[65536 + 128] __attribute__((aligned(64)));
	pthread_t poller;
	unsigned spins = 0;

	slot = area + offset;
	slot_bytes = n;
	memset(area, 0, sizeof(area));
	atomic_store(&acked, 0);
	atomic_store(&stop, false);
	pthread_create(&poller, NULL, poll_last_byte, NULL);
	for (unsigned m = 1; m <= count; m++) {
		memset(message, (unsigned char)m, n + 8);
		assert_int_equal(safecopy_to_user(path, slot, message + m % 8, n, NULL), n);
		while (atomic_load(&acked) != m)
			pause_a_little(&spins);
	}
	atomic_store(&stop, true);
	pthread_join(poller, NULL);
}

static bool short_moves_are_whole(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 4 & 1;
#else
	return false;
#endif
}

static void a_poller_that_sees_the_last_byte_sees_the_whole_message(void **state)
{
	static const size_t sizes[] = { 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 24, 31, 63, 64, 65, 71, 72, 73,
		100, 128, 200, 256, 1000, 1024, 2048, 4095, 4096, 16384, 65536 };

	atomic_store(&mistakes, 0);
	for (unsigned p = 0; p < npaths; p++) {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			for (size_t offset = 0; offset < 8; offset += 3) {
				size_t end = offset + sizes[i];

				/* The kernel's copy of a last piece of 2 or 4 bytes may show its last byte
				 * first. */
				if (paths[p] == SAFECOPY_PROCESS_VM && !short_moves_are_whole() &&
					(end & 7) && !(end & 1))
					continue;
				send_messages(paths[p], sizes[i], offset, 60);
				if (atomic_load(&mistakes))
					fail_msg("path %d, %zu bytes at %zu", paths[p], sizes[i], offset);
			}
		}
	}
}

/* Reads the last word, then all others from the end: none may be older, none may be half of each. */
static void *poll_words(void *arg)
{
	volatile uint64_t *s = (void *)slot;
	size_t n = slot_bytes / 8;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t last = s[n - 1];

		if ((uint32_t)last != last >> 32)
			atomic_fetch_add(&mistakes, 1);
		for (size_t i = n - 1; i-- > 0;) {
			uint64_t word = s[i];

			if (word < last || (uint32_t)word != word >> 32)
				atomic_fetch_add(&mistakes, 1);
		}
	}
	return NULL;
}

/* Words of one value after the other; off is how far both sides are from a cache line. */
static void send_words(enum safecopy_path path, size_t n, size_t off, unsigned rounds)
{
	static unsigned char area[32768 + 128] __attribute__((aligned(64)));
	static unsigned char message[32768 + 128] __attribute__((aligned(64)));
	pthread_t poller;

	memset(area, 0, sizeof(area));
	slot = area + off / 8 * 8;
	slot_bytes = n;
	atomic_store(&stop, false);
	pthread_create(&poller, NULL, poll_words, NULL);
	for (uint32_t m = 1; m <= rounds; m++) {
		uint64_t word = (uint64_t)m << 32 | m;

		for (size_t at = 0; at < n; at += 8)
			memcpy(message + off + at, &word, 8);
		safecopy_to_user(path, slot, message + off, n, NULL);
	}
	atomic_store(&stop, true);
	pthread_join(poller, NULL);
}

static void words_never_tear_and_the_last_is_never_early_however_fast_they_come(void **state)
{
	static const size_t sizes[] = { 8, 16, 64, 72, 128, 256, 1024, 4096, 32768 };

	atomic_store(&mistakes, 0);
	for (unsigned p = 0; p < npaths; p++) {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			/* A copy by rep movsb alone shows its last word early once in some thousand times. */
			unsigned rounds = sizes[i] <= 1024 ? 100000 : sizes[i] < 8192 ? 30000 : 3000;

			if (paths[p] == SAFECOPY_PROCESS_VM)
				rounds /= 5;
			for (size_t off = 0; off < 24; off += 11)
				send_words(paths[p], sizes[i], off, rounds);
			if (atomic_load(&mistakes))
				fail_msg("path %d, %zu bytes", paths[p], sizes[i]);
		}
	}
}

/* Changes aligned words of every width at offset 0 of the slot, in turn. */
static void *write_words(void *arg)
{
	volatile uint64_t *w = (void *)slot;

	for (uint32_t m = 1; !atomic_load_explicit(&stop, memory_order_relaxed); m++)
		for (size_t i = 0; i < slot_bytes / 8; i++)
			w[i] = (uint64_t)m << 32 | m;
	return NULL;
}

/* In how many words of 20000 reads the halves are of two writes. */
static unsigned torn_words(enum safecopy_path path)
{
	static unsigned char copied[4096 + 16];
	unsigned torn = 0;

	for (unsigned i = 0; i < 20000; i++) {
		size_t n = 8u << i % 9;

		assert_int_equal(safecopy_from_user(path, copied + 5, slot, n, NULL), n);
		for (size_t at = 0; at < n; at += 8) {
			uint64_t word;

			memcpy(&word, copied + 5 + at, 8);
			torn += (uint32_t)word != word >> 32;
		}
	}
	return torn;
}

static void words_read_from_the_application_never_tear(void **state)
{
	static uint64_t area[512 + 8] __attribute__((aligned(64)));
	pthread_t writer;

	slot = (unsigned char *)(area + 1);
	slot_bytes = 2048;
	for (unsigned p = 0; p < npaths; p++) {
		/* The kernel's own copy is not ours to order: see safecopy.h. */
		unsigned most = paths[p] == SAFECOPY_PROCESS_VM ? 2 : 0, torn;

		atomic_store(&stop, false);
		pthread_create(&writer, NULL, write_words, NULL);
		torn = torn_words(paths[p]);
		atomic_store(&stop, true);
		pthread_join(writer, NULL);
		if (torn > most)
			fail_msg("path %d: %u words torn", paths[p], torn);
	}
}

/* ---- Protection keys ---- */

/* Eight pages of which those with odd numbers are tagged with a key that this thread may not use. */
static unsigned char *map_with_keys(int *key)
{
	unsigned char *p = map_with_hole(8, 8);

	*key = pkey_alloc(0, 0);
	if (*key < 0) {
		print_message("no protection keys on this machine\n");
		skip();
	}
	for (size_t i = 1; i < 8; i += 2)
		assert_int_equal(pkey_mprotect(p + i * PAGE, PAGE, PROT_READ | PROT_WRITE, *key), 0);
	pkey_set(*key, PKEY_DISABLE_ACCESS);
	return p;
}

static void a_key_of_the_thread_does_not_bind_the_device(void **state)
{
	static unsigned char sent[6 * PAGE], got[6 * PAGE];
	struct safecopy_fault fault;
	uint64_t orig;
	int key;
	unsigned char *p = map_with_keys(&key);

	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (unsigned char)(i % 251 + 1);
	/* Absent pages first. */
	assert_int_equal(populate(p + PAGE, PAGE, true), 0);
	for (unsigned i = 0; i < npaths; i++) {
		memset(got, 0, sizeof(got));
		assert_int_equal(safecopy_to_user(paths[i], p + 100, sent, sizeof(sent), NULL), sizeof(sent));
		assert_int_equal(safecopy_from_user(paths[i], got, p + 100, sizeof(got), NULL), sizeof(got));
		assert_memory_equal(sent, got, sizeof(sent));
	}
	if (paths[0] == SAFECOPY_FIXUP) {
		assert_int_equal(safecopy_fetch_add(paths[0], (void *)(p + PAGE), 0, &orig, NULL), 0);
		assert_int_equal(
			safecopy_cmp_swap(paths[0], (void *)(p + PAGE), orig, orig + 5, &orig, NULL), 0);
		assert_int_equal(safecopy_touch(p, 8 * PAGE, 1, NULL), 0);
		assert_int_equal(safecopy_touch(p, 8 * PAGE, 0, NULL), 0);
	}
	/* The rights of the mapping count, and a hole is one. */
	assert_int_equal(pkey_mprotect(p + 5 * PAGE, PAGE, PROT_READ, key), 0);
	assert_int_equal(munmap(p + 6 * PAGE, PAGE), 0);
	for (unsigned i = 0; i < npaths; i++) {
		assert_int_equal(safecopy_to_user(paths[i], p + 3 * PAGE, sent, 4 * PAGE, &fault), 2 * PAGE);
		assert_ptr_equal(fault.addr, (uintptr_t)p + 5 * PAGE);
		assert_int_equal(safecopy_from_user(paths[i], got, p + 3 * PAGE, 4 * PAGE, &fault), 3 * PAGE);
		assert_ptr_equal(fault.addr, (uintptr_t)p + 6 * PAGE);
	}
	/* So does the right to execute only, which the kernel makes with a key of its own. */
	assert_int_equal(mprotect(p, PAGE, PROT_EXEC), 0);
	assert_int_equal(safecopy_from_user(paths[0], got, p, 8, &fault), 0);
	assert_int_equal(pkey_get(key), PKEY_DISABLE_ACCESS);
	pkey_free(key);
	munmap(p, 8 * PAGE);
}

/* ---- Lines ---- */

#define LINES  1000u
#define ROUNDS 100u

struct line {
	_Alignas(64) _Atomic uint64_t word[8];
};

static struct line lines[LINES];
static atomic_uint round_written, round_read;
static unsigned torn_lines;

/* Spins on the first word of each line; all others must be there when that is. */
static void *watch_lines(void *unused)
{
	for (uint64_t r = 1; r <= ROUNDS; r++) {
		while (atomic_load(&round_written) < r)
			sched_yield();
		for (unsigned i = 0; i < LINES; i++) {
			bool torn = false;

			while (atomic_load_explicit(&lines[i].word[0], memory_order_acquire) != r)
				;
			for (int w = 7; w > 0; w--)
				torn |= atomic_load_explicit(&lines[i].word[w], memory_order_relaxed) != r;
			torn_lines += torn;
		}
		atomic_store(&round_read, (unsigned)r);
	}
	return NULL;
}

/* Several lines in a copy, and some bytes around them. */
static void write_lines(uint64_t r)
{
	uint64_t sent[8 * 5];

	for (size_t i = 0; i < sizeof(sent) / 8; i++)
		sent[i] = r;
	for (unsigned i = 0; i < LINES; i += 5)
		assert_int_equal(
			safecopy_to_user(SAFECOPY_FIXUP, &lines[i], sent, sizeof(sent), NULL), sizeof(sent));
}

/* Processors that have the instruction and write its 64 bytes in two halves. */
static bool writes_halves(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx)
		return false;
	__get_cpuid(1, &a, &b, &c, &d);
	return (a >> 8 & 15) + (a >> 20 & 255) < 0x1a;
#else
	return true;
#endif
}

static void a_line_is_seen_whole_by_who_spins_on_its_first_word(void **state)
{
	pthread_t watcher;

	if (no_fixup())
		skip();
	pthread_create(&watcher, NULL, watch_lines, NULL);
	for (unsigned r = 1; r <= ROUNDS; r++) {
		atomic_store(&round_written, r);
		write_lines(r);
		while (atomic_load(&round_read) < r)
			sched_yield();
	}
	pthread_join(watcher, NULL);
	print_message("%u of %u lines were seen torn\n", torn_lines, LINES * ROUNDS);
	if (!safecopy_wide() || writes_halves()) {
		print_message("this processor does not write 64 bytes at once\n");
		skip();
	}
	assert_int_equal(torn_lines, 0);
}

/* ---- Atomics and touching ---- */

#define ADDS 100000

static void *add_ones(void *word)
{
	for (unsigned i = 0; i < ADDS; i++)
		atomic_fetch_add((_Atomic uint64_t *)word, 1);
	return NULL;
}

static void atomics_are_atomic_against_the_application(void **state)
{
	static _Atomic uint64_t word;
	uint64_t orig, seen;
	pthread_t thread;

	if (no_fixup())
		skip();
	pthread_create(&thread, NULL, add_ones, &word);
	for (unsigned i = 0; i < ADDS; i++) {
		assert_int_equal(
			safecopy_fetch_add(SAFECOPY_FIXUP, (uint64_t *)&word, 1u << 20, &orig, NULL), 0);
		do {
			seen = atomic_load(&word);
			assert_int_equal(safecopy_cmp_swap(SAFECOPY_FIXUP, (uint64_t *)&word, seen,
						 seen - (1u << 20), &orig, NULL),
				0);
		} while (orig != seen);
	}
	pthread_join(thread, NULL);
	assert_int_equal(word, ADDS);
}

static void an_atomic_tells_what_was_there_before(void **state)
{
	uint64_t word = 5, orig = 0;

	if (no_fixup())
		skip();
	assert_int_equal(safecopy_cmp_swap(SAFECOPY_FIXUP, &word, 4, 9, &orig, NULL), 0);
	assert_int_equal(orig, 5);
	assert_int_equal(word, 5);
	assert_int_equal(safecopy_cmp_swap(SAFECOPY_FIXUP, &word, 5, 9, &orig, NULL), 0);
	assert_int_equal(orig, 5);
	assert_int_equal(word, 9);
	assert_int_equal(safecopy_fetch_add(SAFECOPY_FIXUP, &word, UINT64_MAX, &orig, NULL), 0);
	assert_int_equal(orig, 9);
	assert_int_equal(word, 8);
}

static void an_atomic_that_cannot_be_done_changes_nothing(void **state)
{
	unsigned char *user = map_with_hole(2, 1);
	uint64_t orig = 42, word[2] = { 1, 2 };
	struct safecopy_fault fault = { 0 };

	if (no_fixup())
		skip();
	assert_int_equal(
		safecopy_fetch_add(SAFECOPY_FIXUP, (void *)(user + PAGE), 1, &orig, &fault), -EFAULT);
	assert_ptr_equal(fault.addr, user + PAGE);
	assert_int_equal(fault.sig, SIGSEGV);
	mprotect(user, PAGE, PROT_READ);
	assert_int_equal(safecopy_cmp_swap(SAFECOPY_FIXUP, (void *)user, 0, 1, &orig, &fault), -EFAULT);
	assert_int_equal(
		safecopy_fetch_add(SAFECOPY_FIXUP, (void *)((char *)word + 4), 1, &orig, NULL), -EINVAL);
	assert_int_equal(safecopy_fetch_add(SAFECOPY_PROCESS_VM, word, 1, &orig, NULL), -EAGAIN);
	assert_int_equal(safecopy_cmp_swap(SAFECOPY_NONE, word, 1, 2, &orig, NULL), -EAGAIN);
	assert_int_equal(orig, 42);
	assert_int_equal(word[0], 1);
	munmap(user, PAGE);
}

static void touching_makes_present_and_changes_nothing(void **state)
{
	unsigned char *user = map_with_hole(8, 6);
	struct safecopy_fault fault = { 0 };

	if (no_fixup())
		skip();
	user[PAGE + 5] = 7;
	assert_int_equal(safecopy_touch(user + 5, 3 * PAGE - 5, 1, &fault), 0);
	assert_int_equal(resident(user, 3), 3);
	assert_int_equal(resident(user + 3 * PAGE, 1), 0);
	assert_int_equal(safecopy_touch(user + 3 * PAGE, PAGE + 1, 0, &fault), 0);
	assert_int_equal(resident(user, 5), 5);
	assert_int_equal(user[PAGE + 5], 7);
	assert_int_equal(safecopy_touch(user, 8 * PAGE, 1, &fault), -EFAULT);
	assert_ptr_equal(fault.addr, user + 6 * PAGE);
	assert_int_equal(safecopy_touch(user + 6 * PAGE, 0, 1, &fault), 0);
	munmap(user, 8 * PAGE);
}

/* ---- Many at once ---- */

static void *fault_again_and_again(void *arg)
{
	unsigned char *user = map_with_hole(2, 2), private[128] = { 0 };
	uintptr_t wrong = 0;

	/* Not a hole, which another thread's mapping might fill. */
	mprotect(user + PAGE, PAGE, PROT_NONE);
	for (unsigned i = 0; i < 3000; i++) {
		size_t before = i % 100;

		wrong += safecopy_to_user(SAFECOPY_FIXUP, user + PAGE - before, private, 128, NULL) != before;
		wrong += safecopy_from_user(SAFECOPY_FIXUP, private, user + PAGE - before, 128, NULL) !=
			 before;
	}
	munmap(user, 2 * PAGE);
	return (void *)wrong;
}

static void threads_that_fault_at_once_do_not_disturb_each_other(void **state)
{
	pthread_t thread[4];
	void *wrong;

	if (no_fixup())
		skip();
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, fault_again_and_again, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &wrong);
		assert_null(wrong);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size_and_alignment_arrives_whole_and_touches_nothing_else),
		cmocka_unit_test(a_copy_into_a_hole_tells_exactly_how_far_it_came),
		cmocka_unit_test(a_long_copy_stops_at_the_hole_in_its_middle),
		cmocka_unit_test(what_may_not_be_written_is_not_and_what_may_not_be_read_is_not),
		cmocka_unit_test(past_the_end_of_a_file_is_a_fault_and_no_sigbus_of_the_program),
		cmocka_unit_test(addresses_that_cannot_exist_are_faults),
		cmocka_unit_test(nothing_is_copied_to_anywhere_without_a_look_at_the_address),
		cmocka_unit_test(a_thread_that_blocks_either_signal_takes_the_way_without_signals),
		cmocka_unit_test(a_poller_that_sees_the_last_byte_sees_the_whole_message),
		cmocka_unit_test(words_never_tear_and_the_last_is_never_early_however_fast_they_come),
		cmocka_unit_test(words_read_from_the_application_never_tear),
		cmocka_unit_test(a_key_of_the_thread_does_not_bind_the_device),
		cmocka_unit_test(a_line_is_seen_whole_by_who_spins_on_its_first_word),
		cmocka_unit_test(atomics_are_atomic_against_the_application),
		cmocka_unit_test(an_atomic_tells_what_was_there_before),
		cmocka_unit_test(an_atomic_that_cannot_be_done_changes_nothing),
		cmocka_unit_test(touching_makes_present_and_changes_nothing),
		cmocka_unit_test(threads_that_fault_at_once_do_not_disturb_each_other),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
