/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The second process of the bench: a table of verbs, one short function each. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/machine.h"
#include "tool/peer.h"

struct server {
	int fd;
	struct endpoint e;
	struct endpoint_region region[PEER_REGIONS];
	struct peer_answer answer;
};

/* An answer before the end of a verb: ready. */
static int answer_now(struct server *s, int err)
{
	s->answer.err = err;
	if (err)
		snprintf(s->answer.why, sizeof(s->answer.why), "%s", s->e.why[0] ? s->e.why : strerror(-err));
	return send(s->fd, &s->answer, sizeof(s->answer), MSG_NOSIGNAL) == (ssize_t)sizeof(s->answer)
		       ? 0
		       : -EPIPE;
}

static struct endpoint_region *region_of(struct server *s, const struct peer_request *q)
{
	return &s->region[q->region % PEER_REGIONS];
}

/* The bytes that a request names, or NULL when they are not all inside of the region. */
static char *bytes_of(struct server *s, const struct peer_request *q)
{
	struct endpoint_region *r = region_of(s, q);

	if (!r->addr || q->offset > r->length || q->length > r->length - q->offset)
		return NULL;
	return (char *)r->addr + q->offset;
}

static int verb_open(struct server *s, const struct peer_request *q)
{
	int err = endpoint_open(&s->e, &q->choice);

	if (err)
		return err;
	s->e.lifeline = s->fd;
	/* The device's own threads have started and are free to run anywhere; this one stays on its
	 * processor. */
	machine_pin_thread(1);
	s->answer.address = s->e.address;
	return 0;
}

static int verb_connect(struct server *s, const struct peer_request *q)
{
	return endpoint_connect(&s->e, &q->address);
}

static int verb_make(struct server *s, const struct peer_request *q)
{
	struct endpoint_region *r = region_of(s, q);
	int err = q->kind > ENDPOINT_IMPLICIT
			  ? -EINVAL
			  : endpoint_region_make(&s->e, r, q->length, (enum endpoint_kind)q->kind);

	if (err)
		return err;
	if (q->flag)
		machine_touch(r->addr, r->length);
	s->answer.addr = (uintptr_t)r->addr;
	s->answer.rkey = r->mr->rkey;
	return 0;
}

static int verb_release(struct server *s, const struct peer_request *q)
{
	endpoint_region_release(region_of(s, q));
	return 0;
}

static int verb_fresh(struct server *s, const struct peer_request *q)
{
	struct endpoint_region *r = region_of(s, q);

	return madvise(r->addr, r->length, MADV_DONTNEED) ? -errno : 0;
}

static int verb_touch(struct server *s, const struct peer_request *q)
{
	machine_touch(region_of(s, q)->addr, region_of(s, q)->length);
	return 0;
}

static int verb_scatter(struct server *s, const struct peer_request *q)
{
	struct endpoint_region *r = region_of(s, q);
	uint64_t start;

	if (!r->addr)
		return -EINVAL;
	start = clock_ns();
	machine_touch_scattered(r->addr, r->length);
	s->answer.value = clock_ns() - start;
	return 0;
}

static int verb_fill(struct server *s, const struct peer_request *q)
{
	char *bytes = bytes_of(s, q);

	if (!bytes)
		return -EINVAL;
	machine_fill(bytes, q->length, q->seed);
	return 0;
}

static int verb_compare(struct server *s, const struct peer_request *q)
{
	char *bytes = bytes_of(s, q);
	size_t at;

	if (!bytes)
		return -EINVAL;
	at = machine_compare(bytes, q->length, q->seed);
	if (at >= q->length)
		return 0;
	snprintf(s->e.why, sizeof(s->e.why), "wrong data: byte %zu of %llu differs from what was sent", at,
		(unsigned long long)q->length);
	return -EBADMSG;
}

static int verb_poll(struct server *s, const struct peer_request *q)
{
	struct endpoint_done done = { 0 };
	int err = endpoint_post_recv(&s->e, NULL, 0, 0);

	if (err || (err = answer_now(s, 0)))
		return err;
	return endpoint_wait(&s->e, &done, 0, 1);
}

static int verb_play(struct server *s, const struct peer_request *q)
{
	struct pingpong p = {
		.style = q->style % PINGPONG_STYLES,
		.iterations = (uint32_t)q->length,
		.memory = region_of(s, q),
		.remote = q->remote,
		.rkey = q->rkey,
	};
	int err;

	if (!p.memory->addr || p.memory->length < PINGPONG_BYTES)
		return -EINVAL;
	err = pingpong_prepare(&s->e, &p);
	if (err || (err = answer_now(s, 0)))
		return err;
	return pingpong_play(&s->e, &p, NULL);
}

static int verb_usage(struct server *s, const struct peer_request *q)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	s->answer.value = (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
	return 0;
}

static int (*const verbs[PEER_VERBS])(struct server *s, const struct peer_request *q) = {
	[PEER_OPEN] = verb_open,
	[PEER_CONNECT] = verb_connect,
	[PEER_MAKE] = verb_make,
	[PEER_RELEASE] = verb_release,
	[PEER_FRESH] = verb_fresh,
	[PEER_TOUCH] = verb_touch,
	[PEER_SCATTER] = verb_scatter,
	[PEER_FILL] = verb_fill,
	[PEER_COMPARE] = verb_compare,
	[PEER_POLL] = verb_poll,
	[PEER_PLAY] = verb_play,
	[PEER_USAGE] = verb_usage,
};

static int serve(struct server *s, const struct peer_request *q)
{
	memset(&s->answer, 0, sizeof(s->answer));
	s->e.why[0] = 0;
	if (q->verb >= PEER_VERBS)
		return answer_now(s, -EOPNOTSUPP);
	return answer_now(s, verbs[q->verb](s, q));
}

int peer_main(int fd)
{
	static struct server s;
	struct peer_request q;

	/* The first process decides about interrupts; when it is gone so are we. */
	signal(SIGINT, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	machine_memlock();
	s.fd = fd;
	while (recv(fd, &q, sizeof(q), 0) == (ssize_t)sizeof(q)) {
		/* Text of the other end's: ended here, whatever came. */
		q.choice.device[sizeof(q.choice.device) - 1] = 0;
		if (serve(&s, &q))
			break;
	}
	for (int i = 0; i < PEER_REGIONS; i++)
		endpoint_region_release(&s.region[i]);
	endpoint_close(&s.e);
	return 0;
}
