/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/program.h"

static char dir[] = "/tmp/unpin-program-XXXXXX";
static struct program p;

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static const char *file(const char *name, const char *text, mode_t mode)
{
	static char path[4][64];
	static unsigned next;
	char *out = path[next++ % 4];
	int fd;

	snprintf(out, sizeof(path[0]), "%s/%s", dir, name);
	fd = open(out, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	return out;
}

static void a_program_is_found_on_path_as_execvp_finds_it(void **state)
{
	char path[256];

	file("only-here", "#!/bin/sh\n", 0755);
	snprintf(path, sizeof(path), "/nowhere:%s:/usr/bin", dir);
	assert_int_equal(program_find("only-here", path, &p), 0);
	assert_non_null(strstr(p.path, "/only-here"));
	assert_int_equal(program_find("env", NULL, &p), 0);
	assert_string_equal(p.path, "/usr/bin/env");
	assert_true(p.elf.dynamic);
}

static void a_missing_program_is_told_from_a_forbidden_one(void **state)
{
	const char *locked = file("locked", "#!/bin/sh\n", 0644);

	assert_int_equal(program_find("no-such-program", "/usr/bin", &p), -ENOENT);
	assert_non_null(strstr(p.why, "PATH"));
	assert_int_equal(program_find("/no/such/program", NULL, &p), -ENOENT);
	assert_int_equal(program_find("", NULL, &p), -ENOENT);
	assert_int_equal(program_find(locked, NULL, &p), -EACCES);
	assert_int_equal(program_find("locked", dir, &p), -EACCES);
	assert_int_equal(program_find("/tmp", NULL, &p), -EACCES);
	assert_non_null(strstr(p.why, "directory"));
}

static void a_script_leads_to_its_interpreter(void **state)
{
	char text[128];
	const char *script = file("script", "#!  /bin/sh -e\nexit 3\n", 0755);

	assert_int_equal(program_find(script, NULL, &p), 0);
	assert_string_equal(p.path, script);
	assert_string_equal(p.image, "/bin/sh");
	assert_false(p.text);
	snprintf(text, sizeof(text), "#!%s\n", script);
	assert_int_equal(program_find(file("script2", text, 0755), NULL, &p), 0);
	assert_string_equal(p.image, "/bin/sh");
}

static void a_text_without_an_interpreter_is_given_to_the_shell(void **state)
{
	assert_int_equal(program_find(file("text", "exit 3\n", 0755), NULL, &p), 0);
	assert_true(p.text);
	assert_string_equal(p.image, "/bin/sh");
	assert_int_equal(program_find(file("empty", "", 0755), NULL, &p), 0);
	assert_true(p.text);
}

static void scripts_without_end_are_refused(void **state)
{
	char text[128];

	snprintf(text, sizeof(text), "#!%s/loop\n", dir);
	assert_int_equal(program_find(file("loop", text, 0755), NULL, &p), -ELOOP);
	assert_int_equal(program_find(file("lost", "#!/no/such/interpreter\n", 0755), NULL, &p), -ENOENT);
	assert_non_null(strstr(p.why, "/no/such/interpreter"));
	assert_int_equal(program_find(file("blank", "#! \nfoo\n", 0755), NULL, &p), -ENOENT);
}

/* A copy of a small dynamic program with the given mode and owner. */
static const char *copy(const char *name, mode_t mode, uid_t owner)
{
	static char path[64];
	char command[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(command, sizeof(command), "cp /usr/bin/env %s", path);
	assert_int_equal(system(command), 0);
	if (owner != getuid())
		assert_int_equal(chown(path, owner, (gid_t)-1), 0);
	assert_int_equal(chmod(path, mode), 0);
	return path;
}

static void a_setuid_program_is_refused_unless_it_changes_nothing(void **state)
{
	assert_int_equal(program_find(copy("own", 04755, getuid()), NULL, &p), 0);
	if (geteuid()) {
		print_message("not root: a file cannot be given to another user\n");
		skip();
	}
	assert_int_equal(program_find(copy("setuid", 04755, 12345), NULL, &p), -EPERM);
	assert_non_null(strstr(p.why, "set-user-ID"));
}

static void a_program_of_another_machine_is_refused(void **state)
{
	const char *path = copy("foreign", 0755, getuid());
	int fd = open(path, O_WRONLY);

	assert_int_equal(pwrite(fd, "\xff\x7f", 2, 18), 2);
	close(fd);
	assert_int_equal(program_find(path, NULL, &p), -EPERM);
	assert_non_null(strstr(p.why, "another kind"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_is_found_on_path_as_execvp_finds_it),
		cmocka_unit_test(a_missing_program_is_told_from_a_forbidden_one),
		cmocka_unit_test(a_script_leads_to_its_interpreter),
		cmocka_unit_test(a_text_without_an_interpreter_is_given_to_the_shell),
		cmocka_unit_test(scripts_without_end_are_refused),
		cmocka_unit_test(a_setuid_program_is_refused_unless_it_changes_nothing),
		cmocka_unit_test(a_program_of_another_machine_is_refused),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
