/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/segment.h"

#define NAME_BYTES 16 /* of a thread, with its 0 */
/* The writer sleeps between these: less while rings fill up. */
#define PAUSE_LEAST_NS (2 * NSEC_PER_MSEC)
#define PAUSE_MOST_NS  (20 * NSEC_PER_MSEC)
#define WRITER_NICE    15
#define BUFFER_BYTES   65536
#define EVENT_BYTES    512 /* at most, as text */
#define OPENING	       "[\n"
#define ENDING	       "\n]\n"
#define AHEAD	       6	    /* events: the line that is fetched while this one is filled */
#define EXACT_INTEGER  (1ull << 53) /* below it, a reader's double holds every number */

_Atomic bool trace_on;

/* --- rings -------------------------------------------------------------------------------------------------
 */

/* Two to a cache line: the line is what an event costs its thread, since the writer has taken it away. */
struct event {
	uint64_t begin, a, b;
	uint64_t length_site; /* nanoseconds << SITE_BITS, site */
};
#define SITE_BITS   8
#define TICKS	    128u /* of the site's bits: begin is in ticks(), there is no length */
#define SITE_MASK   (TICKS - 1)
#define LENGTH_MOST (UINT64_MAX >> SITE_BITS)
_Static_assert(TRACE_SITE_COUNT <= SITE_MASK, "a site fits its bits");

/*
 * One producer, the thread that has claimed the slot; one consumer, the writer. A child finds it wiped
 * (MADV_WIPEONFORK: a child made by a raw clone() runs no handler and must not crash here, as it would if the
 * ring were not inherited), and `live` tells it so.
 */
struct ring {
	_Atomic bool live;
	_Atomic uint32_t head;		    /* producer */
	uint32_t tail_seen;		    /* producer: tail when it last looked */
	_Atomic uint64_t dropped;	    /* producer */
	_Atomic uint32_t claims;	    /* producer, when it claims */
	char name[NAME_BYTES];		    /* producer, before its first event */
	_Alignas(64) _Atomic uint32_t tail; /* consumer */
	_Alignas(64) struct event event[TRACE_EVENTS];
};

/* The owner is a thread's number, with DEAD when a later thread of the same number has been seen; 0: free.
 * Threads claim by compare-and-swap, only the writer frees. Rings are mapped once and stay for other threads.
 */
#define DEAD (1ull << 32)
static struct slot {
	_Atomic uint64_t owner;
	struct ring *_Atomic ring;
} slots[TRACE_RINGS];

/* Events of threads that found no ring, or that interrupted another event. */
static _Atomic uint64_t homeless;

/* Of this thread. Initial-exec: reading it never allocates. */
static _Thread_local struct {
	struct ring *ring;
	uint32_t tid;
	bool busy;
} mine __attribute__((tls_model("initial-exec")));

/* System calls and no libc functions: those of the library are observed, and what observes them is traced. */
static struct ring *map_ring(void)
{
	long at = syscall(SYS_mmap, NULL, sizeof(struct ring), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == -1)
		return NULL;
	syscall(SYS_madvise, at, sizeof(struct ring), MADV_WIPEONFORK);
	return (struct ring *)at;
}

/* A number comes again only after its thread has ended. */
static void mark_dead(uint64_t owner)
{
	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		uint64_t same = owner;

		if (atomic_load_explicit(&slots[i].owner, memory_order_relaxed) == owner)
			atomic_compare_exchange_strong(&slots[i].owner, &same, owner | DEAD);
	}
}

static struct ring *take_slot(struct slot *s)
{
	struct ring *r = atomic_load_explicit(&s->ring, memory_order_relaxed);

	if (!r)
		r = map_ring();
	if (!r) {
		atomic_store_explicit(&s->owner, 0, memory_order_release);
		return NULL;
	}
	prctl(PR_GET_NAME, r->name);
	r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	atomic_store_explicit(&r->live, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->claims, 1, memory_order_relaxed);
	atomic_store_explicit(&s->ring, r, memory_order_release);
	return r;
}

static struct ring *claim(void)
{
	int saved = errno;
	struct ring *r = NULL;

	if (!mine.tid) {
		mine.tid = (uint32_t)syscall(SYS_gettid);
		mark_dead(mine.tid);
	}
	for (unsigned i = 0; i < TRACE_RINGS && !r; i++) {
		uint64_t none = 0;

		if (atomic_load_explicit(&slots[i].owner, memory_order_relaxed))
			continue;
		if (atomic_compare_exchange_strong(&slots[i].owner, &none, mine.tid)) {
			r = take_slot(&slots[i]);
			if (!r)
				break;
		}
	}
	mine.ring = r;
	errno = saved;
	return r;
}

static void put(struct ring *r, const struct event *e)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (head - r->tail_seen >= TRACE_EVENTS) {
		r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
		if (head - r->tail_seen >= TRACE_EVENTS) {
			atomic_store_explicit(&r->dropped,
				atomic_load_explicit(&r->dropped, memory_order_relaxed) + 1,
				memory_order_relaxed);
			return;
		}
	}
	r->event[head % TRACE_EVENTS] = *e;
	__builtin_prefetch(&r->event[(head + AHEAD) % TRACE_EVENTS], 1);
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

static void record(const struct event *e)
{
	struct ring *r = mine.ring;

	if (mine.busy) {
		atomic_fetch_add_explicit(&homeless, 1, memory_order_relaxed);
		return;
	}
	mine.busy = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (!r || !atomic_load_explicit(&r->live, memory_order_relaxed))
		r = claim();
	if (r)
		put(r, e);
	else
		atomic_fetch_add_explicit(&homeless, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	mine.busy = false;
}

void trace_record(enum trace_site site, uint64_t begin_ns, uint64_t end_ns, uint64_t a, uint64_t b)
{
	uint64_t length = end_ns > begin_ns ? end_ns - begin_ns : 0;
	const struct event e = { begin_ns, a, b,
		(length < LENGTH_MOST ? length : LENGTH_MOST) << SITE_BITS | site };

	record(&e);
}

/* --- texts
 * ---------------------------------------------------------------------------------------------------
 */

/* Each is preceded by its length. The writer takes them away from the front, in turns with who adds. */
static struct texts {
	_Atomic pid_t pid; /* whose it is: a child of a raw clone() may have inherited the lock taken */
	struct lock lock;  /* protects the rest */
	char *queue;	   /* mapped by the first text */
	size_t used;
	uint64_t dropped;
} texts = { .lock = LOCK_INIT(LOCK_TRACE) };

struct text_length {
	uint32_t bytes;
};

static bool add_text(const char *json, size_t length)
{
	const struct text_length n = { (uint32_t)length };
	long at;

	if (length > TRACE_TEXT_MAX || texts.used + sizeof(n) + length > TRACE_TEXT_QUEUE)
		return false;
	if (!texts.queue) {
		at = syscall(SYS_mmap, NULL, TRACE_TEXT_QUEUE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == -1)
			return false;
		texts.queue = (char *)at;
	}
	memcpy(texts.queue + texts.used, &n, sizeof(n));
	memcpy(texts.queue + texts.used + sizeof(n), json, length);
	texts.used += sizeof(n) + length;
	return true;
}

void trace_text(const char *json, size_t length)
{
	int saved = errno;

	if (!trace_enabled() || atomic_load(&texts.pid) != getpid())
		return;
	lock_take(&texts.lock);
	if (!add_text(json, length))
		texts.dropped++;
	lock_drop(&texts.lock);
	errno = saved;
}

/* --- time: reading the clock would be most of what a POINT costs, so it is stamped with the processor's
 * counter where the kernel itself trusts that, and the writer converts. ------------------------------------
 */

static _Atomic bool use_counter; /* changes only while off; late events then have a wrong time or none */

static uint64_t ticks(void)
{
#ifdef __x86_64__
	if (atomic_load_explicit(&use_counter, memory_order_relaxed))
		return __builtin_ia32_rdtsc();
#endif
	return clock_ns();
}

static void choose_clock(void)
{
	char name[8] = "";
	int fd = open(
		"/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, name, sizeof(name) - 1) != 4)
		name[0] = 0;
	if (fd >= 0)
		fd_close(fd);
	atomic_store(&use_counter, strcmp(name, "tsc\n") == 0);
}

void trace_moment(enum trace_site site, uint64_t a, uint64_t b)
{
	const struct event e = { ticks(), a, b, TICKS | site };

	record(&e);
}

/* The same moment by both clocks. */
struct moment {
	uint64_t ticks, ns;
};

static struct moment look_at_clocks(void)
{
	struct moment best = { 0 };
	uint64_t least = UINT64_MAX;

	/* The best of some: this thread may lose the processor in between. */
	for (int i = 0; i < 5; i++) {
		uint64_t before = ticks(), ns = clock_ns(), apart = ticks() - before;

		if (apart < least) {
			least = apart;
			best = (struct moment){ before + apart / 2, ns };
		}
	}
	return best;
}

/* --- the file ----------------------------------------------------------------------------------------------
 */

enum { OFF, ON, CLOSING };

/* What the writer thread has for itself between open and close; open and close touch it while there is none.
 */
static struct writer {
	_Atomic int state; /* who moves it to CLOSING closes */
	pid_t pid;
	pthread_t thread;
	sem_t stop;
	int fd;
	char path[PATH_MAX];
	char asked[PATH_MAX]; /* what trace_open was given */
	dev_t dev;
	ino_t ino;
	off_t end; /* where the ENDING stands that the next events replace */
	bool failed;
	uint32_t announced[TRACE_RINGS]; /* claims of the ring whose thread has been named */
	uint64_t dropped_before[TRACE_RINGS], homeless_before;
	uint64_t dropped, told; /* events, since the file began; as last written */
	uint64_t flights;	/* numbers for FLIGHTs */
	struct moment from, to; /* of the last drain and of this one */
	double tick_ns;
	size_t used;
	char buffer[BUFFER_BYTES + sizeof(ENDING)];
} w;

static int write_at(const char *text, size_t n, off_t at)
{
	while (n) {
		ssize_t did = pwrite(w.fd, text, n, at);

		if (did < 0 && errno == EINTR)
			continue;
		if (did <= 0)
			return did < 0 ? -errno : -EIO;
		text += did;
		n -= (size_t)did;
		at += did;
	}
	return 0;
}

static bool is_ours(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == w.dev && st.st_ino == w.ino;
}

/* A program may close descriptors that it does not know, and use the number for a file of its own. */
static int find_file(void)
{
	if (is_ours(w.fd))
		return 0;
	w.fd = fd_move_high(open(w.path, O_WRONLY | O_CLOEXEC));
	if (w.fd < 0)
		return -errno;
	if (is_ours(w.fd))
		return 0;
	fd_close(w.fd);
	w.fd = -1;
	return -ENOENT;
}

/* No room, or the file has gone: what is written stays, complete. */
static void give_up(int err)
{
	w.failed = true;
	atomic_store(&trace_on, false);
	log_warn("the timeline %s ends here: %s", w.path, strerror(-err));
	if (w.fd >= 0 && is_ours(w.fd) && write_at(ENDING, strlen(ENDING), w.end) == 0 &&
		ftruncate(w.fd, w.end + (off_t)strlen(ENDING)))
		log_debug("%s cannot be cut: %s", w.path, strerror(errno));
}

static void flush(void)
{
	size_t used = w.used;
	int err;

	w.used = 0;
	if (!used || w.failed)
		return;
	memcpy(w.buffer + used, ENDING, strlen(ENDING));
	err = find_file();
	if (!err)
		err = write_at(w.buffer, used + strlen(ENDING), w.end);
	if (err)
		give_up(err);
	else
		w.end += (off_t)used;
}

/* --- text: by hand, since a writer that took half a microsecond per event would be what is measured. Each
 * puts its text at p and returns the place behind it.
 */

static inline char *put_text(char *p, const char *text, size_t n)
{
	memcpy(p, text, n);
	return p + n;
}

#define PUT(p, text) put_text(p, text, strlen(text))

static inline char *put_two(char *p, unsigned v)
{
	p[0] = (char)('0' + v / 10);
	p[1] = (char)('0' + v % 10);
	return p + 2;
}

static char *put_decimal(char *p, uint64_t v)
{
	char digits[20], *end = digits + sizeof(digits), *first = end;

	for (; v >= 100; v /= 100)
		put_two(first -= 2, (unsigned)(v % 100));
	if (v >= 10)
		put_two(first -= 2, (unsigned)v);
	else
		*--first = (char)('0' + v);
	return put_text(p, first, (size_t)(end - first));
}

static char *put_hex(char *p, uint64_t v)
{
	char digits[16], *end = digits + sizeof(digits), *first = end;

	do
		*--first = "0123456789abcdef"[v & 15];
	while (v >>= 4);
	p = PUT(p, "\"0x");
	p = put_text(p, first, (size_t)(end - first));
	return PUT(p, "\"");
}

static char *put_us(char *p, uint64_t ns)
{
	unsigned rest = (unsigned)(ns % 1000);

	p = put_decimal(p, ns / 1000);
	*p++ = '.';
	*p++ = (char)('0' + rest / 100);
	return put_two(p, rest % 100);
}

char *trace_us(char out[TRACE_US_BYTES], uint64_t ns)
{
	*put_us(out, ns) = 0;
	return out;
}

/* A thread's or program's name; it may hold anything. */
static char *put_name(char *p, const char *name)
{
	*p++ = '"';
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			*p++ = '\\';
		*p++ = '?';
		if (*name >= ' ' && *name < 127)
			p[-1] = *name;
	}
	*p++ = '"';
	return p;
}

/* Room for an event at the end of the buffer. */
static char *begin_text(void)
{
	if (w.used + EVENT_BYTES > BUFFER_BYTES)
		flush();
	return w.buffer + w.used;
}

static void end_text(const char *p)
{
	w.used = (size_t)(p - w.buffer);
}

/* --- events as text ----------------------------------------------------------------------------------------
 */

struct part {
	const char *text;
	size_t length;
};

static const struct site {
	struct part head; /* up to the phase */
	enum trace_shape shape;
	struct part a, b; /* names of the arguments */
} sites[] = {
#define PART(text)                                                                                           \
	{                                                                                                    \
		text, sizeof(text) - 1                                                                       \
	}
#define X(id, name, category, shape, a, b)                                                                   \
	{ PART(",\n{\"name\":\"" name "\",\"cat\":\"" category "\",\"ph\":\""), TRACE_##shape, PART(a),      \
		PART(b) },
	TRACE_SITES(X)
#undef X
};

static char *put_cause(char *p, uint64_t value)
{
	static const char *const causes[] = {
		[UNPIN_STORM_NONE] = "\"none\"",
		[UNPIN_STORM_MAJORS] = "\"major faults\"",
		[UNPIN_STORM_STALL] = "\"memory stall\"",
	};

	return value < sizeof(causes) / sizeof(causes[0]) ? PUT(p, causes[value]) : put_decimal(p, value);
}

/* Of the names in TRACE_SITES only that of addresses begins with an a, and only that of causes with a c. */
static char *put_value(char *p, char initial, uint64_t value)
{
	if (initial == 'c')
		return put_cause(p, value);
	return initial == 'a' || value >= EXACT_INTEGER ? put_hex(p, value) : put_decimal(p, value);
}

static char *put_argument(char *p, const struct part *name, uint64_t value)
{
	*p++ = '"';
	p = put_text(p, name->text, name->length);
	p = PUT(p, "\":");
	return put_value(p, name->text[0], value);
}

static char *put_arguments(char *p, const struct site *s, const struct event *e)
{
	p = PUT(p, ",\"args\":{");
	p = put_argument(p, &s->a, e->a);
	if (s->b.length) {
		*p++ = ',';
		p = put_argument(p, &s->b, e->b);
	}
	return PUT(p, "}}");
}

/* The end of the phase, and which thread: the same for all events of a ring. */
struct place {
	char text[64];
	size_t length;
};

static void set_place(struct place *at, uint32_t tid)
{
	char *p = PUT(at->text, "\",\"pid\":");

	p = put_decimal(p, (uint64_t)w.pid);
	p = PUT(p, ",\"tid\":");
	p = put_decimal(p, tid);
	p = PUT(p, ",\"ts\":");
	at->length = (size_t)(p - at->text);
}

static char *put_head(char *p, const struct site *s, char phase, const struct place *at, uint64_t ns)
{
	p = put_text(p, s->head.text, s->head.length);
	*p++ = phase;
	p = put_text(p, at->text, at->length);
	return put_us(p, ns);
}

static uint64_t begin_of(const struct event *e)
{
	if (!(e->length_site & TICKS))
		return e->begin;
	return w.to.ns + (uint64_t)(int64_t)((double)(int64_t)(e->begin - w.to.ticks) * w.tick_ns);
}

static void put_event(const struct place *at, const struct event *e)
{
	const struct site *s = &sites[e->length_site & SITE_MASK];
	uint64_t begin = begin_of(e), length = e->length_site >> SITE_BITS;
	char *p = begin_text();

	switch (s->shape) {
	case TRACE_SPAN:
		p = put_head(p, s, 'X', at, begin);
		p = PUT(p, ",\"dur\":");
		p = put_us(p, length);
		break;
	case TRACE_FLIGHT:
		p = put_head(p, s, 'b', at, begin);
		p = PUT(p, ",\"id\":");
		p = put_decimal(p, ++w.flights);
		p = put_arguments(p, s, e);
		p = put_head(p, s, 'e', at, begin + length);
		p = PUT(p, ",\"id\":");
		p = put_decimal(p, w.flights);
		break;
	case TRACE_POINT: /* of a thread, when no scope is named */
		p = put_head(p, s, 'i', at, begin);
		break;
	}
	end_text(put_arguments(p, s, e));
}

static void put_metadata(const char *lead, const char *what, uint32_t tid, const char *name)
{
	char *p = begin_text();

	p = PUT(p, lead);
	p = PUT(p, "{\"name\":\"");
	p = PUT(p, what);
	p = PUT(p, "\",\"ph\":\"M\",\"pid\":");
	p = put_decimal(p, (uint64_t)w.pid);
	p = PUT(p, ",\"tid\":");
	p = put_decimal(p, tid);
	p = PUT(p, ",\"args\":{\"name\":");
	p = put_name(p, name);
	end_text(PUT(p, "}}"));
}

static void put_dropped(void)
{
	struct place at;
	char *p = begin_text();

	set_place(&at, (uint32_t)w.pid);
	p = PUT(p, ",\n{\"name\":\"dropped_events\",\"ph\":\"C");
	p = put_text(p, at.text, at.length);
	p = put_us(p, clock_ns());
	p = PUT(p, ",\"args\":{\"dropped\":");
	p = put_decimal(p, w.dropped);
	end_text(PUT(p, "}}"));
	w.told = w.dropped;
}

/* --- the writer
 * ----------------------------------------------------------------------------------------------
 */

/* Threads are often named just after they began: asked again here, while the thread is there. */
static void announce(unsigned i, uint32_t tid, const struct ring *r)
{
	char path[64], name[NAME_BYTES + 1] = "";
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%u/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, name, NAME_BYTES);
		fd_close(fd);
	}
	if (n > 0 && name[n - 1] == '\n')
		name[n - 1] = 0;
	if (n <= 0)
		memcpy(name, r->name, NAME_BYTES);
	put_metadata(",\n", "thread_name", tid, name);
	w.announced[i] = atomic_load_explicit(&r->claims, memory_order_relaxed);
}

static void count_dropped(unsigned i, const struct ring *r)
{
	uint64_t now = atomic_load_explicit(&r->dropped, memory_order_relaxed);

	w.dropped += now - w.dropped_before[i];
	w.dropped_before[i] = now;
}

static bool has_ended(uint64_t owner)
{
	return owner & DEAD || (syscall(SYS_tgkill, w.pid, (uint32_t)owner, 0) && errno == ESRCH);
}

/* Returns how many events there were. */
static uint32_t drain(unsigned i)
{
	uint64_t owner = atomic_load_explicit(&slots[i].owner, memory_order_acquire);
	struct ring *r = atomic_load_explicit(&slots[i].ring, memory_order_acquire);
	struct place place;
	uint32_t tail, head;

	if (!owner || !r)
		return 0;
	tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	head = atomic_load_explicit(&r->head, memory_order_acquire);
	count_dropped(i, r);
	if (head == tail) {
		/* Only a thread that had gone before the ring was seen empty has left nothing. */
		if (has_ended(owner) && atomic_load_explicit(&r->head, memory_order_acquire) == tail)
			atomic_store_explicit(&slots[i].owner, 0, memory_order_release);
		return 0;
	}
	if (w.announced[i] != atomic_load_explicit(&r->claims, memory_order_relaxed))
		announce(i, (uint32_t)owner, r);
	set_place(&place, (uint32_t)owner);
	for (uint32_t at = tail; at != head; at++) {
		put_event(&place, &r->event[at % TRACE_EVENTS]);
		if (at % 256 == 255)
			atomic_store_explicit(&r->tail, at + 1, memory_order_release);
	}
	atomic_store_explicit(&r->tail, head, memory_order_release);
	return head - tail;
}

static void put_one_text(const char *text, size_t length)
{
	char *p;

	if (w.used + length + 2 > BUFFER_BYTES)
		flush();
	p = PUT(w.buffer + w.used, ",\n");
	end_text(put_text(p, text, length));
}

static void drain_texts(void)
{
	struct text_length n;

	lock_take(&texts.lock);
	for (size_t at = 0; at < texts.used; at += sizeof(n) + n.bytes) {
		memcpy(&n, texts.queue + at, sizeof(n));
		put_one_text(texts.queue + at + sizeof(n), n.bytes);
	}
	texts.used = 0;
	w.dropped += texts.dropped;
	texts.dropped = 0;
	lock_drop(&texts.lock);
}

/* Returns the most that one ring held. */
static uint32_t drain_all(void)
{
	uint64_t now = atomic_load_explicit(&homeless, memory_order_relaxed);
	uint32_t most = 0;

	w.to = look_at_clocks();
	if (w.to.ticks > w.from.ticks)
		w.tick_ns = (double)(w.to.ns - w.from.ns) / (double)(w.to.ticks - w.from.ticks);
	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		uint32_t n = drain(i);

		most = n > most ? n : most;
	}
	drain_texts();
	w.from = w.to;
	w.dropped += now - w.homeless_before;
	w.homeless_before = now;
	if (w.dropped != w.told)
		put_dropped();
	flush();
	return most;
}

static void *write_on(void *unused)
{
	uint64_t pause = PAUSE_MOST_NS;

	(void)unused;
	prctl(PR_SET_NAME, "unpin-trace");
	/* Where all processors are busy it gets some hundredths of one: rather events that are dropped than a
	 * program that is another one when it is watched. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE);
	for (;;) {
		uint64_t until = clock_ns() + pause;
		struct timespec ts = { (time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC) };
		uint32_t most;

		if (sem_clockwait(&w.stop, CLOCK_MONOTONIC, &ts) == 0)
			break;
		most = drain_all();
		if (most > TRACE_EVENTS / 4)
			pause = PAUSE_LEAST_NS;
		else if (most < TRACE_EVENTS / 16)
			pause = 2 * pause < PAUSE_MOST_NS ? 2 * pause : PAUSE_MOST_NS;
	}
	drain_all();
	put_dropped();
	flush();
	return NULL;
}

static int start_writer(void)
{
	sigset_t all, before;
	int err;

	if (sem_init(&w.stop, 0, 0))
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&w.thread, NULL, write_on, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		sem_destroy(&w.stop);
	return err;
}

/* --- open and close
 * ------------------------------------------------------------------------------------------
 */

/* Opens path when it is new, empty, or (may_replace) whatever it is. -EEXIST: somebody else's. */
static int open_file(const char *path, bool may_replace)
{
	struct stat st;
	int err = 0;

	if (snprintf(w.path, sizeof(w.path), "%s", path) >= (int)sizeof(w.path))
		return -ENAMETOOLONG;
	w.fd = fd_move_high(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
	if (w.fd < 0)
		return -errno;
	if (fstat(w.fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL; /* the ending is written over again and again */
	/* The lock is held until close: of two processes that see it empty, one begins. */
	else if (flock(w.fd, LOCK_EX | LOCK_NB) || (st.st_size && !may_replace))
		err = -EEXIST;
	else if (fstat(w.fd, &st) || (st.st_size && !may_replace))
		err = -EEXIST;
	else if (ftruncate(w.fd, 0))
		err = -errno;
	if (err) {
		fd_close(w.fd);
		w.fd = -1;
		return err;
	}
	w.dev = st.st_dev;
	w.ino = st.st_ino;
	w.end = 0;
	w.dropped = w.told = w.flights = 0;
	return 0;
}

static int begin_file(const char *path)
{
	char own[PATH_MAX], name[64];
	int err = open_file(path, false);

	if (err == -EEXIST) {
		if (snprintf(own, sizeof(own), "%s.%d", path, (int)w.pid) >= (int)sizeof(own))
			return -ENAMETOOLONG;
		err = open_file(own, true);
	}
	if (err)
		return err;
	snprintf(name, sizeof(name), "%s", program_invocation_short_name);
	w.used = 0;
	put_metadata(OPENING, "process_name", (uint32_t)w.pid, name);
	flush();
	return w.failed ? -EIO : 0;
}

/* The device is opened again: the timeline goes on. */
static int go_on(const char *path)
{
	if (w.pid != getpid() || !w.end || strcmp(path, w.asked) != 0)
		return -ENOENT;
	w.fd = -1;
	return find_file();
}

/* What was put after the last drain belongs to no file; threads that ended since then have left their rings.
 */
static void empty_rings(void)
{
	w.homeless_before = atomic_load(&homeless);
	lock_take(&texts.lock);
	texts.used = 0;
	texts.dropped = 0;
	lock_drop(&texts.lock);
	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		struct ring *r = atomic_load_explicit(&slots[i].ring, memory_order_acquire);

		w.announced[i] = 0;
		w.dropped_before[i] = r ? atomic_load(&r->dropped) : 0;
		if (r)
			atomic_store(&r->tail, atomic_load(&r->head));
		if (r && atomic_load(&slots[i].owner) && has_ended(atomic_load(&slots[i].owner)))
			atomic_store(&slots[i].owner, 0);
	}
}

int trace_open(const char *path)
{
	int err, state = atomic_load(&w.state);

	if (state != OFF && w.pid != getpid())
		trace_abandon();
	else if (state != OFF)
		return -EBUSY;
	w.failed = false;
	err = go_on(path);
	if (err) {
		w.pid = getpid();
		w.end = 0;
		err = begin_file(path);
	}
	if (err)
		return err;
	strcpy(w.asked, path);
	if (atomic_exchange(&texts.pid, w.pid) != w.pid)
		lock_reinit(&texts.lock, LOCK_TRACE);
	empty_rings();
	choose_clock();
	w.from = look_at_clocks();
	err = start_writer();
	if (err) {
		fd_close(w.fd);
		return err;
	}
	atomic_store(&w.state, ON);
	atomic_store(&trace_on, true);
	return 0;
}

void trace_close(void)
{
	int on = ON;

	if (!atomic_compare_exchange_strong(&w.state, &on, CLOSING))
		return;
	atomic_store(&trace_on, false);
	sem_post(&w.stop);
	pthread_join(w.thread, NULL);
	sem_destroy(&w.stop);
	if (is_ours(w.fd))
		fd_close(w.fd);
	w.fd = -1;
	atomic_store(&w.state, OFF);
}

void trace_abandon(void)
{
	atomic_store(&trace_on, false);
	atomic_store(&texts.pid, 0);
	mine.ring = NULL;
	mine.tid = 0;
	mine.busy = false;
	for (unsigned i = 0; i < TRACE_RINGS; i++)
		atomic_store(&slots[i].owner, 0);
	if (atomic_load(&w.state) != OFF && is_ours(w.fd))
		fd_close(w.fd);
	w.fd = -1;
	w.end = 0;
	atomic_store(&w.state, OFF);
}

__attribute__((destructor)) static void end_with_the_process(void)
{
	if (atomic_load(&w.state) == ON && w.pid == getpid())
		trace_close();
}
