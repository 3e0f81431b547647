/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* One look at a device of the kernel: counters of its ports in sysfs, regions and queue pairs over rdma
 * netlink, and what the kernel says of the process or the machine in /proc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/alloc.h"
#include "tool/rdmanl.h"
#include "tool/top.h"
#include "tool/whole.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct top_kernel {
	const char *device, *root;
	pid_t pid;
	struct rdmanl *netlink;
};

static bool name_is_plain(const char *name)
{
	return *name && !strchr(name, '/') && name[0] != '.' && strlen(name) < 64;
}

bool top_kernel_has(const char *root, const char *device)
{
	char path[1024];
	DIR *dir;

	if (!name_is_plain(device))
		return false;
	snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s", root, device);
	dir = opendir(path);
	if (dir)
		closedir(dir);
	return dir;
}

/* --- counters of ports -----------------------------------------------------------------------------------
 */

static void take_counter(
	struct top_frame *f, size_t *room, const char *port, const char *name, const char *path)
{
	uint64_t v;
	FILE *file = fopen(path, "re");

	/* Some counters cannot be read on some devices: passed over. */
	if (file && fscanf(file, "%" SCNu64, &v) == 1) {
		if (f->counters == *room) {
			*room = *room ? 2 * *room : 64;
			f->counter = alloc_grow(f->counter, *room, sizeof(*f->counter));
		}
		snprintf(f->counter[f->counters].name, sizeof(f->counter[0].name), "port%.8s.%.60s", port,
			name);
		f->counter[f->counters++].value = v;
	}
	if (file)
		fclose(file);
}

/* A name that both folders have (link_downed of rxe) must not stand for two. */
static const char *name_of(char room[NAME_MAX + 8], const char *port, const char *folder, const char *name)
{
	char other[1700];

	if (strcmp(folder, "hw_counters") != 0)
		return name;
	snprintf(other, sizeof(other), "%s/counters/%s", port, name);
	if (access(other, F_OK))
		return name;
	snprintf(room, NAME_MAX + 8, "hw.%s", name);
	return room;
}

static void take_folder(
	struct top_frame *f, size_t *room, const char *ports, const char *port, const char *folder)
{
	char of_port[1200], path[1400];
	struct dirent *e;
	DIR *dir;

	snprintf(of_port, sizeof(of_port), "%s/%.16s", ports, port);
	snprintf(path, sizeof(path), "%s/%s", of_port, folder);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		char file[1700], other[NAME_MAX + 8];

		/* "lifespan" is a setting: how long the kernel believes what it read. */
		if (e->d_name[0] == '.' || strcmp(e->d_name, "lifespan") == 0)
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		take_counter(f, room, port, name_of(other, of_port, folder, e->d_name), file);
	}
	if (dir)
		closedir(dir);
}

static int by_name(const void *a, const void *b)
{
	const struct top_counter *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void take_ports(struct top_frame *f, const struct top_kernel *k)
{
	char ports[1024];
	struct dirent *e;
	size_t room = 0;
	DIR *dir;

	snprintf(ports, sizeof(ports), "%s/sys/class/infiniband/%s/ports", k->root, k->device);
	dir = opendir(ports);
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		take_folder(f, &room, ports, e->d_name, "counters");
		take_folder(f, &room, ports, e->d_name, "hw_counters");
	}
	if (dir)
		closedir(dir);
	if (f->counters)
		qsort(f->counter, f->counters, sizeof(*f->counter), by_name);
}

/* Which counters tell of the traffic and of retries. */
static const struct meaning {
	const char *name;
	enum top_dev_counter what;
	unsigned unit;
	unsigned rank; /* where there are several names for the same, those of the highest are taken */
} meanings[] = {
	/* InfiniBand's own, in words of four bytes. */
	{ "port_rcv_data", TOP_DEV_rx_bytes, 4, 0 },
	{ "port_xmit_data", TOP_DEV_tx_bytes, 4, 0 },
	{ "port_rcv_packets", TOP_DEV_rx_packets, 1, 0 },
	{ "port_xmit_packets", TOP_DEV_tx_packets, 1, 0 },
	/* rxe's; the above stay 0 there in older kernels. */
	{ "rcvd_bytes", TOP_DEV_rx_bytes, 1, 1 },
	{ "sent_bytes", TOP_DEV_tx_bytes, 1, 1 },
	{ "rcvd_pkts", TOP_DEV_rx_packets, 1, 1 },
	{ "sent_pkts", TOP_DEV_tx_packets, 1, 1 },
	{ "completer_retry_err", TOP_DEV_retransmits, 1, 0 },
	{ "rcvd_rnr_err", TOP_DEV_rnr_nak_rcvd, 1, 0 },
	/* mlx5's, as of its queue pairs. */
	{ "packet_seq_err", TOP_DEV_retransmits, 1, 0 },
	{ "implied_nak_seq_err", TOP_DEV_retransmits, 1, 0 },
	{ "local_ack_timeout_err", TOP_DEV_retransmits, 1, 0 },
	{ "rnr_nak_retry_err", TOP_DEV_rnr_nak_rcvd, 1, 0 },
};

static const struct meaning *meaning_of(const char *name)
{
	for (size_t i = 0; i < COUNT(meanings); i++)
		if (strcmp(meanings[i].name, name) == 0)
			return &meanings[i];
	return NULL;
}

static void add_known(uint64_t *to, uint64_t v)
{
	*to = *to == TOP_UNKNOWN ? v : *to + v;
}

static void understand_ports(struct top_frame *f)
{
	unsigned rank[TOP_DEV_COUNTERS] = { 0 };

	for (size_t i = 0; i < f->counters; i++) {
		const char *name = strchr(f->counter[i].name, '.');
		const struct meaning *m = name ? meaning_of(name + 1) : NULL;

		if (!m || m->rank < rank[m->what])
			continue;
		if (m->rank > rank[m->what])
			f->dev[m->what] = TOP_UNKNOWN;
		rank[m->what] = m->rank;
		add_known(&f->dev[m->what], f->counter[i].value * m->unit);
	}
}

/* --- whose it is -----------------------------------------------------------------------------------------
 */

/* The commands of the processes that were met: most objects of a device belong to few. */
struct commands {
	struct command {
		uint32_t pid;
		char name[TOP_COMMAND];
	} * list;
	size_t count, last;
};

static void read_command(struct command *c, const char *root)
{
	char path[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/%" PRIu32 "/comm", root, c->pid);
	f = fopen(path, "re");
	if (f && fgets(c->name, sizeof(c->name), f))
		c->name[strcspn(c->name, "\n")] = 0;
	/* A program names itself as it likes. */
	for (char *p = c->name; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	if (f)
		fclose(f);
}

static const char *command_of(struct commands *c, uint32_t pid, const char *root)
{
	size_t i = c->last;

	if (i < c->count && c->list[i].pid == pid)
		return c->list[i].name;
	for (i = 0; i < c->count && c->list[i].pid != pid; i++)
		;
	if (i == c->count) {
		c->list = alloc_grow(c->list, ++c->count, sizeof(*c->list));
		c->list[i] = (struct command){ .pid = pid };
		read_command(&c->list[i], root);
	}
	c->last = i;
	return c->list[i].name;
}

static void take_owner(
	struct top_owner *to, const struct rdmanl_owner *o, struct commands *c, const char *root)
{
	to->pid = o->pid;
	to->pd = o->pd;
	if (o->pid)
		snprintf(to->command, sizeof(to->command), "%s", command_of(c, o->pid, root));
	else if (*o->module)
		snprintf(to->command, sizeof(to->command), "[%.*s]", TOP_COMMAND - 3, o->module);
}

/* --- regions and queue pairs -----------------------------------------------------------------------------
 */

static const char *const odp_names[TOP_ODP_COUNTERS] = {
#define X(field, name, what) [TOP_ODP_##field] = name,
	UNPIN_ODP_COUNTERS(X)
#undef X
};

static void take_regions(
	struct top_frame *f, const struct top_kernel *k, const struct rdmanl_answer *a, struct commands *c)
{
	f->region = alloc_array(a->regions + 1, sizeof(*f->region));
	for (size_t i = 0; i < a->regions; i++) {
		const struct rdmanl_region *r = &a->region[i];
		struct top_region *to = &f->region[f->regions];

		if (k->pid && r->owner.pid != (uint32_t)k->pid)
			continue;
		to->row = r->number;
		/* mlx5's words. */
		to->kind = strstr(r->details, "odp=implicit")	? UNPIN_REGION_IMPLICIT
			   : strstr(r->details, "odp=explicit") ? UNPIN_REGION_ODP
								: UNPIN_REGION_NONE;
		to->addr = r->iova_told ? r->iova : TOP_UNKNOWN;
		to->length = r->length;
		to->keys_told = r->keys_told;
		to->lkey = r->lkey;
		to->rkey = r->rkey;
		memcpy(to->details, r->details, sizeof(to->details));
		for (int n = 0; n < TOP_ODP_COUNTERS; n++)
			to->odp[n] = TOP_UNKNOWN;
		take_owner(&to->owner, &r->owner, c, k->root);
		f->regions++;
	}
}

static void take_qps(
	struct top_frame *f, const struct top_kernel *k, const struct rdmanl_answer *a, struct commands *c)
{
	f->qp = alloc_array(a->qps + 1, sizeof(*f->qp));
	for (size_t i = 0; i < a->qps; i++) {
		const struct rdmanl_qp *q = &a->qp[i];
		struct top_qp *to = &f->qp[f->qps];

		if (k->pid && q->owner.pid != (uint32_t)k->pid)
			continue;
		to->number = q->number;
		to->state = q->state;
		to->peer = q->peer;
		to->type = q->type;
		to->port = q->port;
		to->parkings = to->retransmits = to->rnr_naks = TOP_UNKNOWN;
		take_owner(&to->owner, &q->owner, c, k->root);
		f->qps++;
	}
}

static int region_is(const void *number, const void *region)
{
	uint32_t a = *(const uint32_t *)number, b = ((const struct top_region *)region)->row;

	return a < b ? -1 : a > b;
}

static int qp_is(const void *number, const void *qp)
{
	uint32_t a = *(const uint32_t *)number, b = ((const struct top_qp *)qp)->number;

	return a < b ? -1 : a > b;
}

static void add_region_counters(struct top_frame *f, const struct rdmanl_answer *a)
{
	for (size_t i = 0; i < a->counters; i++) {
		const struct rdmanl_counter *c = &a->counter[i];
		struct top_region *r = bsearch(&c->of, f->region, f->regions, sizeof(*r), region_is);

		for (int n = 0; r && n < TOP_ODP_COUNTERS; n++)
			if (strcmp(odp_names[n], c->name) == 0) {
				r->odp[n] = c->value;
				add_known(&f->odp[n], c->value);
				/* Only what is on demand has page faults. */
				if (r->kind == UNPIN_REGION_NONE)
					r->kind = UNPIN_REGION_ODP;
			}
	}
}

static void add_qp_counters(struct top_frame *f, const struct rdmanl_answer *a)
{
	for (size_t i = 0; i < a->counters; i++) {
		const struct rdmanl_counter *c = &a->counter[i];
		struct top_qp *q = bsearch(&c->of, f->qp, f->qps, sizeof(*q), qp_is);
		const struct meaning *m = meaning_of(c->name);

		if (!q)
			continue;
		/* One that has a counter has all that this device counts. */
		if (q->retransmits == TOP_UNKNOWN)
			q->retransmits = q->rnr_naks = 0;
		if (m && m->what == TOP_DEV_retransmits)
			q->retransmits += c->value;
		if (m && m->what == TOP_DEV_rnr_nak_rcvd)
			q->rnr_naks += c->value;
	}
}

/* Keeps what went wrong first. */
static void trouble(struct top_frame *f, const struct top_kernel *k, const char *what, int err)
{
	const char *why = *k->root && err == -EOPNOTSUPP ? "not in the record" : rdmanl_error(err);

	if (err && !*f->trouble)
		snprintf(f->trouble, sizeof(f->trouble), "%s: %s", what, why);
}

static void ask(struct top_frame *f, const struct top_kernel *k, const struct rdmanl_device *d)
{
	struct rdmanl_answer a = { 0 }, of_regions = { 0 }, of_qps = { 0 };
	struct commands c = { 0 };

	trouble(f, k, "regions", rdmanl_ask(k->netlink, RDMANL_REGIONS, d, &a));
	trouble(f, k, "queue pairs", rdmanl_ask(k->netlink, RDMANL_QPS, d, &a));
	if (a.left_out && !*f->trouble)
		snprintf(f->trouble, sizeof(f->trouble), "%zu regions or queue pairs more than this looks at",
			a.left_out);
	take_regions(f, k, &a, &c);
	take_qps(f, k, &a, &c);
	/* Many drivers have none of these. */
	if (f->regions && !rdmanl_ask(k->netlink, RDMANL_REGION_COUNTERS, d, &of_regions))
		add_region_counters(f, &of_regions);
	if (f->qps && !rdmanl_ask(k->netlink, RDMANL_QP_COUNTERS, d, &of_qps))
		add_qp_counters(f, &of_qps);
	free(c.list);
	rdmanl_answer_free(&a);
	rdmanl_answer_free(&of_regions);
	rdmanl_answer_free(&of_qps);
}

/* --- a look ----------------------------------------------------------------------------------------------
 */

static void begin(struct top_frame *f, const struct top_kernel *k)
{
	memset(f, 0, sizeof(*f));
	f->kernel = true;
	f->at_ns = clock_ns();
	f->pid = k->pid;
	snprintf(f->device, sizeof(f->device), "%s", k->device);
	for (int i = 0; i < TOP_ODP_COUNTERS; i++)
		f->odp[i] = TOP_UNKNOWN;
	for (int i = 0; i < TOP_DEV_COUNTERS; i++)
		f->dev[i] = TOP_UNKNOWN;
}

int top_kernel_read(struct top_kernel *k, struct top_frame *f)
{
	struct rdmanl_device d;
	int err;

	begin(f, k);
	if (!top_kernel_has(k->root, k->device))
		return -ENODEV;
	take_ports(f, k);
	understand_ports(f);
	err = rdmanl_find(k->netlink, k->device, &d);
	trouble(f, k, "regions, queue pairs", err);
	if (!err) {
		snprintf(f->firmware, sizeof(f->firmware), "%s", d.firmware);
		ask(f, k, &d);
	}
	if (k->pid) {
		struct command of = { .pid = (uint32_t)k->pid };

		read_command(&of, k->root);
		snprintf(f->command, sizeof(f->command), "%s", of.name);
	}
	top_system_read(&f->system, k->pid, k->root);
	return 0;
}

/* --- the record ------------------------------------------------------------------------------------------
 */

static char *read_record(void *kernel, const char *path)
{
	const struct top_kernel *k = kernel;
	char full[1024], *text;
	int fd;

	snprintf(full, sizeof(full), "%s%s", k->root, path);
	fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	text = whole_read(fd);
	close(fd);
	return text;
}

static int open_folder_and_record(struct rdmanl *nl, const char *record)
{
	int dir = open(record, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err;

	if (dir < 0)
		return -errno;
	err = rdmanl_record(nl, dir);
	close(dir);
	return err;
}

struct top_kernel *top_kernel_open(
	const char *device, pid_t pid, const char *root, const char *record, int *err)
{
	struct top_kernel *k = alloc_array(1, sizeof(*k));

	*k = (struct top_kernel){ device, root, pid, NULL };
	k->netlink = *root ? rdmanl_recorded(read_record, k) : rdmanl_live();
	*err = record ? open_folder_and_record(k->netlink, record) : 0;
	if (!*err)
		return k;
	top_kernel_close(k);
	return NULL;
}

void top_kernel_close(struct top_kernel *k)
{
	rdmanl_close(k->netlink);
	free(k);
}
