/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Which device it is, what it says of itself, and whether that is so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tool/alloc.h"
#include "tool/doctor.h"
#include "tool/doctor_reality.h"
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
		"with on-demand paging, and needs neither root nor a kernel module; the kernel's own "
		"is made by 'modprobe rdma_rxe' and 'rdma link add rxe0 type rxe netdev eth0', as root.");
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
	const struct doctor_part *part = dev->part;
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
	doctor_advise(r, "Register explicit regions with IBV_ACCESS_ON_DEMAND. Each takes far less "
			 "time than a pinned one, and nothing is pinned.");
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
	if (doctor_held_pins(d)) {
		doctor_say(r, DOCTOR_NA, "on-demand regions are pinned on this device, see below");
		return;
	}
	for (size_t i = 0; i < COUNT(shifts); i++) {
		size_t length = (size_t)1 << shifts[i];
		int err = doctor_find_region(d, length, IBV_ACCESS_ON_DEMAND);

		if (err == DOCTOR_NO_ADDRESSES) {
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

	doctor_data_try(d);
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
	const struct doctor_part *part = d->device.part;
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
