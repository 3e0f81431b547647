# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
The tools in a guest with a newer kernel, on that kernel's own software RDMA device (rxe) and on ours. tests/vm makes the guest.

rxe of the kernels up to now completes requests on on-demand memory and moves wrong bytes; that the doctor and the bench say so is
what is tested. Where a kernel after KNOWN_WRONG has it right by the doctor's own look, these cases are skipped, and are to be turned round.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

from .process import TAG
from .programs import Test, introspect, suites_of
from .result import Result, from_program, what_tells_why

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, 'vm'), os.path.join(ROOT, 'tool')]
import guest as vm                              # noqa: E402
from report_folder import check_report          # noqa: E402

NA = 'not applicable'
KNOWN_WRONG = (7, 3)
UNPIN = '/run/unpin/unpin'
# As somebody without privileges, with the limit on locked memory that distributions have.
NOBODY = 'prlimit --memlock=8388608:8388608 setpriv --reuid=65534 --regid=65534 --clear-groups '
SWITCH_RXE_ON = """
modprobe -a rdma_rxe dummy && ip link set dummy0 up && ip addr add 192.0.2.1/24 dev dummy0 &&
rdma link add rxe0 type rxe netdev dummy0 && rdma link show rxe0/1 | grep ACTIVE
"""
# Those that rxe may break, and some of each kind: an emulated processor is slow.
REPORT_PARTS = ('registration', 'first-touch', 'latency', 'bandwidth', 'faults', 'implicit', 'sizes', 'distribution', 'prefetch', 'held',
                'squeeze')
# Programs that use what newer kernels have (PAGEMAP_SCAN, PROCMAP_QUERY, io_uring), and do not depend on the speed of the processor.
# README.md in tests/vm tells about the others.
USERS = ('bytes', 'holes', 'remap', 'readonly_memory', 'fork', 'memlock', 'stale_address', 'dereg', 'cold_page', 'zero_byte', 'signals',
         'rnr', 'not_pinned', 'profiles', 'rereg', 'implicit', 'prefetch')


class RxeIsRight(Exception):
    """The kernel is newer than what this suite knows, and its rxe delivers the right bytes."""


class Lab:
    """The guest, and what is done in it."""

    def __init__(self, runner):
        self.runner = runner
        self.guest = None
        self.said = ''
        self.rxe_is_right = False

    # --- the guest ---

    def build(self, runner, test):
        if not shutil.which('qemu-system-x86_64'):
            return Result.fail('qemu-system-x86_64 is not installed: scripts/deps.sh install vm')
        start = time.monotonic()
        try:
            files = vm.image(os.environ.get('UNPIN_VM_DIR') or os.path.join(runner.build, 'vm'))
            built = time.monotonic() - start
            self.guest = vm.Guest(runner.scratch('guest'))
            runner.after_suite.append(self.guest.stop)
            booted = self.guest.start(files, env=dict(os.environ, **{TAG: runner.prefix + '-guest'}))
        except vm.NoGuest as e:
            return Result.skip(str(e))
        except vm.GuestError as e:
            if os.environ.get('UNPIN_VM_OPTIONAL'):
                return Result.skip('no guest here: ' + str(e).split('\n')[-1])
            return Result(failed=1, notes=['no guest'], said=str(e).split('\n'))
        self.take_over()
        kernel = self.sh('uname -r').strip()
        return Result(passed=1, notes=['Linux %s; image in %.0f s, started in %.0f s' % (kernel, built, booted)])

    def take_over(self):
        """What was built here, in the memory of the guest."""
        for name in ('unpin', 'libunpin.so'):
            self.guest.put(os.path.join(self.runner.build, name))
        self.sh('mkdir -p /run/unpin && cp /host/unpin /host/libunpin.so /run/unpin/ && chmod 755 /run/unpin /run/unpin/*')

    def sh(self, command, want=0, timeout=120):
        done = self.guest.run(command, timeout)
        self.said = done.output
        assert done.status is not None, 'did not end within %d s: %s' % (timeout, command)
        assert want is None or done.status == want, 'status %s, not %s: %s' % (done.status, want, command)
        return done.output

    # --- the doctor ---

    def doctor(self, args='', want=0, wrap=''):
        o = json.loads(self.sh('%s%s doctor --json %s' % (wrap, UNPIN, args), want))
        assert o['usable'] == (want == 0), o['summary']
        for c in o['checks']:
            if c['verdict'] in ('warn', 'fail', 'unknown'):
                assert c['seen'] and c['meaning'] and c['advice'], c
        o['verdict'] = {c['id']: c['verdict'] for c in o['checks']}
        o['check'] = {c['id']: c for c in o['checks']}
        return o

    def doctor_without_a_device(self):
        for args in ('-d rxe0', '-d mlx5_0'):
            o = self.doctor(args, want=1)
            first = o['checks'][0]
            assert first['id'] == 'device.present' and first['verdict'] == 'fail', first
            assert 'there is no RDMA device' in first['seen'] and 'unpin run' in first['advice'], first
            assert 'modprobe' in first['advice'], first
            tried = {v for k, v in o['verdict'].items() if k.startswith('reality.')}
            assert tried == {NA}, o['verdict']

    def unpin_is_right(self, o):
        wrong = {k: v for k, v in o['verdict'].items() if v in ('fail', 'unknown')}
        assert not wrong or set(wrong) == {'pci.log'}, wrong       # which only root may read
        for key in ('reality.on-demand', 'reality.cold', 'reality.follows', 'reality.counters', 'reality.data', 'device.implicit',
                    'kernel.pagemap-scan', 'kernel.procmap-query', 'kernel.io-uring', 'kernel.populate'):
            assert o['verdict'][key] == 'ok', o['check'][key]

    def doctor_on_unpin(self):
        o = self.doctor('-d unpin0')
        self.unpin_is_right(o)
        assert o['kernel'].startswith(self.sh('uname -r').strip()), o['kernel']

    def doctor_on_unpin_as_nobody(self):
        o = self.doctor('-d unpin0', wrap=NOBODY)
        self.unpin_is_right(o)
        assert o['verdict']['memory.memlock'] == 'warn', o['check']['memory.memlock']

    def rxe_on(self):
        version = tuple(map(int, re.match(r'(\d+)\.(\d+)', self.sh('uname -r')).groups()))
        self.sh(SWITCH_RXE_ON)
        if version > KNOWN_WRONG:
            seen = json.loads(self.sh(UNPIN + ' doctor --json -d rxe0', want=None))
            self.rxe_is_right = [c['verdict'] for c in seen['checks'] if c['id'] == 'reality.data'] == ['ok']

    def wrong_bytes_wanted(self):
        if self.rxe_is_right:
            raise RxeIsRight('rxe of this kernel delivers the right bytes: this case is to be turned round')

    def rxe_is_judged(self, o):
        for key, verdict in (('device.present', 'ok'), ('device.port', 'ok'), ('device.odp', 'ok'), ('device.implicit', 'warn'),
                             ('device.prefetch', 'warn'), ('device.sizes', 'warn'), ('device.matrix', 'fail'), ('reality.on-demand', 'ok'),
                             ('reality.cold', 'ok'), ('reality.follows', 'ok'), ('reality.counters', 'warn'), ('reality.data', 'fail'),
                             ('kernel.odp', 'ok'), ('kernel.notifiers', 'ok'), ('kernel.modules', 'ok')):
            assert o['verdict'].get(key) == verdict, (key, o['check'].get(key) or sorted(o['verdict']))
        offered = {(r['transport'], r['operation']) for r in o['operations'] if r['offered']}
        rc = {'send', 'receive', 'write', 'read', 'atomic', 'shared receive'}
        assert {op for t, op in offered if t == 'RC'} == rc, offered
        assert {op for t, op in offered if t == 'UD'} == {'send', 'receive', 'shared receive'}, offered
        assert not [op for t, op in offered if t in ('UC', 'XRC')], offered
        tried = {r['operation']: r['tried'] for r in o['operations'] if r['transport'] == 'RC'}
        assert {tried[op] for op in rc} == {'wrong bytes'}, tried
        # A person learns from one sentence what is wrong, and from one more why and what to do.
        assert 'reality.data' in o['summary'] and 'wrong' in o['summary'] and 'NOT usable' in o['summary'], o['summary']
        data = o['check']['reality.data']
        assert 'without an error' in data['meaning'] and 'start of the page' in data['advice'], data
        assert 'unpin run' in data['advice'], data

    def doctor_on_rxe(self):
        self.wrong_bytes_wanted()
        self.rxe_is_judged(self.doctor('-d rxe0', want=1))

    def doctor_on_rxe_as_nobody(self):
        self.wrong_bytes_wanted()
        o = self.doctor('-d rxe0', want=1, wrap=NOBODY)
        self.rxe_is_judged(o)
        assert o['verdict']['reality.pinned'] == 'warn', o['check']['reality.pinned']

    def doctor_reads_well(self):
        self.wrong_bytes_wanted()
        text = self.sh(UNPIN + ' doctor -d rxe0', want=1)
        assert re.search(r'(?m)^  FAIL the bytes: ', text) and re.search(r'(?m)^ +RC +WRONG BYTES', text), 'not said'
        assert 'On-demand paging is NOT usable on rxe0' in text.split('not applicable\n')[-1], text[-300:]
        assert max(len(line) for line in text.split('\n')) <= 100

    # --- the bench ---

    def bench_on_rxe(self):
        self.wrong_bytes_wanted()
        # The squeeze wants a device to swap to.
        self.sh('modprobe zram num_devices=0')
        text = self.sh('cd /tmp && rm -rf report && %s bench -d rxe0 --quick --pairs 3 --size 16M --only %s --report report; s=$?; '
                       'cp -r report /host/ && exit $s' % (UNPIN, ','.join(REPORT_PARTS)), want=1, timeout=600)
        folder = os.path.join(self.guest.shared, 'report')
        result, drawn = check_report(folder)
        parts = result['parts']
        assert result['finished'] and not result['interrupted'] and result['device'] == 'rxe0', result
        wanted = [p.replace('-', '_') for p in REPORT_PARTS] + ['advice']
        assert list(parts) == wanted, list(parts)
        failures = [n for p in parts.values() for n in p['notes'] if 'part failed' in n]
        assert not failures, failures
        # What rxe cannot do is told where it would have stood, and what it does wrong on top, in the advice, and on standard error.
        assert 'wrong bytes' in result['wrong_data'] and 'doctor -d rxe0' in result['wrong_data'], result['wrong_data']
        with open(os.path.join(folder, 'index.html')) as f:
            assert 'delivers wrong bytes' in f.read()
        assert text.startswith('unpin: error: bench: rxe0 delivers wrong bytes'), text[:200]
        assert 'Do not use on-demand memory' in parts['advice']['notes'][0] and 'wrong' in parts['advice']['notes'][0], parts['advice']
        assert 'has no implicit' in parts['implicit']['notes'][0], parts['implicit']
        assert all('on_demand_p50_us' not in r and r['pinned_p50_us'] > 0 for r in parts['latency']['rows']), parts['latency']
        assert any('On demand: not played' in n for n in parts['latency']['notes']), parts['latency']
        prefetch = {r['way']: r for r in parts['prefetch']['rows']}
        assert 'not supported' in prefetch['prefetched before']['note'] and prefetch['cold']['rate_gb_per_s'] > 0, prefetch
        assert any('No major faults' in n for n in parts['distribution']['notes']), parts['distribution']['notes']
        # The figures that a person wants are there, and what is counted rather than timed adds up.
        for row in parts['registration']['rows']:
            assert row['register_p50_us'] > 0, row
            assert row['vm_pin_delta_bytes'] == (row['size_bytes'] if row['region'] == 'pinned' else 0), row
        held = {r['region']: r for r in parts['held']['rows']}
        assert held['pinned']['vm_pin_delta_bytes'] == 2 * held['pinned']['length_bytes'], held
        assert held['on demand']['vm_pin_delta_bytes'] == 0, held
        assert {r['what'] for r in parts['squeeze']['rows']} == {'sweep', 'before the squeeze', 'squeezed', 'after the squeeze'}, parts['squeeze']
        assert all(r['rate_requests_per_s'] > 0 for r in parts['squeeze']['rows']), parts['squeeze']
        assert drawn >= 9, drawn

    def bench_compares(self):
        """The report of rxe beside one of unpin's device in the same guest."""
        self.wrong_bytes_wanted()
        text = self.sh('cd /tmp && %s bench -d unpin0 --quick --pairs 3 --only faults --json own.json >/dev/null && '
                       '%s bench --compare report/bench.json own.json' % (UNPIN, UNPIN), timeout=200)
        assert 'B / A' in text and 'Page faults at random' in text and 'rxe0' in text and 'unpin0' in text, text[:500]
        with_rows = [line for line in text.split('\n') if 'pages_per_s' in line]
        assert with_rows, text

    # --- top ---

    def top_counts(self):
        """Two programs exchange messages through rxe; what top says of it moves, and does not when they are gone."""
        out = self.sh("""
            ibv_rc_pingpong -d rxe0 -g 1 -n 100000000 >/dev/null 2>&1 & server=$!
            sleep 1
            ibv_rc_pingpong -d rxe0 -g 1 -n 100000000 127.0.0.1 >/dev/null 2>&1 & client=$!
            sleep 2
            %s top --json -n 4 -w 1 -d rxe0; s=$?
            echo ---
            %s top --batch -n 2 -w 1 -d rxe0
            echo ---
            kill $server $client; wait; sleep 1
            %s top --json -n 2 -w 1 -d rxe0
            exit $s""" % (UNPIN, UNPIN, UNPIN))
        busy, lines, quiet = (part.strip().split('\n') for part in out.split('---\n'))
        looks = [json.loads(line) for line in busy]
        assert len(looks) == 4 and all(look['device'] == 'rxe0' and look['kernel'] for look in looks), busy[0][:300]
        for name in ('port1.rcvd_pkts', 'port1.sent_pkts'):
            counts = [look['counters'][name] for look in looks]
            assert counts == sorted(set(counts)), (name, counts)
            assert all(look['per_s'][name] > 0 for look in looks[1:]), (name, [look['per_s'].get(name) for look in looks])
        assert any(re.match(r'\d+\.\d{3} kernel name=rxe0 counter=port1\.sent_pkts total=\d+ per_s=[1-9]', line) for line in lines), lines[:5]
        assert json.loads(quiet[-1])['per_s']['port1.sent_pkts'] == 0, quiet[-1][:300]

    def top_full_screen(self):
        """The screen, in a terminal that tmux keeps."""
        out = self.sh("""
            ibv_rc_pingpong -d rxe0 -g 1 -n 100000000 >/dev/null 2>&1 & server=$!
            sleep 1
            ibv_rc_pingpong -d rxe0 -g 1 -n 100000000 127.0.0.1 >/dev/null 2>&1 & client=$!
            tmux -L unpin -f /dev/null new-session -d -x 120 -y 40 '%s top -w 1 -d rxe0; echo status $?; sleep 100'
            for i in $(seq 40); do
                tmux -L unpin capture-pane -p >/tmp/screen; grep -Eq 'sent_pkts +[0-9].* +[1-9]' /tmp/screen && break; sleep 0.5
            done
            cat /tmp/screen; echo ---
            tmux -L unpin send-keys q
            for i in $(seq 20); do
                tmux -L unpin capture-pane -p >/tmp/screen; grep -q '^status ' /tmp/screen && break; sleep 0.5
            done
            cat /tmp/screen; tmux -L unpin kill-server; kill $server $client; wait""" % UNPIN, want=None)
        screen, end = out.split('---\n')
        assert 'rxe0' in screen and re.search(r'sent_pkts +\S.* [1-9]', screen), screen
        assert 'status 0' in end, end

    # --- the device's own tests on this kernel ---

    def users_program(self, entry, name):
        """A program of tests/users, which says itself what became of its cases."""
        path = [a for a in entry['cmd'] if os.path.basename(a) == 'users_' + name][0]
        self.guest.put(path)
        done = self.guest.run('cp /host/users_{0} /run/unpin/ && {1} run --device {2} -- /run/unpin/users_{0}'.format(
            name, UNPIN, self.runner.prefix + name[:8]), entry['timeout'])
        self.said = done.output
        return from_program(done.status, done.output, '' if done.status is not None else 'did not end in time')


def case(lab, name, function, timeout=300):
    def run(runner, test):
        if not lab.guest or not lab.guest.alive():
            return Result.fail('the guest has ended')
        try:
            result = function()
            return result or Result.ok()
        except RxeIsRight as e:
            return Result.skip(str(e))
        except (AssertionError, vm.GuestError, ValueError, KeyError, IndexError, subprocess.SubprocessError) as e:
            said = [line[:600] for line in str(e).split('\n')] + ['it said:'] + what_tells_why(lab.said)
            return Result(failed=1, notes=['%s: %s' % (type(e).__name__, str(e)[:300].replace('\n', ' '))], said=said)
        finally:
            with open(os.path.join(runner.logs, 'kernel.%s.log' % name.replace(' ', '_')), 'w') as f:
                f.write(lab.said)

    return Test('kernel', name, run, timeout)


def tests(runner):
    lab = Lab(runner)
    cases = [Test('kernel', 'build', lab.build, 1200)]
    for name, function in (
            ('the doctor where there is no device', lab.doctor_without_a_device),
            ("the doctor on unpin's device", lab.doctor_on_unpin),
            ("the doctor on unpin's device, as nobody", lab.doctor_on_unpin_as_nobody),
            ('rxe is switched on', lab.rxe_on),
            ('the doctor on rxe', lab.doctor_on_rxe),
            ('the doctor on rxe, as nobody', lab.doctor_on_rxe_as_nobody),
            ('the doctor on rxe, as text', lab.doctor_reads_well),
            ('the report of the bench on rxe', lab.bench_on_rxe),
            ('the bench compares rxe and unpin', lab.bench_compares),
            ('top on rxe', lab.top_counts),
            ('top on rxe, on a terminal', lab.top_full_screen)):
        cases.append(case(lab, name, function))
    for entry in introspect(runner.build):
        name = entry['name'].split('/')[-1]
        if 'users' in suites_of(entry) and name in USERS:
            cases.append(case(lab, 'users: ' + name, lambda entry=entry, name=name: lab.users_program(entry, name)))
    return cases
