/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Plays inputs to a fuzz target (LLVMFuzzerTestOneInput) without libFuzzer:
 *
 *   PROGRAM CORPUS [SECONDS [SEED]]   every file of the directory, then inputs that make() makes
 *   PROGRAM FILE                      one input
 *
 * A failure aborts; the input that was being played is left in the file NAME-failed of the temporary
 * directory.
 */
#ifndef UNPIN_TESTS_FUZZ_DRIVER_H
#define UNPIN_TESTS_FUZZ_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_BYTES 8192

struct fuzz_input {
	uint8_t bytes[FUZZ_MAX_BYTES];
	size_t size;
};

/* What the program under test provides. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* main()'s work; its return value. make turns a file of the corpus, drawn at random, into the next input. */
int fuzz_drive(int argc, char **argv, const char *name, void (*make)(struct fuzz_input *in));

/* The next random number, below a bound that is not 0. */
uint32_t fuzz_rnd(uint32_t below);

/* Within the input: one bit changes; a piece of len bytes from at goes, or comes twice if there is room. at
 * is below the size; a piece that would reach over the end is shorter, or does not come twice. */
void fuzz_flip(struct fuzz_input *in, size_t at);
void fuzz_remove(struct fuzz_input *in, size_t at, size_t len);
void fuzz_repeat(struct fuzz_input *in, size_t at, size_t len);

#endif
