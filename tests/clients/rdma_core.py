# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
rdma-core's own tests, as Debian ships them with its documentation, one process per module.

SKIPS is the list of what this device does not offer yet. A test outside the list that skips has failed; one inside it may as well pass.
"""
import gzip
import json
import os
import re
import shutil
import subprocess

from harness.hugepages import reserved
from harness.process import Session
from harness.programs import Test
from harness.result import Result, what_tells_why

PYTHON = '/usr/bin/python3'     # the one that Debian's pyverbs is built for
DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'rdma_core_driver.py')
TIMEOUT = 180

MODULES = ('test_device', 'test_pd', 'test_cq', 'test_cq_events', 'test_mr', 'test_qp', 'test_atomic', 'test_odp')

# Tests that need huge pages, and how many there must be: the suite's client and server take one each, or two for a moment.
HUGE = r'test_odp\..*_huge_'
HUGE_PAGES = 8

# Tests that read files of a kernel's device, which a device of a process does not have.
KERNEL_FILES = (r'test_device\.DeviceTest\.test_get_pkey_index$',)

# (test, why it may skip)
SKIPS = (
    (r'test_device\.DMTest\.', 'device memory'),
    (r'test_device\.SharedDMTest\.', 'device memory'),
    (r'test_device\.DeviceTest\.test_query_gid_ex_bad_flow', 'a full GID table'),
    (r'test_cq\.CQTest\.test_resize_cq', 'UD'),
    (r'test_cq_events\..*_ud$', 'UD'),
    (r'test_mr\.MWTest\.|test_mr\.MWRC', 'memory windows'),
    (r'test_mr\.DeviceMemory|test_mr\.DMMRTest|test_mr\.DMMR', 'device memory'),
    (r'test_mr\.DmaBuf', 'dma-buf'),
    (r'test_qp\..*_(uc|ud|raw)_qp', 'UC, UD, raw packets'),
    (r'test_qp\.QPTest\.test_query_data_in_order', 'UD'),
    (r'test_atomic\..*xrc', 'XRC'),
    (r'test_odp\..*_ud_', 'UD'),
    (r'test_odp\..*_xrc_', 'XRC'),
    (r'test_odp\..*_srq_', 'SRQ'),
)


def tests_folder():
    """Where the Debian packages keep the suite, or None."""
    for package in ('rdma-core', 'python3-pyverbs', 'libibverbs-dev'):
        listing = subprocess.run(['dpkg-query', '-L', package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for line in listing.stdout.decode().splitlines():
            if re.search(r'/tests/test_odp\.py(\.gz)?$', line) and os.path.exists(line):
                return os.path.dirname(line)
    return None


def unpacked(runner):
    """A readable copy, decompressed, with a package for the modules; the same for all modules of a run."""
    source = tests_folder()
    if not source:
        return None
    target = os.path.join(runner.scratch('pyverbs'), 'tests')
    if not os.path.isdir(target):
        os.mkdir(target, 0o755)
        for name in os.listdir(source):
            path = os.path.join(source, name)
            if name.endswith('.gz'):
                with gzip.open(path) as i, open(os.path.join(target, name[:-3]), 'wb') as o:
                    shutil.copyfileobj(i, o)
            elif os.path.isfile(path):
                shutil.copy(path, target)
    return target


def allowed(name):
    return next((why for pattern, why in SKIPS if re.search(pattern, name)), None)


def result_of(lines, no_huge):
    """The Result of the driver's report: one JSON object per test. no_huge: why there are no huge pages, or ''."""
    passed, failed, notes, said, skipped = 0, 0, [], [], {}
    for line in lines:
        entry = json.loads(line)
        name = entry['test'].replace('tests.', '', 1)
        if entry['outcome'] == 'ok':
            passed += 1
        elif entry['outcome'] == 'skip' and allowed(name):
            skipped.setdefault('not offered: ' + allowed(name), []).append(name)
        elif entry['outcome'] == 'skip' and no_huge and re.search(HUGE, name):
            skipped.setdefault(no_huge, []).append(name)
        elif any(re.search(pattern, name) for pattern in KERNEL_FILES):
            skipped.setdefault('not offered: files in /sys/class/infiniband', []).append(name)
        else:
            failed += 1
            what = 'skipped' if entry['outcome'] == 'skip' else 'failed'
            notes.append('%s: %s: %s' % (what, name, entry['why'].strip().splitlines()[-1] if entry['why'].strip() else ''))
            said += [name] + ['  ' + line for line in entry['why'].strip().splitlines()[-20:]]
    notes += ['skipped %d: %s' % (len(names), why) for why, names in skipped.items()]
    return Result(passed, failed, sum(len(n) for n in skipped.values()), notes, said)


def module(name):
    def function(runner, test):
        if not os.path.exists(PYTHON) or subprocess.run([PYTHON, '-c', 'import pyverbs'], stderr=subprocess.DEVNULL).returncode:
            return Result.skip('python3-pyverbs is not installed')
        folder = unpacked(runner)
        if not folder:
            return Result.skip("rdma-core's tests are not installed")
        session = Session(runner, test.suite + '.' + test.name, TIMEOUT)
        report = session.base + '.report'
        with reserved(HUGE_PAGES if name == 'test_odp' else 0) as no_huge:
            p = session.start([runner.unpin, 'run', '--', PYTHON, DRIVER, folder, name, session.device, report])
            status, why = session.finish(p)
            left = session.close()
        lines = open(report).read().splitlines() if os.path.exists(report) else []
        result = result_of(lines, no_huge)
        if status != 0 or left or not lines:
            result.failed += 1
            result.notes.append(why or left or ('killed by signal %d' % -status if status < 0 else 'exit status %d' % status))
            result.said += what_tells_why(p.output())
        return result

    return Test('pyverbs', name, function, TIMEOUT)


def all(runner):
    return [module(name) for name in MODULES]
