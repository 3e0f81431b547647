/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "cm/mad.h"

#include <errno.h>
#include <string.h>

enum {
	HEADER = 24,
	BASE_VERSION = 1,
	CLASS_CM = 0x07,
	CLASS_VERSION = 2,
	METHOD_SEND = 0x03,
	AT_TID = 8,
	AT_ATTRIBUTE = 16,
	AT_MODIFIER = 20,
	IP_HEADER_VERSION = 0,
};

/*
 * Where a field stands: bit is counted from the most significant one of the byte, as the specification's
 * tables do. Width is in bits; more than 64 are bytes. A field whose bits stand in several places has an
 * entry for each: shift says which of the value's bits the place holds.
 */
struct field {
	uint16_t byte;
	uint8_t bit, width_bytes, width, shift;
	uint16_t member, size;
};

#define BITS_OF(at, first, bits, low, where)                                                                 \
	{                                                                                                    \
		.byte = (at), .bit = (first), .width = (uint8_t)((bits) > 64 ? 0 : (bits)),                  \
		.width_bytes = (bits) > 64 ? (bits) / 8 : 0, .shift = (low),                                 \
		.member = offsetof(struct cm_msg, where), .size = sizeof(((struct cm_msg *)0)->where)        \
	}
#define B(at, first, bits, where)  BITS_OF(HEADER + (at), first, bits, 0, where)
#define F(at, bits, where)	   B(at, 0, bits, where)
#define PART(at, bits, low, where) BITS_OF(HEADER + (at), 0, bits, low, where)
#define MODIFIER(where)		   BITS_OF(AT_MODIFIER, 0, 32, 0, where)
#define PATH(at, p)                                                                                          \
	F(at, 16, p.local_lid), F((at) + 2, 16, p.remote_lid), F((at) + 4, 128, p.local_gid),                \
		F((at) + 20, 128, p.remote_gid), F((at) + 36, 20, p.flow_label), B((at) + 39, 2, 6, p.rate), \
		F((at) + 40, 8, p.traffic_class), F((at) + 41, 8, p.hop_limit), F((at) + 42, 4, p.sl),       \
		B((at) + 42, 4, 1, p.subnet_local), F((at) + 43, 5, p.ack_timeout)

static const struct field req_fields[] = {
	MODIFIER(req.ece_options),
	F(0, 32, req.local_id),
	F(5, 24, req.vendor_id),
	F(8, 64, req.service_id),
	F(16, 64, req.ca_guid),
	F(28, 32, req.qkey),
	F(32, 24, req.qpn),
	F(35, 8, req.responder_resources),
	F(36, 24, req.local_eecn),
	F(39, 8, req.initiator_depth),
	F(40, 24, req.remote_eecn),
	F(43, 5, req.remote_response_timeout),
	B(43, 5, 2, req.transport),
	B(43, 7, 1, req.flow_control),
	F(44, 24, req.starting_psn),
	F(47, 5, req.local_response_timeout),
	B(47, 5, 3, req.retry_count),
	F(48, 16, req.pkey),
	F(50, 4, req.mtu),
	B(50, 4, 1, req.rdc_exists),
	B(50, 5, 3, req.rnr_retry),
	F(51, 4, req.max_cm_retries),
	B(51, 4, 1, req.srq),
	B(51, 5, 3, req.extended_transport),
	PATH(52, req.path),
	PATH(96, req.alternate),
	B(139, 5, 1, req.sap_supported),
};

static const struct field mra_fields[] = {
	F(0, 32, mra.local_id),
	F(4, 32, mra.remote_id),
	F(8, 2, mra.answered),
	F(9, 5, mra.service_timeout),
};

static const struct field rej_fields[] = {
	F(0, 32, rej.local_id),
	F(4, 32, rej.remote_id),
	F(8, 2, rej.answered),
	F(9, 7, rej.ari_length),
	F(10, 16, rej.reason),
	F(12, 576, rej.ari),
};

static const struct field rep_fields[] = {
	MODIFIER(rep.ece_options),
	F(0, 32, rep.local_id),
	F(4, 32, rep.remote_id),
	F(8, 32, rep.qkey),
	F(12, 24, rep.qpn),
	PART(15, 8, 16, rep.vendor_id),
	F(16, 24, rep.eecn),
	PART(19, 8, 8, rep.vendor_id),
	F(20, 24, rep.starting_psn),
	PART(23, 8, 0, rep.vendor_id),
	F(24, 8, rep.responder_resources),
	F(25, 8, rep.initiator_depth),
	F(26, 5, rep.target_ack_delay),
	B(26, 5, 2, rep.failover),
	B(26, 7, 1, rep.flow_control),
	F(27, 3, rep.rnr_retry),
	B(27, 3, 1, rep.srq),
	F(28, 64, rep.ca_guid),
};

static const struct field ids_fields[] = {
	F(0, 32, rtu.local_id),
	F(4, 32, rtu.remote_id),
};

static const struct field dreq_fields[] = {
	F(0, 32, dreq.local_id),
	F(4, 32, dreq.remote_id),
	F(8, 24, dreq.remote_qpn),
};

static const struct field sidr_req_fields[] = {
	F(0, 32, sidr_req.request_id),
	F(4, 16, sidr_req.pkey),
	F(8, 64, sidr_req.service_id),
};

static const struct field sidr_rep_fields[] = {
	MODIFIER(sidr_rep.ece_options),
	F(0, 32, sidr_rep.request_id),
	F(4, 8, sidr_rep.status),
	F(5, 8, sidr_rep.info_length),
	PART(6, 16, 8, sidr_rep.vendor_id),
	F(8, 24, sidr_rep.qpn),
	PART(11, 8, 0, sidr_rep.vendor_id),
	F(12, 64, sidr_rep.service_id),
	F(20, 32, sidr_rep.qkey),
	F(24, 576, sidr_rep.info),
};

/* Private data reaches from its first byte to the end of the MAD. */
static const struct layout {
	const char *name;
	const struct field *fields;
	unsigned nfields, private_at;
} layouts[CM_TYPES] = {
#define LAYOUT(type, name, fields, at)                                                                       \
	[type - CM_REQ] = { name, fields, sizeof(fields) / sizeof(fields[0]), at }
	LAYOUT(CM_REQ, "REQ", req_fields, HEADER + 140),
	LAYOUT(CM_MRA, "MRA", mra_fields, HEADER + 10),
	LAYOUT(CM_REJ, "REJ", rej_fields, HEADER + 84),
	LAYOUT(CM_REP, "REP", rep_fields, HEADER + 36),
	LAYOUT(CM_RTU, "RTU", ids_fields, HEADER + 8),
	LAYOUT(CM_DREQ, "DREQ", dreq_fields, HEADER + 12),
	LAYOUT(CM_DREP, "DREP", ids_fields, HEADER + 8),
	LAYOUT(CM_SIDR_REQ, "SIDR_REQ", sidr_req_fields, HEADER + 16),
	LAYOUT(CM_SIDR_REP, "SIDR_REP", sidr_rep_fields, HEADER + 96),
	LAYOUT(CM_LAP, "LAP", ids_fields, CM_MAD_BYTES),
	LAYOUT(CM_APR, "APR", ids_fields, CM_MAD_BYTES),
};

static const struct layout *layout_of(unsigned type)
{
	return type - CM_REQ < CM_TYPES ? &layouts[type - CM_REQ] : NULL;
}

static uint64_t get_bytes(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static void put_bytes(uint8_t *p, unsigned n, uint64_t v)
{
	for (unsigned i = n; i--; v >>= 8)
		p[i] = (uint8_t)v;
}

static uint64_t mask_of(const struct field *f)
{
	return ~UINT64_C(0) >> (64 - f->width);
}

static unsigned span_of(const struct field *f)
{
	return (f->bit + f->width + 7u) / 8;
}

/* A member is 1, 2, 4 or 8 bytes; an enumeration is 4. */
static uint64_t load(const void *member, unsigned size)
{
	uint8_t v8;
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;

	switch (size) {
	case 1:
		memcpy(&v8, member, 1);
		return v8;
	case 2:
		memcpy(&v16, member, 2);
		return v16;
	case 4:
		memcpy(&v32, member, 4);
		return v32;
	default:
		memcpy(&v64, member, 8);
		return v64;
	}
}

static void store(void *member, unsigned size, uint64_t v)
{
	uint8_t v8 = (uint8_t)v;
	uint16_t v16 = (uint16_t)v;
	uint32_t v32 = (uint32_t)v;

	switch (size) {
	case 1:
		memcpy(member, &v8, 1);
		break;
	case 2:
		memcpy(member, &v16, 2);
		break;
	case 4:
		memcpy(member, &v32, 4);
		break;
	default:
		memcpy(member, &v, 8);
	}
}

static void put_field(uint8_t *mad, const struct field *f, const void *member)
{
	unsigned span = span_of(f), below = span * 8 - f->bit - f->width;
	uint64_t v;

	if (f->width_bytes) {
		memcpy(mad + f->byte, member, f->width_bytes);
		return;
	}
	v = load(member, f->size) >> f->shift & mask_of(f);
	v = (get_bytes(mad + f->byte, span) & ~(mask_of(f) << below)) | v << below;
	put_bytes(mad + f->byte, span, v);
}

/* The member is 0 at first. */
static void get_field(const uint8_t *mad, const struct field *f, void *member)
{
	unsigned span = span_of(f), below = span * 8 - f->bit - f->width;
	uint64_t v;

	if (f->width_bytes) {
		memcpy(member, mad + f->byte, f->width_bytes);
		return;
	}
	v = get_bytes(mad + f->byte, span) >> below & mask_of(f);
	store(member, f->size, load(member, f->size) | v << f->shift);
}

size_t cm_private_bytes(enum cm_type type)
{
	const struct layout *l = layout_of(type);

	return l ? CM_MAD_BYTES - l->private_at : 0;
}

const char *cm_type_name(enum cm_type type)
{
	const struct layout *l = layout_of(type);

	return l ? l->name : "?";
}

static bool lengths_fit(const struct cm_msg *msg)
{
	switch (msg->type) {
	case CM_MRA:
		return msg->mra.answered <= CM_ANSWERS_OTHER;
	case CM_REJ:
		return msg->rej.answered <= CM_ANSWERS_OTHER && msg->rej.ari_length <= CM_MAX_ARI;
	case CM_SIDR_REP:
		return msg->sidr_rep.info_length <= CM_MAX_ARI;
	default:
		return true;
	}
}

int cm_encode(const struct cm_msg *msg, uint8_t mad[CM_MAD_BYTES])
{
	const struct layout *l = layout_of(msg->type);

	if (!l || l->private_at == CM_MAD_BYTES || msg->private_length > cm_private_bytes(msg->type) ||
		!lengths_fit(msg))
		return -EINVAL;
	memset(mad, 0, CM_MAD_BYTES);
	mad[0] = BASE_VERSION;
	mad[1] = CLASS_CM;
	mad[2] = CLASS_VERSION;
	mad[3] = METHOD_SEND;
	put_bytes(mad + AT_TID, 8, msg->tid);
	put_bytes(mad + AT_ATTRIBUTE, 2, msg->type);
	for (unsigned i = 0; i < l->nfields; i++)
		put_field(mad, &l->fields[i], (const char *)msg + l->fields[i].member);
	memcpy(mad + l->private_at, msg->private_data, msg->private_length);
	return 0;
}

int cm_decode(const void *bytes, size_t length, struct cm_msg *msg)
{
	const uint8_t *mad = bytes;
	const struct layout *l;
	unsigned type;

	if (length != CM_MAD_BYTES || mad[0] != BASE_VERSION || mad[1] != CLASS_CM ||
		mad[2] != CLASS_VERSION || mad[3] != METHOD_SEND)
		return -EINVAL;
	type = (unsigned)get_bytes(mad + AT_ATTRIBUTE, 2);
	l = layout_of(type);
	if (!l)
		return -EINVAL;
	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	msg->tid = get_bytes(mad + AT_TID, 8);
	for (unsigned i = 0; i < l->nfields; i++)
		get_field(mad, &l->fields[i], (char *)msg + l->fields[i].member);
	msg->private_length = (uint8_t)cm_private_bytes(msg->type);
	memcpy(msg->private_data, mad + l->private_at, msg->private_length);
	return lengths_fit(msg) ? 0 : -EPROTO;
}

void cm_put_ip_header(const struct cm_ip_header *h, uint8_t out[CM_IP_HEADER])
{
	out[0] = IP_HEADER_VERSION;
	out[1] = (uint8_t)(h->ip_version << 4);
	put_bytes(out + 2, 2, h->port);
	memcpy(out + 4, h->src, 16);
	memcpy(out + 20, h->dst, 16);
}

int cm_get_ip_header(const uint8_t in[CM_IP_HEADER], struct cm_ip_header *h)
{
	h->ip_version = in[1] >> 4;
	h->port = (uint16_t)get_bytes(in + 2, 2);
	memcpy(h->src, in + 4, 16);
	memcpy(h->dst, in + 20, 16);
	if (in[0] != IP_HEADER_VERSION || (h->ip_version != 4 && h->ip_version != 6))
		return -EPROTO;
	if (h->ip_version == 4) {
		memset(h->src, 0, 12);
		memset(h->dst, 0, 12);
	}
	return 0;
}
