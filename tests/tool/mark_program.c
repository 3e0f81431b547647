/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Exit status 0 if the marker library is loaded, 1 if not. Built plain, static, and with a sanitizer. */
#include <stdlib.h>
#include <string.h>

int main(void)
{
	const char *mark = getenv("UNPIN_TEST_MARK");
	volatile char *heap = malloc(16); /* the sanitizer has something to watch */

	heap[15] = 1;
	free((void *)heap);
	return mark && strcmp(mark, "loaded") == 0 ? 0 : 1;
}
