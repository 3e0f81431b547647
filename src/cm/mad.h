/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The messages of the InfiniBand communication manager (IBTA volume 1, chapter 12.6) as plain structures, and
 * their form on the wire: a management datagram (MAD) of 256 bytes, class 0x07, class version 2.
 *
 * All fields are in host byte order, GIDs and private data are bytes. Fields of fewer bits than their C type
 * are cut to their width by cm_encode(). What comes from the wire is untrusted: cm_decode() takes any bytes
 * and gives only values that fit the field's width, and lengths that fit the arrays; whether a value makes
 * sense (an MTU of 9, say) is for the one who uses it to judge. No state, no locks, no allocation.
 *
 * The length of private data is not on the wire. A decoded message always has all the bytes that the message
 * has room for, and zeros fill what the sender did not use.
 */
#ifndef UNPIN_CM_MAD_H
#define UNPIN_CM_MAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CM_MAD_BYTES = 256, CM_MAX_PRIVATE = 224, CM_MAX_ARI = 72 };

/* Attribute IDs. */
enum cm_type {
	CM_REQ = 0x10,
	CM_MRA,
	CM_REJ,
	CM_REP,
	CM_RTU,
	CM_DREQ,
	CM_DREP,
	CM_SIDR_REQ,
	CM_SIDR_REP,
	CM_LAP,
	CM_APR,
	CM_TYPES = CM_APR - CM_REQ + 1,
};

/* REJ reasons (12.6.7.2) that this implementation sends or that rdma_cm names. */
enum cm_reason {
	CM_REJ_NO_QP = 1,
	CM_REJ_NO_EEC,
	CM_REJ_NO_RESOURCES,
	CM_REJ_TIMEOUT,
	CM_REJ_UNSUPPORTED,
	CM_REJ_INVALID_COMM_ID,
	CM_REJ_INVALID_COMM_INSTANCE,
	CM_REJ_INVALID_SERVICE_ID,
	CM_REJ_INVALID_TRANSPORT_TYPE,
	CM_REJ_STALE_CONN,
	CM_REJ_INVALID_GID = 12,
	CM_REJ_INVALID_MTU = 26,
	CM_REJ_INSUFFICIENT_RESOURCES,
	CM_REJ_CONSUMER_DEFINED,
	CM_REJ_INVALID_RNR_RETRY,
	CM_REJ_DUPLICATE_LOCAL_COMM_ID,
	CM_REJ_INVALID_CLASS_VERSION,
	CM_REJ_VENDOR_OPTION_NOT_SUPPORTED = 35,
};

/* Which message an MRA or REJ answers. */
enum cm_answered { CM_ANSWERS_REQ, CM_ANSWERS_REP, CM_ANSWERS_OTHER };

enum cm_transport { CM_RC, CM_UC, CM_RD, CM_XRC };

enum cm_sidr_status {
	CM_SIDR_SUCCESS,
	CM_SIDR_UNSUPPORTED,
	CM_SIDR_REJECT,
	CM_SIDR_NO_QP,
	CM_SIDR_REDIRECT,
	CM_SIDR_UNSUPPORTED_VERSION,
};

/* Local and remote are as the sender of the message sees them. */
struct cm_path {
	uint16_t local_lid, remote_lid;
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label; /* 20 bits */
	uint8_t rate;	     /* 6 bits, enum ibv_rate */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t sl; /* 4 bits */
	bool subnet_local;
	uint8_t ack_timeout; /* 5 bits, 4.096 us * 2^n */
};

struct cm_req {
	uint32_t local_id;
	uint32_t vendor_id;   /* ECE, 24 bits; 0: none */
	uint32_t ece_options; /* ECE: the MAD's attribute modifier */
	uint64_t service_id;
	uint64_t ca_guid;
	uint32_t qkey;
	uint32_t qpn; /* 24 bits */
	uint8_t responder_resources;
	uint32_t local_eecn; /* 24 bits */
	uint8_t initiator_depth;
	uint32_t remote_eecn;		 /* 24 bits */
	uint8_t remote_response_timeout; /* 5 bits: how long the sender waits for the answer, 4.096 us * 2^n
					  */
	enum cm_transport transport;
	bool flow_control;
	uint32_t starting_psn;		/* 24 bits: the first PSN that the sender of this REQ expects */
	uint8_t local_response_timeout; /* 5 bits: within this time the sender answers a REP */
	uint8_t retry_count;		/* 3 bits */
	uint16_t pkey;
	uint8_t mtu; /* 4 bits, enum ibv_mtu */
	bool rdc_exists;
	uint8_t rnr_retry;	/* 3 bits */
	uint8_t max_cm_retries; /* 4 bits */
	bool srq;
	uint8_t extended_transport;	/* 3 bits; with CM_XRC: 1 */
	struct cm_path path, alternate; /* an alternate path exists when its local_lid is not 0 */
	bool sap_supported;
};

struct cm_rep {
	uint32_t local_id, remote_id;
	uint32_t vendor_id, ece_options; /* as in struct cm_req */
	uint32_t qkey;
	uint32_t qpn;	       /* 24 bits */
	uint32_t eecn;	       /* 24 bits; the queue pair of an XRC target */
	uint32_t starting_psn; /* 24 bits */
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay; /* 5 bits */
	uint8_t failover;	  /* 2 bits */
	bool flow_control;
	uint8_t rnr_retry; /* 3 bits */
	bool srq;
	uint64_t ca_guid;
};

struct cm_mra {
	uint32_t local_id, remote_id;
	enum cm_answered answered;
	uint8_t service_timeout; /* 5 bits, 4.096 us * 2^n */
};

struct cm_rej {
	uint32_t local_id, remote_id;
	enum cm_answered answered;
	uint16_t reason;    /* enum cm_reason, or one that is not in that list */
	uint8_t ari_length; /* at most CM_MAX_ARI */
	uint8_t ari[CM_MAX_ARI];
};

struct cm_ids { /* RTU, DREP */
	uint32_t local_id, remote_id;
};

struct cm_dreq {
	uint32_t local_id, remote_id;
	uint32_t remote_qpn; /* 24 bits: the receiver's queue pair */
};

struct cm_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
};

struct cm_sidr_rep {
	uint32_t request_id;
	uint8_t status;	     /* enum cm_sidr_status */
	uint8_t info_length; /* at most CM_MAX_ARI */
	uint32_t vendor_id, ece_options;
	uint32_t qpn; /* 24 bits */
	uint64_t service_id;
	uint32_t qkey;
	uint8_t info[CM_MAX_ARI];
};

/* LAP and APR have only their ids decoded, and cannot be encoded: alternate paths do not exist on RoCE. */
struct cm_msg {
	enum cm_type type;
	uint64_t tid;
	union {
		struct cm_req req;
		struct cm_rep rep;
		struct cm_mra mra;
		struct cm_rej rej;
		struct cm_ids rtu, drep, lap, apr;
		struct cm_dreq dreq;
		struct cm_sidr_req sidr_req;
		struct cm_sidr_rep sidr_rep;
	};
	uint8_t private_length; /* encode: used bytes, at most cm_private_bytes(type); decode: all of them */
	uint8_t private_data[CM_MAX_PRIVATE];
};

/* Bytes of private data that a message has room for: REQ 92, MRA 222, REJ 148, REP 196, RTU 224, DREQ 220,
 * DREP 224, SIDR_REQ 216, SIDR_REP 136; 0 for LAP, APR and what is not a message. */
size_t cm_private_bytes(enum cm_type type);

/* "REQ", "SIDR_REP"; "?" for what is not a message. */
const char *cm_type_name(enum cm_type type);

/* 0, or -EINVAL: type is not one of the nine, or a length exceeds its array. All 256 bytes are written. */
int cm_encode(const struct cm_msg *msg, uint8_t mad[CM_MAD_BYTES]);

/*
 * 0; -EINVAL: not a message of this class and version (length other than 256, base version, class, class
 * version, method, attribute ID); -EPROTO: one whose length fields or answered-message field cannot be.
 * msg is undefined then.
 */
int cm_decode(const void *bytes, size_t length, struct cm_msg *msg);

/*
 * rdma_cm's own header in front of the user's private data of a REQ and SIDR_REQ (the kernel's cma_hdr, IBTA
 * annex A11): version, addresses and the sender's port.
 */
enum {
	CM_IP_HEADER = 36,
	CM_REQ_USER_PRIVATE = 92 - CM_IP_HEADER,
	CM_SIDR_REQ_USER_PRIVATE = 216 - CM_IP_HEADER,
	CM_PS_TCP = 0x0106,
	CM_PS_UDP = 0x0111,
};

struct cm_ip_header {
	uint8_t ip_version;	  /* 4 or 6 */
	uint16_t port;		  /* the sender's, host byte order */
	uint8_t src[16], dst[16]; /* IPv4: the last four bytes; what stands before them is sent as it is and
				     read as zeros */
};

void cm_put_ip_header(const struct cm_ip_header *h, uint8_t out[CM_IP_HEADER]);

/* 0, or -EPROTO: another version of the header, or an IP version other than 4 and 6. */
int cm_get_ip_header(const uint8_t in[CM_IP_HEADER], struct cm_ip_header *h);

/* The service ID of a port: 0x0000000001060000 + port for CM_PS_TCP. */
static inline uint64_t cm_service_id(uint16_t port_space, uint16_t port)
{
	return ((uint64_t)port_space << 16) + port;
}

#endif
