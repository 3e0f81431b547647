#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
`unpin advise` from outside: on applications of which is known how their memory should be registered, while they run and from
their timelines. usage: advise_test.py UNPIN APP
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from cases import NOBODY, Everyones, ready, run_all, start  # noqa: E402

UNPIN, APP = map(os.path.realpath, sys.argv[1:3])
DEVICE = 'adv%d' % os.getpid()
ENV = dict(os.environ, UNPIN_DEVICE=DEVICE)
ENV.pop('LD_PRELOAD', None)
KIB, MIB = 1 << 10, 1 << 20


def app(kind, trace=None, last=''):
    """An application that has come to the point where the answer is known; what it is told at the end."""
    return ready([UNPIN, 'run'] + (['--trace', trace] if trace else []) + ['--', APP, kind], ENV, last)


def advise(*args, want=0, wrap=(), program=UNPIN, timeout=120):
    return start(list(wrap) + [program, 'advise'] + list(args), ENV, want, timeout)


def of_process(pid, seconds='0.5'):
    seen = json.loads(advise('-j', '-w', seconds, str(pid)).stdout)
    assert len(seen['processes']) == 1 and seen['processes'][0]['pid'] == pid, seen['processes']
    return seen['processes'][0]


def of_timeline(path, pid=None):
    seen = json.loads(advise('-j', path).stdout)
    assert len(seen['processes']) == 1 and pid in (None, seen['processes'][0]['pid']), seen['processes']
    return seen['processes'][0]


def the(process, length, **more):
    """The one region of that length."""
    found = [r for r in process['regions'] if r['length_bytes'] == length and all(r[k] == v for k, v in more.items())]
    assert len(found) == 1, [(r['kind'], r['length_bytes'], r['should_be']) for r in process['regions']]
    return found[0]


def about(value, want, part=0.25):
    assert want * (1 - part) <= value <= want * (1 + part), (value, want)


# --- the known right answers; each looks at what a process, or its timeline, is said to be ---

def hot(p):
    r = the(p, 4 * MIB)
    assert (r['kind'], r['should_be'], r['reason'], r['same']) == ('odp', 'pinned', 'hot', False), r
    assert r['seen']['uses_per_page'] > 50 and r['seen']['touched_percent'] > 75, r['seen']
    assert 'ON_DEMAND' not in r['lines']['verbs'][0] and 'ibv_reg_mr' in r['lines']['verbs'][0], r['lines']
    assert r['gain']['register_ns'] is None or r['gain']['register_ns'] < 0, r['gain']
    assert r['gain']['fault_ns'] > 0 and r['gain']['locked_bytes'] in (-4 * MIB, 0), r['gain']


def sparse(p):
    r = the(p, 64 * MIB)
    assert (r['kind'], r['should_be'], r['reason']) == ('pinned', 'on_demand', 'sparse'), r
    about(r['seen']['touched_percent'], 4.9)
    about(r['seen']['uses_per_page'], 1, 0.35)
    assert r['seen']['pattern'] == 'random', r['seen']
    assert r['gain']['register_ns'] > 0 and r['gain']['locked_bytes'] == 64 * MIB and r['gain']['fault_ns'] < 0, r['gain']
    assert 'IBV_ACCESS_ON_DEMAND' in r['lines']['verbs'][0], r['lines']
    assert 'UCX_REG_NONBLOCK_MEM_TYPES=host' in r['lines']['UCX'][0] and 'FI_VERBS_USE_ODP=1' in r['lines']['libfabric'][0], r['lines']


def stream(p):
    r = the(p, 64 * MIB)
    assert (r['kind'], r['should_be'], r['reason'], r['same']) == ('odp', 'prefetch', 'stream', False), r
    assert r['seen']['pattern'] == 'sequential' and r['seen']['stretch_bytes'] > 8 * MIB, r['seen']
    about(r['seen']['uses_per_page'], 1)
    assert r['gain']['fault_ns'] > 0 and r['gain']['locked_bytes'] == 0, r['gain']
    assert any('ibv_advise_mr' in line and 'PREFETCH_WRITE' in line for line in r['lines']['verbs']), r['lines']


def again(p):
    r = [r for r in p['regions'] if r['length_bytes'] == 64 * KIB and r['registrations'] > 1]
    assert len(r) == 1, p['regions']
    r = r[0]
    assert (r['kind'], r['should_be'], r['once_as'], r['addresses']) == ('pinned', 'once', 'pinned', 1), r
    assert r['registrations'] >= 1000, r
    about(r['gain']['register_ns'], r['register_ns'], 0.01)
    assert 'UCX_RCACHE_ENABLE=y' in r['lines']['UCX'][0], r['lines']


def addresses(p):
    r = [r for r in p['regions'] if r['kind'] == 'odp']
    assert len(r) == 1, r
    r = r[0]
    assert (r['should_be'], r['length_bytes']) == ('implicit', 64 * KIB), r
    # One of the 64 is on its way from the regions that are registered to the ranges that have ended, at any moment.
    assert r['addresses'] in (63, 64), r
    assert r['registrations'] >= 1000, r
    assert 'NULL, SIZE_MAX' in r['lines']['verbs'][0], r['lines']


def discard(p):
    r = the(p, 8 * MIB)
    assert (r['kind'], r['should_be'], r['reason']) == ('odp', 'prefetch', 'given_back'), r
    assert r['seen']['faults_per_page'] > 5 and r['seen']['counters']['page_invalidations_handled'] > 8 * 2048, r['seen']


def scatter(p):
    r = the(p, 8 * MIB)
    assert (r['kind'], r['should_be'], r['reason'], r['same']) == ('odp', 'on_demand', 'given_back', True), r


def tenth(p):
    r = the(p, 64 * MIB)
    assert (r['kind'], r['should_be'], r['reason']) == ('pinned', 'lock_hot', 'hot_part'), r
    assert len(r['hot']) == 1, r['hot']
    begin, end = r['hot'][0]['offset_bytes'], r['hot'][0]['offset_bytes'] + r['hot'][0]['length_bytes']
    assert 31 * MIB <= begin <= 33 * MIB and 37 * MIB <= end <= 40 * MIB, r['hot']
    assert r['gain']['locked_bytes'] == 64 * MIB - r['hot'][0]['length_bytes'], r['gain']
    for library in ('verbs', 'UCX', 'libfabric'):
        assert any('mlock((char *)buffer + %d, %d)' % (begin, end - begin) in line for line in r['lines'][library]), r['lines']


def unused(p):
    r = the(p, 16 * MIB)
    assert (r['kind'], r['should_be'], r['reason']) == ('pinned', 'on_demand', 'unused'), r
    assert r['gain']['locked_bytes'] == 16 * MIB and r['gain']['fault_ns'] == 0, r['gain']


def few(p):
    r = the(p, 16 * MIB)
    assert (r['should_be'], r['reason']) == ('unsure', 'too_little_traffic'), r
    assert r['because'] == 'too little traffic seen: 12 accesses', r
    assert r['lines'] == {'verbs': [], 'UCX': [], 'libfabric': []}, r['lines']


def implicit(p):
    r = [r for r in p['regions'] if r['kind'] == 'implicit']
    assert len(r) == 1, r
    r = r[0]
    assert (r['should_be'], r['same'], r['seen']['touched_percent']) == ('on_demand', True, None), r
    about(r['seen']['pages'], 2048 * (1 - 2.71828 ** (-2000 / 2048)))


KINDS = (hot, sparse, stream, again, addresses, discard, scatter, tenth, unused, few, implicit)


def source_stays_pinned(p):
    """What all of them write from."""
    r = [r for r in p['regions'] if r['length_bytes'] == 64 * KIB and r['kind'] == 'pinned' and r['registrations'] == 1]
    assert len(r) == 1 and (r[0]['should_be'] == 'pinned' and r[0]['same'] or r[0]['seen']['accesses'] < 64), r


def answers(check):
    """One run of an application: while it runs, and from its timeline."""
    def case_of():
        folder = tempfile.mkdtemp(prefix=DEVICE)
        path = os.path.join(folder, 'timeline')
        try:
            with app(check.__name__, trace=path) as p:
                live = of_process(p.pid)
                assert live['running'] and live['command'] == 'advise_app' and live['device'] == DEVICE, live
                check(live)
                source_stays_pinned(live)
            told = of_timeline(path, p.pid)
            assert told['command'] == 'advise_app' and not told['running'], told
            check(told)
            source_stays_pinned(told)
        finally:
            shutil.rmtree(folder)
    case_of.__name__ = 'the_answer_is_right_for_' + check.__name__
    return case_of


@contextlib.contextmanager
def timeline(kind, end=None, last=''):
    folder = tempfile.mkdtemp(prefix=DEVICE)
    path = os.path.join(folder, 'timeline')
    try:
        with app(kind, trace=path, last=last) as p:
            if end:
                end(p)
        yield path
    finally:
        shutil.rmtree(folder)


def a_process_that_closes_everything_leaves_the_same_answer():
    with timeline('stream', last='close\n') as path:
        p = of_timeline(path)
        assert not any(r['registered'] for r in p['regions']), p['regions']
        r = the(p, 64 * MIB)
        assert (r['should_be'], r['reason']) == ('prefetch', 'stream'), r
        source_stays_pinned(p)


def a_process_that_is_killed_leaves_an_answer():
    def kill(p):
        # The answer is in the file a second after it was true.
        try:
            p.wait(timeout=2.5)
        except subprocess.TimeoutExpired:
            pass
        p.send_signal(signal.SIGKILL)
        p.wait()
    with timeline('hot', end=kill) as path:
        for _ in range(300):        # whom 'unpin run' has left for it finishes the timeline
            if not os.path.exists(path + '.spool'):
                break
            time.sleep(0.1)
        hot(of_timeline(path))


def a_timeline_of_a_process_that_runs_is_said_to_be_unfinished():
    with timeline('few', end=lambda p: None) as path, app('few', trace=path + '2') as p:
        assert p.poll() is None
        assert 'unpin trace' in advise('-j', path + '2', want=1).stderr
        few(of_timeline(path))


def several_timelines_are_several_processes():
    with timeline('few') as one, timeline('unused') as two:
        seen = json.loads(advise('-j', one, two).stdout)['processes']
        assert len(seen) == 2, seen
        few(seen[0])
        unused(seen[1])


def a_process_that_ends_meanwhile_is_told_of():
    with app('few') as p:
        a = subprocess.Popen([UNPIN, 'advise', '-j', '-w', '60', str(p.pid)], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            a.wait(timeout=1)
        except subprocess.TimeoutExpired:
            pass
        p.kill()
        p.wait()
        out, err = a.communicate(timeout=30)
    assert a.returncode == 0, err
    seen = json.loads(out)['processes'][0]
    assert not seen['running'], seen
    few(seen)


def the_page_is_for_people():
    with app('tenth') as p:
        page = advise('-w', '0.2', str(p.pid)).stdout
        for word in ('Process %d (advise_app), device %s' % (p.pid, DEVICE), 'Costs per 4 KiB page', 'measured now', 'Of 2 regions, 1 could be better',
                     '1. 64 MiB at 0x', 'should be', 'on demand, with mlock of its hot part', 'because', 'gain', 'locked memory', 'verbs',
                     'UCX', 'libfabric', 'As they should be:'):
            assert word in page, (word, page)
        assert '\033' not in page, page
        assert max(map(len, page.splitlines())) <= 140, page


def costs_come_from_a_report_when_one_is_given():
    folder = tempfile.mkdtemp(prefix=DEVICE)
    try:
        report, path = os.path.join(folder, 'report'), os.path.join(folder, 'empty')
        with open(report, 'w') as f:
            json.dump({'device': 'x', 'format': 1, 'parts': {
                'sizes': {'rows': [{'size_bytes': 4096, 'on_demand_us': 2.5, 'pinned_us': 9}, {'size_bytes': 4 * MIB, 'pinned_us': 1024.0,
                                                                                              'on_demand_prefetch_us': 512}]},
                'distribution': {'rows': [{'toucher': 'the device', 'fault': 'minor', 'p50_us': 7.5}]}}}, f)
        open(path, 'w').close()
        with app('few') as p:
            costs = json.loads(advise('-j', '-w', '0.1', '-b', report, str(p.pid)).stdout)['costs']
            assert (costs['pin_page_ns'], costs['populate_page_ns'], costs['fault_page_ns'], costs['register_call_ns']) == (1000, 500, 7500, 2500), costs
            assert costs['from'] == report and not costs['register_call_assumed'], costs
            for bad in (path, folder, os.path.join(folder, 'none'), APP):
                assert '--bench' in advise('-j', '-b', bad, str(p.pid), want=1).stderr, bad
    finally:
        shutil.rmtree(folder)


def write(folder, data):
    path = os.path.join(folder, 'file')
    with open(path, 'wb') as f:
        f.write(data)
    return path


REGION = '{"name":"region","ph":"i","pid":%d,"tid":1,"ts":5000000.000,"args":{"kind":"%s","addr":"0x10000","length":%s,"access":7,' \
         '"key":256,"registered_ns":1000,"register_ns":5000%s}}'


def broken_timelines_are_refused_or_used_as_far_as_they_go():
    folder = tempfile.mkdtemp(prefix=DEVICE)
    try:
        whole = '[\n' + ',\n'.join([REGION % (7, 'pinned', 1 << 20, '')]) + '\n]\n'
        for data, word in ((b'', 'no timeline'), (b'hello', 'no timeline'), (b'\0' * 100, 'no timeline'), (b'[]', 'no memory regions'),
                           (b'[', 'cut off'), (b'[{"name":"region"', 'cut off'), (b'{"traceEvents":[]}', 'no memory regions'),
                           (b'[[[[{{{{', 'cut off'), (b'["region"]', 'no memory regions'), (b'[{"name":"region"}]', 'no memory regions'),
                           (b'[{"name":"region","args":7},{"name":"past_region","args":[]}]', 'no memory regions'),
                           ((REGION % (7, 'none', 1 << 20, '')).join('[]').encode(), 'no memory regions'),
                           ((REGION % (7, 'pinned', 0, '')).join('[]').encode(), 'no memory regions')):
            assert word in advise('-j', write(folder, data), want=1).stderr, data
        # Cut off anywhere behind the first region; and with a lot of nothing around it.
        for data in (whole, whole[:-3], whole[:-3] + ',\n{"name":"fault","ph":"b"', whole.replace('\n', ' \n\t '), '{"displayTimeUnit":"ns",'
                     '"traceEvents":%s}' % whole, '[{"x":"%s"},' % ('y' * 200000) + whole[1:], '[{"x":"}]{[\\"\\\\"},' + whole[1:]):
            p = of_timeline(write(folder, data.encode()), 7)
            assert (p['regions'][0]['should_be'], p['regions'][0]['reason']) == ('on_demand', 'unused'), p
        # Numbers that cannot be.
        more = ',"accesses":%s,"sequential":99999999999,"pages":%s,"slice_bytes":%s,"slices":%s,"bytes_in":%s,"faults_major":-5'
        for v in (('1e300', '-1', '0', '[]', '"0xffffffffffffffff"'), ('"x"', 'null', '4097', '[-1,1e99,"z",null]', '{}'),
                  ('18446744073709551615', '18446744073709551615', '"0x8000000000000000"', str([4294967296] * 64), '18446744073709551615'),
                  ('500', '3', '16384', str(list(range(65))), '99999999999999999999'), ('500', '200', '4096', '[1]', 'true')):
            p = of_timeline(write(folder, ('[%s]' % (REGION % (7, 'pinned', 1 << 20, more % v))).encode()), 7)
            assert len(p['regions']) == 1 and p['regions'][0]['seen']['pages'] <= 258, (v, p)
            advise(write(folder, ('[%s]' % (REGION % (7, 'odp', '"0xfffffffffffffff0"', more % v))).encode()), want=1)
        # More regions than a device can have.
        data = ',\n'.join(REGION.replace('256', str(i)) % (7, 'odp', 4096, '') for i in range(140000))
        err = advise('-j', write(folder, ('[%s]' % data).encode())).stderr
        assert 'passed over' in err, err
    finally:
        shutil.rmtree(folder)


def what_cannot_be_looked_at_is_explained():
    assert 'no such process' in advise('-j', '-w', '0.1', str(0x3fffffff), want=1).stderr
    assert 'no unpin device open' in advise('-j', '-w', '0.1', str(os.getpid()), want=1).stderr
    assert 'No such file' in advise('/nowhere/at/all', want=1).stderr
    assert 'no ordinary file' in advise('/dev/null', want=1).stderr
    assert 'cannot read' in advise('/', want=1).stderr
    for args, word in (([], 'of what'), (['-w', '0', '1'], '--watch'), (['-w', 'x', '1'], '--watch'), (['--jsn', '1'], 'did you mean'),
                       (['1', '2'], 'one process')):
        assert word in advise(*args, want=2).stderr, args


def another_users_process_is_refused():
    with Everyones(UNPIN) as program, app('few') as p:
        assert 'another user' in advise('-j', '-w', '0.1', str(p.pid), want=1, wrap=NOBODY, program=program).stderr


run_all(*[answers(k) for k in KINDS], a_process_that_closes_everything_leaves_the_same_answer, a_process_that_is_killed_leaves_an_answer,
        a_timeline_of_a_process_that_runs_is_said_to_be_unfinished,
        several_timelines_are_several_processes, a_process_that_ends_meanwhile_is_told_of, the_page_is_for_people,
        costs_come_from_a_report_when_one_is_given, broken_timelines_are_refused_or_used_as_far_as_they_go,
        what_cannot_be_looked_at_is_explained, another_users_process_is_refused)
