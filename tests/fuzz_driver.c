/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "fuzz_driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define MAX_FILES 64

static struct fuzz_input corpus[MAX_FILES], now;
static unsigned nfiles;
static char failed[256];
static uint64_t state;

/* Only what a signal handler may do. */
static void keep_input(int sig)
{
	int fd = open(failed, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	if (fd >= 0 && write(fd, now.bytes, now.size) == (ssize_t)now.size)
		close(fd);
	signal(sig, SIG_DFL);
	raise(sig);
}

static int load(const char *path, struct fuzz_input *in)
{
	FILE *f = fopen(path, "rb");

	if (!f) {
		perror(path);
		return -1;
	}
	in->size = fread(in->bytes, 1, FUZZ_MAX_BYTES, f);
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
	if (!err && !nfiles)
		fprintf(stderr, "%s is empty\n", dir);
	return err || !nfiles ? -1 : 0;
}

static void play(const struct fuzz_input *in)
{
	now = *in;
	LLVMFuzzerTestOneInput(now.bytes, now.size);
}

uint32_t fuzz_rnd(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

void fuzz_flip(struct fuzz_input *in, size_t at)
{
	in->bytes[at] ^= (uint8_t)(1u << fuzz_rnd(8));
}

void fuzz_remove(struct fuzz_input *in, size_t at, size_t len)
{
	if (at + len > in->size)
		len = in->size - at;
	memmove(in->bytes + at, in->bytes + at + len, in->size - at - len);
	in->size -= len;
}

void fuzz_repeat(struct fuzz_input *in, size_t at, size_t len)
{
	if (at + len > in->size || in->size + len > FUZZ_MAX_BYTES)
		return;
	memmove(in->bytes + at + len, in->bytes + at, in->size - at);
	in->size += len;
}

int fuzz_drive(int argc, char **argv, const char *name, void (*make)(struct fuzz_input *in))
{
	const char *tmp = getenv("TMPDIR");
	unsigned long seconds = argc > 2 ? strtoul(argv[2], NULL, 0) : 5, played = 0;
	struct fuzz_input in;
	struct stat st;
	uint64_t end;

	if (argc < 2 || stat(argv[1], &st)) {
		fprintf(stderr, "usage: %s CORPUS|FILE [SECONDS [SEED]]\n", argv[0]);
		return 2;
	}
	snprintf(failed, sizeof(failed), "%s/%s-failed", tmp && *tmp ? tmp : "/tmp", name);
	signal(SIGABRT, keep_input);
	if (!S_ISDIR(st.st_mode)) {
		if (load(argv[1], &in))
			return 2;
		play(&in);
		return 0;
	}
	if (load_corpus(argv[1]))
		return 2;
	for (unsigned i = 0; i < nfiles; i++)
		play(&corpus[i]);
	state = argc > 3 ? strtoull(argv[3], NULL, 0) : clock_ns();
	printf("%u files; random inputs for %lu s from seed %llu\n", nfiles, seconds,
		(unsigned long long)state);
	fflush(stdout);
	for (end = clock_ns() + seconds * NSEC_PER_SEC; clock_ns() < end; played++) {
		in = corpus[fuzz_rnd(nfiles)];
		make(&in);
		play(&in);
	}
	printf("%lu random inputs\n", played);
	return 0;
}
