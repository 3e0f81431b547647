/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A fuzzer's entry: the input is a byte that names the question (modulo their number), then the messages of
 * the answer. Whatever is in it, the texts that come out have an end and nothing in them that a terminal
 * obeys, and the result is one that the header names.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined -Isrc -D_GNU_SOURCE tests/tool/fuzz_rdmanl.c
 * src/tool/rdmanl_answer.c src/tool/alloc.c src/base/log.c -lmnl
 */
#include "../fuzz_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/rdmanl.h"

#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);       \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

static void check_text(const char *text, size_t size)
{
	must(strnlen(text, size) < size);
	for (; *text; text++)
		must(*text >= ' ' && *text < 127);
}

#define CHECK(array) check_text(array, sizeof(array))

static void check(const struct rdmanl_answer *a)
{
	for (size_t i = 0; i < a->devices; i++) {
		CHECK(a->device[i].name);
		CHECK(a->device[i].firmware);
		CHECK(a->device[i].protocol);
	}
	for (size_t i = 0; i < a->regions; i++) {
		CHECK(a->region[i].details);
		CHECK(a->region[i].owner.module);
	}
	for (size_t i = 0; i < a->qps; i++)
		CHECK(a->qp[i].owner.module);
	for (size_t i = 0; i < a->counters; i++)
		CHECK(a->counter[i].name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdmanl_answer a = { 0 };
	void *bytes;
	int got;

	if (!size)
		return 0;
	/* Exactly as large as it says, so that a sanitizer sees a byte too far. */
	bytes = malloc(size - 1 ? size - 1 : 1);
	must(bytes);
	memcpy(bytes, data + 1, size - 1);
	got = rdmanl_parse(&a, (enum rdmanl_question)(data[0] % RDMANL_QUESTIONS), 0, bytes, size - 1);
	must(got <= 1 && got >= -4095);
	check(&a);
	rdmanl_answer_free(&a);
	free(bytes);
	return 0;
}
