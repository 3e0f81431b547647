/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The objects of a JSON file, one at a time. Only braces and strings are looked at; who takes an object
 * parses it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/advise.h"
#include "tool/alloc.h"

#define CHUNK 65536u

struct scan {
	unsigned depth; /* of braces and brackets */
	unsigned event; /* the depth that events begin at */
	bool begun, string, escaped;
	bool over; /* the outermost has ended */
	bool keep; /* the object that is being read still fits */
	size_t used;
	char *text;
};

/* What the text between objects may hold. */
static bool may_begin(char ch)
{
	return ch == '[' || ch == '{';
}

static void keep(struct scan *s, char ch)
{
	if (!s->keep)
		return;
	if (s->used + 1 >= ADVISE_SCAN_MOST)
		s->keep = false;
	else
		s->text[s->used++] = ch;
}

static void open_one(struct scan *s, char ch)
{
	s->depth++;
	/* The array that the file is has events one level down; an object has its lists of them there. */
	if (!s->begun) {
		s->begun = true;
		s->event = ch == '[' ? 2 : 3;
	}
	if (s->depth == s->event && ch == '{') {
		s->used = 0;
		s->keep = true;
	}
}

/* Returns whether an event has ended. */
static bool close_one(struct scan *s, char ch)
{
	bool event = s->depth == s->event && ch == '}';

	if (s->depth)
		s->depth--;
	s->over = s->begun && !s->depth;
	return event;
}

/* Returns whether an event has ended with this character. */
static bool take(struct scan *s, char ch)
{
	bool ended = false;

	if (s->string) {
		if (s->escaped)
			s->escaped = false;
		else if (ch == '\\')
			s->escaped = true;
		else if (ch == '"')
			s->string = false;
	} else if (ch == '"') {
		s->string = true;
	} else if (ch == '{' || ch == '[') {
		open_one(s, ch);
	}
	if (s->depth >= s->event)
		keep(s, ch);
	if (!s->string && (ch == '}' || ch == ']'))
		ended = close_one(s, ch);
	return ended;
}

static bool is_blank(char ch)
{
	return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

int advise_scan(FILE *f, int (*each)(void *arg, char *text, size_t length), void *arg,
	enum advise_scan_end *end, uint64_t *passed)
{
	struct scan s = { .text = alloc_array(1, ADVISE_SCAN_MOST) };
	char *chunk = alloc_array(1, CHUNK);
	int err = 0;
	size_t n;

	*passed = 0;
	*end = ADVISE_SCAN_CUT;
	errno = 0;
	while (!err && !s.over && (n = fread(chunk, 1, CHUNK, f)) > 0) {
		for (size_t i = 0; i < n && !err && !s.over; i++) {
			if (!s.begun && is_blank(chunk[i]))
				continue;
			if (!s.begun && !may_begin(chunk[i])) {
				*end = ADVISE_SCAN_NO_JSON;
				goto out;
			}
			if (!take(&s, chunk[i]))
				continue;
			*passed += !s.keep;
			s.text[s.used] = 0;
			if (s.keep)
				err = each(arg, s.text, s.used);
			s.keep = false;
		}
	}
	if (!err && ferror(f))
		err = errno ? -errno : -EIO;
	if (s.over)
		*end = ADVISE_SCAN_WHOLE;
	else if (!s.begun)
		*end = ADVISE_SCAN_NO_JSON;
out:
	free(chunk);
	free(s.text);
	return err;
}
