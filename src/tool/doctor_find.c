/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Which device it is, and what it says of itself: asked live, or read from a record. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic/caps.h"
#include "tool/doctor.h"
#include "tool/machine.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define NVIDIA_VENDOR_ID 0x02c9

/* NVIDIA's devices by PCI number, as the drivers and pci.ids have them. */
static const struct doctor_part parts[] = {
	{ 0x1003, DOCTOR_KIND_MLX4, 0, 0, false, "NVIDIA ConnectX-3" },
	{ 0x1004, DOCTOR_KIND_MLX4, 0, 0, false, "NVIDIA ConnectX-3 virtual function" },
	{ 0x1007, DOCTOR_KIND_MLX4, 0, 0, false, "NVIDIA ConnectX-3 Pro" },
	{ 0x1011, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA Connect-IB" },
	{ 0x1012, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA Connect-IB virtual function" },
	{ 0x1013, DOCTOR_KIND_MLX5, 12, 21, false, "NVIDIA ConnectX-4" },
	{ 0x1014, DOCTOR_KIND_MLX5, 12, 21, false, "NVIDIA ConnectX-4 virtual function" },
	{ 0x1015, DOCTOR_KIND_MLX5, 14, 21, false, "NVIDIA ConnectX-4 Lx" },
	{ 0x1016, DOCTOR_KIND_MLX5, 14, 21, false, "NVIDIA ConnectX-4 Lx virtual function" },
	{ 0x1017, DOCTOR_KIND_MLX5, 16, 21, false, "NVIDIA ConnectX-5" },
	{ 0x1018, DOCTOR_KIND_MLX5, 16, 21, false, "NVIDIA ConnectX-5 virtual function" },
	{ 0x1019, DOCTOR_KIND_MLX5, 16, 21, false, "NVIDIA ConnectX-5 Ex" },
	{ 0x101a, DOCTOR_KIND_MLX5, 16, 21, false, "NVIDIA ConnectX-5 Ex virtual function" },
	{ 0x101b, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-6" },
	{ 0x101c, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-6 virtual function" },
	{ 0x101d, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-6 Dx" },
	{ 0x101e, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX virtual function" },
	{ 0x101f, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-6 Lx" },
	{ 0x1021, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-7" },
	{ 0x1023, DOCTOR_KIND_MLX5, 0, 0, true, "NVIDIA ConnectX-8" },
	{ 0x1025, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-9" },
	{ 0x1027, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA ConnectX-10" },
	{ 0xa2d2, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA BlueField" },
	{ 0xa2d3, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA BlueField virtual function" },
	{ 0xa2d6, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA BlueField-2" },
	{ 0xa2dc, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA BlueField-3" },
	{ 0xa2df, DOCTOR_KIND_MLX5, 0, 0, false, "NVIDIA BlueField-4" },
};

static const struct doctor_part *part_of(uint32_t id)
{
	for (size_t i = 0; i < COUNT(parts); i++)
		if (parts[i].id == id)
			return &parts[i];
	return NULL;
}

/* --- finding ------------------------------------------------------------------------------------------- */

static void add_name(struct doctor_device *dev, const char *name)
{
	size_t used = strlen(dev->all);

	snprintf(dev->all + used, sizeof(dev->all) - used, "%s%s", used ? " " : "", name);
	dev->count++;
}

/* What the files of the kernel say of the device; nothing for unpin's, which has none. */
static void read_sysfs(struct doctor *d)
{
	struct doctor_device *dev = &d->device;
	char base[128], word[64], *uevent;
	uint64_t id;

	snprintf(base, sizeof(base), "/sys/class/infiniband/%s", dev->name);
	if (!dev->firmware[0])
		doctor_line(d, dev->firmware, sizeof(dev->firmware), "%s/fw_ver", base);
	if (doctor_number(d, &id, "%s/device/device", base))
		dev->id = (uint32_t)id;
	uevent = doctor_read(d, "%s/device/uevent", base);
	if (uevent && strstr(uevent, "DRIVER="))
		snprintf(dev->driver, sizeof(dev->driver), "%.*s",
			(int)strcspn(strstr(uevent, "DRIVER=") + 7, "\n"), strstr(uevent, "DRIVER=") + 7);
	free(uevent);
	doctor_line(d, word, sizeof(word), "%s/node_desc", base);
	if (!dev->id && strncmp(word, "rxe", 3) == 0) {
		dev->kind = DOCTOR_KIND_RXE;
		snprintf(dev->driver, sizeof(dev->driver), "rdma_rxe");
	}
	if (!dev->port_state[0] && doctor_line(d, word, sizeof(word), "%s/ports/1/state", base)) {
		const char *state = strchr(word, ':');

		dev->port_active = word[0] == '4';
		snprintf(dev->port_state, sizeof(dev->port_state), "port 1 is%.40s",
			state ? state + 1 : " in an unknown state");
	}
}

static void name_kind(struct doctor_device *dev)
{
	static const char *const words[] = {
		[DOCTOR_KIND_OTHER] = "a device this program has no rules for",
		[DOCTOR_KIND_UNPIN] = "unpin's own device (software, in the process that uses it)",
		[DOCTOR_KIND_MLX5] = "an NVIDIA mlx5 device",
		[DOCTOR_KIND_MLX4] = "an NVIDIA mlx4 device",
		[DOCTOR_KIND_RXE] = "the Linux kernel's rxe (software)",
	};
	const struct doctor_part *part = part_of(dev->id);

	dev->part = part;
	if (dev->kind == DOCTOR_KIND_OTHER && part)
		dev->kind = part->kind;
	if (dev->kind == DOCTOR_KIND_OTHER && strncmp(dev->driver, "mlx5", 4) == 0)
		dev->kind = DOCTOR_KIND_MLX5;
	if (dev->kind == DOCTOR_KIND_OTHER && strncmp(dev->driver, "mlx4", 4) == 0)
		dev->kind = DOCTOR_KIND_MLX4;
	snprintf(dev->kind_words, sizeof(dev->kind_words), "%s",
		part && part->kind == dev->kind ? part->name : words[dev->kind]);
}

static bool choose(struct doctor *d, const char *name)
{
	const char *own = getenv("UNPIN_DEVICE");
	const char *preferred = d->wanted ? d->wanted : own && *own ? own : NIC_NAME_DEFAULT;
	struct doctor_device *dev = &d->device;

	if (strcmp(name, preferred) != 0 && (d->wanted || dev->found))
		return false;
	snprintf(dev->name, sizeof(dev->name), "%s", name);
	dev->found = true;
	return true;
}

static void query(struct doctor *d, struct ibv_context *context, uint32_t *port)
{
	struct doctor_device *dev = &d->device;
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr state;

	memset(&attr, 0, sizeof(attr));
	if (ibv_query_device_ex(context, NULL, &attr))
		return;
	dev->caps_known = true;
	dev->general = attr.odp_caps.general_caps;
	dev->says[DOCTOR_RC] = attr.odp_caps.per_transport_caps.rc_odp_caps;
	dev->says[DOCTOR_UC] = attr.odp_caps.per_transport_caps.uc_odp_caps;
	dev->says[DOCTOR_UD] = attr.odp_caps.per_transport_caps.ud_odp_caps;
	dev->says[DOCTOR_XRC] = attr.xrc_odp_caps;
	dev->max_mr_size = attr.orig_attr.max_mr_size;
	dev->id = attr.orig_attr.vendor_id == NVIDIA_VENDOR_ID ? attr.orig_attr.vendor_part_id : 0;
	snprintf(dev->firmware, sizeof(dev->firmware), "%s", attr.orig_attr.fw_ver);
	if (attr.orig_attr.vendor_id == NIC_VENDOR_ID) {
		dev->kind = DOCTOR_KIND_UNPIN;
		snprintf(dev->driver, sizeof(dev->driver), "libunpin.so");
	}
	for (unsigned p = 1; p <= attr.orig_attr.phys_port_cnt && !dev->port_active; p++) {
		memset(&state, 0, sizeof(state));
		if (ibv_query_port(context, (uint8_t)p, &state))
			continue;
		dev->port_active = state.state == IBV_PORT_ACTIVE;
		*port = dev->port_active || p == 1 ? p : *port;
		snprintf(dev->port_state, sizeof(dev->port_state), "port %u is %s", *port,
			ibv_port_state_str(state.state));
	}
}

int doctor_find_region(struct doctor *d, size_t length, int access)
{
	void *addr = machine_map(length);
	struct ibv_mr *mr;
	int err;

	if (!addr)
		return DOCTOR_NO_ADDRESSES;
	errno = 0;
	mr = ibv_reg_mr(d->e.pd, addr, length,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | access);
	err = mr ? 0 : errno ? errno : EIO;
	if (mr)
		ibv_dereg_mr(mr);
	machine_unmap(addr, length);
	return err;
}

static void find_live(struct doctor *d)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
	struct endpoint_choice choice = { .port = 1, .gid_index = -1 };
	struct ibv_context *context;

	for (size_t i = 0; list && list[i]; i++) {
		add_name(&d->device, ibv_get_device_name(list[i]));
		if (choose(d, ibv_get_device_name(list[i])))
			device = list[i];
	}
	context = device ? ibv_open_device(device) : NULL;
	if (device && !context)
		snprintf(d->e.why, sizeof(d->e.why), "cannot open %s: %s", d->device.name, strerror(errno));
	if (context) {
		query(d, context, &choice.port);
		ibv_close_device(context);
		snprintf(choice.device, sizeof(choice.device), "%s", d->device.name);
		d->open = endpoint_open(&d->e, &choice) == 0;
	}
	if (list)
		ibv_free_device_list(list);
	if (d->open) {
		d->on_demand_errno = doctor_find_region(d, (size_t)getpagesize(), IBV_ACCESS_ON_DEMAND);
		if (d->on_demand_errno == DOCTOR_NO_ADDRESSES)
			d->on_demand_errno = ENOMEM;
		d->accepts_on_demand = !d->on_demand_errno;
	}
}

/* --- the output of `ibv_devinfo -v`, in a record ---------------------------------------------------------
 */

struct devinfo {
	struct doctor_device *dev;
	bool alone; /* the record has no files of the kernel about devices */
	bool mine;  /* lines of the chosen device */
	unsigned long vendor;
	uint32_t *into; /* what words like SUPPORT_SEND are added to; NULL: nothing */
};

static const struct {
	const char *word;
	uint32_t bit;
} devinfo_words[] = {
	{ "SUPPORT_SEND", IBV_ODP_SUPPORT_SEND },
	{ "SUPPORT_RECV", IBV_ODP_SUPPORT_RECV },
	{ "SUPPORT_WRITE", IBV_ODP_SUPPORT_WRITE },
	{ "SUPPORT_READ", IBV_ODP_SUPPORT_READ },
	{ "SUPPORT_ATOMIC", IBV_ODP_SUPPORT_ATOMIC },
	{ "SUPPORT_SRQ", IBV_ODP_SUPPORT_SRQ_RECV },
};

static const struct {
	const char *heading;
	enum doctor_transport transport;
} devinfo_headings[] = {
	{ "rc_odp_caps:", DOCTOR_RC },
	{ "uc_odp_caps:", DOCTOR_UC },
	{ "ud_odp_caps:", DOCTOR_UD },
	{ "xrc_odp_caps:", DOCTOR_XRC },
};

/* The name behind "hca_id:"; NULL: the line is another one. It is cut out of the line. */
static char *devinfo_name(char *line)
{
	char *word = line + strspn(line, " \t"), *name;

	if (strncmp(word, "hca_id:", 7) != 0)
		return NULL;
	name = word + 7 + strspn(word + 7, " \t");
	name[strcspn(name, " \t\r")] = 0;
	return name;
}

/* A record without the files of the kernel: the devices are those that ibv_devinfo names. */
static bool devinfo_device(void *arg, char *line)
{
	struct doctor *d = arg;
	char *name = devinfo_name(line);

	if (name && *name) {
		add_name(&d->device, name);
		choose(d, name);
	}
	return true;
}

/* What is read from the files of the kernel where the record has them. */
static void devinfo_fact(struct devinfo *p, const char *word)
{
	struct doctor_device *dev = p->dev;
	char state[32];

	if (strncmp(word, "fw_ver:", 7) == 0)
		sscanf(word + 7, " %63s", dev->firmware);
	if (strncmp(word, "vendor_id:", 10) == 0)
		p->vendor = strtoul(word + 10, NULL, 0);
	if (p->vendor == NIC_VENDOR_ID)
		dev->kind = DOCTOR_KIND_UNPIN;
	if (strncmp(word, "vendor_part_id:", 15) == 0 && p->vendor == NVIDIA_VENDOR_ID)
		dev->id = (uint32_t)strtoul(word + 15, NULL, 0);
	if (strncmp(word, "state:", 6) == 0 && !dev->port_active && sscanf(word + 6, " %31s", state) == 1) {
		dev->port_active = strcmp(state, "PORT_ACTIVE") == 0;
		snprintf(dev->port_state, sizeof(dev->port_state), "a port is %s", state);
	}
}

static bool devinfo_line(void *arg, char *line)
{
	struct devinfo *p = arg;
	char *word = line + strspn(line, " \t"), *name = devinfo_name(line);
	struct doctor_device *dev = p->dev;

	if (name) {
		p->mine = strcmp(name, dev->name) == 0;
		p->into = NULL;
		return true;
	}
	if (!p->mine)
		return true;
	if (p->alone)
		devinfo_fact(p, word);
	if (strncmp(word, "general_odp_caps:", 17) == 0) {
		dev->caps_known = true;
		p->into = NULL;
	}
	for (size_t i = 0; i < COUNT(devinfo_headings); i++)
		if (strncmp(word, devinfo_headings[i].heading, strlen(devinfo_headings[i].heading)) == 0)
			p->into = &dev->says[devinfo_headings[i].transport];
	if (strncmp(word, "ODP_SUPPORT_IMPLICIT", 20) == 0)
		dev->general |= IBV_ODP_SUPPORT_IMPLICIT;
	else if (strncmp(word, "ODP_SUPPORT", 11) == 0)
		dev->general |= IBV_ODP_SUPPORT;
	/* Whole words: there is SUPPORT_ATOMIC_WRITE, too. */
	for (size_t i = 0; p->into && i < COUNT(devinfo_words); i++)
		if (strcspn(word, " \t\r") == strlen(devinfo_words[i].word) &&
			strncmp(word, devinfo_words[i].word, strlen(devinfo_words[i].word)) == 0)
			*p->into |= devinfo_words[i].bit;
	if (strncmp(word, "max_mr_size:", 12) == 0)
		dev->max_mr_size = strtoull(word + 12 + strspn(word + 12, " \t"), NULL, 0);
	return true;
}

static void read_devinfo(const struct doctor *d, bool (*see)(void *arg, char *line), void *arg)
{
	char *text = doctor_read(d, "/verbs/ibv_devinfo");

	if (text)
		doctor_lines(text, see, arg);
	free(text);
}

static void find_recorded(struct doctor *d)
{
	char **names = doctor_names(d, "/sys/class/infiniband");
	struct devinfo parse = { .dev = &d->device };

	for (size_t i = 0; names && names[i]; i++) {
		add_name(&d->device, names[i]);
		choose(d, names[i]);
	}
	parse.alone = !names || !names[0];
	doctor_names_free(names);
	if (parse.alone)
		read_devinfo(d, devinfo_device, d);
	if (d->device.found)
		read_devinfo(d, devinfo_line, &parse);
}

void doctor_find(struct doctor *d)
{
	if (d->root)
		find_recorded(d);
	else
		find_live(d);
	if (!d->device.found)
		return;
	if (d->device.kind != DOCTOR_KIND_UNPIN)
		read_sysfs(d);
	name_kind(&d->device);
}

void doctor_find_close(struct doctor *d)
{
	if (d->open)
		endpoint_close(&d->e);
	d->open = false;
}
