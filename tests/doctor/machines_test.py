#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
`unpin doctor --root` over recorded machines. usage: machines_test.py UNPIN [--update]

Each folder beside this file is a machine: machine/ has its files (sysfs, procfs, the kernel log as dmesg, the environment as
environ, the output of `ibv_devinfo -v` as verbs/ibv_devinfo, answers of rdma netlink as tests/tool/netlink_record.py writes them), made
by us from public descriptions; report is what the doctor must say of it, with its exit status as the last line. --update writes the
reports anew: read them as a stranger would before keeping them.
"""
import difflib
import json
import os
import subprocess
import sys

UNPIN = os.path.realpath(sys.argv[1])
UPDATE = '--update' in sys.argv
HERE = os.path.dirname(os.path.realpath(__file__))
WORDS = {'ok': 'ok', 'warn': 'warn', 'FAIL': 'fail', '?': 'unknown', 'n/a': 'not applicable'}
# Nothing of the machine that the test runs on may be seen.
ENV = {'PATH': os.environ['PATH'], 'UNPIN_PROFILE': 'none', 'UCX_REG_NONBLOCK_MEM_TYPES': 'cuda'}


def doctor(folder, *args):
    return subprocess.run([UNPIN, 'doctor', '--root', 'machine', *args], cwd=folder, env=ENV, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)


def verdicts(report):
    """Pairs of what is looked at and verdict, from the text."""
    found = []
    for line in report.split('\n'):
        word = line[2:7].strip()
        if line.startswith('  ') and line[2:3] != ' ' and word in WORDS:
            found.append((line[7:].split(':')[0], WORDS[word]))
    return found


def check(name):
    folder = os.path.join(HERE, name)
    p = doctor(folder)
    got = '%sexit status %d\n' % (p.stdout, p.returncode)
    path = os.path.join(folder, 'report')
    if UPDATE:
        with open(path, 'w') as f:
            f.write(got)
    with open(path) as f:
        want = f.read()
    wrong = [''.join(difflib.unified_diff(want.splitlines(True), got.splitlines(True), 'expected', 'got'))] if want != got else []
    j = doctor(folder, '--json')
    o = json.loads(j.stdout)
    if j.returncode != p.returncode or o['usable'] != (p.returncode == 0):
        wrong.append('JSON: status %d, usable %s' % (j.returncode, o['usable']))
    if [(c['looks_at'], c['verdict']) for c in o['checks']] != verdicts(p.stdout):
        wrong.append('JSON and text do not agree')
    for c in o['checks']:
        if c['verdict'] in ('warn', 'fail', 'unknown') and not (c['seen'] and c['meaning'] and c['advice']):
            wrong.append('%s does not say what it means and what to do' % c['id'])
    if any(c['id'].startswith('reality.') and c['verdict'] != 'not applicable' for c in o['checks']):
        wrong.append('something was tried')
    return wrong


def main():
    machines = sorted(n for n in os.listdir(HERE) if os.path.isdir(os.path.join(HERE, n, 'machine')))
    failed = 0
    for name in machines:
        wrong = check(name)
        print('[%s] %s' % ('  FAILED  ' if wrong else '       OK ', name), flush=True)
        for w in wrong:
            print(w, file=sys.stderr)
        failed += bool(wrong)
    if len(machines) < 8:
        print('only %d machines' % len(machines), file=sys.stderr)
        failed += 1
    return 1 if failed else 0


sys.exit(main())
