/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/service.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rseq.h"
#include "rdmacm/channel.h"
#include "rdmacm/link.h"
#include "rdmacm/own.h"

#define BATCH 32

static struct {
	bool running;
	int epfd, timer;
	uint64_t next;	      /* what the timer is set to; 0: nothing */
	struct watch **watch; /* by descriptor */
	size_t room;
} service = { .epfd = -1, .timer = -1 };

static void timer_fired(void)
{
	uint64_t count;

	syscall(SYS_read, service.timer, &count, sizeof(count));
	service.next = 0;
	link_tick(clock_ns());
}

/* Its descriptor may have been closed since, and its number be somebody else's, who then finds nothing to
 * read. */
static void woken(const struct epoll_event *e)
{
	int fd = e->data.fd;

	if (fd == service.timer)
		timer_fired();
	else if ((size_t)fd < service.room && service.watch[fd])
		service.watch[fd]->readable(service.watch[fd]);
}

static void *serve(void *arg)
{
	struct epoll_event events[BATCH];
	int epfd = (int)(intptr_t)arg;

	rseq_leave();
	pthread_setname_np(pthread_self(), "unpin-cm");
	for (;;) {
		long n = syscall(SYS_epoll_pwait, epfd, events, BATCH, -1, NULL, 8);

		if (n < 0 && errno != EINTR)
			return NULL; /* somebody closed our descriptor */
		lock_take(&cm_lock);
		for (long i = 0; i < n; i++)
			woken(&events[i]);
		lock_drop(&cm_lock);
	}
}

static int add(int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	return syscall(SYS_epoll_ctl, service.epfd, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

static int spawn(void)
{
	sigset_t most, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	/* Our threads take no signal of the application's. */
	sigfillset(&most);
	sigdelset(&most, SIGSEGV);
	sigdelset(&most, SIGBUS);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &most, &old);
	err = pthread_create(&thread, &attr, serve, (void *)(intptr_t)service.epfd);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

int service_start(void)
{
	int err;

	if (service.running)
		return 0;
	service.epfd = own_fd((int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
	service.timer = own_fd((int)syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	err = service.epfd < 0 ? service.epfd : service.timer < 0 ? service.timer : add(service.timer);
	if (!err)
		err = spawn();
	if (err) {
		own_close(&service.epfd);
		own_close(&service.timer);
		return err;
	}
	service.running = true;
	return 0;
}

static int make_room(size_t n)
{
	struct watch **more;

	if (n <= service.room)
		return 0;
	n = n + n / 2;
	more = realloc(service.watch, n * sizeof(*more));
	if (!more)
		return -ENOMEM;
	memset(more + service.room, 0, (n - service.room) * sizeof(*more));
	service.watch = more;
	service.room = n;
	return 0;
}

int service_watch(struct watch *w)
{
	int err = make_room((size_t)w->fd + 1);

	if (!err)
		err = add(w->fd);
	if (!err)
		service.watch[w->fd] = w;
	return err;
}

void service_unwatch(struct watch *w)
{
	if (w->fd < 0 || (size_t)w->fd >= service.room || service.watch[w->fd] != w)
		return;
	service.watch[w->fd] = NULL;
	syscall(SYS_epoll_ctl, service.epfd, EPOLL_CTL_DEL, w->fd, NULL);
}

void service_deadline(uint64_t at)
{
	struct itimerspec when = { .it_value = { (time_t)(at / NSEC_PER_SEC), (long)(at % NSEC_PER_SEC) } };

	if (service.next && service.next <= at)
		return;
	service.next = at;
	syscall(SYS_timerfd_settime, service.timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void service_abandon(void)
{
	service.running = false;
	service.epfd = service.timer = -1;
	service.next = 0;
	service.watch = NULL; /* the parent may have been changing it: left as it is */
	service.room = 0;
}
