/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Taking trees away (sysfs/tree.h). System calls only. */
#ifndef UNPIN_SYSFS_REMOVE_H
#define UNPIN_SYSFS_REMOVE_H

#include <stdbool.h>

/* Removes a tree of this user's, whoever may hold it. Links are not followed. */
void sysfs_remove(int base, const char *name);

/*
 * Removes a tree of this user's if nobody holds it. It gets another name first, so that nobody finds one that
 * is half gone.
 */
void sysfs_remove_unheld(int base, const char *name);

/* The same for all trees in the directory but the one that is kept. */
void sysfs_sweep(int base, const char *keep);

/* A directory entry's name each, without "." and ".."; until tell() returns false. */
void sysfs_each_name(int dir, bool (*tell)(void *arg, const char *name), void *arg);

/* Opens a directory that is this user's and that nobody else can write to; or a negative errno. */
int sysfs_open_own(int base, const char *name);

/* A name for a tree that is being made or removed: nobody looks for it. */
void sysfs_private_name(char *name, unsigned long size);

#endif
