/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_text.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

static struct texts {
	_Atomic pid_t pid; /* whose it is: a child of a raw clone() may have inherited the lock taken */
	struct lock lock;  /* protects the rest */
	char *queue;	   /* mapped by the first text */
	size_t used;
	uint64_t dropped;
} texts = { .lock = LOCK_INIT(LOCK_TRACE) };

static bool add_text(const char *json, size_t length)
{
	const struct trace_text_head head = { (uint32_t)length };
	long at;

	if (length > TRACE_TEXT_MAX || texts.used + sizeof(head) + length > TRACE_TEXT_QUEUE)
		return false;
	if (!texts.queue) {
		at = syscall(SYS_mmap, NULL, TRACE_TEXT_QUEUE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == -1)
			return false;
		texts.queue = (char *)at;
	}
	memcpy(texts.queue + texts.used, &head, sizeof(head));
	memcpy(texts.queue + texts.used + sizeof(head), json, length);
	texts.used += sizeof(head) + length;
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

void trace_text_open(pid_t pid)
{
	if (atomic_exchange(&texts.pid, pid) != pid)
		lock_reinit(&texts.lock, LOCK_TRACE);
	lock_take(&texts.lock);
	texts.used = 0;
	texts.dropped = 0;
	lock_drop(&texts.lock);
}

void trace_text_abandon(void)
{
	atomic_store(&texts.pid, 0);
}

size_t trace_text_take(char *out)
{
	size_t used;

	lock_take(&texts.lock);
	used = texts.used;
	if (used)
		memcpy(out, texts.queue, used);
	texts.used = 0;
	lock_drop(&texts.lock);
	return used;
}

uint64_t trace_text_dropped(void)
{
	uint64_t dropped;

	lock_take(&texts.lock);
	dropped = texts.dropped;
	lock_drop(&texts.lock);
	return dropped;
}

/* --- is it JSON? Each takes what it is called after from the front and returns the place behind it, or NULL.
 * ---
 */

struct reader {
	const char *end;
	unsigned depth;
};

#define DEPTH_MOST 64

static const char *take_value(struct reader *r, const char *p);

static const char *skip_blanks(const struct reader *r, const char *p)
{
	while (p < r->end && (*p == ' ' || *p == '\t'))
		p++;
	return p;
}

static bool is_next(const struct reader *r, const char *p, char c)
{
	return p < r->end && *p == c;
}

static const char *take_escape(const struct reader *r, const char *p)
{
	if (p == r->end)
		return NULL;
	if (*p != 'u')
		return memchr("\"\\/bfnrt", *p, 8) ? p + 1 : NULL;
	p++;
	for (int i = 0; i < 4; i++, p++)
		if (p == r->end || !((*p >= '0' && *p <= '9') || ((*p | 32) >= 'a' && (*p | 32) <= 'f')))
			return NULL;
	return p;
}

static const char *take_string(const struct reader *r, const char *p)
{
	if (!is_next(r, p, '"'))
		return NULL;
	for (p++; p && p < r->end && *p != '"';) {
		if ((unsigned char)*p < ' ')
			return NULL;
		p = *p == '\\' ? take_escape(r, p + 1) : p + 1;
	}
	return p && p < r->end ? p + 1 : NULL;
}

static const char *take_digits(const struct reader *r, const char *p)
{
	const char *first = p;

	while (p < r->end && *p >= '0' && *p <= '9')
		p++;
	return p > first ? p : NULL;
}

static const char *take_number(const struct reader *r, const char *p)
{
	if (is_next(r, p, '-'))
		p++;
	p = is_next(r, p, '0') ? p + 1 : take_digits(r, p);
	if (p && is_next(r, p, '.'))
		p = take_digits(r, p + 1);
	if (p && p < r->end && (*p | 32) == 'e') {
		p++;
		if (p < r->end && (*p == '+' || *p == '-'))
			p++;
		p = take_digits(r, p);
	}
	return p;
}

static const char *take_word(const struct reader *r, const char *p, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(r->end - p) >= n && memcmp(p, word, n) == 0 ? p + n : NULL;
}

static const char *take_member(struct reader *r, const char *p)
{
	p = take_string(r, p);
	if (!p)
		return NULL;
	p = skip_blanks(r, p);
	return is_next(r, p, ':') ? take_value(r, skip_blanks(r, p + 1)) : NULL;
}

/* An object or an array, p being at its first bracket. */
static const char *take_list(
	struct reader *r, const char *p, char last, const char *(*take)(struct reader *, const char *))
{
	if (++r->depth > DEPTH_MOST)
		return NULL;
	p = skip_blanks(r, p + 1);
	if (!is_next(r, p, last)) {
		for (;;) {
			p = take(r, p);
			if (!p)
				return NULL;
			p = skip_blanks(r, p);
			if (!is_next(r, p, ','))
				break;
			p = skip_blanks(r, p + 1);
		}
		if (!is_next(r, p, last))
			return NULL;
	}
	r->depth--;
	return p + 1;
}

static const char *take_value(struct reader *r, const char *p)
{
	if (p >= r->end)
		return NULL;
	switch (*p) {
	case '{':
		return take_list(r, p, '}', take_member);
	case '[':
		return take_list(r, p, ']', take_value);
	case '"':
		return take_string(r, p);
	case 't':
		return take_word(r, p, "true");
	case 'f':
		return take_word(r, p, "false");
	case 'n':
		return take_word(r, p, "null");
	default:
		return take_number(r, p);
	}
}

bool trace_text_is_object(const char *text, size_t length)
{
	struct reader r = { .end = text + length };
	const char *p = skip_blanks(&r, text);

	if (!is_next(&r, p, '{'))
		return false;
	p = take_value(&r, p);
	return p && skip_blanks(&r, p) == r.end;
}
