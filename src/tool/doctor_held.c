/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What a registration takes: time, and memory that is pinned, locked or resident from then on. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tool/doctor.h"
#include "tool/doctor_reality.h"
#include "tool/machine.h"
#include "tool/units.h"

#define LARGE ((uint64_t)1 << 30)

/* As much as can be pinned without harm should on demand turn out to be a pin. */
static uint64_t large(void)
{
	uint64_t room = machine_available() / 4 / (2 << 20) * (2 << 20);

	return room < LARGE ? room : LARGE;
}

static uint64_t grown(uint64_t after, uint64_t before)
{
	return after > before ? after - before : 0;
}

static void hold(struct doctor *d, struct doctor_held *h, enum endpoint_kind kind)
{
	struct machine_memory before, after;
	struct ibv_mr *mr;
	void *addr;

	h->length = large();
	addr = h->length ? machine_map(h->length) : NULL;
	if (!addr) {
		h->err = ENOMEM;
		return;
	}
	before = machine_memory();
	errno = 0;
	h->ns = clock_ns();
	mr = ibv_reg_mr(d->e.pd, addr, h->length,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			(kind == ENDPOINT_ON_DEMAND ? IBV_ACCESS_ON_DEMAND : 0));
	h->err = mr ? 0 : errno ? errno : EIO;
	h->ns = clock_ns() - h->ns;
	after = machine_memory();
	h->pinned = grown(after.pinned, before.pinned);
	h->locked = grown(after.locked, before.locked);
	h->resident = grown(after.resident, before.resident);
	if (mr)
		ibv_dereg_mr(mr);
	machine_unmap(addr, h->length);
}

const struct doctor_held *doctor_held_take(struct doctor *d, enum endpoint_kind kind)
{
	struct doctor_held *h = &d->held[kind];

	if (!h->tried)
		hold(d, h, kind);
	h->tried = true;
	return h;
}

/* Half of the buffer is far beyond what tables of a device take, and far below a pin. */
bool doctor_held_pins(struct doctor *d)
{
	const struct doctor_held *h = doctor_held_take(d, ENDPOINT_ON_DEMAND);

	return !h->err &&
	       (h->pinned >= h->length / 2 || h->locked >= h->length / 2 || h->resident >= h->length / 2);
}

void doctor_held_on_demand(struct doctor *d, struct doctor_result *r)
{
	const struct doctor_held *h = doctor_held_take(d, ENDPOINT_ON_DEMAND);
	char time[UNITS_MAX];

	if (h->err) {
		doctor_say(r, DOCTOR_FAIL, "%s of untouched memory: refused: %s", doctor_bytes(h->length),
			strerror(h->err));
		doctor_mean(r, "A small region can be registered on demand, a large one cannot.");
		doctor_advise(r, "%s",
			h->err == ENOMEM
				? "If VmPin of the process grows, this device pins on-demand regions and "
				  "meets the limit on locked memory; see the limit in the memory group."
				: "Register smaller pieces, and read the kernel log.");
		return;
	}
	doctor_say(r, doctor_held_pins(d) ? DOCTOR_FAIL : DOCTOR_OK,
		"%s of untouched memory in %s: VmPin +%s, VmLck +%s, VmRSS +%s", doctor_bytes(h->length),
		units_time(time, h->ns), doctor_bytes(h->pinned), doctor_bytes(h->locked),
		doctor_bytes(h->resident));
	if (!doctor_held_pins(d))
		return;
	doctor_mean(r,
		"The device takes IBV_ACCESS_ON_DEMAND and pins the memory all the same: a silent pin. "
		"Registration "
		"is as slow and takes as much as without on-demand paging, and memory that the program gives "
		"back goes on being used by the device under its feet.");
	if (d->device.kind == DOCTOR_KIND_UNPIN)
		doctor_advise(r,
			"This device imitates such firmware because UNPIN_PROFILE=%s is set. Unset the "
			"variable, or set "
			"it to unpin.",
			getenv("UNPIN_PROFILE") ? getenv("UNPIN_PROFILE") : "");
	else
		doctor_advise(r,
			"Update the card's firmware and the driver. Until this check passes, treat the "
			"device as one "
			"without on-demand paging: size the limit on locked memory for all buffers.");
}

void doctor_held_pinned(struct doctor *d, struct doctor_result *r)
{
	const struct doctor_held *h = doctor_held_take(d, ENDPOINT_PINNED);
	const struct doctor_held *on_demand = &d->held[ENDPOINT_ON_DEMAND];
	char time[UNITS_MAX], times[64] = "";

	if (h->err) {
		doctor_say(r, DOCTOR_WARN, "%s: refused: %s", doctor_bytes(h->length), strerror(h->err));
		doctor_mean(r, "Pinned regions of this size cannot be had; on-demand regions do not need the "
			       "limit that stands "
			       "in the way.");
		doctor_advise(
			r, "If the program pins, raise the limit on locked memory (see the memory group).");
		return;
	}
	if (on_demand->tried && !on_demand->err && on_demand->ns && !doctor_held_pins(d))
		snprintf(times, sizeof(times), ", %llu times as long as on demand",
			(unsigned long long)(h->ns / on_demand->ns));
	doctor_say(r, DOCTOR_OK, "%s in %s%s: VmPin +%s, VmLck +%s, VmRSS +%s", doctor_bytes(h->length),
		units_time(time, h->ns), times, doctor_bytes(h->pinned), doctor_bytes(h->locked),
		doctor_bytes(h->resident));
}
