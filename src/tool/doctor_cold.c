/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Cold pages: whether they are brought in when the device touches them, followed when they go, and counted.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/attach.h"
#include "tool/doctor.h"
#include "tool/doctor_pair.h"
#include "tool/doctor_reality.h"
#include "tool/doctor_region.h"
#include "tool/machine.h"
#include "tool/units.h"

#define COLD_PAGES 256

/* A pair, a pinned or on-demand source with a pattern, and COLD_PAGES of untouched on-demand memory. */
struct cold {
	struct doctor *d;
	struct doctor_pair pair;
	struct doctor_region from;
	unsigned char *addr;
	size_t length;
	struct ibv_mr *mr;
	const char *why;
};

static bool cold_open(struct cold *c, struct doctor *d)
{
	memset(c, 0, sizeof(*c));
	c->d = d;
	c->length = COLD_PAGES * (size_t)getpagesize();
	c->addr = machine_map(c->length);
	if (doctor_pair_open(&c->pair, &d->e, IBV_QPT_RC, false)) {
		c->why = c->pair.why;
		return false;
	}
	if (!doctor_region_any(d, &c->from, false)) {
		c->why = "cannot register the memory to send from";
		return false;
	}
	for (size_t i = 0; i < c->from.length; i++)
		c->from.addr[i] = doctor_region_pattern(i);
	c->mr = c->addr ? doctor_region_register(d, c->addr, c->length, IBV_ACCESS_ON_DEMAND) : NULL;
	if (!c->mr)
		c->why = "cannot register the cold memory";
	return c->mr;
}

static void cold_close(struct cold *c)
{
	if (c->mr)
		ibv_dereg_mr(c->mr);
	doctor_region_drop(&c->from);
	doctor_pair_close(&c->pair);
	machine_unmap(c->addr, c->length);
}

/* Pages of the cold memory that are there. */
static size_t cold_resident(const struct cold *c)
{
	unsigned char in[COLD_PAGES];
	size_t n = 0;

	if (mincore(c->addr, c->length, in))
		return 0;
	for (size_t i = 0; i < COLD_PAGES; i++)
		n += in[i] & 1;
	return n;
}

/* A few bytes at the start of a page, which also devices get right that confuse offsets or packets: those are
 * the data check's. */
#define COLD_BYTES 64

static int cold_write(struct cold *c, size_t page)
{
	struct doctor_transfer t = {
		.opcode = IBV_WR_RDMA_WRITE,
		.local = { c->from.addr, c->from.mr->lkey },
		.remote = { c->addr + page * (size_t)getpagesize(), c->mr->rkey },
		.length = COLD_BYTES,
	};
	int err = doctor_pair_do(&c->pair, &t);

	if (err)
		c->why = c->pair.why;
	return err;
}

static bool cold_arrived(const struct cold *c, size_t page)
{
	return memcmp(c->addr + page * (size_t)getpagesize(), c->from.addr, COLD_BYTES) == 0;
}

static void cannot(struct doctor_result *r, const struct cold *c)
{
	doctor_say(r, DOCTOR_FAIL, "%s", c->why);
	doctor_mean(r, "The attempt did not get as far as an access to a cold page.");
	doctor_advise(r,
		"See whether pinned memory works: 'ibv_rc_pingpong -d %s -g 0' in two terminals, one with "
		"the name of "
		"this host behind it.",
		c->d->device.name);
}

void doctor_cold_access(struct doctor *d, struct doctor_result *r)
{
	struct cold c;
	size_t before, after;
	uint64_t ns;
	char time[UNITS_MAX];

	if (!cold_open(&c, d)) {
		cannot(r, &c);
		cold_close(&c);
		return;
	}
	before = cold_resident(&c);
	ns = clock_ns();
	if (cold_write(&c, 7)) {
		doctor_say(
			r, DOCTOR_FAIL, "an RDMA WRITE to a page that was never touched failed: %s", c.why);
		doctor_mean(r, "The device does not resolve page faults, which is what on-demand paging is.");
		doctor_advise(r, "Read the kernel log for messages of the driver about page faults; with a "
				 "timeout (\"transport retry "
				 "counter exceeded\") update the firmware. Do not use on-demand memory until "
				 "this passes.");
		cold_close(&c);
		return;
	}
	ns = clock_ns() - ns;
	after = cold_resident(&c);
	if (!cold_arrived(&c, 7)) {
		doctor_say(r, DOCTOR_FAIL,
			"an RDMA WRITE to a page that was never touched completed, and the data is not "
			"there");
		doctor_mean(r, "Data is lost without an error.");
		doctor_advise(r, "Do not use on-demand memory on this device.");
	} else if (before == COLD_PAGES) {
		doctor_say(r, DOCTOR_FAIL, "all %d pages were there before the first access", COLD_PAGES);
		doctor_mean(r,
			"The registration brought in (and keeps) every page: it is a pin by another name.");
		doctor_advise(r, "See the check of on-demand registration above.");
	} else {
		doctor_say(r, DOCTOR_OK,
			"an RDMA WRITE to one of %d untouched pages completed in %s; pages in memory: %zu "
			"before, %zu after",
			COLD_PAGES, units_time(time, ns), before, after);
	}
	cold_close(&c);
}

void doctor_cold_follows(struct doctor *d, struct doctor_result *r)
{
	size_t page = (size_t)getpagesize();
	const char *lost = NULL;
	struct cold c;

	if (!cold_open(&c, d)) {
		cannot(r, &c);
		cold_close(&c);
		return;
	}
	if (!cold_write(&c, 3)) {
		madvise(c.addr + 3 * page, page, MADV_DONTNEED);
		if (!cold_write(&c, 3) && !cold_arrived(&c, 3))
			lost = "MADV_DONTNEED";
		if (!c.why && !lost &&
			mmap(c.addr + 3 * page, page, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED &&
			!cold_write(&c, 3) && !cold_arrived(&c, 3))
			lost = "a new mapping at the same address";
	}
	if (c.why) {
		doctor_say(r, DOCTOR_FAIL, "an RDMA WRITE failed: %s", c.why);
		doctor_mean(r, "The device does not get over the loss of a page that it had used.");
		doctor_advise(r, "Do not use on-demand memory that is given back or mapped anew while it is "
				 "registered.");
	} else if (lost) {
		doctor_say(
			r, DOCTOR_FAIL, "after %s the device writes to the page that was there before", lost);
		doctor_mean(r, "The data goes where nobody looks, without an error. That is how pinned "
			       "memory behaves: the region is "
			       "not on demand, whatever the device says.");
		doctor_advise(r, "Treat the device as one without on-demand paging: deregister memory before "
				 "giving it back.");
	} else {
		doctor_say(r, DOCTOR_OK,
			"after MADV_DONTNEED and after a new mapping, RDMA WRITEs reach the new page");
	}
	cold_close(&c);
}

/* The page faults of our own device's region, from the segment that this process exports. */
static int own_faults(const struct cold *c, uint64_t *faults)
{
	struct attach a;
	int err = attach_open(&a, getpid());

	if (err)
		return err;
	err = attach_read(&a);
	if (!err)
		err = -ENODATA;
	for (uint32_t i = 0; err == -ENODATA && i < a.copy->regions_high; i++)
		if (a.copy->region[i].kind == UNPIN_REGION_ODP && a.copy->region[i].rkey == c->mr->rkey) {
			*faults = a.copy->region[i].odp.page_faults;
			err = 0;
		}
	attach_close(&a);
	return err;
}

static int count_faults(const struct cold *c, uint64_t *faults, char *from, size_t size)
{
	if (c->d->device.kind == DOCTOR_KIND_UNPIN) {
		snprintf(from, size, "unpin's segment");
		return own_faults(c, faults);
	}
	return doctor_counters_faults(c->d, faults, from, size);
}

void doctor_cold_counters(struct doctor *d, struct doctor_result *r)
{
	uint64_t before = 0, after = 0;
	char from[128] = "";
	struct cold c;
	int err;

	if (doctor_held_pins(d)) {
		doctor_say(r, DOCTOR_NA, "on-demand regions are pinned on this device");
		return;
	}
	if (!cold_open(&c, d)) {
		cannot(r, &c);
		cold_close(&c);
		return;
	}
	err = count_faults(&c, &before, from, sizeof(from));
	if (!err && !cold_write(&c, 5))
		err = count_faults(&c, &after, from, sizeof(from));
	cold_close(&c);
	if (err) {
		doctor_say(r, DOCTOR_WARN, "there is no counter of page faults for this device (%s)",
			strerror(-err));
		doctor_mean(r, "On-demand paging cannot be watched on it: whether a slow request waited for "
			       "a page fault will not be "
			       "told.");
		doctor_advise(r,
			"Watch the process instead: minflt and majflt of ps(1), VmRSS in /proc/PID/status. "
			"('rdma statistic "
			"show mr' has the counters where the driver has them: mlx5, from Linux 5.5 on.)");
		return;
	}
	if (after > before) {
		doctor_say(r, DOCTOR_OK,
			"page_faults went from %llu to %llu with one access to a cold page (%s)",
			(unsigned long long)before, (unsigned long long)after, from);
		return;
	}
	doctor_say(r, DOCTOR_WARN, "page_faults stayed at %llu during an access to a cold page (%s)",
		(unsigned long long)before, from);
	doctor_mean(r, "Either the counter does not count, or the page was not cold for the device: then the "
		       "region is pinned.");
	doctor_advise(r, "If the check of on-demand registration passed, do not rely on this counter.");
}
