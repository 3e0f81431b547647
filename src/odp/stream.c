/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/stream.h"

/* Neighbouring pages, and regions, fall in different sets. */
static unsigned set_of(const void *region, uintptr_t page)
{
	uint64_t x = (page >> 12) + ((uintptr_t)region >> 6) * 0x9e3779b97f4a7c15ull;

	return (unsigned)(x * 0x9e3779b97f4a7c15ull >> 58);
}

_Static_assert(STREAM_SETS == 1u << (64 - 58), "a set per value of the hash");

uint32_t stream_take(struct streams *s, const void *region, uintptr_t page)
{
	struct stream *slot = s->slot[set_of(region, page)];

	for (unsigned i = 0; i < STREAM_WAYS; i++) {
		uint32_t window = slot[i].window;

		if (!window || slot[i].next != page || slot[i].region != region)
			continue;
		slot[i].window = 0;
		return window;
	}
	return 0;
}

void stream_put(struct streams *s, const void *region, uintptr_t next, uint32_t window)
{
	unsigned set = set_of(region, next);

	s->slot[set][s->hand[set]++ % STREAM_WAYS] = (struct stream){ region, next, window };
}
