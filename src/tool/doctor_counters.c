/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Page fault counters of the kernel's devices: rdma netlink statistics (what `rdma statistic show mr`
 * prints), else sysfs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/doctor.h"
#include "tool/rdmanl.h"

#define COUNTER "page_faults"

static char *read_record(void *doctor, const char *path)
{
	return doctor_read(doctor, "%s", path);
}

static struct rdmanl *open_netlink(const struct doctor *d)
{
	return d->root ? rdmanl_recorded(read_record, (void *)d) : rdmanl_live();
}

/* What all regions of the device come to; any: there is a region that has the counter. */
struct faults {
	uint64_t count;
	size_t regions; /* that are counted */
	bool any;
};

static void add_up(struct faults *f, const struct rdmanl_answer *a)
{
	*f = (struct faults){ 0 };
	for (size_t i = 0; i < a->counters; i++)
		if (strcmp(a->counter[i].name, COUNTER) == 0) {
			f->count += a->counter[i].value;
			f->regions++;
			f->any = true;
		}
}

static int ask_faults(struct rdmanl *nl, const char *device, struct faults *f)
{
	struct rdmanl_answer a = { 0 };
	struct rdmanl_device of;
	int err = rdmanl_find(nl, device, &of);

	if (!err)
		err = rdmanl_ask(nl, RDMANL_REGION_COUNTERS, &of, &a);
	add_up(f, &a);
	rdmanl_answer_free(&a);
	return err;
}

static int by_netlink(const struct doctor *d, uint64_t *faults)
{
	struct rdmanl *nl = open_netlink(d);
	struct faults f;
	int err = ask_faults(nl, d->device.name, &f);

	rdmanl_close(nl);
	*faults = f.count;
	return err || f.any ? err : -ENODATA;
}

/* NVIDIA's own drivers have a file per uverbs device; ibdev beside it names the device it belongs to. */
static int by_sysfs(const struct doctor *d, uint64_t *faults, char *from, size_t size)
{
	static const char base[] = "/sys/class/infiniband_verbs";
	char **names = doctor_names(d, base), owner[ENDPOINT_NAME_MAX];
	int err = -ENODATA;

	for (size_t i = 0; err && names && names[i]; i++) {
		if (!doctor_line(d, owner, sizeof(owner), "%s/%s/ibdev", base, names[i]) ||
			strcmp(owner, d->device.name) != 0)
			continue;
		snprintf(from, size, "%s/%s/num_page_faults", base, names[i]);
		if (doctor_number(d, faults, "%s", from))
			err = 0;
	}
	doctor_names_free(names);
	return err;
}

int doctor_counters_faults(const struct doctor *d, uint64_t *faults, char *from, size_t size)
{
	if (by_netlink(d, faults))
		return by_sysfs(d, faults, from, size);
	snprintf(from, size, "rdma netlink statistics");
	return 0;
}

/* --- who uses the device now -----------------------------------------------------------------------------
 */

/* "ib_write_bw (4242)" */
static void name_process(const struct doctor *d, char *out, size_t size, uint32_t pid)
{
	char comm[64];

	if (!pid)
		snprintf(out, size, "a process of another pid namespace, or of the kernel");
	else if (doctor_line(d, comm, sizeof(comm), "/proc/%u/comm", pid))
		snprintf(out, size, "%s (%u)", comm, pid);
	else
		snprintf(out, size, "process %u", pid);
}

/* Of the region that faulted most. */
static uint32_t busiest_process(const struct rdmanl_answer *regions, const struct rdmanl_answer *counters)
{
	uint64_t most = 0;
	uint32_t number = RDMANL_NONE;

	for (size_t i = 0; i < counters->counters; i++)
		if (strcmp(counters->counter[i].name, COUNTER) == 0 && counters->counter[i].value >= most) {
			most = counters->counter[i].value;
			number = counters->counter[i].of;
		}
	for (size_t i = 0; i < regions->regions; i++)
		if (regions->region[i].number == number)
			return regions->region[i].owner.pid;
	return 0;
}

/* Three answers: the regions, and their counters twice, so that it is seen whether these move. */
struct use {
	struct rdmanl_answer regions, before, after;
	struct faults first, second;
};

static int ask_use(struct rdmanl *nl, const char *device, struct use *u)
{
	struct rdmanl_device of;
	int err = rdmanl_find(nl, device, &of);

	if (!err)
		err = rdmanl_ask(nl, RDMANL_REGIONS, &of, &u->regions);
	if (!err)
		err = rdmanl_ask(nl, RDMANL_REGION_COUNTERS, &of, &u->before);
	if (!err)
		err = rdmanl_ask(nl, RDMANL_REGION_COUNTERS, &of, &u->after);
	add_up(&u->first, &u->before);
	add_up(&u->second, &u->after);
	return err;
}

static void say_use(struct doctor *d, struct doctor_result *r, const struct use *u)
{
	char process[128], moved[64] = "";

	if (!u->regions.regions) {
		doctor_say(r, DOCTOR_NA, "no memory region is registered on it right now");
		return;
	}
	if (!u->second.any) {
		doctor_say(r, DOCTOR_NA, "%zu memory regions, none of which the driver counts page faults of",
			u->regions.regions);
		return;
	}
	name_process(d, process, sizeof(process), busiest_process(&u->regions, &u->after));
	if (u->second.count > u->first.count)
		snprintf(moved, sizeof(moved), ", %llu more while this looked",
			(unsigned long long)(u->second.count - u->first.count));
	doctor_say(r, DOCTOR_OK,
		"%zu memory regions, %zu of them on demand; page_faults: %llu%s; the busiest region belongs "
		"to "
		"%s",
		u->regions.regions, u->second.regions, (unsigned long long)u->first.count, moved, process);
}

void doctor_counters_use(struct doctor *d, struct doctor_result *r)
{
	struct rdmanl *nl;
	struct use u = { 0 };
	int err;

	if (d->device.kind == DOCTOR_KIND_UNPIN) {
		doctor_say(r, DOCTOR_NA, "'unpin stat' and 'unpin top' tell it of this device");
		return;
	}
	nl = open_netlink(d);
	err = ask_use(nl, d->device.name, &u);
	if (err)
		doctor_say(r, DOCTOR_NA, "%s",
			d->root && err == -EOPNOTSUPP ? "not in the record" : rdmanl_error(err));
	else
		say_use(d, r, &u);
	rdmanl_answer_free(&u.regions);
	rdmanl_answer_free(&u.before);
	rdmanl_answer_free(&u.after);
	rdmanl_close(nl);
}
