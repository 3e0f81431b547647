/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/notifier.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "mm/facility.h"
#include "mm/uffd.h"

static _Atomic int in_use = NOTIFIER_NONE;

static int try_userfaultfd(mm_observer *observer)
{
	int err = uffd_open(observer);
	const char *why;

	if (!err)
		return 0;
	why = mm_facility_why_not(MM_UFFD);
	log_warn("the notifier userfaultfd cannot be had (%s); using interpose", why ? why : strerror(-err));
	return err;
}

enum setting_notifier notifier_start(enum setting_notifier wanted, mm_observer *observer)
{
	if (wanted == NOTIFIER_USERFAULTFD && try_userfaultfd(observer))
		wanted = NOTIFIER_INTERPOSE;
	atomic_store(&in_use, wanted);
	if (wanted != NOTIFIER_NONE)
		interpose_observe(observer);
	return wanted;
}

void notifier_stop(void)
{
	interpose_observe(NULL);
	if (atomic_exchange(&in_use, NOTIFIER_NONE) == NOTIFIER_USERFAULTFD)
		uffd_close();
}

void notifier_abandon(void)
{
	interpose_observe(NULL);
	if (atomic_exchange(&in_use, NOTIFIER_NONE) == NOTIFIER_USERFAULTFD)
		uffd_abandon();
}

const char *notifier_name(void)
{
	switch (atomic_load(&in_use)) {
	case NOTIFIER_INTERPOSE:
		return "interpose";
	case NOTIFIER_USERFAULTFD:
		return uffd_active() ? "userfaultfd" : "interpose";
	default:
		return "none";
	}
}

void notifier_cover(const struct vma *vma)
{
	if (atomic_load_explicit(&in_use, memory_order_relaxed) == NOTIFIER_USERFAULTFD)
		uffd_cover(vma);
}
