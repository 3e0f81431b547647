/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/suggest.h"

#include <stdint.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t suggest_distance(const char *a, const char *b)
{
	size_t d[SUGGEST_WORD_MAX + 1][SUGGEST_WORD_MAX + 1];
	size_t na = strlen(a), nb = strlen(b);

	if (na > SUGGEST_WORD_MAX || nb > SUGGEST_WORD_MAX)
		return SIZE_MAX;
	for (size_t i = 0; i <= na; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= nb; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= na; i++) {
		for (size_t j = 1; j <= nb; j++) {
			size_t same = a[i - 1] == b[j - 1] ? 0 : 1;

			d[i][j] = least(least(d[i - 1][j] + 1, d[i][j - 1] + 1), d[i - 1][j - 1] + same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	}
	return d[na][nb];
}

void suggest_begin(struct suggest *s, const char *typed)
{
	s->typed = typed;
	s->best = NULL;
	s->distance = SIZE_MAX;
}

void suggest_offer(struct suggest *s, const char *word)
{
	size_t typed = strlen(s->typed);
	size_t near = typed < 4 ? 1 : typed / 3; /* one slip in a short word, a third of a longer one */
	size_t distance = suggest_distance(s->typed, word);

	if (typed >= 2 && strncmp(s->typed, word, typed) == 0)
		distance = 0;
	if (distance <= near && distance < s->distance) {
		s->best = word;
		s->distance = distance;
	}
}
