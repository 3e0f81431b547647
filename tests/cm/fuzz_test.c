/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Plays scripts to the connection manager without libFuzzer (fuzz_driver.h says how): the corpus, then
 * mutations and random scripts. */
#include <stdlib.h>

#include "../fuzz_driver.h"

static void make(struct fuzz_input *in)
{
	if (!fuzz_rnd(3)) {
		in->size = 1 + fuzz_rnd(1500);
		for (size_t i = 0; i < in->size; i++)
			in->bytes[i] = (uint8_t)fuzz_rnd(256);
		return;
	}
	for (uint32_t n = 1 + fuzz_rnd(8); n && in->size > 1; n--) {
		size_t at = fuzz_rnd((uint32_t)in->size), len = 1 + fuzz_rnd(200);

		switch (fuzz_rnd(4)) {
		case 0:
			fuzz_flip(in, at);
			break;
		case 1:
			fuzz_remove(in, at, len / 8 + 1);
			break;
		case 2:
			fuzz_repeat(in, at, len);
			break;
		default:
			in->bytes[at] = (uint8_t)fuzz_rnd(256);
		}
	}
}

int main(int argc, char **argv)
{
	return fuzz_drive(argc, argv, "cm-fuzz", make);
}
