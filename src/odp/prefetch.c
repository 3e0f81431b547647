/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Prefetch. Pages become valid by the same events as those of faults: accesses that meet them join, and what
 * an invalidation drops meanwhile is resolved again. An event covers pages of one leaf and one mapping.
 */
#include "odp/prefetch.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/trace.h"
#include "mm/page.h"
#include "mm/residency.h"
#include "odp/raise.h"

#define REQUEST_BYTES 256u
/* Pages that a thread brings in before it looks again if faults wait. */
#define CHUNK_PAGES LEAF_PAGES
/* Pages that one question about residency covers: a chunk of a prefetch that populates nothing. */
#define LOOK_PAGES 4096u
/* How often a page that is taken away again is tried. */
#define TRIES 16u

struct prefetch {
	struct list line;	   /* in the queue; else unlinked: its cursor is at its end */
	struct list of_region;	   /* on region->prefetches */
	struct odp_region *region; /* NULL once that has ended */
	uintptr_t at, end;	   /* what has yet to be taken */
	unsigned flags;
	unsigned busy; /* threads that carry out a chunk of it */
};

_Static_assert(sizeof(struct prefetch) <= REQUEST_BYTES, "a request fits its piece");

/*
 * A stretch on its way to being valid. Its region may end at any time unless the caller prevents it: it is
 * looked at under the lock only, through request if there is one.
 */
struct stretch {
	struct odp_space *s;
	struct odp_region *region; /* of a caller that waits; else NULL */
	struct prefetch *request;  /* of a driver thread; else NULL */
	uintptr_t at, end;	   /* whole pages */
	unsigned flags;
	unsigned window; /* pages of the next event: one after a failure, then growing again */
	unsigned tries;	 /* of the page at `at` */
	bool admitted;	 /* told that there is room */
};

static bool for_writing(const struct stretch *p)
{
	return p->flags & ODP_PREFETCH_WRITE;
}

static uintptr_t least(uintptr_t a, uintptr_t b)
{
	return a < b ? a : b;
}

/* The region, unless it has ended. Under the lock. */
static struct odp_region *region_of(const struct stretch *p)
{
	struct odp_region *r = p->request ? p->request->region : p->region;

	return r && !atomic_load_explicit(&r->closing, memory_order_relaxed) ? r : NULL;
}

/* ---- what is there ---- */

/* How many of the n pages from addr on, counted from the first, are in memory (or are not). */
static unsigned run_of(uintptr_t addr, unsigned n, bool in_memory)
{
	unsigned char resident[LOOK_PAGES];
	unsigned i = 0;

	/* What nobody can tell is not touched. */
	if (page_size() != ODP_PAGE || residency_query((void *)addr, n, resident) < 0)
		return in_memory ? 0 : n;
	while (i < n && !!resident[i] == in_memory)
		i++;
	return i;
}

/* ---- waiting for somebody else's event, or for room ---- */

struct sleeper {
	struct odp_waiter w;
	_Atomic uint32_t told;
};

static void wake_sleeper(struct odp_waiter *w, int result)
{
	struct sleeper *it = container_of(w, struct sleeper, w);

	(void)result;
	atomic_store_explicit(&it->told, 1, memory_order_release);
	/* It may be gone by now: then nobody, or somebody who looks again, is woken. */
	syscall(SYS_futex, &it->told, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Not a cancellation point of the application's threads, as a condition or a semaphore would be. */
static int sleep_until_told(struct sleeper *it)
{
	while (!atomic_load_explicit(&it->told, memory_order_acquire))
		syscall(SYS_futex, &it->told, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return it->w.result;
}

/* Waits for f, or without one for room. The lock is held, and dropped. 0, or -ECANCELED. */
static int wait_for(struct stretch *p, struct odp_region *r, struct fault *f)
{
	struct sleeper it = { .w = { .ready = wake_sleeper, .addr = p->at, .raised_ns = clock_ns() } };

	if (f)
		fault_join(f, r, &it.w, false);
	else
		fault_crowd(r, &it.w);
	fault_unlock(&p->s->faults);
	p->admitted = !f;
	return sleep_until_told(&it);
}

/* ---- events ---- */

/* Moves over pages of the leaf that are valid already, up to stop. Returns the state of the one it stops at.
 */
static enum page_state skip_valid(struct stretch *p, const struct leaf *leaf, uintptr_t stop)
{
	enum page_state state = PAGE_INVALID;

	for (; p->at < stop; p->at += ODP_PAGE, p->tries = 0) {
		state = leaf_state(leaf, leaf_page(p->at));
		if (state != PAGE_VALID_RW && (state != PAGE_VALID_RO || for_writing(p)))
			break;
	}
	return state;
}

static struct fault *make_event(
	struct stretch *p, struct odp_region *r, struct leaf *leaf, uintptr_t stop, const struct vma *vma)
{
	unsigned pages = (unsigned)((stop - p->at) >> ODP_PAGE_SHIFT);
	struct fault *f;

	if (pages > p->window)
		pages = p->window;
	f = odp_event_over(r, leaf, p->at, vma, pages, for_writing(p));
	if (!f)
		return NULL;
	f->needed = f->pages;
	f->prefetch = true;
	return f;
}

/*
 * An event for the first page of [p->at, stop), in one leaf and mapping, that is not valid; p->at moves
 * there. *f NULL: none was made, look again from p->at. The lock is held, and dropped. 0, or the error of the
 * page.
 */
static int begin_event(struct stretch *p, uintptr_t stop, const struct vma *vma, struct fault **f)
{
	struct fault_queue *q = &p->s->faults;
	struct odp_region *r = region_of(p);
	int err = !r ? -ECANCELED : for_writing(p) && !r->writable ? -EACCES : 0;
	struct leaf *leaf = err ? NULL : pagetable_make(&p->s->table, p->at);
	enum page_state state;

	*f = NULL;
	if (!leaf) {
		fault_unlock(q);
		return err ? err : -ENOMEM;
	}
	state = skip_valid(p, leaf, stop);
	if (p->at == stop) {
		fault_unlock(q);
		return 0;
	}
	if (state == PAGE_FAULTING || !fault_room(r, p->admitted)) {
		if (!p->request)
			return wait_for(p, r, state == PAGE_FAULTING ? fault_find(q, p->at) : NULL);
		/* Somebody is at it, or has more urgent things to do. */
		if (state != PAGE_FAULTING)
			odp_count(p->s, r->odp, page_prefetch_dropped, 1);
		fault_unlock(q);
		p->at += ODP_PAGE;
		return 0;
	}
	*f = make_event(p, r, leaf, stop, vma);
	p->admitted = false;
	fault_unlock(q);
	return *f ? 0 : -ENOMEM;
}

/* Populates the pages of an event. 0, or the error of the first one. */
static int populate_event(struct stretch *p, struct fault *f)
{
	unsigned pages = f->needed;
	struct odp_outcome out = odp_resolve(p->s, f, pages, false);

	if (out.err)
		return out.err;
	if (out.forced) {
		p->window = 1;
		return ++p->tries == TRIES ? -EAGAIN : 0;
	}
	p->tries = 0;
	/* A batch that met an obstacle has only brought in its first page: it is approached step by step. */
	p->at += (out.mapped == pages ? pages : 1) * (uintptr_t)ODP_PAGE;
	if (out.mapped < pages)
		p->window = 1;
	else if (p->window < CHUNK_PAGES)
		p->window *= 4;
	return 0;
}

/*
 * Of an event's pages those become valid, up to the first that is not in memory, which is found out while it
 * owns them. Nothing is an error.
 */
static void settle_event(struct stretch *p, struct fault *f)
{
	unsigned n = run_of(f->addr, f->pages, true);

	p->at = f->addr + (uintptr_t)(n ? n : 1) * ODP_PAGE;
	odp_resolve_resident(p->s, f, n);
}

/* Moves over what is not in memory, so that no leaf is made for it. Whether there was any. */
static bool skip_absent(struct stretch *p, const struct vma *vma)
{
	uintptr_t far = least(least(p->end, vma->end), p->at + LOOK_PAGES * (uintptr_t)ODP_PAGE);
	unsigned absent = run_of(p->at, (unsigned)((far - p->at) >> ODP_PAGE_SHIFT), false);

	p->at += (uintptr_t)absent * ODP_PAGE;
	return absent;
}

/* One step further. 0, or the error that ends the stretch. */
static int advance(struct stretch *p)
{
	bool no_fault = p->flags & ODP_PREFETCH_NO_FAULT;
	struct fault *f;
	struct vma vma;
	int err = odp_mapping(p->s, p->at, for_writing(p), &vma);

	if (err || (no_fault && skip_absent(p, &vma)))
		return err;
	fault_lock(&p->s->faults);
	err = begin_event(p, least(least(p->end, vma.end), (p->at | (LEAF_BYTES - 1)) + 1), &vma, &f);
	if (!f)
		return err;
	if (!no_fault)
		return populate_event(p, f);
	settle_event(p, f);
	return 0;
}

/* All of it. 0, or the error of the page at p->at. */
static int carry_out(struct stretch *p)
{
	uint64_t began = trace_begin();
	uintptr_t from = p->at;
	int err = 0;

	while (p->at < p->end && !err)
		err = advance(p);
	if (began && p->at > from)
		trace_record(TRACE_PREFETCH, began, clock_ns(), from, p->at - from);
	return err;
}

/* ---- in the calling thread ---- */

static uintptr_t chunk_end(uintptr_t at, uintptr_t end, unsigned flags)
{
	uintptr_t bytes = (flags & ODP_PREFETCH_NO_FAULT ? LOOK_PAGES : CHUNK_PAGES) * (uintptr_t)ODP_PAGE;
	uintptr_t next = (at | (bytes - 1)) + 1;

	return next && next < end ? next : end;
}

static int prefetch_now(struct odp_region *r, uintptr_t at, uintptr_t end, unsigned flags)
{
	struct stretch p = { .s = r->space, .region = r, .at = at, .flags = flags, .window = CHUNK_PAGES };
	int err = 0;

	while (p.at < end && !err) {
		p.end = chunk_end(p.at, end, flags);
		err = carry_out(&p);
	}
	return err;
}

/* ---- queued ---- */

void prefetch_queue_init(struct prefetch_queue *q, unsigned most)
{
	*q = (struct prefetch_queue){ .most = most };
	list_init(&q->line);
	slab_init(&q->pool, REQUEST_BYTES, true);
}

void prefetch_queue_destroy(struct prefetch_queue *q)
{
	assert(!q->len);
	slab_destroy(&q->pool);
}

/* Forgets a request that is over or ownerless when nobody is busy with it. */
static void let_go(struct odp_space *s, struct prefetch *req)
{
	struct prefetch_queue *q = &s->prefetches;

	if (req->busy || list_linked(&req->line))
		return;
	list_del(&req->of_region);
	slab_give(&q->pool, req);
	q->len--;
}

/* What has yet to be taken of a request will not be. */
static void drop_rest(struct odp_space *s, struct prefetch *req)
{
	odp_count(s, req->region ? req->region->odp : NULL, page_prefetch_dropped,
		(req->end - req->at) >> ODP_PAGE_SHIFT);
	req->at = req->end;
	list_del(&req->line);
}

void prefetch_region_end(struct odp_region *r)
{
	struct list *node;

	while ((node = list_pop(&r->prefetches))) {
		struct prefetch *req = container_of(node, struct prefetch, of_region);

		drop_rest(r->space, req);
		req->region = NULL;
		let_go(r->space, req);
	}
}

void prefetch_drop_all(struct odp_space *s)
{
	list_for_each_safe (pos, &s->prefetches.line) {
		struct prefetch *req = container_of(pos, struct prefetch, line);

		drop_rest(s, req);
		let_go(s, req);
	}
}

/* Whether one could be taken up, but for a hold. What keeps it from that tells its end itself. */
static bool could_begin(const struct odp_space *s)
{
	const struct prefetch_queue *q = &s->prefetches;

	return !list_empty(&q->line) && q->busy < q->most && !s->faults.line.len &&
	       list_empty(&s->faults.due) && !guard_storm(&s->guard);
}

bool prefetch_ready(const struct odp_space *s)
{
	const struct prefetch_queue *q = &s->prefetches;

	return could_begin(s) && (!q->held_ns || clock_ns() >= q->held_ns);
}

/* Not while something else holds them back: a time that has passed would keep whoever waits for it awake. */
uint64_t prefetch_held_until(const struct odp_space *s)
{
	const struct prefetch_queue *q = &s->prefetches;

	return q->held_ns && could_begin(s) ? q->held_ns : UINT64_MAX;
}

/* Whether what the memory limit leaves is enough for the request's next chunk. */
static bool affordable(const struct odp_space *s, const struct prefetch *req)
{
	return req->flags & ODP_PREFETCH_NO_FAULT ||
	       guard_allows(&s->guard, chunk_end(req->at, req->end, req->flags) - req->at);
}

/* The first request is not affordable: for now, or, when it has been held and memory measured again, at all.
 */
static void hold_or_drop(struct odp_space *s)
{
	struct prefetch_queue *q = &s->prefetches;
	struct prefetch *req;

	if (!q->held_ns) {
		q->held_ns = clock_ns() + GUARD_SAMPLE_NS;
		return;
	}
	fault_unlock(&s->faults);
	guard_ask(&s->guard);
	fault_lock(&s->faults);
	q->held_ns = 0;
	if (list_empty(&q->line))
		return;
	req = list_first(&q->line, struct prefetch, line);
	if (!affordable(s, req)) {
		drop_rest(s, req);
		let_go(s, req);
	}
}

/* The next chunk of the request, which goes behind the others. */
static struct stretch take_chunk(struct odp_space *s, struct prefetch *req)
{
	struct stretch p = { .s = s,
		.request = req,
		.at = req->at,
		.end = chunk_end(req->at, req->end, req->flags),
		.flags = req->flags,
		.window = CHUNK_PAGES };

	req->busy++;
	req->at = p.end;
	list_del(&req->line);
	if (req->at < req->end)
		list_add_tail(&s->prefetches.line, &req->line);
	return p;
}

void prefetch_some(struct odp_space *s)
{
	struct prefetch_queue *q = &s->prefetches;
	struct prefetch *req = list_first(&q->line, struct prefetch, line);
	struct stretch p;
	int err;

	if (!affordable(s, req)) {
		hold_or_drop(s);
		return;
	}
	p = take_chunk(s, req);
	q->held_ns = 0;
	q->busy++;
	/* There may be work for one more. */
	if (prefetch_ready(s))
		pthread_cond_signal(&s->faults.work);
	fault_unlock(&s->faults);
	err = carry_out(&p);
	fault_lock(&s->faults);
	q->busy--;
	req->busy--;
	if (err) {
		odp_count(s, req->region ? req->region->odp : NULL, page_prefetch_dropped,
			(p.end - p.at) >> ODP_PAGE_SHIFT);
		drop_rest(s, req);
	}
	let_go(s, req);
}

static int enqueue(struct odp_region *r, uintptr_t at, uintptr_t end, unsigned flags)
{
	struct odp_space *s = r->space;
	struct prefetch_queue *q = &s->prefetches;
	struct prefetch *req = q->len < ODP_PREFETCHES ? slab_take(&q->pool) : NULL;

	if (!req)
		return -ENOMEM;
	*req = (struct prefetch){ .region = r, .at = at, .end = end, .flags = flags };
	list_add_tail(&q->line, &req->line);
	list_add_tail(&r->prefetches, &req->of_region);
	q->len++;
	pthread_cond_signal(&s->faults.work);
	return 0;
}

static int prefetch_later(struct odp_region *r, uintptr_t at, uintptr_t end, unsigned flags)
{
	struct odp_space *s = r->space;
	int err = -ECANCELED;

	fault_lock(&s->faults);
	if (!atomic_load_explicit(&r->closing, memory_order_relaxed))
		err = enqueue(r, at, end, flags);
	fault_unlock(&s->faults);
	if (!err)
		odp_drivers_need(s);
	return err;
}

int odp_prefetch(struct odp_region *r, uintptr_t va, size_t n, unsigned flags)
{
	uintptr_t at = va >> ODP_PAGE_SHIFT << ODP_PAGE_SHIFT, end = va + n;

	if (!n)
		return 0;
	/* The last page of the address space is never an application's. */
	end = end < va || end > -(uintptr_t)ODP_PAGE
		      ? -(uintptr_t)ODP_PAGE
		      : (end + ODP_PAGE - 1) >> ODP_PAGE_SHIFT << ODP_PAGE_SHIFT;
	if (at >= end)
		return -EFAULT;
	return flags & ODP_PREFETCH_WAIT ? prefetch_now(r, at, end, flags)
					 : prefetch_later(r, at, end, flags);
}
