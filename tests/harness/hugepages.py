# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Huge pages of 2 MiB for a test that needs some: reserved while it runs, then given back. The pool is the machine's: tests take
turns at it (tests/odp/hugetlb.h, tests/users/hugepages.c)."""
import contextlib
import fcntl

TURN = '/proc/sys/vm/nr_hugepages'
POOL = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'


def _reserved():
    with open(POOL) as f:
        return int(f.read())


def _reserve(pages):
    with open(POOL, 'w') as f:
        f.write(str(pages))
    return _reserved()


@contextlib.contextmanager
def reserved(pages):
    """Yields '' with that many more in the pool, or why there are not. What is given back is what was added, not the old number,
    which others on this machine may have changed."""
    if not pages:
        yield ''
        return
    with contextlib.ExitStack() as stack:
        try:
            turn = stack.enter_context(open(TURN))
            fcntl.flock(turn, fcntl.LOCK_EX)
        except OSError as e:
            yield 'no huge pages can be reserved: ' + e.strerror
            return
        with _added(pages) as why:
            yield why


@contextlib.contextmanager
def _added(pages):
    try:
        had = _reserved()
        added = _reserve(had + pages) - had
    except OSError as e:
        yield 'no huge pages can be reserved: ' + e.strerror
        return
    try:
        yield '' if added >= pages else 'the kernel finds no memory for %d huge pages' % pages
    finally:
        if added > 0:
            _reserve(max(_reserved() - added, 0))
