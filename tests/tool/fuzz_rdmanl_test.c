/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Feeds answers to the reader of rdma netlink without libFuzzer (fuzz_driver.h says how): the corpus, which
 * is of netlink_corpus.py, then mutations of it. */
#include <string.h>

#include "../fuzz_driver.h"

/* Lengths and types stand at multiples of four from the second byte on. */
static void change_word(struct fuzz_input *a)
{
	static const uint32_t v[] = { 0, 1, 3, 4, 5, 8, 16, 17, 255, 256, 65535, 0x7fffffff, 0x80000000,
		UINT32_MAX };
	uint32_t words = (uint32_t)(a->size - 1) / 4, value = fuzz_rnd(2) ? v[fuzz_rnd(14)] : fuzz_rnd(64);
	size_t at = 1 + 4 * (size_t)fuzz_rnd(words ? words : 1), size = fuzz_rnd(3) ? 2 : 4;

	at += fuzz_rnd(2) ? 0 : 2;
	if (at + size <= a->size)
		memcpy(a->bytes + at, &value, size);
}

static void mutate(struct fuzz_input *a)
{
	for (uint32_t n = 1 + fuzz_rnd(4); n && a->size > 1; n--) {
		size_t at = fuzz_rnd((uint32_t)a->size), len = 4 * (1 + fuzz_rnd(8)),
		       aligned = at & ~(size_t)3;

		switch (fuzz_rnd(5)) {
		case 0:
			fuzz_flip(a, at);
			break;
		case 1: /* cut */
			a->size = at + 1;
			break;
		case 2:
			if (aligned + 1 < a->size)
				fuzz_repeat(a, aligned + 1, len);
			break;
		default:
			change_word(a);
		}
	}
}

int main(int argc, char **argv)
{
	return fuzz_drive(argc, argv, "tool-fuzz-rdmanl", mutate);
}
