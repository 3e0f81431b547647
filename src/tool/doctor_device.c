/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Which device it is, what it says of itself, and whether that is so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nic/caps.h"
#include "tool/alloc.h"
#include "tool/doctor.h"
#include "tool/machine.h"
#include "tool/units.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const char *const doctor_transport_names[DOCTOR_TRANSPORTS] = { "RC", "UC", "UD", "XRC" };
const char *const doctor_operation_names[DOCTOR_OPERATIONS] = { "send", "receive", "write", "read", "atomic",
	"shared receive" };
const char *const doctor_tried_names[DOCTOR_TRIED] = { "not tried", "works", "wrong bytes", "refused" };
const uint32_t doctor_operation_bits[DOCTOR_OPERATIONS] = { IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_RECV,
	IBV_ODP_SUPPORT_WRITE, IBV_ODP_SUPPORT_READ, IBV_ODP_SUPPORT_ATOMIC, IBV_ODP_SUPPORT_SRQ_RECV };

#define USUAL (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ)

/* NVIDIA's devices by PCI number, as the drivers and pci.ids have them. tested: the oldest firmware that the
 * guide of DPDK asked for in 2018 and 2019, on the branch of that card (0: no such rule). ddp: known to be
 * able to place data out of order (direct data placement), which UCX does not combine with on-demand paging.
 */
static const struct part {
	uint32_t id;
	enum doctor_kind kind;
	unsigned branch, tested_minor;
	bool ddp;
	const char *name;
} parts[] = {
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

static const struct part *part_of(uint32_t id)
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
		dev->part = (uint32_t)id;
	uevent = doctor_read(d, "%s/device/uevent", base);
	if (uevent && strstr(uevent, "DRIVER="))
		snprintf(dev->driver, sizeof(dev->driver), "%.*s",
			(int)strcspn(strstr(uevent, "DRIVER=") + 7, "\n"), strstr(uevent, "DRIVER=") + 7);
	free(uevent);
	doctor_line(d, word, sizeof(word), "%s/node_desc", base);
	if (!dev->part && strncmp(word, "rxe", 3) == 0) {
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
	const struct part *part = part_of(dev->part);

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
	dev->part = attr.orig_attr.vendor_id == 0x02c9 ? attr.orig_attr.vendor_part_id : 0;
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

#define NO_ADDRESSES (-1)

/* Registers untouched memory for a moment. 0, a positive errno, or NO_ADDRESSES when it could not be mapped.
 */
static int try_region(struct doctor *d, size_t length, int access)
{
	void *addr = machine_map(length);
	struct ibv_mr *mr;
	int err;

	if (!addr)
		return NO_ADDRESSES;
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
		d->on_demand_errno = try_region(d, (size_t)getpagesize(), IBV_ACCESS_ON_DEMAND);
		if (d->on_demand_errno == NO_ADDRESSES)
			d->on_demand_errno = ENOMEM;
		d->accepts_on_demand = !d->on_demand_errno;
	}
}

/* --- the output of `ibv_devinfo -v`, in a record ---------------------------------------------------------
 */

struct devinfo {
	struct doctor_device *dev;
	bool mine;	/* lines of the chosen device */
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

static bool devinfo_line(void *arg, char *line)
{
	struct devinfo *p = arg;
	char *word = line + strspn(line, " \t");
	struct doctor_device *dev = p->dev;

	if (strncmp(word, "hca_id:", 7) == 0) {
		char *name = word + 7 + strspn(word + 7, " \t");

		name[strcspn(name, " \t")] = 0;
		p->mine = strcmp(name, dev->name) == 0;
		p->into = NULL;
		return true;
	}
	if (!p->mine)
		return true;
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

static void find_recorded(struct doctor *d)
{
	char **names = doctor_names(d, "/sys/class/infiniband"), *text;
	struct devinfo parse = { .dev = &d->device };

	for (size_t i = 0; names && names[i]; i++) {
		add_name(&d->device, names[i]);
		choose(d, names[i]);
	}
	doctor_names_free(names);
	text = d->device.found ? doctor_read(d, "/verbs/ibv_devinfo") : NULL;
	if (text)
		doctor_lines(text, devinfo_line, &parse);
	free(text);
}

void doctor_device_find(struct doctor *d)
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

void doctor_device_close(struct doctor *d)
{
	if (d->open)
		endpoint_close(&d->e);
	d->open = false;
}

/* --- checks ----------------------------------------------------------------------------------------------
 */

static void check_present(struct doctor *d, struct doctor_result *r)
{
	struct doctor_device *dev = &d->device;

	/* A port that is not active is told by the next check. */
	if (dev->found && (d->root || d->open || (dev->caps_known && !dev->port_active))) {
		doctor_say(r, DOCTOR_OK, "%s: %s%s%s", dev->name, dev->kind_words,
			dev->count > 1 ? "; devices here: " : "", dev->count > 1 ? dev->all : "");
		return;
	}
	if (dev->found) {
		doctor_say(r, DOCTOR_FAIL, "%s", d->e.why[0] ? d->e.why : "the device cannot be opened");
		doctor_mean(r, "The device is known to the system, but this process cannot use it.");
		doctor_advise(r,
			"Programs need read and write access to /dev/infiniband/uverbs*. On the host, look "
			"at "
			"'ls -l /dev/infiniband'; in a container, pass the devices in (docker run "
			"--device=/dev/infiniband). If they are there and accessible, the kernel log tells "
			"why the driver refuses.");
		return;
	}
	if (dev->count)
		doctor_say(r, DOCTOR_FAIL, "there is no device '%s'; there is: %s",
			d->wanted ? d->wanted : "", dev->all);
	else
		doctor_say(
			r, DOCTOR_FAIL, "there is no RDMA device%s", d->root ? " in this record" : " here");
	doctor_mean(r, "Nothing can use RDMA, with or without on-demand paging.");
	doctor_advise(r,
		"With a network card: see whether it is on the PCI bus (lspci) and whether its driver is "
		"loaded "
		"(modprobe mlx5_ib for an NVIDIA card); the PCI group below looks for what keeps it "
		"from starting. Without one: 'unpin run -- PROGRAM' gives a program a software device "
		"with on-demand paging, and needs neither root nor a kernel module.");
}

static void check_port(struct doctor *d, struct doctor_result *r)
{
	struct doctor_device *dev = &d->device;

	if (dev->port_active) {
		doctor_say(r, DOCTOR_OK, "%s", dev->port_state);
		return;
	}
	if (!dev->port_state[0]) {
		doctor_say(r, DOCTOR_UNKNOWN, "the state of the port cannot be read");
		doctor_mean(r, "Whether the device can send is not known.");
		doctor_advise(r, "'ibv_devinfo' shows the state of every port.");
		return;
	}
	doctor_say(r, DOCTOR_FAIL, "%s", dev->port_state);
	doctor_mean(r, "A port that is not active carries no traffic, so that connections cannot be made.");
	doctor_advise(r, "On Ethernet set the interface up ('ip link set DEV up') and check the cable; on "
			 "InfiniBand a "
			 "subnet manager must run ('opensm', or that of the switch).");
}

static bool rule_firmware(const struct doctor_device *dev, struct doctor_result *r)
{
	const struct part *part = part_of(dev->part);
	unsigned branch, minor, patch;

	if (!part || !part->tested_minor || sscanf(dev->firmware, "%u.%u.%u", &branch, &minor, &patch) != 3)
		return false;
	if (branch != part->branch || minor >= part->tested_minor)
		return false;
	doctor_say(r, DOCTOR_WARN, "%s, firmware %s", dev->kind_words, dev->firmware);
	doctor_mean(r,
		"This firmware is older than %u.%u.1000, the oldest that DPDK's guide for this card asked "
		"for in "
		"2018. Old firmware may report on-demand paging and lack parts of it: no atomics, no "
		"implicit "
		"regions, or on-demand regions that are pinned all the same.",
		part->branch, part->tested_minor);
	doctor_advise(r,
		"Update the firmware (mstflint or mlxfwmanager), reset the card, and run 'unpin doctor -d "
		"%s' "
		"again: on a live machine it tries what the firmware promises.",
		dev->name);
	return true;
}

static void check_firmware(struct doctor *d, struct doctor_result *r)
{
	struct doctor_device *dev = &d->device;

	if (dev->kind == DOCTOR_KIND_MLX4) {
		doctor_say(r, DOCTOR_FAIL, "%s, driver %s", dev->kind_words, dev->driver);
		doctor_mean(r, "Cards of this generation have no on-demand paging, whatever their firmware.");
		doctor_advise(
			r, "Use a ConnectX-4 or later, or 'unpin run -- PROGRAM' for a software device.");
		return;
	}
	if (rule_firmware(dev, r))
		return;
	if (dev->kind == DOCTOR_KIND_RXE) {
		doctor_say(r, DOCTOR_OK, "%s; software has no firmware", dev->driver);
		return;
	}
	if (dev->firmware[0]) {
		doctor_say(r, DOCTOR_OK, "%s, firmware %s", dev->driver[0] ? dev->driver : "driver unknown",
			dev->firmware);
		return;
	}
	doctor_say(
		r, DOCTOR_UNKNOWN, "%s, firmware unknown", dev->driver[0] ? dev->driver : "driver unknown");
	doctor_mean(
		r, "The version of the firmware cannot be read, so that no rule about it can be applied.");
	doctor_advise(r, "'ibv_devinfo' shows it as fw_ver.");
}

static void advise_no_odp(struct doctor *d, struct doctor_result *r)
{
	switch (d->device.kind) {
	case DOCTOR_KIND_MLX5:
		doctor_advise(r,
			"The kernel must be built with CONFIG_INFINIBAND_ON_DEMAND_PAGING (see the kernel "
			"group), and the firmware must offer it: update the firmware. If both are so and it "
			"is "
			"still not offered, use pinned memory, or 'unpin run -- PROGRAM' for a software "
			"device.");
		return;
	case DOCTOR_KIND_RXE:
		doctor_advise(r, "rxe has on-demand paging from Linux 6.15 on, if the kernel was built with "
				 "CONFIG_INFINIBAND_ON_DEMAND_PAGING. Or use 'unpin run -- PROGRAM', which "
				 "has it on any "
				 "kernel.");
		return;
	case DOCTOR_KIND_UNPIN:
		doctor_advise(r,
			"This device imitates one without it, because UNPIN_PROFILE=%s is set. Unset the "
			"variable, "
			"or set it to unpin.",
			getenv("UNPIN_PROFILE") ? getenv("UNPIN_PROFILE") : "");
		return;
	default:
		doctor_advise(r, "Use pinned memory on this device, another device (ConnectX-4 or later, rxe "
				 "from Linux 6.15 "
				 "on), or 'unpin run -- PROGRAM' for a software device.");
	}
}

static void list_bits(uint32_t bits, char *out, size_t size)
{
	size_t used = 0;

	out[0] = 0;
	for (size_t i = 0; i < DOCTOR_OPERATIONS && used < size; i++)
		if (bits & doctor_operation_bits[i])
			used += (size_t)snprintf(
				out + used, size - used, "%s%s", used ? ", " : "", doctor_operation_names[i]);
}

static void check_odp(struct doctor *d, struct doctor_result *r)
{
	struct doctor_device *dev = &d->device;
	char rc[128];

	if (!dev->caps_known) {
		doctor_say(r, DOCTOR_UNKNOWN, "what the device offers is not %s",
			d->root ? "in the record (verbs/ibv_devinfo)" : "told");
		doctor_mean(r, "Without it nobody can say whether on-demand paging is there.");
		doctor_advise(r, "%s",
			d->root ? "Add the output of 'ibv_devinfo -v' as verbs/ibv_devinfo to the record."
				: "See why 'ibv_devinfo -v' fails on this device.");
		return;
	}
	list_bits(dev->says[DOCTOR_RC], rc, sizeof(rc));
	if (!(dev->general & IBV_ODP_SUPPORT)) {
		doctor_say(r, DOCTOR_FAIL, "the device does not offer on-demand paging");
		doctor_mean(r,
			"Registrations with IBV_ACCESS_ON_DEMAND are refused%s%s; programs have to pin.",
			d->open ? ": " : "", d->open ? strerror(d->on_demand_errno) : "");
		if (d->accepts_on_demand)
			doctor_mean(r, "It takes a registration with IBV_ACCESS_ON_DEMAND all the same, "
				       "which proves nothing.");
		advise_no_odp(d, r);
		return;
	}
	if (d->open && !d->accepts_on_demand) {
		doctor_say(r, DOCTOR_FAIL, "offered, but a registration of one page is refused: %s",
			strerror(d->on_demand_errno));
		doctor_mean(r,
			"The device says one thing and does another; programs that ask it will fail later.");
		doctor_advise(
			r, "Read the kernel log for a message of the driver; update firmware and kernel.");
		return;
	}
	if ((dev->says[DOCTOR_RC] & USUAL) != USUAL) {
		doctor_say(
			r, DOCTOR_WARN, "offered; on reliable connections only: %s", rc[0] ? rc : "nothing");
		doctor_mean(r, "Programs expect send, receive, write and read with on-demand memory; what is "
			       "missing fails "
			       "with a protection error when it is used.");
		doctor_advise(r, "Use on-demand memory only with the operations listed, and pinned memory "
				 "for the others; "
				 "newer firmware or kernels may offer more.");
		return;
	}
	doctor_say(r, DOCTOR_OK, "offered; reliable connections: %s", rc);
}

static void check_implicit(struct doctor *d, struct doctor_result *r)
{
	bool says = d->device.general & IBV_ODP_SUPPORT_IMPLICIT;
	struct ibv_mr *mr;
	int err;

	if (!d->device.caps_known) {
		doctor_say(r, DOCTOR_UNKNOWN, "what the device offers is not known");
		doctor_mean(r, "One region for the whole address space may or may not be had.");
		doctor_advise(r, "See the check of what the device offers, above.");
		return;
	}
	if (!(d->device.general & IBV_ODP_SUPPORT)) {
		doctor_say(r, DOCTOR_NA, "the device has no on-demand paging");
		return;
	}
	if (d->root || !d->open) {
		doctor_say(r, says ? DOCTOR_OK : DOCTOR_WARN, "%s",
			says ? "offered (not tried)" : "not offered");
	} else {
		errno = 0;
		mr = ibv_reg_mr(d->e.pd, NULL, SIZE_MAX,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_ON_DEMAND);
		err = mr ? 0 : errno;
		if (mr)
			ibv_dereg_mr(mr);
		if (says && err) {
			doctor_say(r, DOCTOR_FAIL, "offered, but refused when tried: %s", strerror(err));
			doctor_mean(r, "Programs that see the capability will rely on it and fail.");
			doctor_advise(r, "Register explicit regions (address and length) with "
					 "IBV_ACCESS_ON_DEMAND; report the "
					 "contradiction to the maker of the driver.");
			return;
		}
		doctor_say(r, says ? DOCTOR_OK : DOCTOR_WARN, "%s",
			says  ? "offered, and registered when tried"
			: err ? "not offered, and refused when tried"
			      : "not offered, though taken when tried");
	}
	if (r->verdict == DOCTOR_OK)
		return;
	doctor_mean(
		r, "One region for the whole address space cannot be had; each buffer needs a registration.");
	doctor_advise(r, "Register explicit regions with IBV_ACCESS_ON_DEMAND. It costs microseconds each, "
			 "and nothing is "
			 "pinned.");
}

static void check_prefetch(struct doctor *d, struct doctor_result *r)
{
	size_t length = 16 * (size_t)getpagesize();
	void *addr = machine_map(length);
	struct ibv_mr *mr;
	struct ibv_sge sge;
	unsigned char *in;
	size_t there = 0;
	int err;

	mr = addr ? ibv_reg_mr(d->e.pd, addr, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) : NULL;
	if (!mr) {
		doctor_say(r, DOCTOR_UNKNOWN, "a region of 16 pages could not be registered: %s",
			strerror(errno));
		doctor_mean(r, "Whether prefetch works could not be tried.");
		doctor_advise(r, "See the checks of registration, below.");
		machine_unmap(addr, length);
		return;
	}
	sge = (struct ibv_sge){ .addr = (uintptr_t)addr, .length = (uint32_t)length, .lkey = mr->lkey };
	err = ibv_advise_mr(d->e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	in = alloc_array(16, 1);
	if (!err && mincore(addr, length, in) == 0)
		for (size_t i = 0; i < 16; i++)
			there += in[i] & 1;
	free(in);
	ibv_dereg_mr(mr);
	machine_unmap(addr, length);
	if (!err && there == 16) {
		doctor_say(r, DOCTOR_OK, "ibv_advise_mr brought in 16 of 16 pages");
		return;
	}
	if (err)
		doctor_say(r, DOCTOR_WARN, "ibv_advise_mr is refused: %s", strerror(err < 0 ? -err : err));
	else
		doctor_say(r, DOCTOR_WARN, "ibv_advise_mr reported success and brought in %zu of 16 pages",
			there);
	doctor_mean(r, "Programs cannot have pages brought in ahead of use; the first access to every page "
		       "pays for a page "
		       "fault.");
	doctor_advise(r,
		"Where first accesses must be fast, touch the memory with the processor after allocating it "
		"(MADV_POPULATE_WRITE does it in one call since Linux 5.14).%s",
		d->device.kind == DOCTOR_KIND_RXE
			? " On rxe, prefetch needs a kernel newer than 6.15 and rdma-core 59 or later."
			: "");
}

static void check_sizes(struct doctor *d, struct doctor_result *r)
{
	/* 256 MiB, beyond which firmware without large page tables does not go, to 64 GiB. */
	static const unsigned shifts[] = { 28, 30, 31, 32, 34, 36 };
	uint64_t good = 0;

	/* Or the attempt would take all of the machine's memory. */
	if (doctor_reality_pins(d)) {
		doctor_say(r, DOCTOR_NA, "on-demand regions are pinned on this device, see below");
		return;
	}
	for (size_t i = 0; i < COUNT(shifts); i++) {
		size_t length = (size_t)1 << shifts[i];
		int err = try_region(d, length, IBV_ACCESS_ON_DEMAND);

		if (err == NO_ADDRESSES) {
			doctor_say(r, DOCTOR_UNKNOWN,
				"%s of address space cannot be had here (largest that worked: %s)",
				doctor_bytes(length), good ? doctor_bytes(good) : "less than 256 MiB");
			doctor_mean(r, "Whether the device takes larger regions could not be tried.");
			doctor_advise(r, "See overcommit in the memory group, and 'ulimit -v'.");
			return;
		}
		if (!err) {
			good = length;
			continue;
		}
		doctor_say(r, DOCTOR_WARN, "%s is refused: %s (largest that worked: %s; the device says %s)",
			doctor_bytes(length), strerror(err), good ? doctor_bytes(good) : "less than 256 MiB",
			doctor_bytes(d->device.max_mr_size));
		doctor_mean(r, "A large buffer cannot be one on-demand region on this device. Untouched "
			       "address space was "
			       "registered, so that memory was not what was missing.");
		doctor_advise(r, "Register pieces of at most %s and choose the key by the address.",
			good ? doctor_bytes(good) : "128 MiB");
		return;
	}
	doctor_say(
		r, DOCTOR_OK, "regions of 256 MiB to 64 GiB of untouched memory were registered on demand");
}

static void check_matrix(struct doctor *d, struct doctor_result *r)
{
	unsigned kept = 0, broken = 0, silent = 0;

	doctor_reality_try(d);
	for (int t = 0; t < DOCTOR_TRANSPORTS; t++)
		for (int o = 0; o < DOCTOR_OPERATIONS; o++) {
			bool says = d->device.says[t] & doctor_operation_bits[o];

			kept += says && d->tried[t][o] == DOCTOR_WORKS;
			broken += says && d->tried[t][o] > DOCTOR_WORKS;
			silent += !says && d->tried[t][o] == DOCTOR_WORKS;
		}
	if (broken) {
		doctor_say(r, DOCTOR_FAIL,
			"%u of the operations it offers with on-demand memory do not work, %u do; %s", broken,
			kept, d->trouble);
		doctor_mean(
			r, "The device promises more than it keeps; the table below shows which operations.");
		doctor_advise(r, "Use on-demand memory only where the table says that it works, or not at "
				 "all on this device.");
		return;
	}
	doctor_say(r, DOCTOR_OK, "all %u operations that it offers and that were tried work%s", kept,
		silent ? "; some that it does not offer do, too" : "");
}

#define SEE_UCX                                                                                              \
	"start the program with UCX_LOG_LEVEL=debug and read what it says of ODP: supported, or disabled "   \
	"and why."

static void check_scheme(struct doctor *d, struct doctor_result *r)
{
	const struct part *part = part_of(d->device.part);
	unsigned version = doctor_kernel_version(d, NULL, 0);

	if (d->device.kind != DOCTOR_KIND_MLX5) {
		doctor_say(r, DOCTOR_NA, "only for NVIDIA mlx5 devices");
		return;
	}
	if (part && part->ddp) {
		doctor_say(r, DOCTOR_WARN, "%s can place data out of order (DDP)", part->name);
		doctor_mean(r, "UCX (1.18.1 and later) does without on-demand paging on devices that can, "
			       "and says so "
			       "only at its debug level.");
		doctor_advise(r, "With plain verbs nothing has to be done. With UCX " SEE_UCX
				 " If it is disabled, count on pinned memory there.");
		return;
	}
	if (version >= 6012 || !version) {
		doctor_say(r, version ? DOCTOR_OK : DOCTOR_NA, "%s",
			version ? "this kernel knows both schemes of page faults of mlx5 (the firmware "
				  "decides "
				  "which is used)"
				: "the version of the kernel is not known");
		return;
	}
	doctor_say(r, DOCTOR_WARN, "Linux %u.%u knows only the transport scheme of page faults",
		version / 1000, version % 1000);
	doctor_mean(r, "Page faults of queue pairs that a library creates past the kernel (DevX) are not "
		       "resolved in "
		       "this scheme; UCX then does without on-demand paging, and says so only at its debug "
		       "level. The "
		       "memory scheme, which serves them, too, came with Linux 6.12 and needs firmware that "
		       "has it.");
	doctor_advise(r, "With plain verbs nothing has to be done. With UCX set "
			 "UCX_IB_MLX5_DEVX_OBJECTS=auto (UCX 1.20.1 "
			 "and later; with older ones set it to nothing: UCX_IB_MLX5_DEVX_OBJECTS=), so that "
			 "it creates its "
			 "queue pairs through the kernel, or use Linux 6.12 or later; then " SEE_UCX);
}

static const struct doctor_check checks[] = {
	{ "device.present", "device", DOCTOR_VITAL, check_present },
	{ "device.port", "port", DOCTOR_DEVICE | DOCTOR_VITAL, check_port },
	{ "device.firmware", "driver and firmware", DOCTOR_DEVICE, check_firmware },
	{ "device.odp", "on-demand paging", DOCTOR_DEVICE | DOCTOR_VITAL, check_odp },
	{ "device.implicit", "implicit regions", DOCTOR_DEVICE, check_implicit },
	{ "device.prefetch", "prefetch", DOCTOR_ODP, check_prefetch },
	{ "device.sizes", "large regions", DOCTOR_ODP, check_sizes },
	{ "device.matrix", "what it says, tried", DOCTOR_ODP, check_matrix },
	{ "device.scheme", "page fault scheme", DOCTOR_DEVICE, check_scheme },
	{ "device.use", "in use right now", DOCTOR_DEVICE, doctor_counters_use },
};

const struct doctor_group doctor_device_group = { "device", "Device", checks, COUNT(checks) };
