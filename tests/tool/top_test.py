#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
`unpin top` from outside: on processes whose page faults have a known cause, as lines, as JSON and on a terminal that tmux
keeps. usage: top_test.py UNPIN LOAD
"""
import json
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import terminal  # noqa: E402
from cases import NOBODY, Everyones, Skip, ready, run_all, start  # noqa: E402

UNPIN, LOAD = map(os.path.realpath, sys.argv[1:3])
DEVICE = 'top%d' % os.getpid()
ENV = dict(os.environ, UNPIN_DEVICE=DEVICE)
ENV.pop('LD_PRELOAD', None)


def load(*args, settings=()):
    return ready([UNPIN, 'run'] + list(settings) + ['--', LOAD] + list(args), ENV)


def top(*args, want=0, wrap=(), timeout=60, program=UNPIN):
    return start(list(wrap) + [program, 'top'] + list(args), ENV, want, timeout)


def looks(p, *args, n=3):
    """The last of n looks at a process, and all of them."""
    out = top('-j', '-n', str(n), '-w', '0.5', *args, str(p.pid)).stdout.splitlines()
    assert len(out) == n, out
    return [json.loads(line) for line in out]


def region_of(look, length, kind='odp'):
    found = [r for r in look['regions'] if r['kind'] == kind and r['length_bytes'] == length]
    assert len(found) == 1, look['regions']
    return found[0]


# --- JSON and lines ---

def faults_that_need_no_disk_are_not_called_that():
    with load('memory') as p:
        for look in looks(p):
            t = look['fault_time']
            assert look['pid'] == p.pid and look['command'] == 'top_load' and look['device'] == DEVICE, look
            assert t['io_ns'] == 0 and t['io_events_per_s'] == 0, t
            assert t['mostly'] not in ('disk or swap', 'no faults'), t
            assert look['odp_per_s']['page_faults'] > 0, look['odp_per_s']
            big = region_of(look, 8 << 20)
            assert big['heat'] == 'hot' and big['page_faults_per_s'] > 0 and big['page_prefetch_per_s'] > 0, big
            assert big['page_invalidations_handled_per_s'] > 0, big
            assert region_of(look, 2 << 20, 'pinned')['heat'] == 'never', look['regions']
            assert len(look['queue_pairs']) == 2, look['queue_pairs']
            assert {q['state'] for q in look['queue_pairs']} == {'RTS'}, look['queue_pairs']
            assert {q['peer'] for q in look['queue_pairs']} == {q['number'] for q in look['queue_pairs']}, look['queue_pairs']
            assert look['slowest'] and all(s['reads'] == 0 and 'disk' not in s['why'] for s in look['slowest']), look['slowest']
            assert [s['took_ns'] for s in look['slowest']] == sorted((s['took_ns'] for s in look['slowest']), reverse=True)
            assert all(s['region'] == big['address'] for s in look['slowest']), look['slowest']


def pages_in_memory_are_where_they_are():
    with load('memory') as p:
        pinned = region_of(looks(p, n=1)[0], 2 << 20, 'pinned')['residency']
        assert pinned['pages_asked'] == pinned['present'] == 512 and pinned['strip_percent'] == [100] * 16, pinned


def a_disk_read_is_called_that():
    with load('disk', '/var/tmp') as p:
        seen = looks(p)
        if not any(l['system']['majflt_per_s'] for l in seen):
            raise Skip('the kernel does not let go of the pages of a file in /var/tmp')
        for look in seen:
            assert look['fault_time']['io_ns'] > 0 and look['fault_time']['io_events_per_s'] > 0, look['fault_time']
            assert look['odp_per_s']['faults_major'] > 0, look['odp_per_s']
            assert any(s['reads'] and 'disk or swap' in s['why'] and 'file' in s['why'] for s in look['slowest']), look['slowest']


def the_squeeze_is_seen():
    with load('squeeze') as p:
        time.sleep(2)
        look = looks(p, n=4)[-1]
        s = look['system']
        assert s['cgroup_limit_bytes'] == 32 << 20, s
        assert s['cgroup_bytes'] > 16 << 20, s
        assert s['swap_out_per_s'] > 0 and s['swap_bytes'] > 0, s
        big = region_of(look, 64 << 20)
        assert big['residency']['swapped'] > 0 and 0 < big['residency']['present'] < big['residency']['pages_asked'], big


def a_queue_pair_that_waits_says_how_long():
    with load('wait') as p:
        before, after = looks(p, n=2)
        waiting = [[q for q in look['queue_pairs'] if q['waiting_ns']] for look in (before, after)]
        assert [len(w) for w in waiting] == [1, 1], (before['queue_pairs'], after['queue_pairs'])
        # Half a second lies between both looks.
        assert waiting[1][0]['waiting_ns'] - waiting[0][0]['waiting_ns'] > 3e8, waiting
        other = [q for q in after['queue_pairs'] if not q['waiting_ns']]
        assert [q['outstanding'] for q in other] == [1], other


def retries_are_those_of_their_queue_pair():
    with load('memory', settings=('--loss', '2%')) as p:
        look = looks(p, n=4)[-1]
        # One of the pair sends; only the other's answers are lost, and those are sent again because they are asked for again.
        again = sorted(q['retransmits'] for q in look['queue_pairs'])
        assert again[0] == 0 and again[1] > 0, look['queue_pairs']


def time_that_was_asked_for_is_told_from_the_drivers():
    with load('memory', settings=('--fault-latency', '5ms')) as p:
        look = looks(p, n=2)[-1]
        assert any(s['took_ns'] >= 5e6 and 'held back' in s['why'] for s in look['slowest']), look['slowest']


def lines_have_a_time_and_a_subject():
    with load('memory') as p:
        lines = top('--batch', '-n', '2', '-w', '0.3', str(p.pid)).stdout.splitlines()
        subjects = [re.fullmatch(r'\d+\.\d{3} ([a-z-]+)( [a-z_/%]+=("[^"]*"|\S*))+', line) for line in lines]
        assert all(subjects), lines
        names = [s.group(1) for s in subjects]
        assert names.count('device') == names.count('system') == names.count('fault-time') == 2, names
        assert {'region', 'qp', 'slow'} <= set(names), names


def what_a_filter_leaves_is_printed():
    with load('memory') as p:
        look = looks(p, '--filter', 'pinned', '--sort', 'length', n=1)[0]
        assert {r['kind'] for r in look['regions']} == {'pinned'} and not look['queue_pairs'], look
        lengths = [r['length_bytes'] for r in looks(p, '--sort', 'length', n=1)[0]['regions']]
        assert lengths == sorted(lengths, reverse=True) and len(lengths) == 3, lengths


def the_only_process_needs_no_number():
    with load('memory') as p:
        look = json.loads(top('-j', '-n', '1', '-w', '0.2', '-d', DEVICE).stdout)
        assert look['pid'] == p.pid, look
        with load('memory') as q:
            err = top('-j', '-n', '1', '-d', DEVICE, want=1).stderr
            assert 'which of 2 processes' in err and str(p.pid) in err and str(q.pid) in err, err


def the_end_of_the_process_ends_it():
    with load('memory') as p:
        t = subprocess.Popen([UNPIN, 'top', '-j', '-w', '0.2', str(p.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        json.loads(t.stdout.readline())
        p.kill()
        p.wait()
        t.communicate(timeout=20)
        assert t.returncode == 0, t.returncode


def what_cannot_be_watched_is_explained():
    assert 'no such process' in top('-j', str(0x3fffffff), want=1).stderr
    assert 'no unpin device open' in top('-j', str(os.getpid()), want=1).stderr
    assert 'no kernel device' in top('-j', '-d', DEVICE, want=1).stderr
    assert 'no terminal' in top(str(os.getpid()), want=2).stderr
    for args, word in ((['-w', '0'], '--every'), (['-n', 'x', '-j'], '--count'), (['-s', 'fault'], 'did you mean'), (['x'], 'number of a process'),
                       (['1', '2'], 'one process'), (['--batc'], '--batch')):
        assert word in top(*args, want=2).stderr, args


def another_users_process_is_refused():
    with Everyones(UNPIN) as program, load('memory') as p:
        assert 'another user' in top('-j', str(p.pid), want=1, wrap=NOBODY, program=program).stderr


# --- on a terminal ---

def Terminal(*args, **how):
    return terminal.Terminal(UNPIN, DEVICE, *args, **how)


def the_screen_shows_a_busy_process_and_obeys_keys():
    with load('memory') as p, Terminal(str(p.pid)) as t:
        t.until('unpin top: %d top_load on %s' % (p.pid, DEVICE), 'mostly', 'REGION', 'QP', 'SLOWEST', 'RTS', 'sort: faults')
        t.wait(lambda s: re.search(r'^odp +[0-9a-f]+ +8 MiB hot ', s, re.M), 'a hot region')
        t.wait(lambda s: re.search(r'^pinned +[0-9a-f]+ +2 MiB never +100 #{16} ', s, re.M), 'what is pinned, all of it')
        # Sort: by length backwards, the smallest comes first.
        for _ in range(7):
            t.press('s')
        t.until('sort: length')
        t.press('r')
        t.until('sort: length (turned)')
        t.wait(lambda s: re.findall(r'^(?:odp|pinned) +[0-9a-f]+ +(\S+ \S+) ', s, re.M) == ['64 KiB', '2 MiB', '8 MiB'],
               'from the shortest to the longest')
        # Filter.
        t.press('/')
        t.until('filter: _')
        t.press('p', 'i', 'n', 'n')
        t.until('filter: pinn_')
        t.press('Enter')
        t.until('/ filter: pinn')
        t.wait(lambda s: set(re.findall(r'^(odp|pinned) ', s, re.M)) == {'pinned'}, 'what is pinned only')
        t.press('/')
        t.press('Enter')
        t.wait(lambda s: re.search(r'^odp ', s, re.M), 'everything again')
        # Pause: nothing moves. The capture is of a screen that has been drawn with the word.
        t.press('Space')
        still = t.until('[PAUSED]')
        time.sleep(1.5)
        assert t.screen() == still, t.screen()
        t.press('Space')
        t.gone('[PAUSED]')
        t.wait(lambda s: s.splitlines()[1] != still.splitlines()[1], 'moving')
        # Help, panels.
        t.press('h')
        t.until('unpin top: keys', 'turn the order round')
        t.press('h')
        t.gone('unpin top: keys')
        t.press('3')
        t.wait(lambda s: 'QP' in s and 'REGION' not in s, 'queue pairs only')
        t.press('Tab')
        t.wait(lambda s: 'SLOWEST' in s and 'QP ' not in s, 'slow faults only')
        t.press('1')
        t.until('REGION')
        t.press('q')
        assert t.ended() == 0
        assert 'REGION' not in t.screen(), 'the screen was not given back'


def a_tiny_terminal_does():
    with load('memory') as p, Terminal(str(p.pid), width=40, height=10) as t:
        screen = t.until('unpin top: %d' % p.pid, 'its time', 'REGION', 'q quit')
        assert all(len(line) <= 40 for line in screen.splitlines()), screen
        assert re.search(r'^odp ', screen, re.M), screen
        t.press('h')
        t.until('unpin top: keys')
        t.press('h')
        # It grows, and the page with it.
        t.tmux('resize-window', '-x', '130', '-y', '36')
        t.until('SLOWEST', 'process', 'memory')
        t.tmux('resize-window', '-x', '12', '-y', '2')
        t.wait(lambda s: s.startswith('unpin top: '), 'a title')
        t.press('q')
        assert t.ended() == 0


def the_end_of_the_process_is_told_on_the_screen():
    with load('memory') as p, Terminal(str(p.pid)) as t:
        t.until('REGION')
        p.kill()
        p.wait()
        t.until('The process has ended', 'REGION')
        t.press('q')
        assert t.ended() == 0


def the_screen_shows_the_squeeze():
    with load('squeeze') as p, Terminal(str(p.pid)) as t:
        t.until('of 32 MiB (')
        t.wait(lambda s: re.search(r'mostly (disk or swap|waiting in line|kernel and driver|waking)', s), 'a verdict')
        t.wait(lambda s: re.search(r'disk or swap [1-9]\d*%', s), 'reads from swap')
        t.wait(lambda s: re.search(r'^odp +[0-9a-f]+ +64 MiB +hot +\d+ ', s, re.M), 'a region')
        print(t.screen())
        t.press('q')
        assert t.ended() == 0


def a_terminal_of_no_known_kind_is_refused():
    with load('memory') as p, Terminal(str(p.pid), term='nosuchterminal') as t:
        assert t.ended() == 2
        t.until('is TERM right?')


run_all(faults_that_need_no_disk_are_not_called_that, pages_in_memory_are_where_they_are, a_disk_read_is_called_that, the_squeeze_is_seen,
        a_queue_pair_that_waits_says_how_long, retries_are_those_of_their_queue_pair, time_that_was_asked_for_is_told_from_the_drivers,
        lines_have_a_time_and_a_subject, what_a_filter_leaves_is_printed,
        the_only_process_needs_no_number, the_end_of_the_process_ends_it, what_cannot_be_watched_is_explained,
        another_users_process_is_refused,
        the_screen_shows_a_busy_process_and_obeys_keys, a_tiny_terminal_does, the_end_of_the_process_is_told_on_the_screen,
        the_screen_shows_the_squeeze, a_terminal_of_no_known_kind_is_refused)
