/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Programs are made in a memfd, byte by byte, so that every lie a header can tell is told. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/elfinfo.h"

#define VADDR 0x400000

/* One PT_LOAD over the whole file, PT_INTERP, PT_DYNAMIC with two needed libraries. */
struct image {
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph[3];
	char interp[32];
	ElfW(Dyn) dyn[6];
	char strtab[64];
};

static const char strings[] = "\0libc.so.6\0libasan.so.8\0ld-linux.so.2";

static struct image image(void)
{
	struct image m = {
		.eh = { .e_ident = { 0x7f, 'E', 'L', 'F', sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32,
				__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB,
				EV_CURRENT },
			.e_type = ET_DYN,
			.e_machine = 62,
			.e_version = EV_CURRENT,
			.e_phoff = offsetof(struct image, ph),
			.e_phentsize = sizeof(ElfW(Phdr)),
			.e_phnum = 3,
			.e_ehsize = sizeof(ElfW(Ehdr)) },
		.ph = { { .p_type = PT_LOAD, .p_vaddr = VADDR, .p_filesz = sizeof(m) },
			{ .p_type = PT_INTERP, .p_offset = offsetof(struct image, interp), .p_filesz = 32 },
			{ .p_type = PT_DYNAMIC,
				.p_offset = offsetof(struct image, dyn),
				.p_filesz = sizeof(m.dyn) } },
		.interp = "/lib/ld-linux.so.2",
		.dyn = { { DT_NEEDED, { 1 } }, { DT_NEEDED, { 11 } },
			{ DT_STRTAB, { VADDR + offsetof(struct image, strtab) } }, { DT_NULL, { 0 } } },
	};

	memcpy(m.strtab, strings, sizeof(strings));
	return m;
}

static int inspect(const void *data, size_t n, struct elfinfo *info)
{
	int fd = memfd_create("elf", 0), err;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), n);
	err = elfinfo_read(fd, info);
	close(fd);
	return err;
}

static void a_dynamic_program_tells_its_loader_and_runtime(void **state)
{
	struct image m = image();
	struct elfinfo info;

	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_true(info.dynamic);
	assert_int_equal(info.bits, 8 * sizeof(void *));
	assert_int_equal(info.machine, 62);
	assert_string_equal(info.interp, "/lib/ld-linux.so.2");
	assert_int_equal(info.runtimes, 1);
	assert_string_equal(info.runtime[0], "libasan.so.8");
}

static void a_program_without_a_loader_is_static(void **state)
{
	struct image m = image();
	struct elfinfo info;

	m.ph[1].p_type = PT_NULL;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_false(info.dynamic);
	m.ph[2].p_type = PT_NULL;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_false(info.dynamic);
	m.eh.e_phnum = 0;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_false(info.dynamic);
}

static void the_loader_itself_counts_as_dynamic(void **state)
{
	struct image m = image();
	struct elfinfo info;

	m.ph[1].p_type = PT_NULL;
	m.dyn[1].d_tag = DT_SONAME;
	m.dyn[1].d_un.d_val = 24;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_true(info.dynamic);
}

static void what_is_no_elf_file_is_told_from_a_damaged_one(void **state)
{
	struct image m = image();
	struct elfinfo info;

	assert_int_equal(inspect("", 0, &info), -ENOEXEC);
	assert_int_equal(inspect("#!/bin/sh\n", 10, &info), -ENOEXEC);
	assert_int_equal(inspect("a text that is longer than an ELF ident", 39, &info), -ENOEXEC);
	assert_int_equal(inspect(&m, sizeof(m.eh), &info), -EBADMSG);
	assert_int_equal(inspect(&m, sizeof(m.eh) - 1, &info), -EBADMSG);
	m.eh.e_ident[EI_CLASS] = 9;
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
	m = image();
	m.eh.e_ident[EI_DATA] ^= 3;
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
}

static void tables_that_point_outside_are_refused_or_ignored(void **state)
{
	struct image m = image();
	struct elfinfo info;

	m.eh.e_phoff = (ElfW(Off)) - 1;
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
	m = image();
	m.eh.e_phnum = 60000;
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
	m = image();
	m.eh.e_phentsize = 1;
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
	m = image();
	m.ph[2].p_filesz = (ElfW(Xword)) - 1;
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
	m = image();
	m.ph[2].p_offset = sizeof(m);
	assert_int_equal(inspect(&m, sizeof(m), &info), -EBADMSG);
	m = image();
	m.ph[1].p_offset = (ElfW(Off)) - 1;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_string_equal(info.interp, "");
	m = image();
	m.dyn[2].d_un.d_ptr = 1;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_int_equal(info.runtimes, 0);
	m = image();
	m.dyn[1].d_un.d_val = (ElfW(Xword)) - 1;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_int_equal(info.runtimes, 0);
}

static void another_class_is_recognised_but_not_read(void **state)
{
	struct image m = image();
	struct elfinfo info;

	m.eh.e_ident[EI_CLASS] = sizeof(void *) == 8 ? ELFCLASS32 : ELFCLASS64;
	assert_int_equal(inspect(&m, sizeof(m), &info), 0);
	assert_int_equal(info.bits, 96 - 8 * sizeof(void *));
	assert_int_equal(info.runtimes, 0);
}

static void this_test_is_a_dynamic_program(void **state)
{
	struct elfinfo info;
	int fd = open("/proc/self/exe", O_RDONLY);

	assert_int_equal(elfinfo_read(fd, &info), 0);
	close(fd);
	assert_true(info.dynamic);
	assert_int_equal(info.bits, 8 * sizeof(void *));
}

static void runtimes_that_must_be_first_are_known_by_name(void **state)
{
	assert_true(elfinfo_is_first_runtime("libasan.so.8"));
	assert_true(elfinfo_is_first_runtime("libasan.so"));
	assert_true(elfinfo_is_first_runtime("libtsan.so.2"));
	assert_true(elfinfo_is_first_runtime("libclang_rt.asan-x86_64.so"));
	assert_true(elfinfo_is_first_runtime("libclang_rt.tsan.so"));
	assert_false(elfinfo_is_first_runtime("libubsan.so.1"));
	assert_false(elfinfo_is_first_runtime("libasanity.so"));
	assert_false(elfinfo_is_first_runtime("libc.so.6"));
	assert_false(elfinfo_is_first_runtime(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dynamic_program_tells_its_loader_and_runtime),
		cmocka_unit_test(a_program_without_a_loader_is_static),
		cmocka_unit_test(the_loader_itself_counts_as_dynamic),
		cmocka_unit_test(what_is_no_elf_file_is_told_from_a_damaged_one),
		cmocka_unit_test(tables_that_point_outside_are_refused_or_ignored),
		cmocka_unit_test(another_class_is_recognised_but_not_read),
		cmocka_unit_test(this_test_is_a_dynamic_program),
		cmocka_unit_test(runtimes_that_must_be_first_are_known_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
