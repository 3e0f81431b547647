/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the timeline costs per event, in processor time, so that other work on the machine is not ours: the
 * thread that records moments (less the same loop while off), the writer, and the formatting at the end.
 * Events come at a pace, as they do from a program that does something else, too. Usage: trace_record
 * [events] [ns between them].
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/trace.h"
#include "base/trace_clock.h"

static uint64_t cpu_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Four events, as a round trip has, then a wait. */
static void loop(uint64_t n, uint64_t apart)
{
	for (uint64_t i = 0; i < n; i += 4) {
		uint64_t until = clock_ns() + 4 * apart;

		for (unsigned k = 0; k < 4; k++)
			trace_point(TRACE_COMPLETION, 17, i + k);
		while (clock_ns() < until)
			;
	}
}

/* The recording alone: what four events take, by the clock that they are stamped with. */
static double recording(uint64_t n, uint64_t apart)
{
	uint64_t best = UINT64_MAX, sum = 0, counted = 0;

	for (uint64_t i = 0; i < n; i += 4) {
		uint64_t until = clock_ns() + 4 * apart, began = clock_ns(), took;

		for (unsigned k = 0; k < 4; k++)
			trace_point(TRACE_COMPLETION, 17, i + k);
		took = clock_ns() - began;
		best = took < best ? took : best;
		/* Longer ones were interrupted. */
		if (took < 10 * best) {
			sum += took;
			counted++;
		}
		while (clock_ns() < until)
			;
	}
	return (double)sum / (double)counted / 4;
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 0) : 4000000;
	uint64_t apart = argc > 2 ? strtoull(argv[2], NULL, 0) : 400;
	char path[] = "/tmp/trace_record.XXXXXX";
	uint64_t mine, all, writer, format;
	double off, on;
	struct stat st;
	int fd = mkstemp(path);

	if (fd < 0 || !n)
		return 1;
	close(fd);
	off = recording(n, apart);
	if (trace_open(path))
		return 1;
	mine = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
	all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
	on = recording(n / 2, apart);
	loop(n / 2, apart);
	writer = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all - (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - mine);
	mine = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
	trace_close();
	format = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - mine;
	if (stat(path, &st))
		return 1;
	unlink(path);
	printf("record %6.1f ns   writer %6.1f ns   format %6.1f ns   text %5.1f bytes, per event\n",
		on - off, (double)writer / (double)n, (double)format / (double)n,
		(double)st.st_size / (double)n);
	return 0;
}
