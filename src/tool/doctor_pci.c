/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The cards on the PCI bus: whether they have their addresses, their link, and what stands between them and
 * memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/alloc.h"
#include "tool/doctor.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define VENDOR_NVIDIA	 0x15b3
#define CLASS_INFINIBAND 0x0207
#define CARDS_MAX	 16

/* Flags of a resource in sysfs: IORESOURCE_MEM, IORESOURCE_UNSET of include/linux/ioport.h. */
#define RESOURCE_MEM   0x200u
#define RESOURCE_UNSET 0x20000000u

/* Cards that are, or might be, RDMA devices: by vendor or class. The chosen device's own card is among them
 * where it is one. path is that of its folder in sysfs, address "0000:3b:00.0". */
struct cards {
	unsigned count;
	char address[CARDS_MAX][16];
	char path[CARDS_MAX][128];
};

static void add_card(struct cards *c, const char *path, const char *address)
{
	for (unsigned i = 0; i < c->count; i++)
		if (strcmp(c->address[i], address) == 0)
			return;
	if (c->count == CARDS_MAX)
		return;
	snprintf(c->path[c->count], sizeof(c->path[0]), "%s", path);
	snprintf(c->address[c->count], sizeof(c->address[0]), "%s", address);
	c->count++;
}

static void add_own(struct doctor *d, struct cards *c)
{
	char path[128], address[16] = "";
	char *uevent, *at;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", d->device.name);
	uevent = doctor_read(d, "%s/uevent", path);
	at = uevent ? strstr(uevent, "PCI_SLOT_NAME=") : NULL;
	if (at) {
		at += strlen("PCI_SLOT_NAME=");
		snprintf(address, sizeof(address), "%.*s", (int)strcspn(at, "\n"), at);
		add_card(c, path, address);
	}
	free(uevent);
}

static void find_cards(struct doctor *d, struct cards *c)
{
	char **names = doctor_names(d, "/sys/bus/pci/devices");

	c->count = 0;
	if (d->device.found)
		add_own(d, c);
	for (size_t i = 0; names && names[i]; i++) {
		uint64_t vendor = 0, class = 0;
		char path[128];

		if (strlen(names[i]) >= sizeof(c->address[0]))
			continue;
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", names[i]);
		doctor_number(d, &vendor, "%s/vendor", path);
		doctor_number(d, &class, "%s/class", path);
		/* NVIDIA's network cards only: 02xxxx. Bridges of BlueField have other classes. */
		if ((vendor == VENDOR_NVIDIA && class >> 16 == 0x02) || class >> 8 == CLASS_INFINIBAND)
			add_card(c, path, names[i]);
	}
	doctor_names_free(names);
}

static bool no_cards(const struct cards *c, struct doctor_result *r)
{
	if (c->count)
		return false;
	doctor_say(r, DOCTOR_NA, "no RDMA card is on the PCI bus");
	return true;
}

/* --- addresses ---------------------------------------------------------------------------------------------
 */

/* Memory BARs of a card: how many there are, and the size of the first that has no address (0: all have). */
static unsigned count_bars(struct doctor *d, const char *path, unsigned *number, uint64_t *unassigned)
{
	char *text = doctor_read(d, "%s/resource", path), *save = NULL;
	unsigned bars = 0, i = 0;

	*unassigned = 0;
	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line && i < 6;
		line = strtok_r(NULL, "\n", &save), i++) {
		unsigned long long start, end, flags;

		if (sscanf(line, "%llx %llx %llx", &start, &end, &flags) != 3 || !(flags & RESOURCE_MEM))
			continue;
		bars++;
		if ((!start || flags & RESOURCE_UNSET) && !*unassigned) {
			*unassigned = end - start + 1;
			*number = i;
		}
	}
	free(text);
	return bars;
}

static void advise_bars(struct doctor *d, struct doctor_result *r)
{
	char line[1024] = "";

	doctor_line(d, line, sizeof(line), "/proc/cmdline");
	if (strstr(line, "pci=realloc"))
		doctor_advise(r, "pci=realloc is on the kernel's command line already and did not help. "
				 "Switch on \"Above 4G Decoding\" in "
				 "the firmware setup (BIOS) of the machine, so that large windows can lie "
				 "above 4 GiB; in a virtual "
				 "machine give the PCI root port a larger 64-bit window.");
	else
		doctor_advise(r, "Switch on \"Above 4G Decoding\" in the firmware setup (BIOS) of the "
				 "machine, so that large windows can "
				 "lie above 4 GiB. If there is no such switch, or it is on, add pci=realloc "
				 "to the kernel's command line, "
				 "so that Linux distributes the addresses anew, and restart.");
}

static void check_bars(struct doctor *d, struct doctor_result *r)
{
	char good[512] = "", bad[512] = "";
	struct cards c;

	find_cards(d, &c);
	if (no_cards(&c, r))
		return;
	for (unsigned i = 0; i < c.count; i++) {
		unsigned number = 0, bars;
		uint64_t unassigned;

		bars = count_bars(d, c.path[i], &number, &unassigned);
		if (unassigned)
			doctor_append(bad, sizeof(bad), "%s: BAR %u (%s) has no address", c.address[i],
				number, doctor_bytes(unassigned));
		else if (bars)
			doctor_append(good, sizeof(good), "%s: %u memory BAR%s with addresses", c.address[i],
				bars, bars > 1 ? "s" : "");
	}
	if (bad[0]) {
		doctor_say(r, DOCTOR_FAIL, "%s", bad);
		doctor_mean(r, "A BAR is the window through which the processor reaches the card; without an "
			       "address the driver cannot "
			       "start it, and there is no RDMA device for it.");
		advise_bars(d, r);
	} else if (good[0]) {
		doctor_say(r, DOCTOR_OK, "%s", good);
	} else {
		doctor_say(r, DOCTOR_UNKNOWN, "the resources of %s cannot be read", c.address[0]);
		doctor_mean(r, "Whether the card has its addresses is not known.");
		doctor_advise(r, "'lspci -vv' as root shows them as \"Memory at ...\"; \"<unassigned>\" is "
				 "what to look for.");
	}
}

/* --- the kernel log ----------------------------------------------------------------------------------------
 */

static const char *const troubles[] = { "can't assign", "no space for", "failed to assign", "not assigned",
	"not claimed", "can't claim", "failed with error", "Failed initializing", "firmware initialization",
	"timed out", "page fault", "Failed to query", "probe_one" };

struct log_scan {
	const struct cards *cards;
	char first[256];
	unsigned count;
};

static bool concerns(const struct cards *c, const char *line)
{
	for (unsigned i = 0; i < c->count; i++)
		if (strstr(line, c->address[i]))
			return true;
	return strstr(line, "mlx5_core") || strstr(line, "mlx5_ib") || strstr(line, "rdma_rxe") ||
	       strstr(line, "ib_core");
}

static bool scan_line(void *arg, char *line)
{
	struct log_scan *s = arg;

	if (!concerns(s->cards, line))
		return true;
	for (size_t i = 0; i < COUNT(troubles); i++) {
		if (!strstr(line, troubles[i]))
			continue;
		if (!s->count++)
			snprintf(s->first, sizeof(s->first), "%s",
				line + (*line == '<' ? strcspn(line, ">") + 1 : 0));
		break;
	}
	return true;
}

static void check_log(struct doctor *d, struct doctor_result *r)
{
	char *text = doctor_kernel_log(d);
	int err = errno;
	struct cards c;
	struct log_scan s = { .cards = &c };

	find_cards(d, &c);
	if (!text) {
		doctor_say(r, DOCTOR_UNKNOWN, "the kernel log cannot be read: %s", strerror(err));
		doctor_mean(r, "Messages of the driver about cards that do not start, or about page faults, "
			       "are not seen.");
		doctor_advise(r, "%s",
			d->root ? "Add the output of dmesg as the file dmesg to the record."
				: "Run 'unpin doctor' as root, or look through 'sudo dmesg' for mlx5_core, "
				  "BAR and "
				  "\"failed to assign\".");
		return;
	}
	doctor_lines(text, scan_line, &s);
	free(text);
	if (!s.count) {
		doctor_say(r, DOCTOR_OK, "no complaint about an RDMA card or driver");
		return;
	}
	doctor_say(r, DOCTOR_WARN, "%u message%s, the first: %s", s.count, s.count > 1 ? "s" : "", s.first);
	if (strstr(s.first, "assign") || strstr(s.first, "no space") || strstr(s.first, "claimed")) {
		doctor_mean(r, "While the machine started, the kernel found no room in the address space for "
			       "a window of a card. (It may have "
			       "found some later; the check of addresses above tells how it stands.)");
		advise_bars(d, r);
		return;
	}
	doctor_mean(r, "The driver of an RDMA device had trouble.");
	doctor_advise(r, "Read the messages around it: 'dmesg | grep -i -e mlx5 -e rxe -e infiniband'. What "
			 "the messages name has to be "
			 "repaired first; figures and verdicts of on-demand paging mean little before.");
}

/* --- link
 * --------------------------------------------------------------------------------------------------- */

static void check_link(struct doctor *d, struct doctor_result *r)
{
	char good[512] = "", bad[512] = "";
	struct cards c;

	find_cards(d, &c);
	if (no_cards(&c, r))
		return;
	for (unsigned i = 0; i < c.count; i++) {
		char speed[32], most[32];
		uint64_t width = 0, widest = 0;

		if (!doctor_number(d, &width, "%s/current_link_width", c.path[i]) ||
			!doctor_number(d, &widest, "%s/max_link_width", c.path[i]))
			continue;
		doctor_line(d, speed, sizeof(speed), "%s/current_link_speed", c.path[i]);
		doctor_line(d, most, sizeof(most), "%s/max_link_speed", c.path[i]);
		if (width < widest || strcmp(speed, most) != 0)
			doctor_append(bad, sizeof(bad), "%s: x%u at %s, of x%u at %s", c.address[i],
				(unsigned)width, speed, (unsigned)widest, most);
		else
			doctor_append(
				good, sizeof(good), "%s: x%u at %s", c.address[i], (unsigned)width, speed);
	}
	if (bad[0]) {
		doctor_say(r, DOCTOR_WARN, "%s", bad);
		doctor_mean(r, "The card's PCI link is slower than the card; transfers of pinned and "
			       "on-demand memory alike are limited by it.");
		doctor_advise(r, "Move the card to a slot of full width and generation, and seat it anew; an "
				 "idle card may also have its link "
				 "at a lower speed for the time being.");
	} else if (good[0]) {
		doctor_say(r, DOCTOR_OK, "%s", good);
	} else {
		doctor_say(r, DOCTOR_UNKNOWN, "the width of the link of %s cannot be read", c.address[0]);
		doctor_mean(r, "A virtual function does not show it.");
		doctor_advise(r, "'lspci -vv' on the host shows it as LnkSta beside LnkCap.");
	}
}

/* --- IOMMU
 * --------------------------------------------------------------------------------------------------- */

static void check_iommu(struct doctor *d, struct doctor_result *r)
{
	char type[32], line[1024] = "";
	struct cards c;

	find_cards(d, &c);
	if (no_cards(&c, r))
		return;
	doctor_line(d, line, sizeof(line), "/proc/cmdline");
	if (!doctor_exists(d, "%s/iommu_group", c.path[0])) {
		doctor_say(r, DOCTOR_OK, "off for %s", c.address[0]);
		return;
	}
	if (!doctor_line(d, type, sizeof(type), "%s/iommu_group/type", c.path[0])) {
		doctor_say(
			r, DOCTOR_UNKNOWN, "%s is behind an IOMMU whose mode cannot be read", c.address[0]);
		doctor_mean(r, "If it translates, every page fault costs more.");
		doctor_advise(r, "'dmesg | grep -i iommu' shows \"Default domain type\".");
		return;
	}
	if (strcmp(type, "identity") == 0) {
		doctor_say(r, DOCTOR_OK, "passthrough for %s", c.address[0]);
		return;
	}
	doctor_say(r, DOCTOR_WARN, "translates for %s (domain type %s)", c.address[0], type);
	doctor_mean(r, "Every page that a fault brings in is entered into the IOMMU's tables, and every page "
		       "that goes is taken out and "
		       "flushed from its cache: on-demand paging pays for that on each fault and "
		       "invalidation, pinned memory once at "
		       "registration.");
	doctor_advise(r,
		"If devices on this machine are trusted, add iommu.passthrough=1 (on x86 also written "
		"iommu=pt) "
		"to the kernel's command line and restart%s: passthrough keeps "
		"the IOMMU for virtual machines and leaves the host's own devices untranslated.",
		strstr(line, "intel_iommu=on") ? " (intel_iommu=on is there and may stay)" : "");
}

static const struct doctor_check checks[] = {
	{ "pci.bars", "addresses of the card", DOCTOR_VITAL, check_bars },
	{ "pci.log", "kernel log", 0, check_log },
	{ "pci.link", "link", 0, check_link },
	{ "pci.iommu", "IOMMU", 0, check_iommu },
};

const struct doctor_group doctor_pci_group = { "pci", "PCI", checks, COUNT(checks) };
