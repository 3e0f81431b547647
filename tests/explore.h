/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Walks every state that a model can reach, in every order of its steps.
 *
 * A model is a state (a structure without pointers) and choices: what may happen next, each of which is
 * possible or not. A run of the model is done when everything that was to happen has happened. Found are:
 * states in which nothing is possible and that are not done (somebody waits for ever), states from which done
 * cannot be reached any more whatever happens (they go round and round), and states that the model calls
 * wrong.
 *
 * A path to the first of these is kept, so that a failing test can tell a story.
 */
#ifndef UNPIN_TESTS_EXPLORE_H
#define UNPIN_TESTS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct explore_model {
	size_t size;	  /* of a state; at most EXPLORE_STATE; every byte counts, so padding must be 0 */
	unsigned choices; /* numbered from 0, at most 255 */
	/* Makes the choice in place. false: it is not possible now, and what became of the state is no
	 * matter. */
	bool (*step)(void *state, unsigned choice);
	bool (*done)(const void *state);
	bool (*wrong)(const void *state); /* NULL: never. Such a state is not left. */
	void (*canonical)(void *state);	  /* NULL, or: makes states equal that differ in names only */
	/*
	 * NULL, or: whether a run may make this choice for ever. Of the others there must be an end, whatever
	 * order the choices come in.
	 */
	bool (*for_ever)(unsigned choice);
	const char *(*name)(unsigned choice);
};

#define EXPLORE_STATE 128u
#define EXPLORE_PATH  256u

struct explore_result {
	size_t states, steps;
	size_t done, stuck, endless, wrong;
	size_t rounds; /* steps that a run may make again and again, and must not */
	bool cut;      /* more states than allowed: the rest says nothing */
	unsigned length;
	uint8_t path[EXPLORE_PATH]; /* choices to the first state that is stuck, wrong or endless */
};

/* From that state, through at most so many states. Ends the program when memory runs out. */
void explore(const struct explore_model *m, const void *first, size_t most, struct explore_result *result);
/* Prints the numbers, and the path if there is one, to standard error. */
void explore_print(const struct explore_model *m, const struct explore_result *result);

#endif
