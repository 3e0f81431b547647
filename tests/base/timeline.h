/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the tests of the timeline share: a folder of each case's own, with the names of a timeline and its
 * spool in it, and a timeline read back with json-c.
 */
#ifndef UNPIN_TESTS_TIMELINE_H
#define UNPIN_TESTS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>
#include <json-c/json.h>

extern char timeline_folder[64], timeline_path[128], timeline_spool[136], timeline_copy[136];

/* Of every case. */
int timeline_make(void **state);
int timeline_unmake(void **state);

/* The array that the file is, or the case fails. The caller puts it. */
json_object *timeline_read(const char *name);
/* A member of an event: "" or -1 when it is not there. */
const char *timeline_text(json_object *event, const char *key);
double timeline_number(json_object *event, const char *key);
/* Of its arguments; must be there. */
json_object *timeline_argument(json_object *event, const char *key);
/* The nth event of that name, or NULL. */
json_object *timeline_find(json_object *file, const char *name, size_t nth);
size_t timeline_count(json_object *file, const char *name);
/* What the last counter says; there must be one. */
int64_t timeline_dropped(json_object *file);

#endif
