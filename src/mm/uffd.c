/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h> /* __WALL */
#include <unistd.h>

#include "base/log.h"
#include "base/rseq.h"
#include "mm/facility.h"
#include "mm/page.h"
#include "mm/procfd.h"
#include "mm/uffdreader.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define FEATURE_WP_ASYNC (1ull << 15) /* 6.7 */
#define FEATURES                                                                                             \
	((uint64_t)(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |   \
		    UFFD_FEATURE_EVENT_REMOVE))

#define READERS_MOST 4

enum { SHUT, STARTING, OPEN, CLOSING, GIVEN_UP };

static struct {
	mm_observer *observer;
	_Atomic int state;
	_Atomic int fd; /* -1: none */
	/* The reader's process. Whoever exchanges it for 0 may kill it and must reap it. */
	_Atomic pid_t pid;
	_Atomic unsigned users; /* threads inside uffd_cover() */
	_Atomic int started;	/* futex: 0 until the thread knows; then 1, or a negative errno */
	pthread_t thread;
	_Atomic uint64_t overflows, covered, busy, refused, readers;
	struct uffdreader reader;
} uffd = { .fd = -1 };

/*
 * Mappings that were registered, or refused, at an epoch of the reader's: true as long as the epoch stays. A
 * slot is used by one thread at a time; who finds it in use does without.
 */
#define SLOTS 64u
static struct slot {
	atomic_bool used;
	uintptr_t start, end;
	uint64_t epoch;
	int answer;
} slots[SLOTS];

static long futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/* ---- the descriptor ---- */

static int api(int fd, uint64_t features, uint64_t *supported)
{
	struct uffdio_api a = { .api = UFFD_API, .features = features };

	if (syscall(SYS_ioctl, fd, UFFDIO_API, &a))
		return -errno;
	*supported = a.features;
	return 0;
}

static int make_fd(uint64_t features, uint64_t *supported)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY), err;

	if (fd < 0)
		return -errno;
	err = api(fd, features, supported);
	if (!err)
		return fd;
	procfd_close(fd);
	return err;
}

/* What the kernel has is told by a descriptor that can then not be used for anything else. */
static int supported_features(uint64_t *out)
{
	int fd = uffdreader_supported() ? make_fd(0, out) : -EOPNOTSUPP;

	if (fd < 0)
		return fd;
	procfd_close(fd);
	return (*out & FEATURES) == FEATURES ? 0 : -EOPNOTSUPP;
}

int uffd_probe(void)
{
	uint64_t features = 0;

	return supported_features(&features);
}

static int open_fd(void)
{
	uint64_t features = 0, got;
	int err = mm_have(MM_UFFD) ? supported_features(&features) : -EOPNOTSUPP;

	return err ? err : procfd_raise(make_fd(FEATURES | (features & FEATURE_WP_ASYNC), &got));
}

/* The application may have closed it, and opened something else. */
static void close_fd(void)
{
	static const char ours[] = "anon_inode:[userfaultfd]";
	int fd = atomic_exchange(&uffd.fd, -1);
	char path[32] = "/proc/self/fd/", target[sizeof(ours)], digits[12];
	size_t n = strlen(path), d = 0;
	ssize_t len;

	if (fd < 0)
		return;
	for (int rest = fd; d == 0 || rest; rest /= 10)
		digits[d++] = (char)('0' + rest % 10);
	while (d)
		path[n++] = digits[--d];
	path[n] = '\0';
	len = readlink(path, target, sizeof(target));
	if (len < 0 || (len == sizeof(ours) - 1 && !memcmp(target, ours, sizeof(ours) - 1)))
		procfd_close(fd);
}

/* ---- the thread that tells ---- */

static bool closing(void)
{
	return atomic_load(&uffd.state) == CLOSING;
}

static void tell_all(void)
{
	atomic_fetch_add_explicit(&uffd.overflows, 1, memory_order_relaxed);
	uffd.observer(MM_UNMAP, 0, UINTPTR_MAX & ~(uintptr_t)(page_size() - 1));
}

static void tell(const struct uffdreader_event *e)
{
	if (e->end > e->start)
		uffd.observer(e->discard ? MM_DISCARD : MM_UNMAP, e->start, e->end - e->start);
}

static void drain(struct uffdreader *r)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	struct uffdreader_event e;

	if (atomic_exchange(&r->overflow, 0)) {
		tail = atomic_load_explicit(&r->head, memory_order_acquire);
		atomic_store_explicit(&r->tail, tail, memory_order_release);
		tell_all();
	}
	while (tail != atomic_load_explicit(&r->head, memory_order_acquire) && !closing()) {
		e = r->ring[tail++ % UFFDREADER_RING];
		atomic_store_explicit(&r->tail, tail, memory_order_release);
		tell(&e);
	}
}

static void reap(bool with_kill)
{
	pid_t pid = atomic_exchange(&uffd.pid, 0);

	if (pid <= 0)
		return;
	if (with_kill)
		kill(pid, SIGKILL);
	while (syscall(SYS_wait4, pid, NULL, __WALL, NULL) < 0 && errno == EINTR)
		;
}

/* 0 or a negative errno. */
static int start_reader(void)
{
	struct uffdreader *r = &uffd.reader;
	uint32_t turn;
	pid_t pid;

	r->fd = atomic_load(&uffd.fd);
	if (r->fd < 0)
		return -ENODEV;
	r->parent = getpid();
	/* What the one before has read last is not known, and there was none to register for. */
	atomic_fetch_add(&r->epoch, 2 - atomic_load(&r->epoch) % 2);
	pid = uffdreader_start(r);
	if (pid < 0)
		return pid;
	atomic_fetch_add_explicit(&uffd.readers, 1, memory_order_relaxed);
	atomic_store(&uffd.pid, pid);
	while (!atomic_load(&r->reading) && (turn = atomic_load(&r->turn)))
		futex(&r->turn, FUTEX_WAIT, turn);
	if (atomic_load(&r->reading))
		return 0;
	reap(false);
	return -EPERM;
}

/* The reader has ended, unasked. Those who wait for it now wait for the next one. */
static bool replace_reader(void)
{
	bool again = atomic_load(&uffd.readers) < READERS_MOST;

	reap(false);
	if (again && !start_reader()) {
		tell_all();
		return true;
	}
	return false;
}

/* Closing the descriptor lets everybody go and leaves all memory unregistered. */
static void give_up(void)
{
	int open = OPEN;

	if (!atomic_compare_exchange_strong(&uffd.state, &open, GIVEN_UP))
		return;
	close_fd();
	log_warn("userfaultfd: its reader is gone; changes of mappings are seen by interposition only from "
		 "now on");
	tell_all();
}

static void *thread_main(void *unused)
{
	struct uffdreader *r = &uffd.reader;
	int err = start_reader();
	uint32_t turn;

	rseq_leave();
	prctl(PR_SET_NAME, "unpin-notify");
	atomic_store(&uffd.started, err ? err : 1);
	futex((_Atomic uint32_t *)&uffd.started, FUTEX_WAKE, 1);
	while (!err && !closing()) {
		turn = atomic_load(&r->turn);
		drain(r);
		if (closing())
			break;
		if (!turn) {
			if (replace_reader())
				continue;
			give_up();
			break;
		}
		futex(&r->turn, FUTEX_WAIT, turn);
	}
	/* Whoever closes may have come while there was none to kill. */
	reap(true);
	return NULL;
}

static int start_thread(void)
{
	sigset_t ours, before;
	int err;

	sigfillset(&ours);
	sigdelset(&ours, SIGSEGV);
	sigdelset(&ours, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &ours, &before);
	err = pthread_create(&uffd.thread, NULL, thread_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return -err;
	while (!atomic_load(&uffd.started))
		futex((_Atomic uint32_t *)&uffd.started, FUTEX_WAIT, 0);
	err = atomic_load(&uffd.started);
	if (err == 1)
		return 0;
	pthread_join(uffd.thread, NULL);
	return err;
}

static void clean(void)
{
	struct uffdreader *r = &uffd.reader;

	atomic_store(&uffd.started, 0);
	atomic_store(&r->overflow, 0);
	atomic_store(&r->tail, atomic_load(&r->head));
	atomic_store(&r->events, 0);
	atomic_store(&uffd.overflows, 0);
	atomic_store(&uffd.covered, 0);
	atomic_store(&uffd.busy, 0);
	atomic_store(&uffd.refused, 0);
	atomic_store(&uffd.readers, 0);
}

int uffd_open(mm_observer *observer)
{
	int shut = SHUT, saved = errno, fd, err;

	if (!atomic_compare_exchange_strong(&uffd.state, &shut, STARTING))
		return -EBUSY;
	clean();
	uffd.observer = observer;
	fd = open_fd();
	err = fd < 0 ? fd : 0;
	if (!err) {
		atomic_store(&uffd.fd, fd);
		/* Before the thread is there, which may give up at once. */
		atomic_store(&uffd.state, OPEN);
		err = start_thread();
	}
	if (err) {
		close_fd();
		atomic_store(&uffd.state, SHUT);
	}
	errno = saved;
	return err;
}

void uffd_close(void)
{
	int saved = errno;

	if (atomic_load(&uffd.state) == SHUT)
		return;
	atomic_store(&uffd.state, CLOSING);
	while (atomic_load(&uffd.users))
		syscall(SYS_sched_yield);
	/* The descriptor first and in both processes, so that nobody waits for a reader that is gone: joining
	 * a thread may unmap its stack. */
	close_fd();
	reap(true);
	futex(&uffd.reader.turn, FUTEX_WAKE, INT_MAX);
	pthread_join(uffd.thread, NULL);
	atomic_store(&uffd.state, SHUT);
	errno = saved;
}

void uffd_abandon(void)
{
	int saved = errno;

	close_fd();
	atomic_store(&uffd.pid, 0);
	atomic_store(&uffd.users, 0);
	atomic_store(&uffd.state, SHUT);
	for (unsigned i = 0; i < SLOTS; i++)
		atomic_store(&slots[i].used, false);
	errno = saved;
}

/* ---- registering ---- */

static int ask_kernel(const struct vma *vma)
{
	struct uffdio_register reg = {
		.range = { .start = vma->start, .len = vma->end - vma->start },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int fd = atomic_load(&uffd.fd), err = 0;

	if (fd < 0)
		return -ENODEV;
	if (syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &reg))
		err = -errno;
	/* The application has closed it. The reader has a descriptor of its own and goes on with what there
	 * is. */
	if (err == -EBADF || err == -ENOTTY) {
		atomic_compare_exchange_strong(&uffd.fd, &fd, -1);
		err = -ENODEV;
	}
	return err;
}

static void count(const struct vma *vma, int err)
{
	static atomic_bool said;

	if (err == -EBUSY && !atomic_exchange(&said, true))
		log_warn("userfaultfd: the application's own one has %#lx-%#lx; changes there are seen by "
			 "interposition only",
			(unsigned long)vma->start, (unsigned long)vma->end);
	atomic_fetch_add_explicit(!err		  ? &uffd.covered
				  : err == -EBUSY ? &uffd.busy
						  : &uffd.refused,
		1, memory_order_relaxed);
}

static int cover(const struct vma *vma, struct slot *slot, uint64_t epoch)
{
	int err;

	if (slot && slot->epoch == epoch && slot->start == vma->start && slot->end == vma->end)
		return slot->answer;
	err = ask_kernel(vma);
	count(vma, err);
	if (slot) {
		slot->start = vma->start;
		slot->end = vma->end;
		slot->epoch = epoch;
		slot->answer = err;
	}
	return err;
}

static int remembered_or_asked(const struct vma *vma)
{
	struct slot *slot = &slots[vma->start / page_size() * 0x9e3779b97f4a7c15ull >> 58];
	uint64_t epoch = atomic_load(&uffd.reader.epoch);
	bool taken;
	int err;

	/* An event is being read: nothing that is remembered can be believed, nor is worth remembering. */
	taken = !(epoch & 1) && !atomic_exchange_explicit(&slot->used, true, memory_order_acquire);
	err = cover(vma, taken ? slot : NULL, epoch);
	if (taken)
		atomic_store_explicit(&slot->used, false, memory_order_release);
	return err;
}

int uffd_cover(const struct vma *vma)
{
	int saved = errno, err = -ENODEV;

	/* Either this thread sees that it closes, or who closes sees this thread. */
	atomic_fetch_add(&uffd.users, 1);
	if (atomic_load(&uffd.state) == OPEN)
		err = remembered_or_asked(vma);
	atomic_fetch_sub(&uffd.users, 1);
	errno = saved;
	return err;
}

bool uffd_active(void)
{
	return atomic_load(&uffd.state) == OPEN;
}

void uffd_counts(struct uffd_counts *out)
{
	*out = (struct uffd_counts){
		.events = atomic_load(&uffd.reader.events),
		.overflows = atomic_load(&uffd.overflows),
		.covered = atomic_load(&uffd.covered),
		.busy = atomic_load(&uffd.busy),
		.refused = atomic_load(&uffd.refused),
		.readers = atomic_load(&uffd.readers),
	};
}
