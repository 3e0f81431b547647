#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
`unpin doctor` on unpin's device: the verdicts under every profile, as text and as JSON, as root and as nobody. usage: profiles_test.py UNPIN
"""
import errno
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(1, os.path.join(os.path.dirname(os.path.realpath(__file__)), os.pardir, 'tool'))
from cases import NOBODY, Everyones, Skip, run_all, start  # noqa: E402

UNPIN = os.path.realpath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith(('UNPIN_', 'UCX_', 'FI_', 'NCCL_', 'LD_PRELOAD'))}
ENV['UNPIN_DEVICE'] = 'dt%d' % os.getpid()
NA = 'not applicable'
EPOLL_PWAIT2 = 441
MEMFD_CREATE = 319 if os.uname().machine == 'x86_64' else 279
RC = ('send', 'receive', 'write', 'read', 'atomic')


def doctor(*args, want, wrap=(), program=UNPIN, **env):
    p = start(list(wrap) + [program, 'doctor', *args], dict(ENV, **env), want, 120)
    assert not p.stderr, 'on standard error: ' + p.stderr
    return p.stdout


def report(want, **kwargs):
    o = json.loads(doctor('--json', want=want, **kwargs))
    assert o['usable'] == (want == 0)
    for c in o['checks']:
        if c['verdict'] in ('warn', 'fail', 'unknown'):
            assert c['seen'] and c['meaning'] and c['advice'], c
        assert '(null)' not in json.dumps(c), c
    o['verdict'] = {c['id']: c['verdict'] for c in o['checks']}
    o['seen'] = {c['id']: c['seen'] for c in o['checks']}
    return o


def expect(o, **verdicts):
    for name, verdict in verdicts.items():
        key = name.replace('__', '.').replace('_', '-')
        assert o['verdict'][key] == verdict, '%s: %s (%s), not %s' % (key, o['verdict'][key], o['seen'][key], verdict)


def tried(o):
    return {r['operation']: r['tried'] for r in o['operations'] if r['transport'] == 'RC'}


def everything_works_on_the_device_itself():
    o = report(0)
    expect(o, device__present='ok', device__port='ok', device__odp='ok', device__implicit='ok', device__prefetch='ok', device__sizes='ok',
           device__matrix='ok', reality__on_demand='ok', reality__cold='ok', reality__follows='ok', reality__counters='ok',
           reality__data='ok', reality__cm='ok', reality__ucx='warn', kernel__odp=NA, kernel__modules=NA, pci__bars=o['verdict']['pci.bars'])
    assert all(tried(o)[op] == 'works' for op in RC), tried(o)
    assert 'usable on' in o['summary'] and 'NOT' not in o['summary']


def a_connectx_as_imitated_is_usable():
    expect(report(0, UNPIN_PROFILE='mlx5'), device__odp='ok', device__implicit='ok', reality__data='ok')


def a_rxe_as_imitated_is_usable_without_implicit_regions():
    expect(report(0, UNPIN_PROFILE='rxe'), device__odp='ok', device__implicit='warn', reality__on_demand='ok', reality__data='ok')


def a_device_without_on_demand_paging_is_told():
    o = report(1, UNPIN_PROFILE='none')
    expect(o, device__present='ok', device__odp='fail', device__implicit=NA, reality__on_demand=NA, reality__cold=NA, reality__data=NA,
           manners__unpin='warn')
    assert 'device.odp' in o['summary']
    assert set(tried(o).values()) == {'not tried'}


def a_silent_pin_is_caught():
    o = report(1, UNPIN_PROFILE='stale-firmware')
    # The capability is there, the registration succeeds, and all bytes are right.
    expect(o, device__odp='ok', device__matrix='ok', device__sizes=NA, reality__data='ok')
    expect(o, reality__on_demand='fail', reality__cold='fail', reality__follows='fail')
    assert 'reality.on-demand' in o['summary']
    assert 'silent pin' in [c['meaning'] for c in o['checks'] if c['id'] == 'reality.on-demand'][0]


def implicit_regions_that_are_not_wanted_are_told():
    expect(report(0, UNPIN_IMPLICIT='0'), device__implicit='warn')


def faults_answered_as_hardware_does_are_no_trouble():
    o = report(0, UNPIN_FAULT_REPLY='rnr')
    assert all(tried(o)[op] == 'works' for op in RC), tried(o)


def without_the_facilities_of_the_kernel_the_device_is_usable():
    o = report(0, UNPIN_DISABLE='populate,pagemap_scan,pagemap,procmap_query,io_uring,process_vm,sched_slice,psi,uffd')
    expect(o, kernel__populate='warn', kernel__pagemap_scan='warn', kernel__io_uring='warn', kernel__userfaultfd='warn', reality__data='ok')
    assert 'UNPIN_DISABLE' in o['seen']['kernel.io-uring']


def variables_are_read():
    o = report(0, UCX_REG_NONBLOCK_MEM_TYPES='host', FI_VERBS_USE_OPD='1')
    expect(o, manners__ucx='ok', manners__libfabric='warn', manners__nccl='ok')
    assert 'FI_VERBS_USE_ODP' in o['seen']['manners.libfabric']
    expect(report(0, UCX_IB_REG_METHODS='odp', UNPIN_FAULT_REPLAY='rnr'), manners__ucx='warn', manners__unpin='warn')
    expect(report(0, UCX_REG_NONBLOCK_MEM_TYPES='cuda'), manners__ucx='warn')


def a_device_that_is_not_there_is_told():
    o = json.loads(doctor('--json', '-d', 'mlx5_99', want=1))
    assert o['checks'][0]['verdict'] == 'fail' and o['checks'][0]['id'] == 'device.present'


def the_text_says_what_the_json_says():
    o, text = report(1, UNPIN_PROFILE='stale-firmware'), doctor(want=1, UNPIN_PROFILE='stale-firmware')
    words = {'ok': 'ok', 'warn': 'warn', 'fail': 'FAIL', 'unknown': '?', NA: 'n/a'}
    for c in o['checks']:
        # Other tests switch swap on and off meanwhile.
        if c['group'] in ('memory', 'pci'):
            continue
        assert re.search(r'(?m)^  %-4s %s: ' % (re.escape(words[c['verdict']]), re.escape(c['looks_at'])), text), c
    assert max(len(line) for line in text.split('\n')) <= 100
    assert '\033' not in text and text.isascii()
    assert 'To do: ' in text and re.search(r'(?m)^ +RC +works +works +works +works +works', text)


def a_terminal_gets_colours_and_symbols():
    text = doctor('--color', 'always', want=1, UNPIN_PROFILE='none')
    assert '\033[32m✔\033[0m' in text and '✘' in text and '→' in text


def nobody_can_run_it_and_meets_the_limit():
    with Everyones(UNPIN) as program:
        wrap = ('prlimit', '--memlock=8388608:8388608') + NOBODY
        o = report(0, wrap=wrap, program=program)
        expect(o, reality__on_demand='ok', reality__pinned='warn', reality__cold='ok', reality__data='ok', memory__memlock='warn')
        assert '8 MiB' in o['seen']['memory.memlock']
        # What pins meets the limit, and is told so.
        o = report(1, wrap=wrap, program=program, UNPIN_PROFILE='stale-firmware')
        expect(o, reality__on_demand='fail')


def without(number, want):
    wrap = [sys.executable, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'without.py'), str(number), str(errno.EPERM)]
    if subprocess.run(wrap + ['true'], stdout=subprocess.DEVNULL).returncode == 77:
        raise Skip('filters of system calls are refused')
    o = json.loads(start(wrap + [UNPIN, 'doctor', '--json'], ENV, want, 120).stdout)
    return {c['id']: c for c in o['checks']}['kernel.calls']


def what_a_filter_refuses_is_named():
    expect(report(0), kernel__calls='ok')
    c = without(EPOLL_PWAIT2, 0)
    assert c['verdict'] == 'warn' and 'epoll_pwait2' in c['seen'] and 'ppoll' in c['meaning'] and 'seccomp' in c['advice'], c
    c = without(MEMFD_CREATE, 1)
    assert c['verdict'] == 'fail' and 'memfd_create' in c['seen'] and 'cannot be opened' in c['meaning'], c


run_all(everything_works_on_the_device_itself, a_connectx_as_imitated_is_usable,
        a_rxe_as_imitated_is_usable_without_implicit_regions, a_device_without_on_demand_paging_is_told, a_silent_pin_is_caught,
        implicit_regions_that_are_not_wanted_are_told, faults_answered_as_hardware_does_are_no_trouble,
        without_the_facilities_of_the_kernel_the_device_is_usable, variables_are_read, a_device_that_is_not_there_is_told,
        the_text_says_what_the_json_says, a_terminal_gets_colours_and_symbols, nobody_can_run_it_and_meets_the_limit,
        what_a_filter_refuses_is_named)
