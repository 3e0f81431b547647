/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/state.h"

#include <stdlib.h>

#include "base/log.h"

/* The bytes that occur, by kind. PAGE_FILE makes no difference to what is legal. */
enum kind { INVALID, FAULTING, DIRTY, VALID_RO, VALID_RW, NONSENSE };

#define TO(kind) (1u << (kind))

static const char *const kind_names[] = { "invalid", "faulting", "faulting and dirty", "valid read-only",
	"valid read-write", "nonsense" };

static const char *const actor_names[PAGE_ACTORS] = {
	[PAGE_RAISE] = "raise",
	[PAGE_MAP] = "map",
	[PAGE_AGAIN] = "again",
	[PAGE_GIVE_UP] = "give up",
	[PAGE_DROP] = "drop",
	[PAGE_FORK] = "fork",
};

/* Rows: who; columns: from; value: what it may become, beside staying as it is. */
static const uint8_t legal[PAGE_ACTORS][NONSENSE] = {
	[PAGE_RAISE] = { [INVALID] = TO(FAULTING), [VALID_RO] = TO(FAULTING) },
	[PAGE_MAP] = { [FAULTING] = TO(VALID_RO) | TO(VALID_RW) },
	[PAGE_AGAIN] = { [DIRTY] = TO(FAULTING) },
	[PAGE_GIVE_UP] = { [FAULTING] = TO(INVALID), [DIRTY] = TO(INVALID) },
	[PAGE_DROP] = { [FAULTING] = TO(DIRTY), [VALID_RO] = TO(INVALID), [VALID_RW] = TO(INVALID) },
	[PAGE_FORK] = { [FAULTING] = TO(DIRTY), [VALID_RW] = TO(VALID_RO) },
};

static enum kind kind_of(uint8_t byte)
{
	if (byte & ~(PAGE_STATE | PAGE_DIRTY | PAGE_FILE))
		return NONSENSE;
	switch ((enum page_state)(byte & PAGE_STATE)) {
	case PAGE_INVALID:
		return byte ? NONSENSE : INVALID;
	case PAGE_FAULTING:
		return byte & PAGE_FILE ? NONSENSE : byte & PAGE_DIRTY ? DIRTY : FAULTING;
	case PAGE_VALID_RO:
		return byte & PAGE_DIRTY ? NONSENSE : VALID_RO;
	case PAGE_VALID_RW:
		return byte & PAGE_DIRTY ? NONSENSE : VALID_RW;
	}
	return NONSENSE;
}

bool page_move_legal(enum page_actor actor, uint8_t from, uint8_t to)
{
	enum kind f = kind_of(from), t = kind_of(to);

	if (f == NONSENSE || t == NONSENSE)
		return false;
	return from == to || (legal[actor][f] & TO(t));
}

void page_moves_check(enum page_actor actor, uint64_t from, uint64_t to)
{
	for (unsigned i = 0; i < 8; i++) {
		uint8_t f = (uint8_t)(from >> (8 * i)), t = (uint8_t)(to >> (8 * i));

		if (page_move_legal(actor, f, t))
			continue;
		log_error("device page table: %s turned a page from %s (%#x) to %s (%#x)", actor_names[actor],
			kind_names[kind_of(f)], f, kind_names[kind_of(t)], t);
		abort();
	}
}
