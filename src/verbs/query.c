/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the device, its port, its GID table and its partition table say of themselves: exactly what nic/
 * offers (ibv_query_device(3), ibv_query_port(3), ibv_query_gid(3), ibv_query_gid_ex(3), ibv_query_pkey(3)).
 *
 * The structures grow with rdma-core. Each call knows how much room its caller has, fills that much of what
 * this build knows, and zeros the rest.
 */
#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "verbs/object.h"
#include "verbs/real.h"

/* Copies what fits and zeros what the caller has beyond what we know. */
static void give(void *dst, size_t room, const void *src, size_t size)
{
	memcpy(dst, src, room < size ? room : size);
	if (room > size)
		memset((char *)dst + size, 0, room - size);
}

/* --- device --------------------------------------------------------------------------------------- */

static void fill_device(struct ibv_device_attr *attr)
{
	uint64_t guid = nic_gid_eui64(unpin_device.ibv.name);

	*attr = (struct ibv_device_attr){
		.node_guid = guid,
		.sys_image_guid = guid,
		.max_mr_size = NIC_MAX_MR_SIZE,
		.page_size_cap = NIC_PAGE_SIZE_CAP,
		.vendor_id = NIC_VENDOR_ID,
		.vendor_part_id = NIC_PART_ID,
		.max_qp = NIC_MAX_QP,
		.max_qp_wr = NIC_MAX_QP_WR,
		.device_cap_flags =
			IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = NIC_MAX_SGE,
		.max_sge_rd = NIC_MAX_SGE,
		.max_cq = NIC_MAX_CQ,
		.max_cqe = NIC_MAX_CQE,
		.max_mr = NIC_MAX_MR,
		.max_pd = NIC_MAX_PD,
		.max_qp_rd_atom = NIC_MAX_RD_ATOM,
		.max_res_rd_atom = NIC_MAX_RD_ATOM * NIC_MAX_QP,
		.max_qp_init_rd_atom = NIC_MAX_RD_ATOM,
		/* The device's atomics are locked instructions, so they are atomic with the processors' too,
		 * which is what IBV_ATOMIC_GLOB says. But cards say HCA, and clients (UCX 1.13) ask for just
		 * that. */
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", UNPIN_VERSION);
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t attr_size)
{
	const struct nic_caps *caps = nic_context_caps(to_context(context)->nic);
	struct ibv_device_attr_ex all = { 0 };

	if (input && input->comp_mask)
		return EINVAL;
	if (attr_size < sizeof(attr->orig_attr))
		return EINVAL;
	fill_device(&all.orig_attr);
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	all.odp_caps.general_caps = caps->general;
	all.odp_caps.per_transport_caps.rc_odp_caps = caps->rc;
	all.odp_caps.per_transport_caps.ud_odp_caps = caps->ud;
	all.phys_port_cnt_ex = 1;
	give(attr, attr_size, &all, sizeof(all));
	return 0;
}

UNPIN_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!context_is_ours(context))
		return PASS(ibv_query_device, ENODEV, context, attr);
	fill_device(attr);
	return 0;
}

/* --- port ----------------------------------------------------------------------------------------- */

#define SPEED_100_MBITS 1000 /* in units of 100 Mb/s: what nic_port_fill()'s width and speed make */

static enum nic_gid_layout layout_of(struct ibv_context *context)
{
	return nic_context_caps(to_context(context)->nic)->gids;
}

int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t attr_size)
{
	struct ibv_port_attr all;

	if (port_num != PORT_NUM)
		return EINVAL;
	nic_port_fill(layout_of(context), &all);
	give(attr, attr_size, &all, sizeof(all));
	return 0;
}

/*
 * The exported function serves programs linked before port_cap_flags2 was added, with the shorter structure.
 */
UNPIN_EXPORT int ibv_query_port(
	struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	if (!context_is_ours(context))
		return PASS(ibv_query_port, ENODEV, context, port_num, attr);
	return query_port(context, port_num, (struct ibv_port_attr *)attr,
		offsetof(struct ibv_port_attr, port_cap_flags2));
}

UNPIN_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed)
{
	if (!context_is_ours(context))
		return PASS(ibv_query_port_speed, EOPNOTSUPP, context, port_num, port_speed);
	if (port_num != PORT_NUM)
		return EINVAL;
	*port_speed = SPEED_100_MBITS;
	return 0;
}

/* --- GID table ------------------------------------------------------------------------------------ */

UNPIN_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry row;
	int ret;

	if (!context_is_ours(context))
		return PASS(ibv_query_gid, NO_INT(ENODEV), context, port_num, index, gid);
	if (port_num != PORT_NUM || index < 0)
		return NO_INT(EINVAL);
	ret = nic_gid_row(layout_of(context), (unsigned)index, &row);
	if (ret && ret != -ENODATA)
		return NO_INT(-ret);
	*gid = row.gid; /* this call, unlike the newer one, gives empty rows, as zeros */
	return 0;
}

UNPIN_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
	struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry all;
	int ret;

	if (!context_is_ours(context))
		return PASS(_ibv_query_gid_ex, EOPNOTSUPP, context, port_num, gid_index, entry, flags,
			entry_size);
	if (flags)
		return EOPNOTSUPP;
	if (port_num != PORT_NUM)
		return EINVAL;
	ret = nic_gid_row(layout_of(context), gid_index, &all);
	if (ret)
		return -ret;
	give(entry, entry_size, &all, sizeof(all));
	return 0;
}

/* Every row that is not empty: their number, or -EINVAL when there are more than max_entries. */
UNPIN_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
	size_t max_entries, uint32_t flags, size_t entry_size)
{
	size_t n = 0;

	if (!context_is_ours(context))
		return PASS(
			_ibv_query_gid_table, -EOPNOTSUPP, context, entries, max_entries, flags, entry_size);
	if (flags)
		return -EOPNOTSUPP;
	for (unsigned i = 0; i < nic_gid_rows(layout_of(context)); i++) {
		struct ibv_gid_entry all;

		if (nic_gid_row(layout_of(context), i, &all))
			continue;
		if (n == max_entries)
			return -EINVAL;
		give((char *)entries + n * entry_size, entry_size, &all, sizeof(all));
		n++;
	}
	return (ssize_t)n;
}

/* The types as sysfs and this call number them. */
enum { TYPE_IB_ROCE_V1, TYPE_ROCE_V2 };

static int query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index, unsigned *type)
{
	struct ibv_gid_entry row;
	int ret;

	if (port_num != PORT_NUM)
		return NO_INT(EINVAL);
	ret = nic_gid_row(layout_of(context), index, &row);
	if (ret && ret != -ENODATA)
		return NO_INT(-ret);
	*type = ret || row.gid_type == IBV_GID_TYPE_ROCE_V1 ? TYPE_IB_ROCE_V1 : TYPE_ROCE_V2;
	return 0;
}

/* One function for all the nodes that the name has been in; each passes to its own in the real library. */
#if defined(__has_attribute) && __has_attribute(symver)
#define AS(fn, symbol) __attribute__((symver(symbol)))
#define AS_DEFAULT     "@@"
#else /* clang: the assembler's word for the same; "used" keeps the function that only the assembler names   \
       */
#define AS(fn, symbol) __attribute__((used))
#define BY_ASM	       1
#endif

#define GID_TYPE(abi, at)                                                                                    \
	UNPIN_EXPORT int private_query_gid_type_##abi(struct ibv_context *, uint8_t, unsigned, unsigned *);  \
	AS(private_query_gid_type_##abi, "ibv_query_gid_type" at "IBVERBS_PRIVATE_" #abi)                    \
	UNPIN_EXPORT int private_query_gid_type_##abi(                                                       \
		struct ibv_context *context, uint8_t port_num, unsigned index, unsigned *type)               \
	{                                                                                                    \
		if (!context_is_ours(context)) {                                                             \
			__typeof__(&ibv_query_gid_type) fn = real_find(REAL_ibv_query_gid_type_##abi);       \
                                                                                                             \
			return fn ? fn(context, port_num, index, type) : NO_INT(EOPNOTSUPP);                 \
		}                                                                                            \
		return query_gid_type(context, port_num, index, type);                                       \
	}

GID_TYPE(34, "@")
GID_TYPE(57, "@")
GID_TYPE(59, "@")
GID_TYPE(64, "@")
GID_TYPE(65, "@@")

#ifdef BY_ASM
__asm__(".symver private_query_gid_type_34, ibv_query_gid_type@IBVERBS_PRIVATE_34\n"
	".symver private_query_gid_type_57, ibv_query_gid_type@IBVERBS_PRIVATE_57\n"
	".symver private_query_gid_type_59, ibv_query_gid_type@IBVERBS_PRIVATE_59\n"
	".symver private_query_gid_type_64, ibv_query_gid_type@IBVERBS_PRIVATE_64\n"
	".symver private_query_gid_type_65, ibv_query_gid_type@@IBVERBS_PRIVATE_65\n");
#endif

/* --- partition keys ------------------------------------------------------------------------------- */

UNPIN_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	if (!context_is_ours(context))
		return PASS(ibv_query_pkey, NO_INT(ENODEV), context, port_num, index, pkey);
	if (port_num != PORT_NUM || index != 0)
		return NO_INT(EINVAL);
	*pkey = htons(NIC_PKEY);
	return 0;
}

UNPIN_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	if (!context_is_ours(context))
		return PASS(ibv_get_pkey_index, NO_INT(ENODEV), context, port_num, pkey);
	if (port_num != PORT_NUM || pkey != htons(NIC_PKEY))
		return NO_INT(EINVAL);
	return 0;
}
