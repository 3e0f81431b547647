/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How the time of a first touch is distributed: faults that need no I/O, and faults that do. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/alloc.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define PAGE	      4096u
#define PAGES	      16384u /* 64 MiB: a power of two, for machine_scatter */
#define TMPFS	      0x01021994
#define RAMFS	      0x858458f6
#define SAMPLES_QUICK 400u
#define SAMPLES_FULL  4000u
#define CURVE_POINTS  200u
#define SEED	      91

enum speed { MINOR, MAJOR, SPEEDS };
enum toucher { DEVICE, PROCESSOR, TOUCHERS };

enum column { FAULT, TOUCHER, P50, P90, P99, P999, MAX, SAMPLES, KERNEL, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[FAULT] = { "fault", NULL, "<fault" },
	[TOUCHER] = { "toucher", NULL, "<first touched by" },
	[P50] = { "p50", "us", "p50 us" },
	[P90] = { "p90", "us", "p90 us" },
	[P99] = { "p99", "us", "p99 us" },
	[P999] = { "p999", "us", "p99.9 us" },
	[MAX] = { "max", "us", "max us" },
	[SAMPLES] = { "samples", "count", "samples" },
	[KERNEL] = { "kernel_major", "count", "major by the kernel" },
};

static const char *const speeds[SPEEDS] = { "minor", "major" };
static const char *const touchers[TOUCHERS] = { "the device", "a processor" };

struct distribution {
	struct bench *b;
	struct ibv_qp *loop;
	struct endpoint_region local, memory[SPEEDS];
	int file;
	unsigned samples;
	char no_file[256]; /* why there are no major faults */
	struct sample time[SPEEDS][TOUCHERS];
	uint64_t majors[SPEEDS][TOUCHERS];
};

static uint64_t kernel_majors(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)u.ru_majflt;
}

/* --- memory ------------------------------------------------------------------------------------------------
 */

/* A file that is on a disk, not in memory, and has no name. -1 with a sentence in no_file. */
static int make_file(struct distribution *d)
{
	const char *folders[] = { getenv("TMPDIR"), "/var/tmp", "/tmp", "." };
	struct statfs fs;

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		char path[512];
		int fd;

		if (!folders[i] || statfs(folders[i], &fs) || fs.f_type == TMPFS || fs.f_type == RAMFS)
			continue;
		snprintf(path, sizeof(path), "%.480s/unpin-bench-XXXXXX", folders[i]);
		fd = mkostemp(path, O_CLOEXEC);
		if (fd < 0)
			continue;
		unlink(path);
		return fd;
	}
	snprintf(d->no_file, sizeof(d->no_file),
		"a file on a disk is needed, and neither TMPDIR nor /var/tmp nor /tmp is a folder on one "
		"that can be "
		"written");
	return -1;
}

static int fill_file(struct distribution *d)
{
	const size_t chunk = 1 << 20;
	char *bytes = alloc_array(1, chunk);
	int err = 0;

	for (size_t at = 0; !err && at < (size_t)PAGES * PAGE; at += chunk) {
		for (size_t page = 0; page < chunk; page += PAGE)
			machine_fill(bytes + page, 8, SEED + (at + page) / PAGE);
		if (pwrite(d->file, bytes, chunk, (off_t)at) != (ssize_t)chunk)
			err = errno ? -errno : -ENOSPC;
	}
	if (!err && fsync(d->file))
		err = -errno;
	free(bytes);
	return err;
}

/* The file's pages leave the cache, so that the next touch of each reads the disk. */
static void forget_file(struct distribution *d)
{
	madvise(d->memory[MAJOR].addr, (size_t)PAGES * PAGE, MADV_DONTNEED);
	posix_fadvise(d->file, 0, 0, POSIX_FADV_DONTNEED);
}

static int make_major(struct distribution *d)
{
	struct endpoint_region *r = &d->memory[MAJOR];
	void *addr;
	int err;

	d->file = make_file(d);
	if (d->file < 0)
		return 0;
	err = fill_file(d);
	if (err) {
		snprintf(d->no_file, sizeof(d->no_file), "cannot write a file of 64 MiB: %s", strerror(-err));
		return 0;
	}
	addr = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, d->file, 0);
	if (addr == MAP_FAILED)
		return bench_fail(d->b, -errno, "cannot map a file: %s", strerror(errno));
	/* One page per read. */
	madvise(addr, (size_t)PAGES * PAGE, MADV_RANDOM);
	err = endpoint_region_register(&d->b->e, r, addr, (size_t)PAGES * PAGE, ENDPOINT_ON_DEMAND);
	return bench_fail_endpoint(d->b, err);
}

static int make(struct distribution *d)
{
	struct endpoint *e = &d->b->e;
	int err = endpoint_loop(e, &d->loop);

	if (!err)
		err = endpoint_region_make(e, &d->local, PAGE, ENDPOINT_ON_DEMAND);
	if (!err)
		err = endpoint_region_make(e, &d->memory[MINOR], (size_t)PAGES * PAGE, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(d->b, err);
	machine_touch(d->local.addr, PAGE);
	return make_major(d);
}

static void unmake(struct distribution *d)
{
	if (d->loop)
		ibv_destroy_qp(d->loop);
	endpoint_region_release(&d->local);
	for (int s = 0; s < SPEEDS; s++)
		endpoint_region_release(&d->memory[s]);
	if (d->file >= 0)
		close(d->file);
	for (int s = 0; s < SPEEDS; s++)
		for (int t = 0; t < TOUCHERS; t++)
			sample_free(&d->time[s][t]);
}

/* --- touching ----------------------------------------------------------------------------------------------
 */

/* A word is written into fresh memory, and read from the file. */
static int by_device(struct distribution *d, enum speed s, size_t offset)
{
	struct ibv_qp *usual = d->b->e.qp;
	struct endpoint_op op = { .opcode = s == MINOR ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.local = d->local.addr,
		.lkey = d->local.mr->lkey,
		.length = 8,
		.remote = (uintptr_t)d->memory[s].addr + offset,
		.rkey = d->memory[s].mr->rkey };
	int err;

	d->b->e.qp = d->loop;
	err = endpoint_do(&d->b->e, &op);
	d->b->e.qp = usual;
	return bench_fail_endpoint(d->b, err);
}

static int touch(struct distribution *d, enum speed s, enum toucher t, size_t offset)
{
	volatile uint64_t *word = (volatile uint64_t *)((char *)d->memory[s].addr + offset);
	uint64_t before = kernel_majors(), start = clock_ns();
	int err = 0;

	if (t == DEVICE)
		err = by_device(d, s, offset);
	else if (s == MINOR)
		*word = 1;
	else
		*(volatile uint64_t *)d->local.addr = *word;
	sample_add(&d->time[s][t], BENCH_US(clock_ns() - start));
	d->majors[s][t] += kernel_majors() - before;
	if (!err && s == MAJOR && machine_compare(d->local.addr, 8, SEED + offset / PAGE) < 8)
		err = bench_wrong(d->b, "wrong data was read from a page of a file");
	return err;
}

static int play(struct distribution *d, enum speed s)
{
	int err = 0;

	if (s == MAJOR)
		forget_file(d);
	/* Pages in turn: neither gets another part of the disk. */
	for (unsigned i = 0; !err && i < 2 * d->samples; i++) {
		if (i % 50 == 0)
			bench_progress(
				d->b, "distribution of %s faults: %u of %u", speeds[s], i, 2 * d->samples);
		err = bench_stopped() ? -EINTR
				      : touch(d, s, (enum toucher)(i % TOUCHERS), machine_scatter(i, PAGES));
	}
	return err;
}

/* A file system may lie on another one that is in memory (overlayfs does not say so): its pages never leave.
 */
static void judge_file(struct distribution *d)
{
	if (!d->no_file[0] && 2 * d->majors[MAJOR][PROCESSOR] < d->time[MAJOR][PROCESSOR].count)
		snprintf(d->no_file, sizeof(d->no_file),
			"the file system of the file keeps its pages in memory (another folder can be named "
			"by TMPDIR)");
}

/* --- rows and curves ---------------------------------------------------------------------------------------
 */

static void add_curve(struct plot *plot, const char *name, struct sample *time)
{
	size_t series = plot_series(plot, name);

	for (unsigned i = 0; i <= CURVE_POINTS; i++) {
		double q = (double)i / CURVE_POINTS;

		plot_point(plot, series, sample_quantile(time, q), 100 * q);
	}
}

static void report_speed(struct distribution *d, struct report_part *p, enum speed s)
{
	char device[UNITS_MAX], processor[UNITS_MAX];
	struct plot *plot;

	if (!d->time[s][DEVICE].count || !d->time[s][PROCESSOR].count)
		return;
	plot = report_plot(p, speeds[s], PLOT_CURVES,
		(struct plot_axis){ "time of a first touch", PLOT_US, true },
		(struct plot_axis){ "touches that took no longer, %", PLOT_NUMBER, false });
	for (int t = 0; t < TOUCHERS; t++) {
		struct sample *time = &d->time[s][t];

		report_row(p);
		report_words(p, FAULT, speeds[s]);
		report_words(p, TOUCHER, touchers[t]);
		report_number(p, P50, sample_quantile(time, 0.5));
		report_number(p, P90, sample_quantile(time, 0.9));
		report_number(p, P99, sample_quantile(time, 0.99));
		report_number(p, P999, sample_quantile(time, 0.999));
		report_number(p, MAX, sample_quantile(time, 1));
		report_number(p, SAMPLES, (double)time->count);
		report_number(p, KERNEL, (double)d->majors[s][t]);
		add_curve(plot, touchers[t], time);
	}
	plot_title(plot,
		s == MINOR ? "A page that needs no I/O: half of the device's first touches take at most %s, "
			     "of a "
			     "processor's %s."
			   : "A page that is on a disk: half of the device's first touches take at most %s, "
			     "of a "
			     "processor's %s.",
		bench_time(device, sample_quantile(&d->time[s][DEVICE], 0.5)),
		bench_time(processor, sample_quantile(&d->time[s][PROCESSOR], 0.5)));
}

int bench_distribution(struct bench *b)
{
	struct distribution d = { .b = b, .file = -1, .samples = b->quick ? SAMPLES_QUICK : SAMPLES_FULL };
	struct report_part *p;
	int err = bench_alone(b);

	if (err)
		return err;
	if (!b->e.odp)
		return bench_no_odp(b);
	p = report_part(&b->report, "distribution", "How long a first touch takes",
		"The first 8 bytes of a page, through a queue pair that is connected to itself, beside a "
		"processor's. "
		"Minor: anonymous memory that has no page yet. Major: pages of a file that are on the disk "
		"and not in "
		"the page cache, each read alone; how many of them the kernel counted as such is in the last "
		"column. "
		"The time of a request without a fault is part of the device's.",
		columns, COLUMNS);
	err = make(&d);
	for (int s = 0; !err && s < SPEEDS; s++) {
		if (s == MINOR || !d.no_file[0])
			err = play(&d, (enum speed)s);
		if (s == MAJOR && !err)
			judge_file(&d);
		if (s == MINOR || !d.no_file[0])
			report_speed(&d, p, (enum speed)s);
		else
			report_note(p, "No major faults: %s.", d.no_file);
	}
	unmake(&d);
	return err;
}
