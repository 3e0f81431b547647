/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct edge {
	uint32_t from, to;
	uint8_t choice;
};

struct walk {
	const struct explore_model *m;
	uint8_t *
		states; /* m->size bytes each, in the order found: so the first path to each is a short one */
	uint32_t *parent;
	uint8_t *choice; /* that led from the parent */
	uint8_t *good;	 /* done can be reached */
	uint32_t nstates, room;
	struct edge *edges;
	size_t nedges, edge_room;
	uint32_t *table; /* open addressing, NONE: free */
	size_t slots;
};

static void *need(void *p)
{
	if (!p) {
		fprintf(stderr, "explore: no memory\n");
		abort();
	}
	return p;
}

static uint8_t *state_at(const struct walk *w, uint32_t i)
{
	return w->states + (size_t)i * w->m->size;
}

static uint64_t hash_of(const uint8_t *state, size_t size)
{
	uint64_t h = 0x9e3779b97f4a7c15ull, word;

	for (size_t i = 0; i < size; i += 8) {
		word = 0;
		memcpy(&word, state + i, size - i < 8 ? size - i : 8);
		h = (h ^ word) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	return h;
}

static void rehash(struct walk *w)
{
	w->slots *= 2;
	w->table = need(realloc(w->table, w->slots * sizeof(*w->table)));
	memset(w->table, 0xff, w->slots * sizeof(*w->table));
	for (uint32_t i = 0; i < w->nstates; i++) {
		size_t at = hash_of(state_at(w, i), w->m->size) & (w->slots - 1);

		while (w->table[at] != NONE)
			at = (at + 1) & (w->slots - 1);
		w->table[at] = i;
	}
}

static void make_room(struct walk *w)
{
	if (w->nstates == w->room) {
		w->room *= 2;
		w->states = need(realloc(w->states, (size_t)w->room * w->m->size));
		w->parent = need(realloc(w->parent, w->room * sizeof(*w->parent)));
		w->choice = need(realloc(w->choice, w->room));
	}
	if (w->nstates * 2ull > w->slots)
		rehash(w);
}

/* The number of a state; new ones are entered. */
static uint32_t enter(struct walk *w, const uint8_t *state, uint32_t parent, uint8_t choice)
{
	size_t at;

	make_room(w);
	at = hash_of(state, w->m->size) & (w->slots - 1);
	for (; w->table[at] != NONE; at = (at + 1) & (w->slots - 1))
		if (!memcmp(state_at(w, w->table[at]), state, w->m->size))
			return w->table[at];
	w->table[at] = w->nstates;
	memcpy(state_at(w, w->nstates), state, w->m->size);
	w->parent[w->nstates] = parent;
	w->choice[w->nstates] = choice;
	return w->nstates++;
}

static void add_edge(struct walk *w, uint32_t from, uint32_t to, uint8_t choice)
{
	if (w->nedges == w->edge_room) {
		w->edge_room *= 2;
		w->edges = need(realloc(w->edges, w->edge_room * sizeof(*w->edges)));
	}
	w->edges[w->nedges++] = (struct edge){ from, to, choice };
}

static void keep_path(const struct walk *w, uint32_t i, struct explore_result *r)
{
	unsigned n = 0;

	if (r->length)
		return;
	for (uint32_t at = i; w->parent[at] != NONE; at = w->parent[at])
		n++;
	r->length = n;
	for (uint32_t at = i; w->parent[at] != NONE; at = w->parent[at])
		if (--n < EXPLORE_PATH)
			r->path[n] = w->choice[at];
}

/* Everything that can happen in one state. */
static void leave(struct walk *w, uint32_t i, struct explore_result *r)
{
	_Alignas(8) uint8_t next[EXPLORE_STATE];
	unsigned possible = 0;

	if (w->m->wrong && w->m->wrong(state_at(w, i))) {
		r->wrong++;
		keep_path(w, i, r);
		return;
	}
	for (unsigned c = 0; c < w->m->choices; c++) {
		memcpy(next, state_at(w, i), w->m->size);
		if (!w->m->step(next, c))
			continue;
		possible++;
		if (w->m->canonical)
			w->m->canonical(next);
		add_edge(w, i, enter(w, next, i, (uint8_t)c), (uint8_t)c);
	}
	if (!possible && !w->m->done(state_at(w, i))) {
		r->stuck++;
		keep_path(w, i, r);
	}
}

/* Marks the states from which done can be reached: backwards along the edges, sorted by where they lead. */
static void mark_good(struct walk *w, struct explore_result *r)
{
	size_t *first = need(calloc((size_t)w->nstates + 2, sizeof(*first)));
	uint32_t *from = need(malloc((w->nedges + 1) * sizeof(*from)));
	uint32_t *todo = need(malloc(((size_t)w->nstates + 1) * sizeof(*todo))), n = 0;

	for (size_t i = 0; i < w->nedges; i++)
		first[w->edges[i].to + 2]++;
	for (size_t i = 2; i < (size_t)w->nstates + 2; i++)
		first[i] += first[i - 1];
	for (size_t i = 0; i < w->nedges; i++)
		from[first[w->edges[i].to + 1]++] = w->edges[i].from;
	for (uint32_t i = 0; i < w->nstates; i++) {
		if (!w->m->done(state_at(w, i)))
			continue;
		r->done++;
		w->good[i] = 1;
		todo[n++] = i;
	}
	while (n) {
		uint32_t to = todo[--n];

		for (size_t i = first[to]; i < first[to + 1]; i++) {
			if (w->good[from[i]])
				continue;
			w->good[from[i]] = 1;
			todo[n++] = from[i];
		}
	}
	free(first);
	free(from);
	free(todo);
}

/*
 * Steps inside a strongly connected component can be made again and again. Tarjan's algorithm without
 * recursion; the edges of a state lie together, in the order of states.
 */
struct search {
	size_t *first;		    /* edge of each state */
	size_t *next;		    /* edge to be looked at */
	uint32_t *index, *low;	    /* 0: not visited */
	uint32_t *component;	    /* 0: none yet */
	uint32_t *path, *undecided; /* stacks */
	uint32_t npath, nundecided, visited, components;
};

static void visit(struct search *t, uint32_t i)
{
	t->index[i] = t->low[i] = ++t->visited;
	t->next[i] = t->first[i];
	t->path[t->npath++] = i;
	t->undecided[t->nundecided++] = i;
}

/* All edges of the state at the end of the path have been followed. */
static void step_back(struct search *t)
{
	uint32_t i = t->path[--t->npath], j;

	if (t->low[i] == t->index[i]) {
		t->components++;
		do {
			j = t->undecided[--t->nundecided];
			t->component[j] = t->components;
		} while (j != i);
	}
	if (t->npath) {
		j = t->path[t->npath - 1];
		t->low[j] = t->low[i] < t->low[j] ? t->low[i] : t->low[j];
	}
}

static void search_from(const struct walk *w, struct search *t, uint32_t start)
{
	visit(t, start);
	while (t->npath) {
		uint32_t i = t->path[t->npath - 1], to;

		if (t->next[i] == t->first[i + 1]) {
			step_back(t);
			continue;
		}
		to = w->edges[t->next[i]++].to;
		if (!t->index[to])
			visit(t, to);
		else if (!t->component[to] && t->index[to] < t->low[i])
			t->low[i] = t->index[to];
	}
}

static void count_rounds(const struct walk *w, struct explore_result *r)
{
	size_t n = (size_t)w->nstates + 1, e = 0;
	struct search t = {
		.first = need(calloc(n, sizeof(size_t))),
		.next = need(calloc(n, sizeof(size_t))),
		.index = need(calloc(n, sizeof(uint32_t))),
		.low = need(calloc(n, sizeof(uint32_t))),
		.component = need(calloc(n, sizeof(uint32_t))),
		.path = need(calloc(n, sizeof(uint32_t))),
		.undecided = need(calloc(n, sizeof(uint32_t))),
	};

	for (uint32_t i = 0; i < w->nstates; i++) {
		t.first[i] = e;
		while (e < w->nedges && w->edges[e].from == i)
			e++;
	}
	t.first[w->nstates] = e;
	for (uint32_t i = 0; i < w->nstates; i++)
		if (!t.index[i])
			search_from(w, &t, i);
	for (e = 0; e < w->nedges; e++) {
		const struct edge *x = &w->edges[e];

		if (t.component[x->from] != t.component[x->to] || w->m->for_ever(x->choice))
			continue;
		r->rounds++;
		keep_path(w, x->from, r);
	}
	free(t.first);
	free(t.next);
	free(t.index);
	free(t.low);
	free(t.component);
	free(t.path);
	free(t.undecided);
}

void explore(const struct explore_model *m, const void *first, size_t most, struct explore_result *result)
{
	struct walk w = { .m = m, .room = 1024, .edge_room = 4096, .slots = 4096 };
	_Alignas(8) uint8_t start[EXPLORE_STATE];

	memset(result, 0, sizeof(*result));
	w.states = need(malloc((size_t)w.room * m->size));
	w.parent = need(malloc(w.room * sizeof(*w.parent)));
	w.choice = need(malloc(w.room));
	w.edges = need(malloc(w.edge_room * sizeof(*w.edges)));
	w.table = need(malloc(w.slots * sizeof(*w.table)));
	memset(w.table, 0xff, w.slots * sizeof(*w.table));
	memcpy(start, first, m->size);
	if (m->canonical)
		m->canonical(start);
	enter(&w, start, NONE, 0);
	for (uint32_t i = 0; i < w.nstates && !result->cut; i++) {
		leave(&w, i, result);
		result->cut = w.nstates > most;
	}
	w.good = need(calloc(w.nstates, 1));
	if (!result->cut)
		mark_good(&w, result);
	for (uint32_t i = 0; i < w.nstates && !result->cut; i++) {
		if (w.good[i])
			continue;
		result->endless++;
		keep_path(&w, i, result);
	}
	if (m->for_ever && !result->cut)
		count_rounds(&w, result);
	result->states = w.nstates;
	result->steps = w.nedges;
	free(w.states);
	free(w.parent);
	free(w.choice);
	free(w.good);
	free(w.edges);
	free(w.table);
}

void explore_print(const struct explore_model *m, const struct explore_result *r)
{
	fprintf(stderr, "%zu states, %zu steps; done %zu, stuck %zu, endless %zu, wrong %zu, rounds %zu%s\n",
		r->states, r->steps, r->done, r->stuck, r->endless, r->wrong, r->rounds,
		r->cut ? "; cut short" : "");
	for (unsigned i = 0; i < r->length && i < EXPLORE_PATH; i++)
		fprintf(stderr, "  %3u %s\n", i + 1, m->name(r->path[i]));
}
