/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Residency: whether what the table holds for valid is still in memory, asked without touching it, so that no
 * access sleeps in the kernel over a page that was reclaimed.
 */
#include <string.h>

#include "mm/page.h"
#include "mm/residency.h"
#include "odp/core.h"

/*
 * Where nothing can be said, everything counts as in memory: nothing would be gained by asking again at once.
 */
static void ask(uintptr_t addr, unsigned pages, unsigned char *resident)
{
	if (page_size() != ODP_PAGE || residency_query((void *)addr, pages, resident) < 0)
		memset(resident, 1, pages);
}

void odp_verify(struct odp_space *s, struct leaf *leaf, uintptr_t base, unsigned first, unsigned last)
{
	uintptr_t from = base + (uintptr_t)first * GROUP_PAGES * ODP_PAGE;
	unsigned char resident[LEAF_PAGES];
	uint64_t valid[LEAF_GROUPS];
	uint16_t tick = odp_tick();

	/*
	 * Pages that become valid after this look have been populated after it: an older answer does not
	 * judge them.
	 */
	for (unsigned g = first; g <= last; g++)
		valid[g] = page_valid(atomic_load(&leaf->word[g]), ~0ull);
	ask(from, (last - first + 1) * GROUP_PAGES, resident);
	for (unsigned g = first; g <= last; g++) {
		for (unsigned i = 0; i < GROUP_PAGES; i++)
			if (valid[g] >> (8 * i) & 1 && !resident[(g - first) * GROUP_PAGES + i])
				odp_space_invalidate(s, base + (g * GROUP_PAGES + i) * (uintptr_t)ODP_PAGE,
					ODP_PAGE, ODP_SWEEP);
		atomic_store_explicit(&leaf->tick[g], tick, memory_order_relaxed);
	}
}
