/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sysfs/entry.h"

#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/segment.h"
#include "nic/caps.h"
#include "nic/device.h"
#include "nic/gid.h"

#define SHOW(fn) static int fn(const struct sysfs_entry *e, unsigned row, char text[SYSFS_TEXT])
#define SAY(...) snprintf(text, SYSFS_TEXT, __VA_ARGS__)

SHOW(show_text)
{
	return SAY("%s", e->text);
}

SHOW(show_name)
{
	return SAY("NAME=%s\n", nic_device_name());
}

SHOW(show_guid)
{
	__be64 guid = nic_gid_eui64(nic_device_name());
	const uint8_t *b = (const uint8_t *)&guid;

	return SAY("%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
}

/* --- the port ---------------------------------------------------------------------------------------- */

unsigned sysfs_entry_rows(const struct sysfs_entry *e)
{
	return e->rows ? e->rows : nic_gid_rows(nic_gid_layout());
}

static struct ibv_port_attr port(void)
{
	struct ibv_port_attr attr;

	nic_port_fill(nic_gid_layout(), &attr);
	return attr;
}

SHOW(show_state)
{
	static const char *const name[] = { "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER" };
	unsigned state = port().state;

	return SAY("%u: %s\n", state, state < sizeof(name) / sizeof(name[0]) ? name[state] : "UNKNOWN");
}

SHOW(show_phys_state)
{
	static const char *const name[] = { "<unknown>", "Sleep", "Polling", "Disabled",
		"PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test" };
	unsigned state = port().phys_state;

	return SAY("%u: %s\n", state, name[state < sizeof(name) / sizeof(name[0]) ? state : 0]);
}

/* A link's speed is the product of its width and of what a lane does: IBTA 14.2.5.6, PortInfo. */
SHOW(show_rate)
{
	static const struct {
		unsigned value, tenths; /* of a Gb/s, a lane */
		const char *name;
	} speed[] = { { 1, 25, " SDR" }, { 2, 50, " DDR" }, { 4, 100, " QDR" }, { 8, 100, " FDR10" },
		{ 16, 140, " FDR" }, { 32, 250, " EDR" }, { 64, 500, " HDR" }, { 128, 1000, " NDR" } };
	struct ibv_port_attr attr = port();
	unsigned lanes = attr.active_width == 2	  ? 4
			 : attr.active_width == 4 ? 8
			 : attr.active_width == 8 ? 12
						  : 1;
	unsigned tenths = 25 * lanes;
	const char *name = " SDR";

	for (size_t i = 0; i < sizeof(speed) / sizeof(speed[0]); i++)
		if (speed[i].value == attr.active_speed) {
			tenths = speed[i].tenths * lanes;
			name = speed[i].name;
		}
	if (tenths % 10)
		return SAY("%u.%u Gb/sec (%uX%s)\n", tenths / 10, tenths % 10, lanes, name);
	return SAY("%u Gb/sec (%uX%s)\n", tenths / 10, lanes, name);
}

SHOW(show_lid)
{
	return SAY("0x%x\n", port().lid);
}

SHOW(show_lid_mask_count)
{
	return SAY("%u\n", port().lmc);
}

SHOW(show_sm_lid)
{
	return SAY("0x%x\n", port().sm_lid);
}

SHOW(show_sm_sl)
{
	return SAY("%u\n", port().sm_sl);
}

/* The kernel adds IBV_PORT_IP_BASED_GIDS for the verbs only. */
SHOW(show_cap_mask)
{
	return SAY("0x%08" PRIx32 "\n", port().port_cap_flags & ~(uint32_t)IBV_PORT_IP_BASED_GIDS);
}

SHOW(show_link_layer)
{
	return SAY("%s\n", port().link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
}

SHOW(show_pkey)
{
	return SAY("0x%04x\n", NIC_PKEY);
}

/* --- the GID table ------------------------------------------------------------------------------------ */

/* An empty row reads as zeros here, and the files of its attributes cannot be read: as the kernel's. */
SHOW(show_gid)
{
	struct ibv_gid_entry entry;
	const uint8_t *raw = entry.gid.raw;
	int n = 0;

	nic_gid_row(nic_gid_layout(), row, &entry);
	for (unsigned i = 0; i < 16; i += 2)
		n += snprintf(text + n, SYSFS_TEXT - (size_t)n, "%02x%02x%c", raw[i], raw[i + 1],
			i < 14 ? ':' : '\n');
	return n;
}

SHOW(show_gid_type)
{
	struct ibv_gid_entry entry;

	if (nic_gid_row(nic_gid_layout(), row, &entry))
		return -EINVAL;
	return SAY("%s\n", entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
}

SHOW(show_gid_interface)
{
	struct ibv_gid_entry entry;
	char name[IF_NAMESIZE];

	if (nic_gid_row(nic_gid_layout(), row, &entry) || !entry.ndev_ifindex ||
		!if_indextoname(entry.ndev_ifindex, name))
		return -EINVAL;
	return SAY("%s\n", name);
}

/* --- counters ----------------------------------------------------------------------------------------- */

SHOW(show_counter)
{
	uint64_t value = e->divisor ? nic_segment_counter(e->counter) / e->divisor : 0;

	return SAY("%" PRIu64 "\n", value);
}

#define AT(field) offsetof(struct unpin_segment, field)
#define FILE_OF(dir, file, fn, ...)                                                                          \
	{                                                                                                    \
		.directory = dir, .name = file, .rows = 1, .mode = 0444, .show = fn, __VA_ARGS__             \
	}
#define ROWS_OF(dir, n, fn, ...)                                                                             \
	{                                                                                                    \
		.directory = dir, .rows = n, .mode = 0444, .show = fn, __VA_ARGS__                           \
	}
#define COUNTER(dir, file, field, unit)                                                                      \
	FILE_OF(dir, file, show_counter, .live = true, .counter = AT(field), .divisor = unit)
#define PORT_COUNTER(file, field, unit) COUNTER("ports/1/counters", file, field, unit)
#define NO_COUNTER(file)		FILE_OF("ports/1/counters", file, show_counter, .divisor = 0)

const struct sysfs_entry sysfs_entries[] = { FILE_OF("", "fw_ver", show_text, .text = UNPIN_VERSION "\n"),
	FILE_OF("", "node_desc", show_text, .text = "unpin\n"), FILE_OF("", "node_guid", show_guid),
	FILE_OF("", "node_type", show_text, .text = "1: CA\n"), FILE_OF("", "sys_image_guid", show_guid),
	FILE_OF("", "uevent", show_name), FILE_OF("ports/1", "cap_mask", show_cap_mask),
	FILE_OF("ports/1", "lid", show_lid), FILE_OF("ports/1", "lid_mask_count", show_lid_mask_count),
	FILE_OF("ports/1", "link_layer", show_link_layer), FILE_OF("ports/1", "phys_state", show_phys_state),
	FILE_OF("ports/1", "rate", show_rate), FILE_OF("ports/1", "sm_lid", show_sm_lid),
	FILE_OF("ports/1", "sm_sl", show_sm_sl), FILE_OF("ports/1", "state", show_state),
	ROWS_OF("ports/1/gids", 0, show_gid, .live = true),
	ROWS_OF("ports/1/gid_attrs/types", 0, show_gid_type, .live = true),
	ROWS_OF("ports/1/gid_attrs/ndevs", 0, show_gid_interface, .live = true),
	ROWS_OF("ports/1/pkeys", 1, show_pkey),

	PORT_COUNTER("port_rcv_data", dev.rx_bytes, 4), PORT_COUNTER("port_rcv_packets", dev.rx_packets, 1),
	PORT_COUNTER("port_xmit_data", dev.tx_bytes, 4), PORT_COUNTER("port_xmit_discards", dev.tx_lost, 1),
	PORT_COUNTER("port_xmit_packets", dev.tx_packets, 1),
	PORT_COUNTER("port_xmit_wait", dev.tx_no_credit, 1),
	PORT_COUNTER("unicast_rcv_packets", dev.rx_packets, 1),
	PORT_COUNTER("unicast_xmit_packets", dev.tx_packets, 1), NO_COUNTER("VL15_dropped"),
	NO_COUNTER("excessive_buffer_overrun_errors"), NO_COUNTER("link_downed"),
	NO_COUNTER("link_error_recovery"), NO_COUNTER("local_link_integrity_errors"),
	NO_COUNTER("multicast_rcv_packets"), NO_COUNTER("multicast_xmit_packets"),
	NO_COUNTER("port_rcv_constraint_errors"), NO_COUNTER("port_rcv_errors"),
	NO_COUNTER("port_rcv_remote_physical_errors"), NO_COUNTER("port_rcv_switch_relay_errors"),
	NO_COUNTER("port_xmit_constraint_errors"), NO_COUNTER("symbol_error"),

/* Every counter of the segment, those of the device and those of on-demand paging. */
#define X(field, file, what) COUNTER("ports/1/hw_counters", file, dev.field, 1),
	UNPIN_DEVICE_COUNTERS(X)
#undef X
#define X(field, file, what) COUNTER("ports/1/hw_counters", file, odp.field, 1),
		UNPIN_ODP_COUNTERS(X)
#undef X
};

const size_t sysfs_entry_count = sizeof(sysfs_entries) / sizeof(sysfs_entries[0]);

const char *const sysfs_directories[] = { "", "ports", "ports/1", "ports/1/counters", "ports/1/gid_attrs",
	"ports/1/gid_attrs/ndevs", "ports/1/gid_attrs/types", "ports/1/gids", "ports/1/hw_counters",
	"ports/1/pkeys" };

const size_t sysfs_directory_count = sizeof(sysfs_directories) / sizeof(sysfs_directories[0]);

/* The number that a row's file is named by: decimal, without leading zeros. */
static bool row_number(const char *name, unsigned rows, unsigned *row)
{
	unsigned n = 0;

	if (!*name || (*name == '0' && name[1]))
		return false;
	for (; *name; name++) {
		if (*name < '0' || *name > '9' || n >= rows)
			return false;
		n = n * 10 + (unsigned)(*name - '0');
	}
	*row = n;
	return n < rows;
}

const struct sysfs_entry *sysfs_entry_find(const char *path, unsigned *row)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = slash ? (size_t)(slash - path) : 0;

	if (slash == path)
		return NULL;
	for (size_t i = 0; i < sysfs_entry_count; i++) {
		const struct sysfs_entry *e = &sysfs_entries[i];

		if (strlen(e->directory) != n || strncmp(e->directory, path, n))
			continue;
		*row = 0;
		if (e->name ? !strcmp(e->name, name) : row_number(name, sysfs_entry_rows(e), row))
			return e;
	}
	return NULL;
}
