/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* "Did you mean": the known word that is nearest to a mistyped one. */
#ifndef UNPIN_TOOL_SUGGEST_H
#define UNPIN_TOOL_SUGGEST_H

#include <stddef.h>

#define SUGGEST_WORD_MAX 32 /* longer words are never suggested for, nor suggested */

/* Number of insertions, deletions, replacements and swaps of neighbours that turn a into b; SIZE_MAX when
 * either is longer than SUGGEST_WORD_MAX. */
size_t suggest_distance(const char *a, const char *b);

struct suggest {
	const char *typed;
	const char *best; /* NULL: nothing is near enough to be worth saying */
	size_t distance;
};

void suggest_begin(struct suggest *s, const char *typed);
/* Offers one known word; it must outlive s. A word of which typed is a beginning counts as near. */
void suggest_offer(struct suggest *s, const char *word);

#endif
