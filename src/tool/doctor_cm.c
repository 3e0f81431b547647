/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Does the connection manager work (rdma_cm(7)), by which most programs connect? Connects the device to
 * itself over librdmacm and sends a message. The library is loaded when it is asked, so that the command
 * needs it for this check only.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "tool/doctor_reality.h"

#define LIBRARY	   "librdmacm.so.1"
#define TIMEOUT_MS 2000		       /* of resolving an address or a route */
#define PATIENCE   (10 * NSEC_PER_SEC) /* for all of it */

static const char message[] = "from one end to the other";

/* The functions of the library, under their names. */
#define FUNCTIONS(X)                                                                                         \
	X(rdma_create_event_channel)                                                                         \
	X(rdma_destroy_event_channel)                                                                        \
	X(rdma_create_id)                                                                                    \
	X(rdma_destroy_id)                                                                                   \
	X(rdma_bind_addr)                                                                                    \
	X(rdma_listen)                                                                                       \
	X(rdma_resolve_addr)                                                                                 \
	X(rdma_resolve_route)                                                                                \
	X(rdma_create_qp)                                                                                    \
	X(rdma_destroy_qp)                                                                                   \
	X(rdma_connect)                                                                                      \
	X(rdma_accept)                                                                                       \
	X(rdma_disconnect)                                                                                   \
	X(rdma_get_cm_event)                                                                                 \
	X(rdma_ack_cm_event)                                                                                 \
	X(rdma_get_src_port)                                                                                 \
	X(rdma_event_str)

struct cm {
#define X(name) __typeof__(&name) name;
	FUNCTIONS(X)
#undef X
	void *library;
	const char *device;
	uint64_t deadline;
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address;
	char text[INET6_ADDRSTRLEN];
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *active, *passive;
	struct ibv_mr *mr;
	unsigned established;
	char received[sizeof(message)];
	bool absent; /* there is no connection manager at all */
	char why[256];
};

static int fail(struct cm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(struct cm *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	return -1;
}

static int load(struct cm *c)
{
	c->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!c->library)
		return -1;
#define X(name)                                                                                              \
	c->name = (__typeof__(c->name))dlsym(c->library, #name);                                             \
	if (!c->name)                                                                                        \
		return -1;
	FUNCTIONS(X)
#undef X
	return 0;
}

/* The address of a GID, which is one on Ethernet. False: it is none that can be connected to by itself. */
static bool take_address(struct cm *c, const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	memset(&c->address, 0, sizeof(c->address));
	if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
		c->address.v4.sin_family = AF_INET;
		memcpy(&c->address.v4.sin_addr, gid + sizeof(mapped), sizeof(c->address.v4.sin_addr));
		inet_ntop(AF_INET, &c->address.v4.sin_addr, c->text, sizeof(c->text));
		return true;
	}
	c->address.v6.sin6_family = AF_INET6;
	memcpy(&c->address.v6.sin6_addr, gid, sizeof(c->address.v6.sin6_addr));
	inet_ntop(AF_INET6, &c->address.v6.sin6_addr, c->text, sizeof(c->text));
	return !IN6_IS_ADDR_LINKLOCAL(&c->address.v6.sin6_addr) &&
	       !IN6_IS_ADDR_UNSPECIFIED(&c->address.v6.sin6_addr);
}

/* --- one end after the other ---------------------------------------------------------------------- */

static int listen_there(struct cm *c)
{
	errno = 0;
	c->channel = c->rdma_create_event_channel();
	if (!c->channel) {
		c->absent = errno == ENODEV || errno == ENOENT;
		return fail(c, "rdma_create_event_channel: %s", strerror(errno));
	}
	if (c->rdma_create_id(c->channel, &c->listener, NULL, RDMA_PS_TCP))
		return fail(c, "rdma_create_id: %s", strerror(errno));
	if (c->rdma_bind_addr(c->listener, &c->address.any))
		return fail(c, "rdma_bind_addr to %s: %s", c->text, strerror(errno));
	if (!c->listener->verbs || strcmp(ibv_get_device_name(c->listener->verbs->device), c->device) != 0)
		return fail(c, "the address %s belongs to %s", c->text,
			c->listener->verbs ? ibv_get_device_name(c->listener->verbs->device) : "no device");
	if (c->rdma_listen(c->listener, 1))
		return fail(c, "rdma_listen: %s", strerror(errno));
	return 0;
}

static int call(struct cm *c)
{
	in_port_t port = c->rdma_get_src_port(c->listener);

	if (c->address.any.sa_family == AF_INET)
		c->address.v4.sin_port = port;
	else
		c->address.v6.sin6_port = port;
	if (c->rdma_create_id(c->channel, &c->active, NULL, RDMA_PS_TCP))
		return fail(c, "rdma_create_id: %s", strerror(errno));
	if (c->rdma_resolve_addr(c->active, NULL, &c->address.any, TIMEOUT_MS))
		return fail(c, "rdma_resolve_addr of %s: %s", c->text, strerror(errno));
	return 0;
}

static int make_qp(struct cm *c, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = sizeof(message) },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (c->rdma_create_qp(id, NULL, &init))
		return fail(c, "rdma_create_qp: %s", strerror(errno));
	return 0;
}

static int connect_there(struct cm *c)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };

	if (make_qp(c, c->active))
		return -1;
	if (c->rdma_connect(c->active, &param))
		return fail(c, "rdma_connect: %s", strerror(errno));
	return 0;
}

static int accept_it(struct cm *c)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct ibv_sge sge = { (uintptr_t)c->received, sizeof(c->received), 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (make_qp(c, c->passive))
		return -1;
	c->mr = ibv_reg_mr(c->passive->pd, c->received, sizeof(c->received), IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr)
		return fail(c, "ibv_reg_mr: %s", strerror(errno));
	sge.lkey = c->mr->lkey;
	if (ibv_post_recv(c->passive->qp, &wr, &bad))
		return fail(c, "ibv_post_recv is refused");
	if (c->rdma_accept(c->passive, &param))
		return fail(c, "rdma_accept: %s", strerror(errno));
	return 0;
}

/* What an event asks for. */
static int go_on(struct cm *c, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (c->rdma_resolve_route(c->active, TIMEOUT_MS))
			return fail(c, "rdma_resolve_route: %s", strerror(errno));
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return connect_there(c);
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		c->passive = event->id;
		return accept_it(c);
	case RDMA_CM_EVENT_ESTABLISHED:
		c->established++;
		return 0;
	default:
		return fail(c, "%s, status %d", c->rdma_event_str(event->event), event->status);
	}
}

static int wait_for_event(struct cm *c)
{
	struct pollfd p = { .fd = c->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event, copy;

	while (poll(&p, 1, 100) <= 0)
		if (endpoint_stop || clock_ns() > c->deadline)
			return fail(c, "no event comes");
	if (c->rdma_get_cm_event(c->channel, &event))
		return fail(c, "rdma_get_cm_event: %s", strerror(errno));
	copy = *event; /* what it points to is not used */
	c->rdma_ack_cm_event(event);
	return go_on(c, &copy);
}

/* The one completion of a queue. */
static int wait_for_completion(struct cm *c, struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (endpoint_stop || clock_ns() > c->deadline)
			return fail(c, "the %s does not complete", what);
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		return fail(
			c, "the %s failed: %s", what, n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
	return 0;
}

static int exchange(struct cm *c)
{
	struct ibv_sge sge = { (uintptr_t)message, sizeof(message), 0 };
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE },
			   *bad;

	if (ibv_post_send(c->active->qp, &wr, &bad))
		return fail(c, "ibv_post_send is refused");
	if (wait_for_completion(c, c->active->send_cq, "SEND") ||
		wait_for_completion(c, c->passive->recv_cq, "receive"))
		return -1;
	if (memcmp(c->received, message, sizeof(message)) != 0)
		return fail(c, "other bytes came than were sent");
	return 0;
}

static int try_it(struct cm *c)
{
	if (listen_there(c) || call(c))
		return -1;
	while (c->established < 2)
		if (wait_for_event(c))
			return -1;
	return exchange(c);
}

static void end_id(struct cm *c, struct rdma_cm_id *id)
{
	if (id && id->qp)
		c->rdma_destroy_qp(id);
	if (id)
		c->rdma_destroy_id(id);
}

static void end(struct cm *c)
{
	if (c->established)
		c->rdma_disconnect(c->active);
	if (c->mr)
		ibv_dereg_mr(c->mr);
	end_id(c, c->active);
	end_id(c, c->passive);
	end_id(c, c->listener);
	if (c->channel)
		c->rdma_destroy_event_channel(c->channel);
}

/* --- the check ------------------------------------------------------------------------------------ */

static void say_failure(struct doctor *d, struct doctor_result *r, const struct cm *c)
{
	doctor_say(r, DOCTOR_WARN, "%s", c->why);
	if (c->absent) {
		doctor_mean(r,
			"Programs that connect by the connection manager (rping, Open MPI and UCX over "
			"rdmacm, libfabric, storage) find no device; those that exchange addresses by "
			"themselves are not concerned.");
		doctor_advise(r, "%s",
			d->device.kind == DOCTOR_KIND_UNPIN
				? "Start the program with 'unpin run'."
				: "modprobe rdma_ucm, and in a container pass /dev/infiniband/rdma_cm.");
		return;
	}
	doctor_mean(r,
		"A connection of the device with itself by the connection manager failed; programs that "
		"connect that way (rping, libfabric, Open MPI, storage) will fail as well.");
	doctor_advise(r, "Try 'rping -s' and 'rping -c -a %s', and read the kernel log.", c->text);
}

void doctor_cm_check(struct doctor *d, struct doctor_result *r)
{
	struct cm c = { .device = d->device.name, .deadline = clock_ns() + PATIENCE };

	if (!d->e.has_gid || !take_address(&c, d->e.address.gid)) {
		doctor_say(r, DOCTOR_NA,
			"no address of this host that can be connected to is a GID of the port");
		return;
	}
	if (load(&c)) {
		doctor_say(r, DOCTOR_NA, LIBRARY " is not installed");
	} else {
		if (try_it(&c))
			say_failure(d, r, &c);
		else
			doctor_say(r, DOCTOR_OK, "connected to itself at %s, and a message arrived", c.text);
		end(&c);
	}
	/* It stays loaded: it has threads and handlers of its own. */
}
