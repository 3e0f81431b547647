/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A program that never touches verbs: prints what it is made of, so that runs with and without us can be
 * compared.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static const char *handler(int sig)
{
	struct sigaction act;

	sigaction(sig, NULL, &act);
	return act.sa_handler == SIG_DFL ? "default" : "changed";
}

static void libraries(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], last[512] = "";

	while (maps && fgets(line, sizeof(line), maps)) {
		char *slash = strrchr(line, '/');

		if (!slash || !strstr(slash, ".so") || !strcmp(slash, last))
			continue;
		snprintf(last, sizeof(last), "%s", slash);
		if (!strstr(slash, "libunpin.so"))
			printf("library %s", slash + 1);
	}
	if (maps)
		fclose(maps);
}

int main(void)
{
	printf("threads %d\n", entries("/proc/self/task"));
	printf("descriptors %d\n", entries("/proc/self/fd"));
	printf("SIGSEGV %s, SIGBUS %s\n", handler(SIGSEGV), handler(SIGBUS));
	libraries();
	return 0;
}
