/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Values out of the events of a timeline, which may hold anything: what makes no sense is nothing. */
#ifndef UNPIN_TOOL_ADVISE_EVENT_H
#define UNPIN_TOOL_ADVISE_EVENT_H

#include <json-c/json.h>

#include "tool/advise.h"

/* NULL: there is none, or o is no object. */
json_object *advise_member(json_object *o, const char *key);
/* A number that is not negative, or a text of one in hexadecimal ("0x..."); otherwise 0. */
uint64_t advise_number(json_object *o, const char *key);
/* "": there is none. Good as long as o. */
const char *advise_text(json_object *o, const char *key);

/* What the arguments of an event "region" or "past_region" say; times, lived_ns and what belongs to a look
 * are left 0. false: they make no sense. */
bool advise_event_region(struct advise_region *r, json_object *args);

#endif
