/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/segment.h"

#define EVENT_BYTES   512	   /* at most, as text, but for texts */
#define EXACT_INTEGER (1ull << 53) /* below it, a reader's double holds every number */
#define OPENING	      "[\n"
#define ENDING	      "\n]\n"

/* --- text: by hand, since what it takes is what the end of the program waits for. Each puts its text at p
 * and returns the place behind it.
 * ----------------------------------------------------------------------------------
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

/* --- parts of an event -------------------------------------------------------------------------------------
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

static char *put_arguments(char *p, const struct site *s, const struct trace_event *e)
{
	p = PUT(p, ",\"args\":{");
	p = put_argument(p, &s->a, e->a);
	if (s->b.length) {
		*p++ = ',';
		p = put_argument(p, &s->b, e->b);
	}
	return PUT(p, "}}");
}

static void set_place(struct trace_json_place *at, uint32_t pid, uint32_t tid)
{
	char *p = PUT(at->text, "\",\"pid\":");

	p = put_decimal(p, pid);
	p = PUT(p, ",\"tid\":");
	p = put_decimal(p, tid);
	p = PUT(p, ",\"ts\":");
	at->length = (size_t)(p - at->text);
	at->tid = tid;
}

static char *put_head(
	char *p, const struct site *s, char phase, const struct trace_json_place *at, uint64_t ns)
{
	p = put_text(p, s->head.text, s->head.length);
	*p++ = phase;
	p = put_text(p, at->text, at->length);
	return put_us(p, ns);
}

/* --- the buffer and the file -------------------------------------------------------------------------------
 */

static int write_at(const struct trace_json *j, const char *text, size_t n, uint64_t at)
{
	while (n) {
		ssize_t did = pwrite(j->fd, text, n, (off_t)at);

		if (did < 0 && errno == EINTR)
			continue;
		if (did <= 0)
			return did < 0 ? -errno : -ENOSPC;
		text += did;
		n -= (size_t)did;
		at += (uint64_t)did;
	}
	return 0;
}

static char *put_dropped(char *p, const struct trace_json *j)
{
	struct trace_json_place at;

	set_place(&at, j->pid, j->pid);
	p = PUT(p, ",\n{\"name\":\"dropped_events\",\"ph\":\"C");
	p = put_text(p, at.text, at.length);
	p = put_us(p, j->now);
	p = PUT(p, ",\"args\":{\"dropped\":");
	p = put_decimal(p, j->dropped);
	return PUT(p, "}}");
}

static void put_trailer(char *p, const struct trace_json *j)
{
	char *end = p + TRACE_JSON_TRAILER - strlen(ENDING);
	char *after = put_dropped(p, j);

	memset(after, ' ', (size_t)(end - after));
	memcpy(end, ENDING, strlen(ENDING));
}

/* What is in the buffer is lost, and all that comes; the trailer's place is there. */
static void give_up(struct trace_json *j, int err)
{
	char trailer[TRACE_JSON_TRAILER];

	j->err = err;
	j->dropped += j->waiting;
	put_trailer(trailer, j);
	write_at(j, trailer, sizeof(trailer), j->end);
}

int trace_json_flush(struct trace_json *j)
{
	int err;

	if (j->err)
		return j->err;
	put_trailer(j->buffer + j->used, j);
	err = write_at(j, j->buffer, j->used + TRACE_JSON_TRAILER, j->end);
	if (err)
		give_up(j, err);
	else
		j->end += j->used;
	j->used = 0;
	j->waiting = 0;
	return err;
}

/* Room for n bytes at the end of the buffer; NULL: none any more. */
static char *begin_text(struct trace_json *j, size_t n)
{
	if (j->used + n > TRACE_JSON_BUFFER)
		trace_json_flush(j);
	return j->err ? NULL : j->buffer + j->used;
}

static void end_text(struct trace_json *j, const char *p)
{
	j->used = (size_t)(p - j->buffer);
}

void trace_json_init(struct trace_json *j, int fd, uint32_t pid, uint64_t end)
{
	memset(j, 0, offsetof(struct trace_json, buffer));
	j->fd = fd;
	j->pid = pid;
	j->end = end;
	j->now = clock_ns();
	j->place.tid = UINT32_MAX;
}

int trace_json_close(struct trace_json *j)
{
	int err = trace_json_flush(j);
	char trailer[TRACE_JSON_TRAILER];

	if (err) {
		/* More may have been dropped since. */
		put_trailer(trailer, j);
		write_at(j, trailer, sizeof(trailer), j->end);
	}
	if (ftruncate(j->fd, (off_t)(j->end + TRACE_JSON_TRAILER)) && !err)
		err = -errno;
	return err;
}

/* --- events ------------------------------------------------------------------------------------------------
 */

static void put_metadata(
	struct trace_json *j, const char *lead, const char *what, uint32_t tid, const char *name)
{
	char *p = begin_text(j, EVENT_BYTES);

	if (!p)
		return;
	p = PUT(p, lead);
	p = PUT(p, "{\"name\":\"");
	p = PUT(p, what);
	p = PUT(p, "\",\"ph\":\"M\",\"pid\":");
	p = put_decimal(p, j->pid);
	p = PUT(p, ",\"tid\":");
	p = put_decimal(p, tid);
	p = PUT(p, ",\"args\":{\"name\":");
	p = put_name(p, name);
	end_text(j, PUT(p, "}}"));
}

void trace_json_open(struct trace_json *j, const char *program)
{
	char name[64];
	size_t n = strnlen(program, sizeof(name) - 1);

	memcpy(name, program, n);
	name[n] = 0;
	put_metadata(j, OPENING, "process_name", j->pid, name);
}

/* The first event has a colon, and the number, before any byte of the process's name. */
bool trace_json_is_of(int fd, uint32_t pid)
{
	char text[128], want[16], *p, *end;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	if (n < (ssize_t)sizeof(OPENING))
		return false;
	text[n] = 0;
	end = put_decimal(want, pid);
	*end = 0;
	p = strstr(text, "\"pid\":");
	return p && strncmp(text, OPENING, sizeof(OPENING) - 1) == 0 &&
	       strncmp(p + 6, want, (size_t)(end - want)) == 0 && p[6 + (end - want)] == ',';
}

void trace_json_name(struct trace_json *j, uint32_t tid, const char *name)
{
	put_metadata(j, ",\n", "thread_name", tid, name);
}

void trace_json_event(
	struct trace_json *j, uint32_t tid, const struct trace_event *e, const struct trace_scale *scale)
{
	const struct site *s = &sites[e->site];
	uint64_t begin = e->in_ticks ? trace_clock_ns(scale, e->begin) : e->begin;
	char *p = begin_text(j, EVENT_BYTES);
	const struct trace_json_place *at = &j->place;

	if (!p) {
		j->dropped++;
		return;
	}
	if (at->tid != tid)
		set_place(&j->place, j->pid, tid);
	switch (s->shape) {
	case TRACE_SPAN:
		p = put_head(p, s, 'X', at, begin);
		p = PUT(p, ",\"dur\":");
		p = put_us(p, e->length_ns);
		break;
	case TRACE_FLIGHT:
		p = put_head(p, s, 'b', at, begin);
		p = PUT(p, ",\"id\":");
		p = put_decimal(p, ++j->flights);
		p = put_arguments(p, s, e);
		p = put_head(p, s, 'e', at, begin + e->length_ns);
		p = PUT(p, ",\"id\":");
		p = put_decimal(p, j->flights);
		break;
	case TRACE_POINT: /* of a thread, when no scope is named */
		p = put_head(p, s, 'i', at, begin);
		break;
	}
	end_text(j, put_arguments(p, s, e));
	j->waiting++;
}

void trace_json_text(struct trace_json *j, const char *text, size_t length)
{
	char *p = begin_text(j, length + 2);

	if (!p) {
		j->dropped++;
		return;
	}
	p = PUT(p, ",\n");
	end_text(j, put_text(p, text, length));
	j->waiting++;
}

void trace_json_dropped(struct trace_json *j, uint64_t dropped, uint64_t now)
{
	char *p;

	j->now = now;
	if (dropped == j->told)
		return;
	j->dropped += dropped - j->told;
	j->told = dropped;
	p = begin_text(j, EVENT_BYTES);
	if (p)
		end_text(j, put_dropped(p, j));
}
