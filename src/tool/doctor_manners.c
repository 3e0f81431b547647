/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How programs will go about it: environment variables of the libraries above verbs, fork, containers. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/setting.h"
#include "tool/alloc.h"
#include "tool/doctor.h"
#include "tool/facilities.h"
#include "tool/suggest.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* PCI numbers of NVIDIA's devices up to this one, ConnectX-5's, have the transport scheme of page faults and
 * no other. */
#define LAST_TRANSPORT_SCHEME 0x101a

extern char **environ;

/* --- environment variables ---------------------------------------------------------------------------------
 */

enum family { UCX, LIBFABRIC, NCCL, UNPIN };

/* What concerns on-demand paging, and what a value of it means; with the versions that read it, where not all
 * do. replaced: the variable is read no more by current versions; that is what is used instead. */
static const struct variable {
	enum family family;
	const char *name, *replaced, *does;
} variables[] = {
	{ UCX, "UCX_REG_NONBLOCK_MEM_TYPES", NULL, "kinds of memory that are registered on demand" },
	{ UCX, "UCX_REG_NONBLOCK_FALLBACK", NULL,
		"whether memory is pinned where on demand cannot be had; UCX 1.20 and later" },
	{ UCX, "UCX_IB_ODP_MEM_TYPES", NULL,
		"kinds of memory for which on demand is offered; UCX 1.18 and later" },
	{ UCX, "UCX_GGA_ODP_MEM_TYPES", NULL, "the same for BlueField's engine; UCX 1.18 and later" },
	{ UCX, "UCX_IB_ODP_PREFETCH", NULL,
		"whether on-demand regions are brought in when they are registered" },
	{ UCX, "UCX_IB_REG_RETRY_CNT", NULL,
		"how often a registration is attempted that collides with memory being given back; UCX 1.16 "
		"and "
		"later" },
	{ UCX, "UCX_GVA_ENABLE", NULL,
		"one on-demand region for all memory instead of one per buffer; UCX 1.18 and later" },
	{ UCX, "UCX_GVA_MLOCK", NULL, "whether memory is locked when that one region is used" },
	{ UCX, "UCX_GVA_PREFETCH", NULL, "whether memory is brought in when that one region is used" },
	{ UCX, "UCX_RCACHE_ENABLE", NULL, "whether registrations are kept to be used again" },
	{ UCX, "UCX_IB_FORK_INIT", NULL, "whether registered memory is protected from fork" },
	{ UCX, "UCX_IB_MLX5_DEVX", NULL, "whether objects are made past the kernel" },
	{ UCX, "UCX_IB_MLX5_DEVX_OBJECTS", NULL, "which objects are made past the kernel" },
	{ UCX, "UCX_IB_REG_METHODS", "UCX_REG_NONBLOCK_MEM_TYPES=host",
		"methods of registration, read until UCX 1.15, odp among them until 1.14" },
	{ UCX, "UCX_IB_ODP_MAX_SIZE", "UCX_REG_NONBLOCK_MEM_TYPES=host",
		"largest on-demand region, read until UCX 1.14" },
	{ UCX, "UCX_IB_ODP_NUMA_POLICY", "numactl(8)", "where pages are placed, read until UCX 1.14" },
	{ LIBFABRIC, "FI_VERBS_USE_ODP", NULL, "whether the verbs provider registers on demand" },
	{ LIBFABRIC, "FI_CXI_ODP", NULL, "whether the cxi provider registers on demand" },
	{ LIBFABRIC, "FI_CXI_FORCE_ODP", NULL, "whether the cxi provider registers everything on demand" },
	{ LIBFABRIC, "FI_MR_CACHE_MONITOR", NULL, "how the registration cache learns that memory has gone" },
	{ LIBFABRIC, "FI_MR_CACHE_MAX_SIZE", NULL,
		"how much memory the registration cache keeps registered" },
	{ LIBFABRIC, "FI_MR_CACHE_MAX_COUNT", NULL, "how many regions the registration cache keeps" },
	{ LIBFABRIC, "FI_VERBS_MR_CACHE_ENABLE", "FI_MR_CACHE_MAX_COUNT=0 to switch the cache off",
		"the provider's own registration cache, read until libfabric 1.7" },
	{ LIBFABRIC, "FI_VERBS_MR_MAX_CACHED_CNT", "FI_MR_CACHE_MAX_COUNT",
		"size of the provider's own registration cache, read until libfabric 1.7" },
	{ LIBFABRIC, "FI_VERBS_MR_MAX_CACHED_SIZE", "FI_MR_CACHE_MAX_SIZE",
		"size of the provider's own registration cache, read until libfabric 1.7" },
	{ NCCL, "NCCL_IBVERBS_LIB", NULL, "the verbs library that NCCL loads; NCCL 2.30 and later" },
	{ NCCL, "NCCL_IB_DISABLE", NULL, "whether NCCL does without verbs" },
	{ UNPIN, "UNPIN_DEVICE", NULL, "name of unpin's device" },
	{ UNPIN, "UNPIN_DISABLE", NULL, "facilities of the kernel to do without" },
	{ UNPIN, "UNPIN_LOG", NULL, NULL }, { UNPIN, "UNPIN_LIBRARY", NULL, NULL },
#define X(id, variable, option, argument, kind, choices, least, most, preset, help)                          \
	{ UNPIN, variable, NULL, help },
	SETTINGS(X)
#undef X
};

static const struct {
	const char *library, *prefix;
	const char *none; /* what it means that nothing is set */
} families[] = {
	[UCX] = { "UCX", "UCX_",
		"nothing is set; UCX pins. To have host memory registered on demand: "
		"UCX_REG_NONBLOCK_MEM_TYPES=host (UCX 1.18 and later; 1.15 to 1.17 with mlx5 devices only; "
		"older: UCX_IB_REG_METHODS=odp,direct)" },
	[LIBFABRIC] = { "libfabric", "FI_",
		"nothing is set; the verbs provider pins. To have it register on demand: "
		"FI_VERBS_USE_ODP=1" },
	[NCCL] = { "NCCL", "NCCL_", "nothing is set; NCCL always pins, and has no setting for on demand" },
	[UNPIN] = { "unpin", "UNPIN_", "nothing is set" },
};

/* Whether a text is a boolean as libfabric reads one (fi_param_get(3)). */
static bool is_fi_bool(const char *value)
{
	static const char *const words[] = { "0", "1", "no", "yes", "false", "true", "off", "on" };

	for (size_t i = 0; i < COUNT(words); i++)
		if (strcasecmp(value, words[i]) == 0)
			return true;
	return false;
}

static const struct variable *variable_named(const char *name)
{
	for (size_t i = 0; i < COUNT(variables); i++)
		if (strcmp(variables[i].name, name) == 0)
			return &variables[i];
	return NULL;
}

/* The known name that was probably meant, or NULL. Other variables of the libraries have near names, too:
 * what is not about on-demand paging by its letters is only taken for misspelt when it is very near. */
static const char *meant(enum family family, const char *name)
{
	bool is_odp = strstr(name, "ODP") || strstr(name, "NONBLOCK") || family == UNPIN;
	struct suggest s;

	suggest_begin(&s, name);
	for (size_t i = 0; i < COUNT(variables); i++)
		if (variables[i].family == family && !variables[i].replaced)
			suggest_offer(&s, variables[i].name);
	if (s.best && (is_odp || s.distance <= 1))
		return s.best;
	return NULL;
}

/* All variables of the machine as lines "NAME=value"; to be freed. Of a record: the file environ. */
static char *all_variables(const struct doctor *d)
{
	size_t length = 1;
	char *text;

	if (d->root)
		return doctor_read(d, "/environ");
	for (char **e = environ; *e; e++)
		length += strlen(*e) + 1;
	text = alloc_array(length, 1);
	for (char **e = environ; *e; e++) {
		char *at = text + strlen(text), *line = at;

		strcpy(at, *e);
		/* A value may hold lines of its own; only the first is of interest. */
		for (; *line; line++)
			if (iscntrl((unsigned char)*line))
				*line = '?';
		strcpy(line, "\n");
	}
	return text;
}

struct scan {
	enum family family;
	char set[1024], obsolete[512], misspelt[512], value_trouble[512];
	const char *value_advice, *value_meaning;
	bool ucx_on_demand, ucx_never_pins, ucx_devx_qp;
};

/* Whether a list with commas has the word. */
static bool lists(const char *list, const char *word)
{
	for (const char *at = list; *at; at += *at == ',') {
		size_t n = strcspn(at, ",");

		if (n == strlen(word) && strncmp(at, word, n) == 0)
			return true;
		at += n;
	}
	return false;
}

/* "n", "no", "off", "0", as UCX reads them. */
static bool is_no(const char *value)
{
	return strchr("nN0", value[0]) || strcasecmp(value, "off") == 0;
}

static void trouble(struct scan *s, const char *advice, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void trouble(struct scan *s, const char *advice, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	doctor_append(s->value_trouble, sizeof(s->value_trouble), "%s", text);
	s->value_advice = advice;
}

/* The device and its tools read the table of settings alike. */
static void judge_setting(struct scan *s, const char *name, const char *value)
{
	char why[SETTING_WHY];
	uint64_t ignored;

	for (size_t i = 0; i < SETTING_COUNT; i++)
		if (strcmp(settings_table[i].variable, name) == 0 && settings_table[i].kind != SETTING_TEXT &&
			setting_parse(&settings_table[i], value, &ignored, why)) {
			trouble(s, "Correct the value, or unset the variable.", "%s=%.64s: %s", name, value,
				why);
			s->value_meaning = "The device refuses to open with a setting that it cannot read.";
		}
}

static void judge_disabled(struct scan *s, const char *list)
{
	for (const char *at = list; *at; at += *at == ',') {
		size_t n = strcspn(at, ","), i = 0;

		while (i < facilities_count &&
			!(strlen(facilities[i].name) == n && strncmp(at, facilities[i].name, n) == 0))
			i++;
		if (n && i == facilities_count) {
			trouble(s, "Name facilities that 'unpin run --help' lists, or unset UNPIN_DISABLE.",
				"UNPIN_DISABLE names %.*s, which is no facility", (int)(n < 64 ? n : 64), at);
			s->value_meaning = "The device ignores names that it does not know.";
		}
		at += n;
	}
}

static void judge_unpin(struct scan *s, const char *name, const char *value)
{
	enum log_level level;

	judge_setting(s, name, value);
	if (strcmp(name, "UNPIN_DISABLE") == 0)
		judge_disabled(s, value);
	if (strcmp(name, "UNPIN_LOG") == 0 && *value && !log_level_named(value, &level)) {
		trouble(s, "Set UNPIN_LOG to error, warn, info or debug, or unset it.",
			"UNPIN_LOG=%.64s is no level", value);
		s->value_meaning = "The device prints errors and warnings, as without the variable.";
	}
	if (strcmp(name, "UNPIN_PROFILE") == 0 &&
		(strcmp(value, "none") == 0 || strcmp(value, "stale-firmware") == 0))
		trouble(s,
			"Unset UNPIN_PROFILE unless you test how programs get on without on-demand paging.",
			"%s=%s makes the device imitate one without on-demand paging", name, value);
}

/* Values that are probably not what was wanted. */
static void judge_value(struct scan *s, const char *name, const char *value)
{
	if (strcmp(name, "UCX_REG_NONBLOCK_MEM_TYPES") == 0) {
		s->ucx_on_demand = lists(value, "host");
		if (!s->ucx_on_demand)
			trouble(s,
				"Set UCX_REG_NONBLOCK_MEM_TYPES=host if ordinary memory shall be on demand.",
				"%s=%.64s leaves out host, so that ordinary memory is pinned", name, value);
	}
	if (strcmp(name, "UCX_REG_NONBLOCK_FALLBACK") == 0)
		s->ucx_never_pins = is_no(value);
	if (strcmp(name, "UCX_IB_MLX5_DEVX_OBJECTS") == 0)
		s->ucx_devx_qp = lists(value, "rcqp");
	if (strcmp(name, "FI_VERBS_USE_ODP") == 0 && !is_fi_bool(value))
		trouble(s, "Set FI_VERBS_USE_ODP to 1 or 0.", "%s=%.64s is no boolean", name, value);
	if (s->family == UNPIN)
		judge_unpin(s, name, value);
}

/* Queue pairs made past the kernel, on a device whose page faults name a transport's queue pair. */
static void judge_devx(struct scan *s, const struct doctor *d)
{
	unsigned version = doctor_kernel_version(d, NULL, 0);

	if (!s->ucx_on_demand || !s->ucx_devx_qp || d->device.kind != DOCTOR_KIND_MLX5 ||
		!((version && version < 6012) || (d->device.id && d->device.id <= LAST_TRANSPORT_SCHEME)))
		return;
	trouble(s,
		"Set UCX_IB_MLX5_DEVX_OBJECTS=auto (UCX 1.20.1 and later; with older ones set it to "
		"nothing), "
		"so that UCX makes its queue pairs through the kernel.",
		"UCX_IB_MLX5_DEVX_OBJECTS has rcqp beside UCX_REG_NONBLOCK_MEM_TYPES=host, on %s",
		d->device.kind_words);
	s->value_meaning =
		"This device has the transport scheme of page faults here, which does not serve "
		"queue pairs made past the kernel (DevX): UCX pins instead, and says so only at its "
		"debug level.";
}

static bool scan_variable(void *arg, char *line)
{
	struct scan *s = arg;
	char *equals = strchr(line, '=');
	const struct variable *v;
	const char *best;

	if (!equals || strncmp(line, families[s->family].prefix, strlen(families[s->family].prefix)) != 0)
		return true;
	*equals = 0;
	v = variable_named(line);
	if (!v) {
		best = meant(s->family, line);
		if (best)
			doctor_append(
				s->misspelt, sizeof(s->misspelt), "%.64s (did you mean %s?)", line, best);
		else if (s->family == UNPIN)
			doctor_append(s->misspelt, sizeof(s->misspelt), "%.64s", line);
	} else if (v->replaced) {
		doctor_append(
			s->obsolete, sizeof(s->obsolete), "%s (%s; now: %s)", v->name, v->does, v->replaced);
	} else if (v->does) {
		doctor_append(s->set, sizeof(s->set), "%s=%.64s (%s)", v->name, equals + 1, v->does);
	}
	if (v && !v->replaced)
		judge_value(s, v->name, equals + 1);
	return true;
}

static void check_family(struct doctor *d, struct doctor_result *r, enum family family)
{
	struct scan s = { .family = family };
	char *text = all_variables(d);

	if (!text) {
		doctor_say(r, DOCTOR_NA, "the record has no environment (file environ, the output of env)");
		return;
	}
	doctor_lines(text, scan_variable, &s);
	free(text);
	judge_devx(&s, d);
	if (s.misspelt[0]) {
		doctor_say(r, DOCTOR_WARN, "not known: %s%s%s", s.misspelt, s.set[0] ? "; set: " : "", s.set);
		doctor_mean(r,
			"%s ignores variables that it does not know, so that the setting has no effect.",
			families[family].library);
		doctor_advise(r, "Correct the name, or unset it.");
	} else if (s.obsolete[0]) {
		doctor_say(r, DOCTOR_WARN, "obsolete: %s", s.obsolete);
		doctor_mean(r,
			"Current versions of %s no longer read it, so that the setting has no effect with "
			"them.",
			families[family].library);
		doctor_advise(r,
			"With a current version unset it, and set what took its place, which is named "
			"beside it; with the old version that is named, leave it.");
	} else if (s.value_trouble[0]) {
		doctor_say(r, DOCTOR_WARN, "%s", s.value_trouble);
		doctor_mean(r, "%s",
			s.value_meaning
				? s.value_meaning
				: "On-demand paging will not be used, or not for all that you expect.");
		doctor_advise(r, "%s", s.value_advice);
	} else {
		doctor_say(r, DOCTOR_OK, "%s%s", s.set[0] ? s.set : families[family].none,
			s.ucx_on_demand && !s.ucx_never_pins
				? ". Where a device has no on-demand paging, UCX 1.20 and later pins without "
				  "a "
				  "word; UCX_REG_NONBLOCK_FALLBACK=n prevents that"
				: "");
	}
}

#define FAMILY(which, function)                                                                              \
	static void function(struct doctor *d, struct doctor_result *r)                                      \
	{                                                                                                    \
		check_family(d, r, which);                                                                   \
	}
FAMILY(UCX, check_ucx)
FAMILY(LIBFABRIC, check_libfabric)
FAMILY(NCCL, check_nccl)
FAMILY(UNPIN, check_unpin)

/* --- fork ------------------------------------------------------------------------------------------------
 */

struct fork_names {
	char misspelt[256];
};

/* A variable that is nearly one of those that libibverbs reads. */
static bool scan_fork_name(void *arg, char *line)
{
	static const char *const names[] = { "RDMAV_FORK_SAFE", "IBV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE",
		"IBV_HUGEPAGES_SAFE" };
	struct fork_names *f = arg;
	struct suggest s;

	line[strcspn(line, "=")] = 0;
	if ((strncmp(line, "RDMA", 4) != 0 && strncmp(line, "IBV", 3) != 0) ||
		(!strstr(line, "FORK") && !strstr(line, "HUGE")))
		return true;
	suggest_begin(&s, line);
	for (size_t i = 0; i < COUNT(names); i++)
		suggest_offer(&s, names[i]);
	if (s.best && s.distance)
		doctor_append(f->misspelt, sizeof(f->misspelt), "%.64s (did you mean %s?)", line, s.best);
	return true;
}

static bool check_fork_names(struct doctor *d, struct doctor_result *r)
{
	struct fork_names f = { "" };
	char *text = all_variables(d);

	if (text)
		doctor_lines(text, scan_fork_name, &f);
	free(text);
	if (!f.misspelt[0])
		return false;
	doctor_say(r, DOCTOR_WARN, "not known: %s", f.misspelt);
	doctor_mean(
		r, "libibverbs ignores variables that it does not know, so that the setting has no effect.");
	doctor_advise(r, "Correct the name, or unset it.");
	return true;
}

static void check_fork(struct doctor *d, struct doctor_result *r)
{
	unsigned version = doctor_kernel_version(d, NULL, 0);
	bool asked = getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE");

	if (check_fork_names(d, r))
		return;
	/* The library asks the kernel; the version only tells what is likely. */
	if (!d->root && d->device.found && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED) {
		doctor_say(r, DOCTOR_OK, "the library says that nothing has to be done");
		return;
	}
	if (!version) {
		doctor_say(r, DOCTOR_UNKNOWN, "the version of the kernel is not known");
		doctor_mean(r, "Whether fork is safe beside pinned memory is not known.");
		doctor_advise(r, "Call ibv_fork_init() in programs that fork; it does nothing where nothing "
				 "is needed.");
		return;
	}
	if (version >= 5012) {
		doctor_say(r, DOCTOR_OK, "Linux %u.%u copies pinned pages at fork", version / 1000,
			version % 1000);
		return;
	}
	doctor_say(r, DOCTOR_WARN, "Linux %u.%u does not copy pinned pages at fork%s", version / 1000,
		version % 1000, !d->root && asked ? "; RDMAV_FORK_SAFE is set" : "");
	doctor_mean(r, "After fork, the process that writes first to a pinned page gets a copy, and the "
		       "device goes on with the other one: "
		       "data is lost. On-demand regions are not concerned. The protection (ibv_fork_init) "
		       "marks pinned pages as "
		       "not inherited; a child that touches their neighbours crashes.");
	doctor_advise(r,
		"Use Linux 5.12 or later; or register on demand; or call ibv_fork_init() "
		"(RDMAV_FORK_SAFE=1; with huge pages RDMAV_HUGEPAGES_SAFE=1, too) and keep registered "
		"buffers on pages of their own.");
}

/* --- containers -------------------------------------------------------------------------------------------
 */

static bool in_container(struct doctor *d, char *clue, size_t size)
{
	char *text, line[64];
	bool any;

	if (doctor_exists(d, "/.dockerenv") || doctor_exists(d, "/run/.containerenv")) {
		snprintf(clue, size, "%s",
			doctor_exists(d, "/.dockerenv") ? "/.dockerenv" : "/run/.containerenv");
		return true;
	}
	text = doctor_read(d, "/proc/1/cgroup");
	any = text && (strstr(text, "docker") || strstr(text, "kubepods") || strstr(text, "libpod") ||
			      strstr(text, "/lxc/"));
	free(text);
	if (any)
		snprintf(clue, size, "the cgroup of process 1");
	/* A user namespace that maps few users is a rootless container or the like. */
	if (!any && doctor_line(d, line, sizeof(line), "/proc/self/uid_map")) {
		unsigned long inside, outside, count;

		any = sscanf(line, "%lu %lu %lu", &inside, &outside, &count) == 3 && count < 4294967295ul;
		if (any)
			snprintf(clue, size, "a user namespace");
	}
	return any;
}

/* unpin's own is listed too, and needs no file in /dev/infiniband: it says so in its node_desc. */
static bool kernel_has_devices(struct doctor *d)
{
	char **names = doctor_names(d, "/sys/class/infiniband"), word[64];
	bool any = false;

	for (size_t i = 0; names && names[i]; i++)
		any |= !doctor_line(d, word, sizeof(word), "/sys/class/infiniband/%s/node_desc", names[i]) ||
		       strcmp(word, "unpin") != 0;
	doctor_names_free(names);
	return any;
}

static void check_container(struct doctor *d, struct doctor_result *r)
{
	char *status = doctor_read(d, "/proc/self/status"), clue[64] = "";
	bool seccomp = status && strstr(status, "\nSeccomp:\t2"),
	     container = in_container(d, clue, sizeof(clue));
	bool kernel_device = kernel_has_devices(d), nodes = doctor_exists(d, "/dev/infiniband");

	free(status);
	if (kernel_device && !nodes) {
		doctor_say(r, DOCTOR_WARN,
			"/sys/class/infiniband has devices, /dev/infiniband does not exist%s%s",
			container ? "; in a container by " : "", clue);
		doctor_mean(r, "Programs open the device's files in /dev/infiniband; without them they find "
			       "no device.");
		doctor_advise(r, "%s",
			container ? "Start the container with --device=/dev/infiniband (and --ulimit "
				    "memlock=-1 for pinned memory)."
				  : "modprobe ib_uverbs makes the files.");
		return;
	}
	if (container)
		doctor_say(r, DOCTOR_OK, "in a container by %s%s", clue,
			seccomp ? "; a seccomp filter is on" : "");
	else
		doctor_say(
			r, DOCTOR_OK, "no sign of a container%s", seccomp ? "; a seccomp filter is on" : "");
}

static const struct doctor_check checks[] = {
	{ "manners.ucx", "UCX", 0, check_ucx },
	{ "manners.libfabric", "libfabric", 0, check_libfabric },
	{ "manners.nccl", "NCCL", 0, check_nccl },
	{ "manners.unpin", "unpin", 0, check_unpin },
	{ "manners.fork", "fork", 0, check_fork },
	{ "manners.container", "container", 0, check_container },
};

const struct doctor_group doctor_manners_group = { "manners", "Manners", checks, COUNT(checks) };
