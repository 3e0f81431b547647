/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The page on a terminal, and the keys. */
#include <curses.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tool/alloc.h"
#include "tool/command.h"
#include "tool/top.h"

#define KEY_TICK_MS 50 /* a key is answered within this time */

struct screen {
	struct top_watch *watch;
	struct top_look *look;
	const struct top_view *view;
	bool quit, dirty, colours;
	char before[64]; /* the filter, in case the new one is given up */
};

static chtype attribute(const struct screen *s, enum top_colour c)
{
	static const chtype plain[] = { 0, A_REVERSE, A_BOLD | A_UNDERLINE, A_BOLD, A_BOLD,
		A_REVERSE | A_BOLD, A_DIM };

	if (!s->colours || c == TOP_PLAIN || c == TOP_TITLE || c == TOP_HEADING || c == TOP_DIM)
		return plain[c];
	return COLOR_PAIR(c) | (c == TOP_BAD ? A_BOLD : 0);
}

static void draw(struct screen *s)
{
	struct top_look *look = s->look;
	struct top_line *lines;
	size_t n;

	look->width = COLS > 0 ? (unsigned)COLS : 1;
	look->height = LINES > 0 ? (unsigned)LINES : 1;
	lines = alloc_array(look->height, sizeof(*lines));
	n = top_page(s->view, look, lines);
	erase();
	for (size_t i = 0; i < n; i++) {
		attrset((attr_t)attribute(s, lines[i].colour));
		mvaddstr((int)i, 0, lines[i].text);
		/* The bars reach across. */
		if (lines[i].colour == TOP_TITLE)
			hline(' ' | (attribute(s, TOP_TITLE)), COLS);
	}
	attrset(A_NORMAL);
	refresh();
	free(lines);
	s->dirty = false;
}

static void arrange(struct screen *s)
{
	s->view = top_arrange(s->watch, s->look->key, s->look->backwards, s->look->filter);
}

/* --- keys ------------------------------------------------------------------------------------------------
 */

static void edit(struct screen *s, int key)
{
	struct top_look *look = s->look;
	size_t len = strlen(look->filter);

	if (key == '\n' || key == '\r' || key == KEY_ENTER) {
		look->editing = false;
	} else if (key == 27) {
		look->editing = false;
		memcpy(look->filter, s->before, sizeof(look->filter));
	} else if (key == KEY_BACKSPACE || key == 127 || key == 8) {
		if (len)
			look->filter[len - 1] = 0;
	} else if (key >= ' ' && key < 127 && len + 1 < sizeof(look->filter)) {
		look->filter[len] = (char)key;
		look->filter[len + 1] = 0;
	}
	look->scroll = 0;
	arrange(s);
}

static void begin_filter(struct screen *s)
{
	memcpy(s->before, s->look->filter, sizeof(s->before));
	s->look->filter[0] = 0;
	s->look->editing = true;
	arrange(s);
}

static void sort_by(struct screen *s, int step)
{
	s->look->key = (enum top_key)(((int)s->look->key + step + TOP_KEYS) % TOP_KEYS);
	s->look->scroll = 0;
	arrange(s);
}

static void pace(struct screen *s, double factor)
{
	double every = s->look->every * factor;

	if (every < 0.1 || every > 60)
		return;
	s->look->every = every;
	top_set_every(s->watch, every);
}

static void show_panel(struct screen *s, int panel)
{
	s->look->panel = (enum top_panel)(panel % TOP_PANELS);
	s->look->scroll = 0;
}

static size_t rows_of(const struct screen *s)
{
	return s->view ? top_rows(s->view, s->look->panel) : 0;
}

static void scroll_by(struct screen *s, long by)
{
	long at = (long)s->look->scroll + by, last = (long)rows_of(s) - 1;

	at = at > last ? last : at;
	s->look->scroll = at > 0 ? (unsigned)at : 0;
}

static void command(struct screen *s, int key)
{
	long page = LINES > 6 ? LINES / 2 : 1;

	switch (key) {
	case 'q':
	case 'Q':
	case 3:
		s->quit = true;
		break;
	case 'h':
	case '?':
	case KEY_F(1):
		s->look->help = !s->look->help;
		break;
	case 27:
		s->look->help = false;
		break;
	case ' ':
	case 'p':
		s->look->paused = !s->look->paused;
		break;
	case 's':
	case '>':
		sort_by(s, 1);
		break;
	case 'S':
	case '<':
		sort_by(s, -1);
		break;
	case 'r':
		s->look->backwards = !s->look->backwards;
		arrange(s);
		break;
	case '/':
	case 'f':
		begin_filter(s);
		break;
	case '\t':
		show_panel(s, (int)s->look->panel + 1);
		break;
	case '1':
	case '2':
	case '3':
	case '4':
		show_panel(s, key - '1');
		break;
	case '+':
		pace(s, 0.5);
		break;
	case '-':
		pace(s, 2);
		break;
	case KEY_DOWN:
	case 'j':
		scroll_by(s, 1);
		break;
	case KEY_UP:
	case 'k':
		scroll_by(s, -1);
		break;
	case KEY_NPAGE:
		scroll_by(s, page);
		break;
	case KEY_PPAGE:
		scroll_by(s, -page);
		break;
	case KEY_HOME:
		s->look->scroll = 0;
		break;
	default: /* KEY_RESIZE too: drawn anew */
		break;
	}
}

/* --- the loop --------------------------------------------------------------------------------------------
 */

/* What is new, unless the screen is paused. Returns false when there will be nothing any more. */
static bool update(struct screen *s)
{
	const struct top_view *v;
	int got = top_next(s->watch, 0, &v);

	if (got > 0) {
		s->view = v;
		s->look->notice = NULL;
		if (s->look->scroll && s->look->scroll >= rows_of(s))
			scroll_by(s, 0);
	} else if (got < 0) {
		s->look->notice = top_trouble(s->watch, got);
	}
	s->dirty |= got != 0;
	return got != -ESRCH;
}

static void loop(struct screen *s)
{
	bool alive = true;

	while (!s->quit) {
		int key;

		if (alive && !s->look->paused)
			alive = update(s);
		if (s->dirty)
			draw(s);
		key = getch();
		if (key == ERR)
			continue;
		s->dirty = true;
		if (s->look->editing && key != KEY_RESIZE)
			edit(s, key);
		else
			command(s, key);
	}
}

int top_screen(struct top_watch *w, struct top_look *look)
{
	static const short colour[] = {
		[TOP_GOOD] = COLOR_GREEN, [TOP_WARNING] = COLOR_YELLOW, [TOP_BAD] = COLOR_RED
	};
	struct screen s = { .watch = w, .look = look, .dirty = true };
	SCREEN *term = newterm(NULL, stdout, stdin);

	if (!term) {
		log_error("top: the terminal cannot be used (is TERM right?); use --batch or --json");
		return EXIT_USAGE;
	}
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	curs_set(0);
	set_escdelay(50);
	timeout(KEY_TICK_MS);
	s.colours = has_colors() && start_color() == OK && use_default_colors() == OK;
	for (int c = TOP_GOOD; s.colours && c <= TOP_BAD; c++)
		init_pair((short)c, colour[c], -1);
	loop(&s);
	endwin();
	delscreen(term);
	return 0;
}
