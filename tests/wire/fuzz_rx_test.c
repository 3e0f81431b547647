/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Plays scripts against the receiving side without libFuzzer (fuzz_driver.h says how): the corpus, then
 * scripts that are invented or are mutations of its own. */
#include "../fuzz_driver.h"
#include "fuzz_rx.h"

static void add(struct fuzz_input *s, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes && s->size < FUZZ_MAX_BYTES; i++)
		s->bytes[s->size++] = (uint8_t)(v >> 8 * i);
}

static uint64_t interesting(void)
{
	static const uint64_t v[] = { 0, 1, 2, 64, 65, 127, 128, 255, 511, 512, 16384, 16385, 65535,
		1ull << 31, UINT32_MAX, 1ull << 63, UINT64_MAX };
	uint32_t i = fuzz_rnd(24);

	return i < 17 ? v[i] : (uint64_t)fuzz_rnd(UINT32_MAX) << 32 | fuzz_rnd(UINT32_MAX);
}

/* Scripts that begin as a peer should, mostly, and go on as none should. */
static void invent(struct fuzz_input *s)
{
	uint32_t n = 1 + fuzz_rnd(60);

	s->size = 0;
	if (fuzz_rnd(8)) {
		add(s, FUZZ_HELLO, 1);
		add(s, 0, 1);
		add(s, FUZZ_SERVICE, 1);
	}
	if (fuzz_rnd(2)) {
		add(s, FUZZ_SEND, 1);
		add(s, interesting(), 2);
		add(s, 3, 1);
		add(s, FUZZ_ANSWER, 1);
		add(s, 0, 1);
		add(s, FUZZ_SERVICE, 1);
	}
	while (n--) {
		uint32_t step = fuzz_rnd(FUZZ_STEPS);

		add(s, step, 1);
		if (step == FUZZ_PACKET) {
			add(s, fuzz_rnd(10) ? 12 + fuzz_rnd(37) : fuzz_rnd(256), 1);
			add(s, fuzz_rnd(10) ? (fuzz_rnd(2) ? 255 : fuzz_rnd(128)) : fuzz_rnd(256), 1);
			add(s, fuzz_rnd(10) ? fuzz_rnd(65) : interesting(), 2);
			add(s, fuzz_rnd(256), 1);
		} else if (step == FUZZ_HELLO || step == FUZZ_ANSWER || step == FUZZ_BYE) {
			add(s, fuzz_rnd(4) ? 0 : fuzz_rnd(64), 1);
		} else {
			add(s, interesting(), 2);
			add(s, interesting(), fuzz_rnd(9));
		}
	}
}

static void mutate(struct fuzz_input *s)
{
	for (uint32_t n = 1 + fuzz_rnd(4); n && s->size; n--) {
		uint32_t at = fuzz_rnd((uint32_t)s->size), len = 1 + fuzz_rnd(16);

		switch (fuzz_rnd(4)) {
		case 0:
			fuzz_flip(s, at);
			break;
		case 1:
			s->bytes[at] = (uint8_t)interesting();
			break;
		case 2:
			fuzz_remove(s, at, len);
			break;
		default:
			fuzz_repeat(s, at, len);
		}
	}
}

static void make(struct fuzz_input *s)
{
	if (fuzz_rnd(2))
		invent(s);
	else
		mutate(s);
}

int main(int argc, char **argv)
{
	return fuzz_drive(argc, argv, "wire-fuzz-rx", make);
}
