/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the kernel was built with, what its version brings, and which of its facilities this process may use.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tool/doctor.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* struct pm_scan_arg of Linux 6.7 and its ioctl. */
struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, category_mask,
		any_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)

/* struct procmap_query of Linux 6.11 and its ioctl. */
struct map_query {
	uint64_t size, flags, addr, start, end, vma_flags, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};
#define MAP_IOCTL _IOWR('f', 17, struct map_query)

/* --- configuration -----------------------------------------------------------------------------------------
 */

static bool is_on(const char *value)
{
	return strcmp(value, "y") == 0 || strcmp(value, "m") == 0;
}

static bool is_software(const struct doctor *d)
{
	return d->device.kind == DOCTOR_KIND_UNPIN;
}

static void no_config(struct doctor_result *r)
{
	doctor_say(r, DOCTOR_UNKNOWN,
		"the kernel's configuration is in none of /proc/config.gz, /boot/config-VERSION, "
		"/lib/modules/VERSION/config");
	doctor_mean(r, "Whether the kernel was built with what on-demand paging needs cannot be read; what "
		       "the device offers "
		       "(the device group) tells in the end.");
	doctor_advise(r, "If the device does not offer on-demand paging, install the package that has the "
			 "kernel's configuration, or "
			 "look for CONFIG_INFINIBAND_ON_DEMAND_PAGING where the kernel was built.");
}

static void check_odp(struct doctor *d, struct doctor_result *r)
{
	char value[32], rdma[32];
	const char *source;

	if (is_software(d)) {
		doctor_say(r, DOCTOR_NA, "unpin's device needs nothing of the kernel's RDMA");
		return;
	}
	if (!doctor_config(d, "INFINIBAND_ON_DEMAND_PAGING", value, sizeof(value), &source)) {
		no_config(r);
		return;
	}
	if (is_on(value)) {
		doctor_say(r, DOCTOR_OK, "CONFIG_INFINIBAND_ON_DEMAND_PAGING=%s (%s)", value, source);
		return;
	}
	doctor_config(d, "INFINIBAND", rdma, sizeof(rdma), NULL);
	doctor_say(r, DOCTOR_FAIL, "CONFIG_INFINIBAND_ON_DEMAND_PAGING is not set%s (%s)",
		is_on(rdma) ? "" : ", nor is CONFIG_INFINIBAND", source);
	doctor_mean(
		r, "No device of the kernel offers on-demand paging, whatever card and firmware are there.");
	doctor_advise(r,
		"Use a kernel that has it: Debian's do, and the option is on unless somebody switched "
		"it off. Building your own: the option is at Device Drivers, InfiniBand support. Until "
		"then 'unpin run -- PROGRAM' gives a program a "
		"software device that "
		"needs nothing of it.");
}

static void check_notifiers(struct doctor *d, struct doctor_result *r)
{
	char notifier[32], hmm[32];
	const char *source;

	if (!doctor_config(d, "MMU_NOTIFIER", notifier, sizeof(notifier), &source)) {
		no_config(r);
		return;
	}
	doctor_config(d, "HMM_MIRROR", hmm, sizeof(hmm), NULL);
	if (is_on(notifier) && (is_on(hmm) || is_software(d) || doctor_kernel_version(d, NULL, 0) < 5010)) {
		doctor_say(r, DOCTOR_OK, "CONFIG_MMU_NOTIFIER=%s%s%s", notifier,
			is_on(hmm) ? ", CONFIG_HMM_MIRROR=" : "", is_on(hmm) ? hmm : "");
		return;
	}
	doctor_say(r, is_software(d) ? DOCTOR_OK : DOCTOR_FAIL, "CONFIG_%s is not set%s",
		is_on(notifier) ? "HMM_MIRROR" : "MMU_NOTIFIER",
		is_software(d) ? " (unpin's device does without)" : "");
	if (r->verdict == DOCTOR_OK)
		return;
	doctor_mean(r, "The kernel cannot tell a device that a page has moved or gone, without which there "
		       "is no on-demand paging.");
	doctor_advise(r, "The option is set by itself with CONFIG_INFINIBAND_ON_DEMAND_PAGING; use a kernel "
			 "that was built with that.");
}

/* --- modules ---------------------------------------------------------------------------------------------
 */

static bool has_module(struct doctor *d, const char *modules, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = modules; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ' ')
			return true;
	}
	/* Built in, or a record without /proc/modules. */
	return doctor_exists(d, "/sys/module/%s", name);
}

static const char *driver_module(enum doctor_kind kind)
{
	return kind == DOCTOR_KIND_MLX5	  ? "mlx5_ib"
	       : kind == DOCTOR_KIND_MLX4 ? "mlx4_ib"
	       : kind == DOCTOR_KIND_RXE  ? "rdma_rxe"
					  : NULL;
}

static void check_modules(struct doctor *d, struct doctor_result *r)
{
	const char *driver = driver_module(d->device.kind);
	const char *const wanted[] = { "ib_core", "ib_uverbs", driver };
	char missing[128] = "", *modules;

	if (is_software(d)) {
		doctor_say(r, DOCTOR_NA, "unpin's device needs no kernel module");
		return;
	}
	modules = doctor_read(d, "/proc/modules");
	for (size_t i = 0; i < COUNT(wanted); i++)
		if (wanted[i] && !has_module(d, modules, wanted[i]))
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%s",
				missing[0] ? ", " : "", wanted[i]);
	free(modules);
	if (!missing[0]) {
		doctor_say(r, DOCTOR_OK, "ib_core, ib_uverbs%s%s", driver ? ", " : "", driver ? driver : "");
		return;
	}
	doctor_say(r, d->device.found ? DOCTOR_UNKNOWN : DOCTOR_WARN, "not loaded: %s", missing);
	doctor_mean(r, d->device.found ? "They may be built into the kernel, since there is a device."
				       : "Programs reach RDMA devices through these modules.");
	doctor_advise(r, "modprobe ib_uverbs, and the driver of the card: mlx5_ib for NVIDIA, rdma_rxe for "
			 "the software device (then "
			 "'rdma link add rxe0 type rxe netdev eth0').");
}

/* --- version ----------------------------------------------------------------------------------------------
 */

/* What a version of Linux added that concerns on-demand paging. only: the kind of device that it is for;
 * ANY_KERNELS: those of the kernel; ANY: all. */
#define ANY_KERNELS (-1)
#define ANY	    (-2)

static const struct feature {
	unsigned version;
	int only;
	const char *what;
} features[] = {
	{ 3019, DOCTOR_KIND_MLX5, "on-demand paging in mlx5" },
	{ 4011, DOCTOR_KIND_MLX5, "implicit regions (one for the whole address space)" },
	{ 5000, ANY_KERNELS, "prefetch (ibv_advise_mr)" },
	{ 5001, DOCTOR_KIND_MLX5, "on-demand memory in shared receive queues and XRC" },
	{ 5005, DOCTOR_KIND_MLX5, "page fault counters per region ('rdma statistic show mr')" },
	{ 5012, ANY_KERNELS,
		"fork that copies pinned pages, of huge pages, too, so that no protection by MADV_DONTFORK "
		"is needed" },
	{ 5013, DOCTOR_KIND_UNPIN, "true pins from user space (io_uring buffers that can be replaced)" },
	{ 5014, ANY, "MADV_POPULATE_WRITE (bringing pages in with one call)" },
	{ 6007, DOCTOR_KIND_UNPIN, "PAGEMAP_SCAN (what is in memory, quickly)" },
	{ 6011, DOCTOR_KIND_UNPIN, "PROCMAP_QUERY (one mapping, quickly)" },
	{ 6012, DOCTOR_KIND_MLX5,
		"the memory scheme of page faults, which also serves queue pairs made by DevX" },
	{ 6015, DOCTOR_KIND_RXE, "on-demand paging in rxe" },
};

static void check_version(struct doctor *d, struct doctor_result *r)
{
	char release[128], missing[1024] = "";
	unsigned version = doctor_kernel_version(d, release, sizeof(release));
	bool vital = false;

	if (!version) {
		doctor_say(r, DOCTOR_UNKNOWN, "the version of the kernel is not known");
		doctor_mean(r, "What the kernel's version brings cannot be told.");
		doctor_advise(r, "'uname -r' prints it; in a record it is /proc/sys/kernel/osrelease.");
		return;
	}
	for (size_t i = 0; i < COUNT(features); i++) {
		const struct feature *f = &features[i];

		if (version >= f->version || (f->only >= 0 && f->only != (int)d->device.kind) ||
			(f->only == ANY_KERNELS && is_software(d)))
			continue;
		vital = vital || strstr(f->what, "on-demand paging in");
		snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%s, from %u.%u on",
			missing[0] ? "; " : "", f->what, f->version / 1000, f->version % 1000);
	}
	if (!missing[0]) {
		doctor_say(r, DOCTOR_OK, "Linux %s has all that this program knows of", release);
		return;
	}
	doctor_say(r, vital ? DOCTOR_FAIL : DOCTOR_WARN, "Linux %s", release);
	doctor_mean(r, "This kernel is too old for: %s.", missing);
	doctor_advise(r, "Use a newer kernel where one of these matters. (A distribution may have brought "
			 "some of them into an older "
			 "version.)");
}

static void check_page_size(struct doctor *d, struct doctor_result *r)
{
	uint64_t kib = 0;
	long page = getpagesize();
	char *smaps;

	if (d->root) {
		smaps = doctor_read(d, "/proc/self/smaps");
		kib = smaps ? doctor_field(smaps, "KernelPageSize") : UINT64_MAX;
		free(smaps);
		if (kib == UINT64_MAX) {
			doctor_say(r, DOCTOR_UNKNOWN,
				"the size of a page is not in the record (proc/self/smaps)");
			doctor_mean(r, "4 KiB is assumed.");
			doctor_advise(r, "Add /proc/self/smaps to the record; 'getconf PAGESIZE' prints it.");
			return;
		}
		page = (long)kib;
	}
	if (page == 4096) {
		doctor_say(r, DOCTOR_OK, "4 KiB");
		return;
	}
	doctor_say(r, DOCTOR_WARN, "%s", doctor_bytes((uint64_t)page));
	doctor_mean(r,
		"A page fault brings in %s, so that a sparse buffer takes up to %ld times the memory that it "
		"takes on a machine "
		"with pages of 4 KiB; there are fewer faults in return. Programs that take 4096 for the size "
		"of a page "
		"register and advise at the wrong addresses.",
		doctor_bytes((uint64_t)page), page / 4096);
	doctor_advise(r, "Ask sysconf(_SC_PAGESIZE) in your program. For sparse buffers consider a kernel "
			 "with pages of 4 KiB.");
}

/* --- facilities -------------------------------------------------------------------------------------------
 */

static int try_userfaultfd(void)
{
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd < 0)
		return errno;
	close((int)fd);
	return 0;
}

static int try_io_uring(void)
{
	struct io_uring_params params;
	long fd;

	memset(&params, 0, sizeof(params));
	fd = syscall(SYS_io_uring_setup, 2, &params);
	if (fd < 0)
		return errno;
	close((int)fd);
	return 0;
}

static int try_scan(void)
{
	size_t page = (size_t)getpagesize();
	void *addr = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct scan_arg arg = {
		.size = sizeof(arg), .start = (uintptr_t)addr, .end = (uintptr_t)addr + page
	};
	uint64_t region[3];
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), err = 0;

	if (fd < 0 || addr == MAP_FAILED)
		err = errno;
	arg.vec = (uintptr_t)region;
	arg.vec_len = 1;
	arg.any_mask = arg.return_mask = 8; /* present */
	if (!err && ioctl(fd, SCAN_IOCTL, &arg) < 0)
		err = errno;
	if (addr != MAP_FAILED)
		munmap(addr, page);
	if (fd >= 0)
		close(fd);
	return err;
}

static int try_map_query(void)
{
	struct map_query q = { .size = sizeof(q), .addr = (uintptr_t)&q };
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return errno;
	err = ioctl(fd, MAP_IOCTL, &q) < 0 ? errno : 0;
	close(fd);
	return err;
}

static int try_populate(void)
{
	size_t page = (size_t)getpagesize();
	void *addr = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (addr == MAP_FAILED)
		return errno;
	err = madvise(addr, page, MADV_POPULATE_READ) ? errno : 0;
	munmap(addr, page);
	return err;
}

static int try_process_vm(void)
{
	char from = 'x', to = 0;
	struct iovec local = { &to, 1 }, remote = { &from, 1 };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

static int try_psi(void)
{
	int fd = open("/proc/pressure/memory", O_RDONLY | O_CLOEXEC), err;
	char c;

	if (fd < 0)
		return errno;
	err = read(fd, &c, 1) < 0 ? errno : 0;
	close(fd);
	return err;
}

/* knob: the file that says why it is forbidden, where there is one. allow: how it is had where the kernel is
 * new enough; NULL: as ALLOW says. */
static const struct facility_row {
	const char *name, *disable, *since, *without, *knob, *allow;
	int (*attempt)(void);
} facility_rows[] = {
	{ "userfaultfd", "uffd", "5.11",
		"unpin's notifier \"userfaultfd\" cannot be had; the default one does not need it", NULL,
		NULL, try_userfaultfd },
	{ "io_uring", "io_uring", "5.13",
		"unpin's pinned regions are locked with mlock instead of truly pinned",
		"/proc/sys/kernel/io_uring_disabled",
		"If the sysctl forbids it: 'sysctl kernel.io_uring_disabled=0' (1 lets only privileged "
		"processes "
		"and the group of kernel.io_uring_group use it, 2 nobody). In a container its seccomp "
		"profile "
		"must allow io_uring_setup, io_uring_enter and io_uring_register. Everything works without "
		"it.",
		try_io_uring },
	{ "PAGEMAP_SCAN", "pagemap_scan", "6.7",
		"unpin asks /proc/self/pagemap or mincore what is in memory, more slowly", NULL, NULL,
		try_scan },
	{ "PROCMAP_QUERY", "procmap_query", "6.11",
		"unpin reads /proc/self/maps, more slowly where there are many mappings", NULL, NULL,
		try_map_query },
	{ "MADV_POPULATE", "populate", "5.14",
		"pages are touched one by one instead of brought in with one call", NULL, NULL,
		try_populate },
	{ "process_vm_readv", "process_vm", "3.2",
		"threads that block SIGSEGV hand their copies to another thread", NULL, NULL,
		try_process_vm },
	{ "pressure stall information", "psi", "4.20",
		"the storm guard does not know how long tasks wait for memory, and 'unpin top' "
		"cannot show it",
		NULL,
		"Some distributions build it in and leave it off: add psi=1 to the kernel's command line and "
		"restart. Everything works without it.",
		try_psi },
};

#define ALLOW                                                                                                \
	"Allow it where that is possible (in a container: its seccomp profile); everything works without "   \
	"it."

/* Whether UNPIN_DISABLE names it. */
static bool is_disabled(const char *name)
{
	const char *list = getenv("UNPIN_DISABLE");
	size_t len = strlen(name);

	for (const char *p = list; p && *p;) {
		size_t n = strcspn(p, ",");

		if (n == len && strncmp(p, name, n) == 0)
			return true;
		p += n + (p[n] == ',');
	}
	return false;
}

/* The likeliest reason, from the error and what the system says of itself. */
static void reason(struct doctor *d, const struct facility_row *f, int err, char *out, size_t size)
{
	char *status = doctor_read(d, "/proc/self/status");
	bool seccomp = status && strstr(status, "\nSeccomp:\t2");
	char value[32] = "";

	free(status);
	if (f->knob && doctor_line(d, value, sizeof(value), "%s", f->knob) && strcmp(value, "0") != 0 &&
		err == EPERM)
		snprintf(out, size, "%s is %s", f->knob, value);
	else if (err == ENOTTY || err == EINVAL || (err == ENOSYS && !seccomp) || err == ENOENT)
		snprintf(out, size, "this kernel has it not (Linux has it since %s)", f->since);
	else if (seccomp)
		snprintf(out, size, "refused (%s), and a seccomp filter is on, as containers have them",
			strerror(err));
	else
		snprintf(out, size, "refused by the kernel: %s", strerror(err));
}

static void check_facility(struct doctor *d, struct doctor_result *r, const struct facility_row *f)
{
	char why[160];
	int err;

	if (is_disabled(f->disable)) {
		doctor_say(r, DOCTOR_WARN, "switched off by UNPIN_DISABLE");
		doctor_mean(r, "Then %s.", f->without);
		doctor_advise(r, "Take %s out of UNPIN_DISABLE unless you want that.", f->disable);
		return;
	}
	err = f->attempt();
	if (!err) {
		doctor_say(r, DOCTOR_OK, "works");
		return;
	}
	reason(d, f, err, why, sizeof(why));
	doctor_say(r, DOCTOR_WARN, "%s", why);
	doctor_mean(r, "Without it %s.", f->without);
	/* What is built in and switched off looks as if it were not there: /proc/pressure. */
	if (strstr(why, "has it not") && (!f->allow || err != ENOENT))
		doctor_advise(
			r, "Use a newer kernel, or one that was built with it, if that matters to you.");
	else
		doctor_advise(r, "%s", f->allow ? f->allow : ALLOW);
}

#define FACILITY(number, function)                                                                           \
	static void function(struct doctor *d, struct doctor_result *r)                                      \
	{                                                                                                    \
		check_facility(d, r, &facility_rows[number]);                                                \
	}
FACILITY(0, check_userfaultfd)
FACILITY(1, check_io_uring)
FACILITY(2, check_scan)
FACILITY(3, check_map_query)
FACILITY(4, check_populate)
FACILITY(5, check_process_vm)
FACILITY(6, check_psi)

static const struct doctor_check checks[] = {
	{ "kernel.odp", "on-demand paging in the kernel", DOCTOR_VITAL, check_odp },
	{ "kernel.notifiers", "memory notifiers", DOCTOR_VITAL, check_notifiers },
	{ "kernel.modules", "modules", 0, check_modules },
	{ "kernel.version", "version", DOCTOR_VITAL, check_version },
	{ "kernel.page-size", "page size", 0, check_page_size },
	{ "kernel.userfaultfd", "userfaultfd", DOCTOR_LIVE, check_userfaultfd },
	{ "kernel.io-uring", "io_uring", DOCTOR_LIVE, check_io_uring },
	{ "kernel.pagemap-scan", "PAGEMAP_SCAN", DOCTOR_LIVE, check_scan },
	{ "kernel.procmap-query", "PROCMAP_QUERY", DOCTOR_LIVE, check_map_query },
	{ "kernel.populate", "MADV_POPULATE", DOCTOR_LIVE, check_populate },
	{ "kernel.process-vm", "process_vm_readv", DOCTOR_LIVE, check_process_vm },
	{ "kernel.psi", "pressure stall information", DOCTOR_LIVE, check_psi },
	{ "kernel.calls", "system calls", DOCTOR_LIVE, doctor_check_calls },
};

const struct doctor_group doctor_kernel_group = { "kernel", "Kernel", checks, COUNT(checks) };
