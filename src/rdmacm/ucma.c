/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/ucma.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/connection.h"
#include "rdmacm/id.h"
#include "rdmacm/query.h"
#include "rdmacm/user.h"

/* A command as it came: the structure behind the header lies at in, untouched yet. */
struct command {
	uint64_t in;
	uint16_t in_len, out_len;
};

/* The kernel reads the whole structure whatever the header's length says. */
#define READ(cmd, var)	  user_read(&(var), (cmd)->in, sizeof(var))
#define IN_UP_TO(s, last) (offsetof(struct s, last) + sizeof(((struct s *)0)->last))

static int answer(const struct command *cmd, uint64_t response, const void *data, size_t size)
{
	return user_write(response, data, size < cmd->out_len ? size : cmd->out_len);
}

/* An address from the program's memory; size as it says, or 0 when it does not say. */
static int take_address(union address *a, const void *raw, size_t size)
{
	size_t want;

	memset(a, 0, sizeof(*a));
	memcpy(&a->sa.sa_family, raw, sizeof(a->sa.sa_family));
	want = address_size(a);
	if (!want || (size && size != want))
		return -EINVAL;
	memcpy(a, raw, want);
	return 0;
}

/* struct sockaddr_ib is no address here: there is no port with InfiniBand as its link layer. */
#define AF_INFINIBAND 27

static int refuse_ib(const void *raw)
{
	uint16_t family;

	memcpy(&family, raw, sizeof(family));
	return family == AF_INFINIBAND ? -ENODEV : 0;
}

/* --- ids ------------------------------------------------------------------------------------------ */

static int create_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id in;
	struct cm_id *id;
	int err;

	if (cmd->out_len < sizeof(resp))
		return -ENOSPC;
	if (READ(cmd, in))
		return -EFAULT;
	err = id_create(c, in.uid, in.ps, in.qp_type, &id);
	if (err)
		return err;
	resp.id = id->number;
	err = user_write(in.response, &resp, sizeof(resp));
	if (err)
		id_destroy(id);
	return err;
}

static int destroy_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id in;
	struct cm_id *id;
	int err;

	if (cmd->out_len < sizeof(resp))
		return -ENOSPC;
	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	if (err)
		return err;
	resp.events_reported = id_destroy(id);
	return user_write(in.response, &resp, sizeof(resp));
}

/* The command is written to the channel that the id goes to, and names the one that has it. */
static int migrate_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_migrate_resp resp;
	struct rdma_ucm_migrate_id in;
	struct event_channel *from;
	struct cm_id *id;
	int err;

	if (cmd->out_len < sizeof(resp))
		return -ENOSPC;
	if (READ(cmd, in))
		return -EFAULT;
	from = event_channel_of((int)in.fd);
	if (!from)
		return fcntl((int)in.fd, F_GETFD) < 0 ? -ENOENT : -EINVAL;
	err = id_find(from, in.id, &id);
	if (err)
		return err;
	if (from != c)
		id_migrate(id, c);
	resp.events_reported = id->events_reported;
	return user_write(in.response, &resp, sizeof(resp));
}

/* --- addresses and routes ------------------------------------------------------------------------- */

static int bind_to(struct event_channel *c, uint32_t number, const void *raw, size_t size)
{
	int ib = refuse_ib(raw), err;
	union address a;
	struct cm_id *id;

	err = ib ? 0 : take_address(&a, raw, size);
	if (!err)
		err = id_find(c, number, &id);
	if (err || ib)
		return err ? err : ib;
	return id_bind(id, &a);
}

static int bind_ip(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_bind_ip in;

	return READ(cmd, in) ? -EFAULT : bind_to(c, in.id, &in.addr, 0);
}

static int bind_any(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_bind in;

	if (READ(cmd, in))
		return -EFAULT;
	return in.reserved || !in.addr_size ? -EINVAL : bind_to(c, in.id, &in.addr, in.addr_size);
}

static int resolve(struct event_channel *c, uint32_t number, const void *src_raw, size_t src_size,
	bool has_src, const void *dst_raw, size_t dst_size)
{
	int ib = refuse_ib(dst_raw), err = 0;
	union address src, dst;
	struct cm_id *id;

	memset(&src, 0, sizeof(src));
	if (!ib)
		err = take_address(&dst, dst_raw, dst_size);
	if (!err && !ib && has_src)
		err = take_address(&src, src_raw, src_size);
	if (!err)
		err = id_find(c, number, &id);
	if (err || ib)
		return err ? err : ib;
	return id_resolve_addr(id, has_src ? &src : NULL, &dst);
}

static int resolve_ip(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_resolve_ip in;

	if (READ(cmd, in))
		return -EFAULT;
	return resolve(c, in.id, &in.src_addr, 0, in.src_addr.sin6_family != 0, &in.dst_addr, 0);
}

static int resolve_addr(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_resolve_addr in;

	if (READ(cmd, in))
		return -EFAULT;
	if (in.reserved || !in.dst_size)
		return -EINVAL;
	return resolve(c, in.id, &in.src_addr, in.src_size, in.src_size != 0, &in.dst_addr, in.dst_size);
}

static int resolve_route(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_resolve_route in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	return err ? err : id_resolve_route(id);
}

static int query_route(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_query_route_resp resp;
	struct rdma_ucm_query in;
	struct cm_id *id;
	int err;

	if (cmd->out_len < offsetof(struct rdma_ucm_query_route_resp, ibdev_index))
		return -ENOSPC;
	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	if (err)
		return err;
	query_fill_route(id, &resp);
	return answer(cmd, in.response, &resp, sizeof(resp));
}

static int query_path(const struct cm_id *id, const struct command *cmd, uint64_t response)
{
	/* The path stands behind the head, in its array without a length. */
	struct rdma_ucm_query_path_resp head;
	struct ib_path_rec_data path;
	char resp[sizeof(head) + sizeof(path)];
	size_t size = sizeof(head);

	if (cmd->out_len < size)
		return -ENOSPC;
	query_fill_path(id, &head, &path);
	memcpy(resp, &head, sizeof(head));
	memcpy(resp + sizeof(head), &path, sizeof(path));
	if (head.num_paths && cmd->out_len >= sizeof(resp))
		size = sizeof(resp);
	return user_write(response, resp, size);
}

static int query(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_query_addr_resp resp;
	struct rdma_ucm_query in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	if (err)
		return err;
	if (in.option == RDMA_USER_CM_QUERY_PATH)
		return query_path(id, cmd, in.response);
	if (in.option != RDMA_USER_CM_QUERY_ADDR && in.option != RDMA_USER_CM_QUERY_GID)
		return -ENOSYS;
	if (cmd->out_len < offsetof(struct rdma_ucm_query_addr_resp, ibdev_index))
		return -ENOSPC;
	if (in.option == RDMA_USER_CM_QUERY_ADDR)
		query_fill_addr(id, &resp);
	else
		query_fill_gid(id, &resp);
	return answer(cmd, in.response, &resp, sizeof(resp));
}

/* --- connections ---------------------------------------------------------------------------------- */

static int connect_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_connect in = { 0 };
	struct cm_id *id;
	int err;

	if (cmd->in_len < IN_UP_TO(rdma_ucm_connect, reserved))
		return -EINVAL;
	if (user_read(&in, cmd->in, cmd->in_len < sizeof(in) ? cmd->in_len : sizeof(in)))
		return -EFAULT;
	if (!in.conn_param.valid)
		return -EINVAL;
	err = id_find(c, in.id, &id);
	return err ? err : connection_connect(id, &in.conn_param, &in.ece);
}

static int listen_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_listen in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	if (err)
		return err;
	if ((int)in.backlog <= 0 || in.backlog > ID_MAX_BACKLOG)
		in.backlog = ID_MAX_BACKLOG;
	return id_listen(id, in.backlog);
}

static int accept_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_accept in = { 0 };
	struct cm_id *id;
	int err;

	if (cmd->in_len < IN_UP_TO(rdma_ucm_accept, reserved))
		return -EINVAL;
	if (user_read(&in, cmd->in, cmd->in_len < sizeof(in) ? cmd->in_len : sizeof(in)))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	return err ? err
		   : connection_accept(id, in.conn_param.valid ? &in.conn_param : NULL, &in.ece, in.uid);
}

static int reject_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_reject in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	return err ? err : connection_reject(id, in.private_data, in.private_data_len, in.reason);
}

static int disconnect_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_disconnect in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	return err ? err : connection_disconnect(id);
}

static int init_qp_attr(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_init_qp_attr in;
	struct ib_uverbs_qp_attr resp;
	struct cm_id *id;
	int err;

	if (cmd->out_len < sizeof(resp))
		return -ENOSPC;
	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	if (!err)
		err = connection_qp_attr(id, in.qp_state, &resp);
	return err ? err : user_write(in.response, &resp, sizeof(resp));
}

static int notify_id(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_notify in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	return err ? err : connection_notify(id, in.event);
}

/* --- options -------------------------------------------------------------------------------------- */

static int option_id(struct cm_id *id, const struct rdma_ucm_set_option *in)
{
	uint8_t byte = 0;
	int number = 0;

	if (in->optname > RDMA_OPTION_ID_ACK_TIMEOUT)
		return -ENOSYS;
	if (in->optname == RDMA_OPTION_ID_TOS || in->optname == RDMA_OPTION_ID_ACK_TIMEOUT) {
		if (in->optlen != sizeof(byte))
			return -EINVAL;
		if (user_read(&byte, in->optval, sizeof(byte)))
			return -EFAULT;
	} else {
		if (in->optlen != sizeof(number))
			return -EINVAL;
		if (user_read(&number, in->optval, sizeof(number)))
			return -EFAULT;
	}
	switch (in->optname) {
	case RDMA_OPTION_ID_TOS:
		id->tos = byte;
		id->tos_set = true;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		return id_set_reuse(id, number);
	case RDMA_OPTION_ID_AFONLY:
		return id_set_afonly(id, number);
	default:
		return id_set_ack_timeout(id, byte);
	}
}

/* ib_path_rec_data.flags of a path for management and data, both ways. */
#define PATH_WHOLE (IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL)
#define PATHS_MAX  64

static int option_path(struct cm_id *id, const struct rdma_ucm_set_option *in)
{
	struct ib_path_rec_data path;
	uint32_t n = in->optlen / sizeof(path);

	if (in->optlen % sizeof(path) || n > PATHS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		if (user_read(&path, in->optval + i * sizeof(path), sizeof(path)))
			return -EFAULT;
		if (path.flags == PATH_WHOLE)
			return id_set_path(id);
	}
	return -EINVAL;
}

static int set_option(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_set_option in;
	struct cm_id *id;
	int err;

	if (READ(cmd, in))
		return -EFAULT;
	err = id_find(c, in.id, &id);
	if (err)
		return err;
	if (in.level == RDMA_OPTION_ID)
		return option_id(id, &in);
	if (in.level == RDMA_OPTION_IB && in.optname == RDMA_OPTION_IB_PATH)
		return option_path(id, &in);
	return -ENOSYS;
}

/* --- multicast: there are no datagram queue pairs that could take part --------------------------- */

static int join(
	struct event_channel *c, const struct command *cmd, uint32_t number, const void *raw, size_t size)
{
	union address a;
	struct cm_id *id;
	int err;

	if (cmd->out_len < sizeof(struct rdma_ucm_create_id_resp))
		return -ENOSPC;
	err = take_address(&a, raw, size);
	if (!err)
		err = id_find(c, number, &id);
	/* As for an id whose queue pair is not a datagram one. */
	return err ? err : -EINVAL;
}

static int join_ip_mcast(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_join_ip_mcast in;

	return READ(cmd, in) ? -EFAULT : join(c, cmd, in.id, &in.addr, 0);
}

static int join_mcast(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_join_mcast in;

	if (READ(cmd, in))
		return -EFAULT;
	return in.addr_size ? join(c, cmd, in.id, &in.addr, in.addr_size) : -EINVAL;
}

static int leave_mcast(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_destroy_id in;

	if (cmd->out_len < sizeof(struct rdma_ucm_destroy_id_resp))
		return -ENOSPC;
	return READ(cmd, in) ? -EFAULT : -ENOENT;
}

/* --- events --------------------------------------------------------------------------------------- */

/* Programs of older releases have room for less. */
#define EVENT_LEAST offsetof(struct rdma_ucm_event_resp, reserved)

/* Under the lock. -EAGAIN: there is none after all. */
static int give_event(struct event_channel *c, const struct command *cmd, uint64_t response)
{
	struct ucma_event *e = event_channel_first(c);

	if (!e)
		return -EAGAIN;
	if (answer(cmd, response, &e->resp, sizeof(e->resp))) {
		event_channel_recount(c);
		return -EFAULT;
	}
	list_del(&e->node);
	e->id->events_reported++;
	if (e->request)
		e->id->backlog++;
	free(e);
	return 0;
}

static int get_event(struct event_channel *c, const struct command *cmd)
{
	struct rdma_ucm_get_event in;
	int err;

	if (cmd->out_len < EVENT_LEAST)
		return -ENOSPC;
	if (READ(cmd, in))
		return -EFAULT;
	do {
		err = event_channel_wait(c);
		if (err)
			return err;
		lock_take(&cm_lock);
		err = give_event(c, cmd, in.response);
		lock_drop(&cm_lock);
	} while (err == -EAGAIN);
	return err;
}

/* --- the table ------------------------------------------------------------------------------------ */

typedef int handler(struct event_channel *c, const struct command *cmd);

static handler *const handlers[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = create_id,
	[RDMA_USER_CM_CMD_DESTROY_ID] = destroy_id,
	[RDMA_USER_CM_CMD_BIND_IP] = bind_ip,
	[RDMA_USER_CM_CMD_RESOLVE_IP] = resolve_ip,
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = resolve_route,
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = query_route,
	[RDMA_USER_CM_CMD_CONNECT] = connect_id,
	[RDMA_USER_CM_CMD_LISTEN] = listen_id,
	[RDMA_USER_CM_CMD_ACCEPT] = accept_id,
	[RDMA_USER_CM_CMD_REJECT] = reject_id,
	[RDMA_USER_CM_CMD_DISCONNECT] = disconnect_id,
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = init_qp_attr,
	[RDMA_USER_CM_CMD_GET_EVENT] = get_event,
	[RDMA_USER_CM_CMD_SET_OPTION] = set_option,
	[RDMA_USER_CM_CMD_NOTIFY] = notify_id,
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = join_ip_mcast,
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = leave_mcast,
	[RDMA_USER_CM_CMD_MIGRATE_ID] = migrate_id,
	[RDMA_USER_CM_CMD_QUERY] = query,
	[RDMA_USER_CM_CMD_BIND] = bind_any,
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = resolve_addr,
	[RDMA_USER_CM_CMD_JOIN_MCAST] = join_mcast,
};

/* Known to newer programs, and not offered. */
#define CMD_RESOLVE_IB_SERVICE (RDMA_USER_CM_CMD_JOIN_MCAST + 1)
#define CMD_WRITE_CM_EVENT     (RDMA_USER_CM_CMD_JOIN_MCAST + 2)

ssize_t ucma_write(struct event_channel *c, const void *buf, size_t len)
{
	struct rdma_ucm_cmd_hdr head;
	struct command cmd;
	int err;

	if (len < sizeof(head))
		return -EINVAL;
	if (user_read(&head, (uintptr_t)buf, sizeof(head)))
		return -EFAULT;
	if (head.cmd > CMD_WRITE_CM_EVENT || head.in + sizeof(head) > len)
		return -EINVAL;
	if (head.cmd >= sizeof(handlers) / sizeof(handlers[0]) || !handlers[head.cmd])
		return -ENOSYS;
	cmd = (struct command){ .in = (uintptr_t)buf + sizeof(head), .in_len = head.in, .out_len = head.out };
	if (head.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
		err = get_event(c, &cmd);
	} else {
		lock_take(&cm_lock);
		err = handlers[head.cmd](c, &cmd);
		lock_drop(&cm_lock);
	}
	return err ? err : (ssize_t)len;
}
