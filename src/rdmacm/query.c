/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/query.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>

#include "nic/caps.h"
#include "nic/device.h"
#include "nic/gid.h"

/* Values of path records (IBTA 15.2.5.16) and of addresses in the form of InfiniBand. */
#define SELECT_EXACTLY	 2
#define MTU_4096	 5
#define RATE_100_GBPS	 16
#define LIFE_TIME	 0x12 /* 4.096 us * 2^18, about a second: what the kernel takes for an Ethernet port */
#define HOP_LIMIT	 64
#define FAMILY_IB	 27
#define NO_KERNEL_DEVICE 0xffffffffu

struct address_ib {
	uint16_t family;
	__be16 pkey;
	__be32 flow;
	uint8_t gid[16];
	__be64 service, service_mask, scope;
};

static void copy_address(void *to, const union address *a)
{
	memcpy(to, a, address_size(a));
}

static __be64 guid(void)
{
	return nic_gid_eui64(nic_device_name());
}

uint32_t id_path(const struct cm_id *id, struct ib_user_path_rec *p)
{
	memset(p, 0, sizeof(*p));
	memcpy(p->sgid, id->sgid, sizeof(p->sgid));
	memcpy(p->dgid, id->dgid, sizeof(p->dgid));
	p->pkey = htobe16(NIC_PKEY);
	if (!id->has_route)
		return 0;
	p->hop_limit = HOP_LIMIT;
	p->traffic_class = id->tos;
	p->reversible = 1;
	p->numb_path = 1;
	p->mtu_selector = SELECT_EXACTLY;
	p->mtu = MTU_4096;
	p->rate_selector = SELECT_EXACTLY;
	p->rate = RATE_100_GBPS;
	p->packet_life_time_selector = SELECT_EXACTLY;
	p->packet_life_time = LIFE_TIME;
	return 1;
}

void query_fill_route(const struct cm_id *id, struct rdma_ucm_query_route_resp *r)
{
	memset(r, 0, sizeof(*r));
	copy_address(&r->src_addr, &id->src);
	copy_address(&r->dst_addr, &id->dst);
	r->ibdev_index = NO_KERNEL_DEVICE;
	if (!id->has_device)
		return;
	r->node_guid = guid();
	r->port_num = 1;
	r->num_paths = id_path(id, &r->ib_route[0]);
}

static void fill_device(const struct cm_id *id, struct rdma_ucm_query_addr_resp *r)
{
	memset(r, 0, sizeof(*r));
	r->ibdev_index = NO_KERNEL_DEVICE;
	if (!id->has_device)
		return;
	r->node_guid = guid();
	r->port_num = 1;
	r->pkey = htobe16(NIC_PKEY);
}

void query_fill_addr(const struct cm_id *id, struct rdma_ucm_query_addr_resp *r)
{
	fill_device(id, r);
	r->src_size = (uint16_t)address_size(&id->src);
	r->dst_size = (uint16_t)address_size(&id->dst);
	copy_address(&r->src_addr, &id->src);
	copy_address(&r->dst_addr, &id->dst);
}

/* The service id of a port: the port space, then the port (IBTA annex A11). */
static __be64 service_id(const struct cm_id *id, const union address *a)
{
	return htobe64((uint64_t)id->ps << 16 | (address_size(a) ? address_port(a) : 0));
}

static void fill_ib(
	const struct cm_id *id, const union address *a, const uint8_t gid[16], uint16_t pkey, void *to)
{
	struct address_ib ib = { .family = FAMILY_IB, .pkey = pkey, .service = service_id(id, a) };

	memcpy(ib.gid, gid, sizeof(ib.gid));
	memcpy(to, &ib, sizeof(ib));
}

void query_fill_gid(const struct cm_id *id, struct rdma_ucm_query_addr_resp *r)
{
	fill_device(id, r);
	r->src_size = r->dst_size = sizeof(struct address_ib);
	fill_ib(id, &id->src, id->sgid, r->pkey, &r->src_addr);
	fill_ib(id, &id->dst, id->dgid, r->pkey, &r->dst_addr);
}

/* The record as it travels (IBTA 15.2.5.16): offsets in bytes of the 64. */
static void pack_path(const struct ib_user_path_rec *p, uint8_t raw[64])
{
	memset(raw, 0, 64);
	memcpy(raw + 8, p->dgid, 16);
	memcpy(raw + 24, p->sgid, 16);
	raw[47] = p->hop_limit;
	raw[48] = p->traffic_class;
	raw[49] = (uint8_t)(p->reversible << 7 | p->numb_path);
	memcpy(raw + 50, &p->pkey, 2);
	raw[54] = (uint8_t)(p->mtu_selector << 6 | p->mtu);
	raw[55] = (uint8_t)(p->rate_selector << 6 | p->rate);
	raw[56] = (uint8_t)(p->packet_life_time_selector << 6 | p->packet_life_time);
}

void query_fill_path(
	const struct cm_id *id, struct rdma_ucm_query_path_resp *head, struct ib_path_rec_data *path)
{
	struct ib_user_path_rec p;

	memset(head, 0, sizeof(*head));
	memset(path, 0, sizeof(*path));
	head->num_paths = id_path(id, &p);
	path->flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	pack_path(&p, (uint8_t *)path->path_rec);
}
