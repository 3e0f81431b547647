/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/pkey.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* The kernel has switched them on: then the two instructions exist. */
static bool have;

__attribute__((constructor)) static void look_for_keys(void)
{
	unsigned a, b, c, d;

	have = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & bit_OSPKE);
}

/* By their bytes: older assemblers do not know the names. */
static uint32_t read_rights(void)
{
	uint32_t rights, zero;

	__asm__ volatile(".byte 0x0f, 0x01, 0xee" /* rdpkru */
			 : "=a"(rights), "=d"(zero)
			 : "c"(0));
	return rights;
}

/* No access moves across it. */
static void write_rights(uint32_t rights)
{
	__asm__ volatile(".byte 0x0f, 0x01, 0xef" /* wrpkru */
			 :
			 : "a"(rights), "c"(0), "d"(0)
			 : "memory");
}

bool pkey_open(uint32_t *was)
{
	if (!have)
		return false;
	*was = read_rights();
	if (!*was)
		return false;
	write_rights(0);
	return true;
}

void pkey_close(uint32_t was)
{
	write_rights(was);
}

#else

static const bool have = false;

bool pkey_open(uint32_t *was)
{
	*was = 0;
	return false;
}

void pkey_close(uint32_t was)
{
	(void)was;
}

#endif

bool pkey_have(void)
{
	return have;
}
