/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/knob.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace_spool.h"

static const enum knob_group groups[SETTING_COUNT] = {
	[SETTING_PROFILE_ID] = KNOB_DEVICE,
	[SETTING_IMPLICIT_ID] = KNOB_DEVICE,
	[SETTING_NOTIFIER_ID] = KNOB_DEVICE,
	[SETTING_ENGINE_THREADS_ID] = KNOB_DEVICE,
	[SETTING_DRIVER_THREADS_ID] = KNOB_DEVICE,
	[SETTING_FAULT_MODE_ID] = KNOB_FAULTS,
	[SETTING_FAULT_REPLY_ID] = KNOB_FAULTS,
	[SETTING_FAULT_LATENCY_ID] = KNOB_FAULTS,
	[SETTING_LOSS_ID] = KNOB_FABRIC,
	[SETTING_REORDER_ID] = KNOB_FABRIC,
	[SETTING_DELAY_ID] = KNOB_FABRIC,
	[SETTING_SEED_ID] = KNOB_FABRIC,
	[SETTING_STORM_MAJORS_ID] = KNOB_STORM,
	[SETTING_STORM_STALL_ID] = KNOB_STORM,
};

/* --- help ----------------------------------------------------------------------------------------- */

/* In the largest unit that leaves no fraction. */
static void duration_text(uint64_t ns, char out[KNOB_DEFAULT])
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = { { NSEC_PER_SEC, "s" }, { NSEC_PER_MSEC, "ms" }, { NSEC_PER_USEC, "us" }, { 1, "ns" } };
	size_t i = 0;

	while (ns % units[i].ns)
		i++;
	snprintf(out, KNOB_DEFAULT, "%" PRIu64 "%s", ns / units[i].ns, ns ? units[i].name : "");
}

void knob_default(const struct setting *s, char out[KNOB_DEFAULT])
{
	out[0] = 0;
	switch (s->kind) {
	case SETTING_CHOICE:
		setting_choice(s, s->preset, out, KNOB_DEFAULT);
		break;
	case SETTING_DURATION:
		duration_text(s->preset, out);
		break;
	case SETTING_SHARE:
		snprintf(out, KNOB_DEFAULT, s->preset ? "%g%%" : "0", (double)s->preset / 1e4);
		break;
	case SETTING_NUMBER:
		snprintf(out, KNOB_DEFAULT, "%" PRIu64, s->preset);
		break;
	case SETTING_SWITCH:
	case SETTING_TEXT:
		break;
	}
}

/* "; unpin (default), mlx5, rxe, none or stale-firmware" */
static void add_choices(FILE *f, const struct setting *s)
{
	const char *at = s->choices;

	for (uint64_t i = 0; at; i++) {
		const char *end = strchr(at, '|');
		int n = (int)strcspn(at, "|");

		fprintf(f, "%s%.*s%s",
			i == 0 ? ": "
			: end  ? ", "
			       : " or ",
			n, at, i == s->preset ? " (default)" : "");
		at = end ? end + 1 : NULL;
	}
}

static void write_help(const struct setting *s, char out[KNOB_HELP])
{
	FILE *f = fmemopen(out, KNOB_HELP, "w");
	char preset[KNOB_DEFAULT];

	if (!f) {
		snprintf(out, KNOB_HELP, "%s", s->help);
		return;
	}
	knob_default(s, preset);
	fputs(s->help, f);
	if (s->kind == SETTING_CHOICE)
		add_choices(f, s);
	else if (preset[0])
		fprintf(f, " (default %s)", preset);
	fclose(f);
}

size_t knob_rows(struct knobs *k, enum knob_group group, struct option_row *rows)
{
	size_t n = 0;

	for (int i = 0; i < SETTING_COUNT; i++) {
		const struct setting *s = &settings_table[i];

		if (groups[i] != group)
			continue;
		write_help(s, k->help[i]);
		rows[n++] = (struct option_row){
			.name = s->option,
			.argname = s->kind == SETTING_SWITCH ? NULL : s->argument,
			.help = k->help[i],
			.flag = &k->flag[i],
			.text = &k->text[i],
		};
	}
	return n;
}

/* --- the environment ------------------------------------------------------------------------------ */

static int try_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0)
		return -errno;
	close(fd);
	/* Empty, it would look like a timeline if no process opens the device. */
	return unlink(path) ? -errno : 0;
}

/* Whether a process of another run is writing to it. If not, what may have been left for it is nobody's. */
static bool in_use(const char *path)
{
	char spool[PATH_MAX + sizeof(TRACE_SPOOL_SUFFIX)];
	int fd, err;

	snprintf(spool, sizeof(spool), "%s" TRACE_SPOOL_SUFFIX, path);
	fd = trace_spool_open(spool);
	if (fd < 0)
		return false;
	err = trace_spool_lock(fd, false);
	if (!err)
		trace_spool_remove(fd, spool);
	close(fd);
	return err == -EAGAIN;
}

static int replace_file(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0) {
		if (!S_ISREG(st.st_mode)) {
			log_error(
				"run: --trace %s: this is no regular file; name a file to be written", path);
			return -EINVAL;
		}
		if (unlink(path)) {
			log_error("run: --trace %s: cannot replace the file: %s", path, strerror(errno));
			return -errno;
		}
	}
	return 0;
}

static int prepare_trace(struct knobs *k, const char *path, bool replace)
{
	char here[PATH_MAX] = "";
	int err;

	if (path[0] != '/' && !getcwd(here, sizeof(here))) {
		log_error("run: --trace %s: the current directory has no name (%s); give an absolute path",
			path, strerror(errno));
		return -errno;
	}
	if (snprintf(k->trace, sizeof(k->trace), "%s%s%s", here, here[0] ? "/" : "", path) >=
		(int)sizeof(k->trace)) {
		log_error("run: --trace: the path is too long");
		return -ENAMETOOLONG;
	}
	/* Server and client are often given the same one: who comes second writes one of its own, beside it.
	 */
	if (!replace || in_use(k->trace))
		return 0;
	err = replace_file(k->trace);
	if (err)
		return err;
	err = try_file(k->trace);
	if (err)
		log_error("run: --trace %s: cannot be written: %s; its directory must exist and be writable",
			path, strerror(-err));
	return err;
}

static int set_one(struct knobs *k, int id, bool replace)
{
	const struct setting *s = &settings_table[id];
	const char *text = k->text[id];
	char why[SETTING_WHY];
	uint64_t value;
	int err;

	if (s->kind == SETTING_SWITCH)
		text = k->flag[id] ? (s->preset ? "0" : "1") : NULL;
	if (!text)
		return 0;
	err = setting_parse(s, text, &value, why);
	if (err) {
		log_error("run: --%s: %s", s->option, why);
		return err;
	}
	if (id == SETTING_TRACE_ID) {
		err = prepare_trace(k, text, replace);
		if (err)
			return err;
		text = k->trace;
	}
	return setenv(s->variable, text, 1) ? -errno : 0;
}

int knob_set(struct knobs *k, bool replace)
{
	struct settings all;
	char why[SETTING_WHY];
	int err = 0;

	for (int i = 0; i < SETTING_COUNT && !err; i++)
		err = set_one(k, i, replace);
	if (err)
		return err;
	/* The program would only see that it has no device. */
	err = settings_load(&all, why);
	if (err)
		log_error("run: the environment has a wrong value: %s", why);
	return err;
}
