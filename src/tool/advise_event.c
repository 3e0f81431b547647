/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/advise_event.h"

#include <stdlib.h>
#include <string.h>

#include "tool/units.h"

/* --- values: whatever the file says
 * ---------------------------------------------------------------------------- */

json_object *advise_member(json_object *o, const char *key)
{
	json_object *v;

	return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &v) ? v : NULL;
}

uint64_t advise_number(json_object *o, const char *key)
{
	json_object *v = advise_member(o, key);

	if (json_object_is_type(v, json_type_int))
		return json_object_get_int64(v) < 0 ? 0 : json_object_get_uint64(v);
	if (json_object_is_type(v, json_type_double)) {
		double d = json_object_get_double(v);

		return d < 1e18 ? units_whole(d) : 0;
	}
	if (json_object_is_type(v, json_type_string) && strncmp(json_object_get_string(v), "0x", 2) == 0)
		return strtoull(json_object_get_string(v), NULL, 16);
	return 0;
}

const char *advise_text(json_object *o, const char *key)
{
	json_object *v = advise_member(o, key);

	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
}

static uint32_t kind_named(const char *name)
{
	return strcmp(name, "pinned") == 0     ? UNPIN_REGION_PINNED
	       : strcmp(name, "odp") == 0      ? UNPIN_REGION_ODP
	       : strcmp(name, "implicit") == 0 ? UNPIN_REGION_IMPLICIT
					       : UNPIN_REGION_NONE;
}

static void take_slices(struct advise_region *r, json_object *args)
{
	json_object *list = advise_member(args, "slices");
	uint64_t bytes = advise_number(args, "slice_bytes");

	if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) > USAGE_SLICES ||
		bytes < ADVISE_PAGE || (bytes & (bytes - 1)))
		return;
	r->slice_bytes = bytes;
	r->base = r->addr / ADVISE_PAGE * ADVISE_PAGE;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		int64_t n = json_object_get_int64(json_object_array_get_idx(list, i));

		r->slice[i] = n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
	}
}

bool advise_event_region(struct advise_region *r, json_object *args)
{
	uint64_t most;

	memset(r, 0, sizeof(*r));
	r->kind = kind_named(advise_text(args, "kind"));
	r->addr = advise_number(args, "addr");
	r->length = advise_number(args, "length");
	r->access = (uint32_t)advise_number(args, "access");
	if (r->kind == UNPIN_REGION_NONE || !r->length || r->addr + (r->length - 1) < r->addr)
		return false;
	r->places = 1;
	r->register_ns = advise_number(args, "register_ns");
	for (int i = 0; i < ADVISE_COUNTERS; i++)
		r->odp[i] = advise_number(args, advise_counter_names[i]);
	r->accesses = advise_number(args, "accesses");
	r->sequential = advise_number(args, "sequential");
	r->sequential = r->sequential < r->accesses ? r->sequential : r->accesses;
	r->pages = advise_number(args, "pages");
	most = r->length / ADVISE_PAGE + 2;
	r->pages = r->pages < most ? r->pages : most;
	take_slices(r, args);
	return true;
}
