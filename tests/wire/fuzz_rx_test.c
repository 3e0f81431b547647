/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Plays scripts against the receiving side without libFuzzer:
 *
 *   wire_fuzz_rx_test CORPUS [SECONDS [SEED]]   every file of the directory, then random scripts and
 * mutations of the files wire_fuzz_rx_test FILE                      one script
 *
 * A failure aborts; the script that was being played is left in the file wire-fuzz-rx-failed of the temporary
 * directory.
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
#include "fuzz_rx.h"

#define MAX_FILES 64
#define MAX_BYTES 4096

struct script {
	uint8_t bytes[MAX_BYTES];
	size_t size;
};

static struct script corpus[MAX_FILES];
static unsigned nfiles;
static struct script now;
static char failed[256];

/* Only what a signal handler may do. */
static void keep_script(int sig)
{
	int fd = open(failed, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	if (fd >= 0 && write(fd, now.bytes, now.size) == (ssize_t)now.size)
		close(fd);
	signal(sig, SIG_DFL);
	raise(sig);
}

static int load(const char *path, struct script *s)
{
	FILE *f = fopen(path, "rb");

	if (!f) {
		perror(path);
		return -1;
	}
	s->size = fread(s->bytes, 1, MAX_BYTES, f);
	fclose(f);
	return 0;
}

static void play(const struct script *s)
{
	now = *s;
	LLVMFuzzerTestOneInput(now.bytes, now.size);
}

static int load_corpus(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[1024];

	if (!d) {
		perror(dir);
		return -1;
	}
	while ((e = readdir(d)) && nfiles < MAX_FILES) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (load(path, &corpus[nfiles++])) {
			closedir(d);
			return -1;
		}
	}
	closedir(d);
	return 0;
}

static uint64_t state;

static uint32_t rnd(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

static void add(struct script *s, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes && s->size < MAX_BYTES; i++)
		s->bytes[s->size++] = (uint8_t)(v >> 8 * i);
}

static uint64_t interesting(void)
{
	static const uint64_t v[] = { 0, 1, 2, 64, 65, 127, 128, 255, 511, 512, 16384, 16385, 65535,
		1ull << 31, UINT32_MAX, 1ull << 63, UINT64_MAX };
	uint32_t i = rnd(24);

	return i < 17 ? v[i] : (uint64_t)rnd(UINT32_MAX) << 32 | rnd(UINT32_MAX);
}

/* Scripts that begin as a peer should, mostly, and go on as none should. */
static void invent(struct script *s)
{
	uint32_t n = 1 + rnd(60);

	s->size = 0;
	if (rnd(8)) {
		add(s, FUZZ_HELLO, 1);
		add(s, 0, 1);
		add(s, FUZZ_SERVICE, 1);
	}
	if (rnd(2)) {
		add(s, FUZZ_SEND, 1);
		add(s, interesting(), 2);
		add(s, 3, 1);
		add(s, FUZZ_ANSWER, 1);
		add(s, 0, 1);
		add(s, FUZZ_SERVICE, 1);
	}
	while (n--) {
		uint32_t step = rnd(FUZZ_STEPS);

		add(s, step, 1);
		if (step == FUZZ_PACKET) {
			add(s, rnd(10) ? 12 + rnd(37) : rnd(256), 1);
			add(s, rnd(10) ? (rnd(2) ? 255 : rnd(128)) : rnd(256), 1);
			add(s, rnd(10) ? rnd(65) : interesting(), 2);
			add(s, rnd(256), 1);
		} else if (step == FUZZ_HELLO || step == FUZZ_ANSWER || step == FUZZ_BYE) {
			add(s, rnd(4) ? 0 : rnd(64), 1);
		} else {
			add(s, interesting(), 2);
			add(s, interesting(), rnd(9));
		}
	}
}

static void mutate(struct script *s)
{
	for (uint32_t n = 1 + rnd(4); n && s->size; n--) {
		uint32_t at = rnd((uint32_t)s->size), len = 1 + rnd(16);

		switch (rnd(4)) {
		case 0:
			s->bytes[at] ^= (uint8_t)(1u << rnd(8));
			break;
		case 1:
			s->bytes[at] = (uint8_t)interesting();
			break;
		case 2: /* a piece goes */
			if (at + len > s->size)
				len = (uint32_t)s->size - at;
			memmove(s->bytes + at, s->bytes + at + len, s->size - at - len);
			s->size -= len;
			break;
		default: /* a piece comes twice */
			if (at + len > s->size || s->size + len > MAX_BYTES)
				break;
			memmove(s->bytes + at + len, s->bytes + at, s->size - at);
			s->size += len;
		}
	}
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	unsigned long seconds = argc > 2 ? strtoul(argv[2], NULL, 0) : 5, played = 0;
	struct script s;
	struct stat st;
	uint64_t seed, end;

	if (argc < 2 || stat(argv[1], &st)) {
		fprintf(stderr, "usage: %s CORPUS|FILE [SECONDS [SEED]]\n", argv[0]);
		return 2;
	}
	snprintf(failed, sizeof(failed), "%s/wire-fuzz-rx-failed", tmp && *tmp ? tmp : "/tmp");
	signal(SIGABRT, keep_script);
	if (!S_ISDIR(st.st_mode)) {
		if (load(argv[1], &s))
			return 2;
		play(&s);
		return 0;
	}
	if (load_corpus(argv[1]) || !nfiles)
		return 2;
	for (unsigned i = 0; i < nfiles; i++)
		play(&corpus[i]);
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : clock_ns();
	printf("%u files; random scripts for %lu s from seed %llu\n", nfiles, seconds,
		(unsigned long long)seed);
	fflush(stdout);
	state = seed;
	for (end = clock_ns() + seconds * NSEC_PER_SEC; clock_ns() < end; played++) {
		if (rnd(2)) {
			invent(&s);
		} else {
			s = corpus[rnd(nfiles)];
			mutate(&s);
		}
		play(&s);
	}
	printf("%lu random scripts\n", played);
	return 0;
}
