/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Feeds answers to the reader of rdma netlink without libFuzzer:
 *
 *   tool_fuzz_rdmanl_test CORPUS [SECONDS [SEED]]   every file of the directory, then mutations of them
 *   tool_fuzz_rdmanl_test FILE                      one answer
 *
 * A failure aborts; the answer that was being read is left in the file tool-fuzz-rdmanl-failed of the
 * temporary directory. Answers of the corpus are of netlink_corpus.py.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz_rdmanl.h"

#define MAX_FILES 64
#define MAX_BYTES 8192

struct answer {
	uint8_t bytes[MAX_BYTES];
	size_t size;
};

static struct answer corpus[MAX_FILES], now;
static unsigned nfiles;
static char failed[256];

/* Only what a signal handler may do. */
static void keep_answer(int sig)
{
	int fd = open(failed, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	if (fd >= 0 && write(fd, now.bytes, now.size) == (ssize_t)now.size)
		close(fd);
	signal(sig, SIG_DFL);
	raise(sig);
}

static int load(const char *path, struct answer *a)
{
	FILE *f = fopen(path, "rb");

	if (!f) {
		perror(path);
		return -1;
	}
	a->size = fread(a->bytes, 1, MAX_BYTES, f);
	fclose(f);
	return 0;
}

static int load_corpus(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[1024];
	int err = d ? 0 : -1;

	while (!err && (e = readdir(d)) && nfiles < MAX_FILES) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		err = load(path, &corpus[nfiles++]);
	}
	if (d)
		closedir(d);
	return err || !nfiles ? -1 : 0;
}

static void play(const struct answer *a)
{
	now = *a;
	LLVMFuzzerTestOneInput(now.bytes, now.size);
}

static uint64_t state;

static uint32_t rnd(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

/* Lengths and types stand at multiples of four from the second byte on. */
static void change_word(struct answer *a)
{
	static const uint32_t v[] = { 0, 1, 3, 4, 5, 8, 16, 17, 255, 256, 65535, 0x7fffffff, 0x80000000,
		UINT32_MAX };
	uint32_t words = (uint32_t)(a->size - 1) / 4, value = rnd(2) ? v[rnd(14)] : rnd(64);
	size_t at = 1 + 4 * (size_t)rnd(words ? words : 1), size = rnd(3) ? 2 : 4;

	at += rnd(2) ? 0 : 2;
	if (at + size <= a->size)
		memcpy(a->bytes + at, &value, size);
}

static void mutate(struct answer *a)
{
	for (uint32_t n = 1 + rnd(4); n && a->size > 1; n--) {
		size_t at = rnd((uint32_t)a->size), len = 4 * (1 + rnd(8));

		switch (rnd(5)) {
		case 0:
			a->bytes[at] ^= (uint8_t)(1u << rnd(8));
			break;
		case 1: /* cut */
			a->size = at + 1;
			break;
		case 2: /* a piece comes twice */
			at -= (at + 3) % 4;
			if (at > a->size || at + len > a->size || a->size + len > MAX_BYTES)
				break;
			memmove(a->bytes + at + len, a->bytes + at, a->size - at);
			a->size += len;
			break;
		default:
			change_word(a);
		}
	}
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	unsigned long seconds = argc > 2 ? strtoul(argv[2], NULL, 0) : 5, played = 0;
	struct answer a;
	struct stat st;
	uint64_t seed, end;

	if (argc < 2 || stat(argv[1], &st)) {
		fprintf(stderr, "usage: %s CORPUS|FILE [SECONDS [SEED]]\n", argv[0]);
		return 2;
	}
	snprintf(failed, sizeof(failed), "%s/tool-fuzz-rdmanl-failed", tmp && *tmp ? tmp : "/tmp");
	signal(SIGABRT, keep_answer);
	if (!S_ISDIR(st.st_mode)) {
		if (load(argv[1], &a))
			return 2;
		play(&a);
		return 0;
	}
	if (load_corpus(argv[1]))
		return 2;
	for (unsigned i = 0; i < nfiles; i++)
		play(&corpus[i]);
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : clock_ns();
	printf("%u files; mutations for %lu s from seed %llu\n", nfiles, seconds, (unsigned long long)seed);
	fflush(stdout);
	state = seed;
	for (end = clock_ns() + seconds * NSEC_PER_SEC; clock_ns() < end; played++) {
		a = corpus[rnd(nfiles)];
		mutate(&a);
		play(&a);
	}
	printf("%lu mutations\n", played);
	return 0;
}
