/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the kernel tells of its RDMA devices over rdma netlink (linux/rdma/rdma_netlink.h; rdma-resource(8),
 * rdma-statistic(8) print the same): devices, memory regions, queue pairs, and counters of each. A kernel
 * from 4.16 on answers; regions are told from 4.17 on, counters of regions by mlx5 from 5.5 on.
 *
 * Rights: everybody may ask. Keys of regions are told only to who has CAP_NET_ADMIN in the first user
 * namespace. The number of the process that an object belongs to is told as seen from the asker's pid
 * namespace, and not at all when the process has ended or lives in another one; older kernels leave out the
 * whole object then. Devices of other network namespaces are not told when rdma is set to exclusive mode.
 *
 * Limits: objects are told one page of them after the other, and may come and go meanwhile: one that is
 * missing in an answer need not be gone. Where a region is in memory is told by hardly
 * any kernel.
 *
 * Everything in an answer is checked, as it may come from a record: a message or an attribute whose length
 * does not fit is an error, an attribute of another type than it should have is taken for not told, unknown
 * ones are passed over, nests are followed as deep as the kernel nests them, texts are cut, and control
 * characters in them replaced.
 *
 * One thread at a time.
 */
#ifndef UNPIN_TOOL_RDMANL_H
#define UNPIN_TOOL_RDMANL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RDMANL_TEXT	48
#define RDMANL_ROWS_MAX 262144u	   /* of each kind are kept; the rest is counted */
#define RDMANL_NONE	UINT32_MAX /* of a number that is not told */

enum rdmanl_question {
	RDMANL_DEVICES,
	RDMANL_REGIONS,
	RDMANL_QPS,
	RDMANL_REGION_COUNTERS,
	RDMANL_QP_COUNTERS, /* of queue pairs that have a counter for themselves ('rdma statistic qp bind') */
	RDMANL_QUESTIONS
};

struct rdmanl_device {
	uint32_t index, ports;
	char name[64], firmware[RDMANL_TEXT], protocol[16]; /* "ib", "roce", "iw"; "": not told */
};

/* Whose an object is: a process's, or (pid 0) of the kernel module that is named, or not told. */
struct rdmanl_owner {
	uint32_t pid, pd; /* the protection domain: RDMANL_NONE */
	char module[RDMANL_TEXT];
};

struct rdmanl_region {
	uint32_t number; /* within the device; not used again soon */
	bool keys_told, iova_told;
	uint32_t lkey, rkey;
	uint64_t iova, length;
	struct rdmanl_owner owner;
	char details[2 * RDMANL_TEXT]; /* what the driver tells: "odp=explicit" (mlx5, on-demand regions) */
};

struct rdmanl_qp {
	uint32_t number, port, peer; /* RDMANL_NONE */
	uint32_t type, state;	     /* enum ib_qp_type, enum ibv_qp_state; RDMANL_NONE */
	struct rdmanl_owner owner;
};

struct rdmanl_counter {
	uint32_t of; /* number of the region or queue pair */
	char name[RDMANL_TEXT];
	uint64_t value;
};

/* Rows that an answer told; zeroed at first. */
struct rdmanl_answer {
	struct rdmanl_device *device;
	struct rdmanl_region *region; /* in order of their numbers */
	struct rdmanl_qp *qp;	      /* in order of their numbers */
	struct rdmanl_counter *counter;
	size_t devices, regions, qps, counters;
	size_t left_out; /* rows beyond RDMANL_ROWS_MAX */
};

void rdmanl_answer_free(struct rdmanl_answer *a);

struct rdmanl;

/* Asks the kernel of this machine. */
struct rdmanl *rdmanl_live(void);
/*
 * Reads what another machine's kernel answered, or this one's at another time. read gives back the text of a
 * file of the record, to be freed, or NULL with errno; its paths are "/netlink/devices" and, with a device's
 * name, "/netlink/mlx5_0.regions", ".queue-pairs", ".region-counters" and ".queue-pair-counters". These hold
 * the bytes of the messages, in the order of bytes of this machine, as hexadecimal digits; blanks, and
 * everything from # to the end of a line, are passed over. The second and each further time that the same is
 * asked, NAME.2, NAME.3 and so on are read; when there is no more, the last one again.
 */
struct rdmanl *rdmanl_recorded(char *(*read)(void *arg, const char *path), void *arg);
/* From now on writes every answer of the kernel into the folder "netlink" of dir, for the above. dir (an open
 * folder) stays the caller's. 0 or negative errno. */
int rdmanl_record(struct rdmanl *nl, int dir);
void rdmanl_close(struct rdmanl *nl);

/*
 * Asks a question, of a device (NULL for RDMANL_DEVICES), and adds what is told to a. A dump that the kernel
 * says was interrupted is asked for again, up to four times. At most two seconds are waited for each part of
 * the answer. 0, or:
 *   -EPROTONOSUPPORT  the kernel has no rdma netlink (no RDMA driver is loaded)
 *   -EOPNOTSUPP       it does not know the question, or no longer the device; of a record: it has no answer
 *   -EBADMSG          the answer cannot be read, or ends in the middle
 *   -EAGAIN           interrupted each time, or no answer in time
 * and others of socket(7). What was told up to then is in a.
 */
int rdmanl_ask(struct rdmanl *nl, enum rdmanl_question what, const struct rdmanl_device *of,
	struct rdmanl_answer *a);

/* The device of that name. 0; -ENODEV: there is none; or an error of rdmanl_ask. */
int rdmanl_find(struct rdmanl *nl, const char *name, struct rdmanl_device *out);

/* A sentence for an error of these. */
const char *rdmanl_error(int err);

/*
 * The part of rdmanl_ask behind the socket: reads n bytes of messages (aligned to four bytes, n at most 2^30)
 * that are an answer to a question. seq 0: messages of any number are taken. 1: there is more to come; 0:
 * that was the end; -EINTR: interrupted; or the errors above and those that the kernel answered.
 */
int rdmanl_parse(
	struct rdmanl_answer *a, enum rdmanl_question what, uint32_t seq, const void *bytes, size_t n);

#endif
