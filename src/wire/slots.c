/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/slots.h"

#include <string.h>

void slots_init(struct slots *s)
{
	memset(s, 0, sizeof(*s));
	for (uint32_t i = 0; i < WIRE_SLOTS; i++)
		s->free_account[i] = (uint8_t)(WIRE_SLOTS - 1 - i);
	s->nfree_account = WIRE_SLOTS;
}

void slots_allocated(struct slots *s, uint32_t n)
{
	while (n--)
		s->free[s->nfree++] = (uint8_t)s->allocated++;
}

bool slots_allowed(const struct slots *s, uint32_t held, bool response)
{
	uint32_t left = WIRE_SLOTS - s->used, kept = response ? 0 : SLOTS_RESPONSES;
	uint32_t aside = s->least < SLOTS_FLOWS * SLOTS_LEAST ? SLOTS_FLOWS * SLOTS_LEAST - s->least : 0;

	left = left > kept ? left - kept : 0;
	if (held < SLOTS_LEAST)
		return left > 0;
	return left > aside && held < left - aside;
}

uint32_t slots_take(struct slots *s, struct wire_flow *f)
{
	uint32_t slot = s->free[--s->nfree];
	struct slots_account *a;

	/* Every account in use holds a slot, so there are as many accounts as slots and one is free. */
	if (!f->held)
		f->account = s->free_account[--s->nfree_account];
	a = &s->account[f->account];
	a->flow = f;
	a->held++;
	f->held = a->held;
	if (a->held <= SLOTS_LEAST)
		s->least++;
	s->owner[slot] = (uint8_t)f->account;
	s->used++;
	return slot;
}

void slots_sent(struct slots *s, uint32_t slot)
{
	s->inflight[slot / 64] |= 1ull << slot % 64;
}

void slots_give(struct slots *s, uint32_t slot)
{
	struct slots_account *a = &s->account[s->owner[slot]];

	if (a->held-- <= SLOTS_LEAST)
		s->least--;
	if (a->flow)
		a->flow->held = a->held;
	if (!a->held) {
		a->flow = NULL;
		s->free_account[s->nfree_account++] = s->owner[slot];
	}
	s->used--;
	s->free[s->nfree++] = (uint8_t)slot;
}

static uint32_t collect_word(struct slots *s, uint32_t i, uint64_t bits)
{
	uint32_t n = 0;

	bits &= s->inflight[i];
	s->inflight[i] &= ~bits;
	for (; bits; bits &= bits - 1, n++)
		slots_give(s, i * 64 + (uint32_t)__builtin_ctzll(bits));
	return n;
}

uint32_t slots_collect(struct slots *s, _Atomic uint64_t *released)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < WIRE_SLOTS / 64; i++)
		if (atomic_load(&released[i]))
			n += collect_word(s, i, atomic_exchange(&released[i], 0));
	return n;
}

void slots_forget(struct slots *s, struct wire_flow *f)
{
	if (f->held)
		s->account[f->account].flow = NULL;
	f->held = 0;
}
