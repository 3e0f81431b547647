/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The names of slots: taking one, and calling who has it.
 *
 * Anybody may bind any abstract name, so another user can hold every plain one
 * ("unpin/<euid>/<device>/<slot>", meet.h). The slots from LAYOUT_APART on therefore have names with a random
 * end, 16 hexadecimal digits behind one more slash, which nobody can hold beforehand. They are taken when no
 * plain name is free. Peers find such a name in the kernel's list of sockets (sock_diag(7)), which also tells
 * who made each.
 *
 * No state, any thread, nothing blocks. The list is as long as the network namespace's is.
 */
#ifndef UNPIN_WIRE_NAMES_H
#define UNPIN_WIRE_NAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/meet.h"

/* A listening socket on a free slot, whose number is stored. -EADDRINUSE: there is none, or none but those
 * that have to be looked up where the kernel refuses that (a warning says so); others (descriptors). */
int names_listen(uid_t euid, const char *device, uint32_t *slot);
/* A socket connected to the slot's owner, as meet_connect(); also what names_find() fails with. */
int names_call(uid_t euid, const char *device, uint32_t slot);
/* A name for a slot from LAYOUT_APART on. -ENAMETOOLONG, -EINVAL as meet_name(). */
int names_make(struct meet_name *n, uid_t euid, const char *device, uint32_t slot);
/* Names of such a slot on which a process of this user listens: how many there are, of which the first max
 * are stored; or a negative errno (-EPERM, -EAFNOSUPPORT, ...: the kernel, or a filter, refuses the list). */
int names_find(uid_t euid, const char *device, uint32_t slot, struct meet_name *found, int max);
/* May processes of other users have this number too? It then stands for all users whom our user namespace
 * does not map (user_namespaces(7)). */
bool names_user_is_vague(uid_t euid);

#endif
