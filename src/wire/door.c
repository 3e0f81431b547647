/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/door.h"

#include <errno.h>
#include <unistd.h>

#include "base/fd.h"
#include "wire/sealed.h"

int door_open(struct door *d, bool lossy)
{
	void *map;
	int err, fd = sealed_make("unpin-door", LAYOUT_DOOR_BYTES, true, &map);

	if (fd < 0)
		return fd;
	err = sealed_populate(map, 0, LAYOUT_DOOR_BYTES, fd);
	if (err < 0) {
		sealed_unmap(map, LAYOUT_DOOR_BYTES);
		fd_close(fd);
		return err;
	}
	d->page = map;
	d->fd = fd;
	atomic_store(&d->page->version, LAYOUT_VERSION);
	atomic_store(&d->page->lossy, lossy);
	atomic_store(&d->page->state, 0);
	atomic_store(&d->page->magic, LAYOUT_DOOR_MAGIC);
	return 0;
}

void door_close(struct door *d)
{
	sealed_unmap(d->page, LAYOUT_DOOR_BYTES);
	d->page = NULL;
}

void door_arm(struct door *d)
{
	uint64_t state = atomic_load(&d->page->state);

	/* A new number each time: a peer that has woken the last arming must wake this one too. */
	while (!atomic_compare_exchange_weak(&d->page->state, &state, (((state >> 1) + 1) << 1) | 1))
		;
}

void door_disarm(struct door *d)
{
	/* Read first: pollers call this often, and the line is in every peer's cache. */
	if (atomic_load(&d->page->state) & 1)
		atomic_fetch_and(&d->page->state, ~1ull);
}

bool door_armed(const struct door *d)
{
	return atomic_load(&d->page->state) & 1;
}

int doorbell_open(struct doorbell *b, int fd)
{
	void *map;
	int err = sealed_map(fd, LAYOUT_DOOR_BYTES, false, &map);

	if (err)
		return err;
	b->page = map;
	atomic_store(&b->rung, 0);
	b->lossy = atomic_load(&b->page->lossy) != 0;
	if (atomic_load(&b->page->magic) == LAYOUT_DOOR_MAGIC &&
		atomic_load(&b->page->version) == LAYOUT_VERSION)
		return 0;
	doorbell_close(b);
	return -EPROTO;
}

void doorbell_close(struct doorbell *b)
{
	sealed_unmap(b->page, LAYOUT_DOOR_BYTES);
	b->page = NULL;
}
