/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define APART_MOST 9e18 /* nanoseconds: what a signed number holds */

_Atomic bool trace_clock_counter;

void trace_clock_choose(void)
{
	char name[8] = "";
	int fd = open(
		"/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, name, sizeof(name) - 1) != 4)
		name[0] = 0;
	if (fd >= 0)
		fd_close(fd);
	atomic_store(&trace_clock_counter, strcmp(name, "tsc\n") == 0);
}

struct trace_instant trace_clock_look(void)
{
	struct trace_instant best = { 0 };
	uint64_t least = UINT64_MAX;

	/* The best of some: this thread may lose the processor in between. */
	for (int i = 0; i < 5; i++) {
		uint64_t before = trace_clock_ticks(), ns = clock_ns(), apart = trace_clock_ticks() - before;

		if (apart < least) {
			least = apart;
			best = (struct trace_instant){ before + apart / 2, ns };
		}
	}
	return best;
}

struct trace_scale trace_clock_scale(struct trace_instant from, struct trace_instant to)
{
	struct trace_scale s = { .at = to };

	if (to.ticks > from.ticks && to.ns > from.ns)
		s.ns_per_tick = (double)(to.ns - from.ns) / (double)(to.ticks - from.ticks);
	return s;
}

uint64_t trace_clock_ns(const struct trace_scale *s, uint64_t ticks)
{
	double apart = (double)(int64_t)(ticks - s->at.ticks) * s->ns_per_tick;

	if (apart > APART_MOST || apart < -APART_MOST)
		return s->at.ns;
	return s->at.ns + (uint64_t)(int64_t)apart;
}
