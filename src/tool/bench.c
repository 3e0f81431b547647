/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin bench`: options, the table of parts, and the two connected processes. unpin-bench(1) is the manual.
 */
#include "tool/bench.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tool/command.h"
#include "tool/compare.h"
#include "tool/machine.h"
#include "tool/option.h"
#include "tool/page.h"
#include "tool/preload.h"
#include "tool/suggest.h"
#include "tool/units.h"

#define PAIRS_DEFAULT 11
#define PAIRS_MIN     3
#define PAIRS_MAX     1001

static const struct {
	const char *name, *what;
	bench_run *run;
	bool long_one; /* only with --report, or when --only names it */
} parts[] = {
	{ "registration", "registering and deregistering memory", bench_registration, false },
	{ "first-touch", "the first access to a page", bench_touch, false },
	{ "streaming", "large transfers into cold, warm and pinned memory", bench_streaming, false },
	{ "latency", "messages of 8 bytes back and forth", bench_latency, false },
	{ "bandwidth", "messages of 64 KiB", bench_bandwidth, false },
	{ "idle", "processor time of an open device that does nothing", bench_idle, false },
	{ "page-table", "size of the device's page table (unpin's device only)", bench_pagetable, false },
	{ "faults", "page faults one after the other, at random", bench_faults, false },
	{ "invalidation", "giving memory back under the device", bench_invalidate, false },
	{ "implicit", "implicit regions beside explicit ones", bench_implicit, false },
	{ "fault-modes", "precise and imprecise fault events (unpin's device only)", bench_faultmode, false },
	{ "pitfalls", "what made page faults slow on hardware", bench_pitfalls, false },
	{ "sizes", "registration time against size", bench_sizes, true },
	{ "distribution", "how long a first touch takes, minor and major", bench_distribution, true },
	{ "prefetch", "what prefetch saves", bench_prefetch, true },
	{ "scaling", "fault throughput against queue pairs and threads", bench_scaling, true },
	{ "held", "memory that a sparse buffer holds", bench_held, true },
	{ "reuse", "how often a buffer must be used until pinning pays", bench_reuse, true },
	{ "squeeze", "requests under memory pressure (root)", bench_squeeze, true },
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

#define BAR_WIDTH    20u
#define PROGRESS_MAX 48 /* a line of a terminal holds this and the bar */

static volatile sig_atomic_t interrupted;

/* --- what the parts use ------------------------------------------------------------------------------------
 */

bool bench_stopped(void)
{
	return interrupted;
}

void bench_progress(struct bench *b, const char *fmt, ...)
{
	char text[PROGRESS_MAX + 1];
	unsigned full = b->parts ? BAR_WIDTH * b->part / b->parts : 0;
	va_list ap;

	if (!b->progress)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fputs("\r\033[K", stderr);
	if (*text)
		fprintf(stderr, "[%.*s%.*s] %u/%u %s", (int)full, "####################",
			(int)(BAR_WIDTH - full), "....................", b->part + 1, b->parts, text);
	fflush(stderr);
}

char *bench_time(char *buf, double us)
{
	return units_time(buf, us > 0 ? (uint64_t)(us * 1000 + 0.5) : 0);
}

int bench_fail(struct bench *b, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(b->why, sizeof(b->why), fmt, ap);
	va_end(ap);
	return err;
}

int bench_fail_endpoint(struct bench *b, int err)
{
	return err ? bench_fail(b, err, "%s", b->e.why[0] ? b->e.why : strerror(-err)) : 0;
}

int bench_fail_peer(struct bench *b, int err)
{
	return err ? bench_fail(b, err, "second process: %s",
			     b->peer.answer.why[0] ? b->peer.answer.why : strerror(-err))
		   : 0;
}

static int connect_both(struct bench *b)
{
	struct peer_request q = { .verb = PEER_OPEN, .choice = b->choice };
	int err = peer_start(&b->peer);

	if (err)
		return bench_fail(b, err, "cannot start a second process: %s", strerror(-err));
	err = endpoint_open(&b->e, &b->choice);
	if (err)
		return bench_fail_endpoint(b, err);
	b->e.lifeline = b->peer.fd;
	err = peer_call(&b->peer, &q);
	if (err)
		return bench_fail_peer(b, err);
	err = endpoint_connect(&b->e, &b->peer.answer.address);
	if (err)
		return bench_fail_endpoint(b, err);
	q.verb = PEER_CONNECT;
	q.address = b->e.address;
	return bench_fail_peer(b, peer_call(&b->peer, &q));
}

int bench_connect(struct bench *b)
{
	int err;

	/* The second process and the threads of the device start free, whatever this thread was kept on
	 * before. */
	machine_unpin_thread();
	b->connected = true;
	err = connect_both(b);
	if (err)
		bench_disconnect(b);
	else
		machine_pin_thread(0);
	return err;
}

int bench_alone(struct bench *b)
{
	int err;

	machine_unpin_thread();
	memset(&b->peer, 0, sizeof(b->peer));
	b->peer.fd = -1;
	err = bench_fail_endpoint(b, endpoint_open(&b->e, &b->choice));
	b->connected = !err;
	if (!err)
		machine_pin_thread(0);
	return err;
}

int bench_no_odp(struct bench *b)
{
	return bench_fail(b, -EOPNOTSUPP,
		"%s has no on-demand paging for reliable connections: there is nothing to measure",
		b->choice.device);
}

int bench_connect_set(struct bench *b, const char *variable, const char *value)
{
	const char *now = getenv(variable);
	char *before = now ? strdup(now) : NULL;
	int err;

	if ((now && !before) || setenv(variable, value, 1)) {
		free(before);
		return bench_fail(b, -ENOMEM, "no memory for the environment");
	}
	err = bench_connect(b);
	if (before)
		setenv(variable, before, 1);
	else
		unsetenv(variable);
	free(before);
	return err;
}

void bench_disconnect(struct bench *b)
{
	if (!b->connected)
		return;
	peer_stop(&b->peer);
	endpoint_close(&b->e);
	b->connected = false;
}

int bench_peer_make(struct bench *b, unsigned region, uint64_t length, enum endpoint_kind kind, bool touched,
	uint64_t *addr, uint32_t *rkey)
{
	struct peer_request q = {
		.verb = PEER_MAKE, .region = region, .length = length, .kind = kind, .flag = touched
	};
	int err = peer_call(&b->peer, &q);

	if (!err) {
		b->peer_kind[region] = kind;
		*addr = b->peer.answer.addr;
		*rkey = b->peer.answer.rkey;
	}
	return bench_fail_peer(b, err);
}

int bench_peer_simple(struct bench *b, enum peer_verb verb, unsigned region)
{
	struct peer_request q = { .verb = verb, .region = region };

	return bench_fail_peer(b, peer_call(&b->peer, &q));
}

int bench_peer_compare(struct bench *b, unsigned region, uint64_t offset, uint64_t length, uint64_t seed)
{
	struct peer_request q = {
		.verb = PEER_COMPARE, .region = region, .offset = offset, .length = length, .seed = seed
	};
	int err = peer_call(&b->peer, &q);

	if (err == -EBADMSG && b->peer_kind[region] != ENDPOINT_PINNED)
		return bench_wrong(b, "second process: %s", b->peer.answer.why);
	return bench_fail_peer(b, err);
}

int bench_peer_fill(struct bench *b, unsigned region, uint64_t offset, uint64_t length, uint64_t seed)
{
	struct peer_request q = {
		.verb = PEER_FILL, .region = region, .offset = offset, .length = length, .seed = seed
	};

	return bench_fail_peer(b, peer_call(&b->peer, &q));
}

int bench_peer_poll_begin(struct bench *b)
{
	return bench_peer_simple(b, PEER_POLL, 0);
}

int bench_peer_poll_end(struct bench *b)
{
	const struct endpoint_op end = { .opcode = IBV_WR_SEND };
	int err = endpoint_do(&b->e, &end);

	return err ? bench_fail_endpoint(b, err) : bench_fail_peer(b, peer_finish(&b->peer));
}

int64_t bench_stream(struct bench *b, enum ibv_wr_opcode opcode, const struct endpoint_region *local,
	uint64_t remote, uint32_t rkey, uint64_t span, uint32_t message, unsigned depth, uint64_t length)
{
	struct endpoint_done done = { 0 };
	struct endpoint_op op = { .opcode = opcode, .lkey = local->mr->lkey, .rkey = rkey };
	uint64_t start = clock_ns(), posted = 0;
	unsigned requests = 0;
	int err = 0;

	while (!err && posted < length) {
		uint64_t place = posted % span;

		op.length = message;
		if (op.length > length - posted)
			op.length = (uint32_t)(length - posted);
		if (op.length > span - place)
			op.length = (uint32_t)(span - place);
		op.local = (char *)local->addr + place;
		op.remote = remote + place;
		err = endpoint_post(&b->e, &op);
		posted += op.length;
		requests++;
		if (!err && requests >= depth)
			err = endpoint_wait(&b->e, &done, requests - depth + 1, 0);
	}
	if (!err)
		err = endpoint_wait(&b->e, &done, requests, 0);
	return err ? bench_fail_endpoint(b, err) : (int64_t)(clock_ns() - start);
}

double bench_rate(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

/* --- the run -----------------------------------------------------------------------------------------------
 */

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
	endpoint_stop = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	/* No SA_RESTART: a wait that is interrupted returns and sees the flag. A second Ctrl-C ends the
	 * process at once. */
	sa.sa_flags = (int)SA_RESETHAND;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* More runnable threads than half of the processors: somebody else will take part in what is measured. */
static void note_load(struct report *r)
{
	double load;
	char text[32];

	if (getloadavg(&load, 1) != 1)
		return;
	snprintf(text, sizeof(text), "%.2f", load);
	report_fact_text(r, "load_average", text);
	report_fact_flag(r, "busy", load > machine_cpus() / 2.0);
}

static void note_machine(struct bench *b, const char *only)
{
	struct report *r = &b->report;
	char words[MACHINE_WORDS_MAX];
	struct utsname u;
	time_t now = time(NULL);
	struct tm tm;

	report_fact_text(r, "unpin", UNPIN_VERSION);
	report_fact_text(r, "device", b->choice.device);
	report_fact_number(r, "format", 1);
	if (uname(&u) == 0)
		report_fact_text(r, "kernel", u.release);
	if (gmtime_r(&now, &tm) && strftime(words, sizeof(words), "%Y-%m-%d %H:%M UTC", &tm))
		report_fact_text(r, "started", words);
	machine_processor(words);
	report_fact_text(r, "processor", words);
	report_fact_number(r, "cpus", machine_cpus());
	report_fact_number(r, "memory_bytes", machine_total());
	report_fact_number(r, "available_bytes", machine_available());
	report_fact_number(r, "swap_bytes", machine_swap());
	machine_thp(words);
	report_fact_text(r, "transparent_huge_pages", words);
	report_fact_number(r, "memlock_limit_bytes", machine_memlock());
	note_load(r);
	report_fact_number(r, "pairs", b->pairs);
	report_fact_flag(r, "quick", b->quick);
	report_fact_flag(r, "complete", !only);
}

/* What the command line asks for. */
struct plan {
	const char *only, *json, *folder; /* NULL: not given */
};

/* True when the comma-separated list (NULL: all) names the part. */
static bool is_wanted(const char *only, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = only; p && *p;) {
		size_t n = strcspn(p, ",");

		if (n == len && strncmp(p, name, n) == 0)
			return true;
		p += n + (p[n] == ',');
	}
	return !only;
}

static int check_only(const char *only)
{
	for (const char *p = only; p && *p;) {
		size_t n = strcspn(p, ",");
		char word[SUGGEST_WORD_MAX + 1];
		struct suggest s;
		bool known = false;

		snprintf(word, sizeof(word), "%.*s", (int)n, p);
		suggest_begin(&s, word);
		for (size_t i = 0; i < PARTS; i++) {
			known = known || strcmp(parts[i].name, word) == 0;
			suggest_offer(&s, parts[i].name);
		}
		if (!known) {
			log_error("bench: there is no part '%s'; %s%s", word,
				s.best ? "did you mean " : "'unpin bench --help' lists them",
				s.best ? s.best : "");
			return -EINVAL;
		}
		p += n + (p[n] == ',');
	}
	return 0;
}

static bool is_planned(const struct plan *plan, size_t i)
{
	return plan->only ? is_wanted(plan->only, parts[i].name) : plan->folder || !parts[i].long_one;
}

/* False, after a sentence, when the folder takes no more: what is measured afterwards would be lost. */
static bool save(struct bench *b, const struct plan *plan)
{
	char why[PAGE_WHY_MAX];
	int err;

	if (!plan->folder)
		return true;
	err = page_write(&b->report, plan->folder, why);
	if (err) {
		bench_progress(b, "%s", "");
		log_error("bench: %s", why);
	}
	return !err;
}

/* A report says itself what is missing in it, and why. */
static void note_failure(struct bench *b, size_t i)
{
	static char keys[PARTS][32]; /* the report keeps them */
	struct report_part *p;

	snprintf(keys[i], sizeof(keys[i]), "%s", parts[i].name);
	for (char *c = keys[i]; *c; c++)
		*c = *c == '-' ? '_' : *c;
	p = report_find(&b->report, keys[i]);
	if (!p)
		p = report_part(&b->report, keys[i], parts[i].what, "Nothing of this was measured.", NULL, 0);
	report_note(p, "This part failed: %s.", b->why);
}

/* A part that fails has said what it measured until then; the others still run. Returns how many failed. */
static int run_parts(struct bench *b, const struct plan *plan)
{
	int failed = 0;

	for (size_t i = 0; i < PARTS; i++)
		b->parts += is_planned(plan, i);
	for (size_t i = 0; i < PARTS && !interrupted; i++) {
		int err;

		if (!is_planned(plan, i))
			continue;
		bench_progress(b, "%s", parts[i].what);
		b->why[0] = 0;
		err = parts[i].run(b);
		bench_disconnect(b);
		b->part++;
		if (err && err != -EINTR && !interrupted) {
			bench_progress(b, "%s", "");
			if (!b->why[0])
				bench_fail(b, err, "%s", strerror(-err));
			log_error("bench: %s: %s", parts[i].name, b->why);
			note_failure(b, i);
			failed++;
		}
		if (!save(b, plan))
			return failed + 1;
	}
	bench_progress(b, "%s", "");
	return failed;
}

/* Before anything is measured: the folder can be written. */
static int prepare_folder(const char *folder)
{
	char why[PAGE_WHY_MAX];
	bool replaces;
	int err = folder ? page_prepare(folder, &replaces, why) : 0;

	if (err)
		log_error("bench: %s", why);
	else if (folder && replaces)
		fprintf(stderr, "unpin: bench: the report that is in %s is replaced\n", folder);
	return err;
}

/* Says everything in every form that was asked for. 0 or 1. */
static int publish(struct bench *b, const struct plan *plan)
{
	bool text = !plan->json || strcmp(plan->json, "-") != 0;
	int err = 0;

	if (text)
		report_print(&b->report, stdout);
	if (plan->json) {
		err = report_json(&b->report, plan->json);
		if (err)
			log_error("bench: cannot write %s: %s", plan->json, strerror(-err));
	}
	if (!save(b, plan))
		return 1;
	if (plan->folder && text)
		printf("\nThe report is %s/index.html\n", plan->folder);
	return err ? 1 : 0;
}

static int run(struct bench *b, const struct plan *plan)
{
	int failed, err;
	uint64_t start = clock_ns();

	/* One look before everything else: a device that cannot be used is one message, not one per part. */
	err = endpoint_open(&b->e, &b->choice);
	if (err) {
		log_error("bench: %s", b->e.why);
		return 1;
	}
	bench_look(b);
	endpoint_close(&b->e);
	if (prepare_folder(plan->folder))
		return 1;
	catch_signals();
	note_machine(b, plan->only);
	if (b->wrong[0]) {
		log_error("bench: %s", b->wrong);
		report_fact_text(&b->report, "wrong_data", b->wrong);
	}
	failed = run_parts(b, plan);
	bench_advice(&b->report);
	report_fact_number(&b->report, "seconds", (clock_ns() - start) / NSEC_PER_SEC);
	report_fact_flag(&b->report, "interrupted", interrupted);
	report_fact_flag(&b->report, "finished", !interrupted);
	err = publish(b, plan);
	report_free(&b->report);
	if (interrupted)
		return 130;
	return failed || err || b->wrong[0] ? 1 : 0;
}

/* Our own device lives in libunpin.so: when it is asked for and the library is not there, start again with
 * it. */
static int ensure_device(const struct bench *b, char **argv)
{
	const char *own = getenv("UNPIN_DEVICE");
	struct preload preload;
	struct program program;
	int err;

	if (strcmp(b->choice.device, own && *own ? own : "unpin0") != 0 || preload_active())
		return 0;
	if (preload_find(&preload))
		return -ENOENT;
	err = program_find("/proc/self/exe", NULL, &program);
	if (err) {
		log_error("bench: %s", program.why);
		return err;
	}
	/* The name that the process shall have in lists, not that of the link. */
	if (!realpath("/proc/self/exe", program.path))
		return -errno;
	err = preload_library(&preload, &program.elf);
	if (!err)
		err = preload_exec(&program, argv);
	log_error("bench: cannot start with %s: %s", preload.library, strerror(-err));
	return err;
}

static int take_sizes(struct bench *b, const char *list)
{
	while (list && *list) {
		size_t n = strcspn(list, ",");
		char word[32];

		snprintf(word, sizeof(word), "%.*s", (int)n, list);
		if (b->sizes == BENCH_SIZES_MAX || option_bytes(word, &b->size[b->sizes]) ||
			b->size[b->sizes] < 4096 || b->size[b->sizes] > 1ull << 46) {
			log_error("bench: --size '%s': up to %d sizes from 4K to 64T, such as 16M,1G", word,
				BENCH_SIZES_MAX);
			return -EINVAL;
		}
		b->sizes++;
		list += n + (list[n] == ',');
	}
	return 0;
}

static int take_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	if (!text || option_number(text, min, max, out) == 0)
		return 0;
	log_error("bench: --%s '%s' is not a number from %llu to %llu", option, text, (unsigned long long)min,
		(unsigned long long)max);
	return -EINVAL;
}

static void help(const struct option_row *rows)
{
	puts("Usage: unpin bench [OPTION]...\n"
	     "\n"
	     "Compares pinned and on-demand memory on one RDMA device, between two processes of this "
	     "machine.\n");
	options_help(stdout, rows);
	puts("\nParts, for --only:");
	for (size_t i = 0; i < PARTS; i++)
		printf("    %c %-22s %s\n", parts[i].long_one ? '*' : ' ', parts[i].name, parts[i].what);
	puts("\nThose with a * take part only with --report, or when --only names them.");
}

int cmd_bench(int argc, char **argv)
{
	static struct bench b;
	const char *device = "unpin0", *compare = NULL, *sizes = NULL, *pairs = NULL, *port = NULL,
		   *gid = NULL, *peer = NULL;
	struct plan plan = { 0 };
	bool wants_help = false;
	const struct option_row rows[] = {
		{ 'd', "device", "NAME", "the device (default unpin0, unpin's own)", NULL, &device },
		{ 'q', "quick", NULL, "fewer repetitions and sizes: under a minute", &b.quick, NULL },
		{ 'j', "json", "FILE",
			"write all figures as JSON ('-': to standard output, instead of the text)", NULL,
			&plan.json },
		{ 'r', "report", "DIR",
			"write a page with plots, the plots as SVG, and all figures as JSON and CSV into a "
			"folder; "
			"measures the long parts as well",
			NULL, &plan.folder },
		{ 0, "only", "PARTS", "only these parts, comma-separated", NULL, &plan.only },
		{ 'c', "compare", "A.json B.json", "show two runs side by side, and measure nothing", NULL,
			&compare },
		{ 's', "size", "SIZES", "register these sizes, comma-separated (default 16M,256M,1G,4G)",
			NULL, &sizes },
		{ 'p', "pairs", "N", "rounds of every comparison (default 11)", NULL, &pairs },
		{ 0, "port", "N", "port of the device (default 1)", NULL, &port },
		{ 0, "gid", "INDEX", "row of the GID table (default: the first RoCE v2 one)", NULL, &gid },
		{ 0, "peer", "FD", NULL, NULL, &peer },
		{ 'h', "help", NULL, "this text", &wants_help, NULL },
		{ 0 },
	};
	uint64_t n_pairs = PAIRS_DEFAULT, n_port = 1, n_gid = UINT64_MAX, n_peer = 0;
	const char *own = getenv("UNPIN_DEVICE");
	int first;

	if (own && *own)
		device = own;
	first = options_parse("bench", rows, argc, argv);
	if (first < 0)
		return EXIT_USAGE;
	if (wants_help) {
		help(rows);
		return 0;
	}
	if (compare && first == argc - 1)
		return compare_print(compare, argv[first], stdout) ? 1 : 0;
	if (compare) {
		log_error("bench: --compare takes two files: --compare A.json B.json");
		return EXIT_USAGE;
	}
	if (first < argc) {
		log_error("bench: '%s' is not understood; see 'unpin bench --help'", argv[first]);
		return EXIT_USAGE;
	}
	if (take_number("pairs", pairs, PAIRS_MIN, PAIRS_MAX, &n_pairs) ||
		take_number("port", port, 1, 255, &n_port) || take_number("gid", gid, 0, 255, &n_gid) ||
		take_number("peer", peer, 0, INT32_MAX, &n_peer) || take_sizes(&b, sizes) ||
		check_only(plan.only))
		return EXIT_USAGE;
	if (peer)
		return peer_main((int)n_peer);
	if (strlen(device) >= sizeof(b.choice.device)) {
		log_error("bench: the name of the device has more than %zu characters",
			sizeof(b.choice.device) - 1);
		return EXIT_USAGE;
	}
	strcpy(b.choice.device, device);
	b.choice.port = (uint32_t)n_port;
	b.choice.gid_index = n_gid == UINT64_MAX ? -1 : (int32_t)n_gid;
	b.pairs = (uint32_t)n_pairs;
	b.progress = isatty(STDERR_FILENO);
	/* argv[0] is "bench" here; the command line began one word earlier. */
	if (ensure_device(&b, argv - 1))
		return 1;
	return run(&b, &plan);
}
