#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
`unpin top` on devices of the kernel, over records: of a ConnectX (netlink_record.py), of what cannot be read, of none.
usage: top_kernel_device_test.py UNPIN
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import netlink_record as record  # noqa: E402
import terminal  # noqa: E402
from cases import run_all, start  # noqa: E402

UNPIN = os.path.realpath(sys.argv[1])
DEVICE = 'topk%d' % os.getpid()
ENV = dict(os.environ, UNPIN_DEVICE=DEVICE)
ENV.pop('LD_PRELOAD', None)


def put(folder, path, text):
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as f:
        f.write(text)


PORT = {'counters/port_rcv_packets': 10, 'counters/port_rcv_data': 1000, 'hw_counters/packet_seq_err': 5, 'hw_counters/lifespan': 10}


@contextlib.contextmanager
def machine(device='mlx5_0', netlink=None):
    """A folder with a device that has one port; netlink: its answers, or none."""
    folder = tempfile.mkdtemp(prefix=DEVICE)
    try:
        for name, value in PORT.items():
            put(folder, 'sys/class/infiniband/%s/ports/1/%s' % (device, name), '%d\n' % value)
        put(folder, 'proc/4242/comm', 'a store\n')
        put(folder, 'proc/5151/comm', 'a\033[2Jcache\n')
        put(folder, 'proc/4242/stat', '4242 (a store) S 1 1 1 0 -1 0 500 0 7 0 0 0\n')
        put(folder, 'proc/4242/status', 'VmRSS:\t1024 kB\nVmPin:\t2048 kB\n')
        put(folder, 'proc/vmstat', 'pgfault 1000\npgmajfault 10\npswpin 3\npswpout 4\n')
        put(folder, 'proc/meminfo', 'MemTotal: 1000 kB\nMemAvailable: 50 kB\n')
        put(folder, 'proc/pressure/memory', 'some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n')
        if netlink:
            record.write(folder, netlink)
        yield folder
    finally:
        shutil.rmtree(folder)


def top(folder, *args, device='mlx5_0', want=0):
    return start([UNPIN, 'top', '-d', device, '--root', folder, '-w', '0.1'] + list(args), ENV, want, 60)


def looks(folder, *args, n=1, device='mlx5_0'):
    out = [json.loads(line) for line in top(folder, '-j', '-n', str(n), *args, device=device).stdout.splitlines()]
    assert len(out) == n, out
    return out


def grew(look, rate, by):
    """Whether a rate comes to so much between two looks. (Both are told with three places.)"""
    return abs(rate * look['seconds'] - by) <= by * 0.02


def by(rows, key, value):
    found = [r for r in rows if r[key] == value]
    assert len(found) == 1, '%d of %s %s: %s' % (len(found), key, value, rows)
    return found[0]


def its_ports_have_counters():
    with machine('rxe9') as folder:
        look = looks(folder, n=2, device='rxe9')[1]
        assert look['counters'] == {'port1.port_rcv_packets': 10, 'port1.port_rcv_data': 1000, 'port1.packet_seq_err': 5}, look
        assert look['kernel'] and set(look['per_s'].values()) == {0}, look
        lines = top(folder, '-b', '-n', '1', device='rxe9').stdout.splitlines()
        assert any('kernel name=rxe9 counter=port1.packet_seq_err total=5 per_s=0' in line for line in lines), lines
        assert any(re.search(r' device name=rxe9 in_bytes/s=0$', line) for line in lines), lines


def a_record_of_rxe_is_read():
    """What Linux 7.3 answered: two ibv_rc_pingpong."""
    with machine('rxe0') as folder:
        shutil.copytree(os.path.join(os.path.dirname(os.path.realpath(__file__)), 'rxe-record/netlink'), os.path.join(folder, 'netlink'))
        put(folder, 'proc/180/comm', 'ibv_rc_pingpong\n')
        look = looks(folder, device='rxe0')[0]
        assert look['not_told'] is None and look['odp_per_s'] == {} and look['firmware'] is None, look
        assert [(r['number'], r['length_bytes'], r['pid'], r['protection_domain'], r['lkey']) for r in look['regions']] == \
            [(2, 4096, 180, 3, 0x4b9), (3, 4096, 182, 4, 0x529)], look['regions']
        assert [(q['number'], q['type'], q['state'], q['peer'], q['pid']) for q in look['queue_pairs']] == \
            [(1, 'GSI', 'RTS', None, None), (0x13, 'RC', 'RTS', 0x14, 180), (0x14, 'RC', 'RTS', 0x13, 182)], look['queue_pairs']
        assert look['queue_pairs'][0]['command'] == '[ib_core]' and look['queue_pairs'][1]['command'] == 'ibv_rc_pingpong'


def regions_have_owners_and_page_faults():
    with machine(netlink=record.connectx(before=1200, after=1650)) as folder:
        first, second = looks(folder, n=2)
    assert first['not_told'] is None and first['firmware'] == '16.35.2000', first
    assert [r['number'] for r in first['regions']] == [18, 29, 3, 17], first['regions']
    store = by(first['regions'], 'number', 18)
    assert store['kind'] == 'odp' and store['length_bytes'] == 64 << 30 and store['lkey'] == 0x1f02d7, store
    assert store['pid'] == 4242 and store['command'] == 'a store' and store['protection_domain'] == 5 and store['address'] is None, store
    assert store['heat'] == 'hot' and grew(first, store['page_faults_per_s'], 450), store
    assert store['counters']['page_faults'] == 1650 and grew(first, store['page_invalidations_handled_per_s'], 4), store
    assert grew(first, first['odp_per_s']['page_faults'], 450), first['odp_per_s']
    assert 'bytes_in' not in first['odp_per_s'], first['odp_per_s']
    assert by(second['regions'], 'number', 18)['heat'] == 'warm', second
    cache = by(first['regions'], 'number', 29)
    assert cache['kind'] == 'implicit' and cache['heat'] == 'cold' and cache['command'] == 'a?[2Jcache', cache
    pinned = by(first['regions'], 'number', 17)
    assert pinned['kind'] is None and pinned['heat'] is None and pinned['page_faults_per_s'] is None and pinned['counters'] == {}, pinned
    kernels = by(first['regions'], 'number', 3)
    assert kernels['pid'] is None and kernels['command'] == '[ib_core]' and kernels['lkey'] is None, kernels


def queue_pairs_have_retries_where_they_have_a_counter():
    with machine(netlink=record.connectx()) as folder:
        look = looks(folder)[0]
    mine = look['queue_pairs'][0]
    assert mine['number'] == 0x4d and mine['type'] == 'RC' and mine['state'] == 'RTS' and mine['peer'] == 0x51, mine
    assert mine['retransmits'] == 13 and mine['rnr_naks'] == 4 and grew(look, mine['retries_per_s'], 10), mine
    shared = by(look['queue_pairs'], 'number', 0x4e)
    assert shared['state'] == 'ERR' and shared['retransmits'] is None and shared['retries_per_s'] is None, shared
    kernels = by(look['queue_pairs'], 'number', 1)
    assert kernels['type'] == 'GSI' and kernels['command'] == '[ib_core]' and kernels['peer'] is None, kernels


def a_process_has_its_own_view():
    with machine(netlink=record.connectx()) as folder:
        look = looks(folder, '4242')[0]
        assert look['pid'] == 4242 and look['command'] == 'a store', look
        assert sorted(r['number'] for r in look['regions']) == [17, 18], look
        assert sorted(q['number'] for q in look['queue_pairs']) == [0x4d, 0x4e], look
        assert look['system']['rss_bytes'] == 1 << 20 and look['system']['pinned_bytes'] == 2 << 20, look
        assert look['system']['majflt_per_s'] == 0, look
        # One that has nothing there.
        look = looks(folder, '5152')[0]
        assert look['regions'] == [] and look['queue_pairs'] == [] and look['odp_per_s'] == {}, look
        # All: the machine.
        look = looks(folder)[0]
        assert look['system']['memory_used_bytes'] == 950 << 10 and look['system']['memory_bytes'] == 1000 << 10, look
        assert look['system']['stall_of'] == 'machine' and look['system']['stall_some_percent'] == 0 and look['system']['rss_bytes'] is None


def lines_leave_out_what_is_not_told():
    with machine(netlink=record.connectx()) as folder:
        lines = top(folder, '-b', '-n', '1').stdout.splitlines()
        assert any(re.search(r' region number=17 length=1073741824 lkey=0x1f01c4 pid=4242 command="a store" pd=5$', line) for line in lines), lines
        assert any(re.search(r' region number=18 kind=odp .* heat=hot faults/s=', line) for line in lines), lines
        assert any(re.search(r' qp number=0x4e type=RC state=ERR peer=0x52 pid=4242 command="a store" pd=5$', line) for line in lines), lines
        filtered = top(folder, '-b', '-n', '1', '-f', 'cache').stdout.splitlines()
        assert len([line for line in filtered if ' region ' in line or ' qp ' in line]) == 2, filtered
        assert not [line for line in filtered if ' kernel ' in line], filtered
        smallest = top(folder, '-b', '-n', '1', '-s', 'length').stdout
        assert [int(n) for n in re.findall(r'region number=(\d+)', smallest)] == [29, 18, 17, 3], smallest


def what_is_not_told_has_a_reason():
    good = record.connectx()
    for files, why in ((None, 'not in the record'),
                       ({'devices': good['devices'].replace('mlx5_0', 'mlx5_7').replace('6d6c78355f30', '6d6c78355f37')}, 'no such device'),
                       ({'devices': 'this is no answer'}, 'cannot be read'),
                       (dict(good, **{'mlx5_0.regions': good['mlx5_0.regions'][:-100]}), 'regions: the answer of rdma netlink cannot be read'),
                       (dict(good, **{'mlx5_0.queue-pairs': record.answer(record.NLMSG_ERROR, [], error=1)}), 'queue pairs: .*forbidden')):
        with machine(netlink=files) as folder:
            p = top(folder, '-j', '-n', '1')
            look = json.loads(p.stdout)
            assert re.search(why, look['not_told']), (why, look['not_told'])
            assert re.search(why, p.stderr), (why, p.stderr)
            assert look['counters']['port1.port_rcv_packets'] == 10, look
    # A driver that counts nothing (most) is no reason for a word.
    files = {k: v for k, v in good.items() if not k.endswith('counters')}
    with machine(netlink=files) as folder:
        look = looks(folder)[0]
        assert look['not_told'] is None and look['odp_per_s'] == {} and len(look['regions']) == 4, look
        assert {r['heat'] for r in look['regions']} == {None}, look


def an_interrupted_answer_is_asked_for_again():
    files = record.connectx()
    once = record.table('regions', [record.region(1, 1, 1)], flags=record.MULTI | record.INTERRUPTED)
    files['mlx5_0.regions'] = [once, files['mlx5_0.regions']]
    with machine(netlink=files) as folder:
        assert len(looks(folder)[0]['regions']) == 4


def wrong_command_lines_are_explained():
    with machine() as folder:
        assert '--record' in top(folder, '-j', '--record', '/nowhere/at/all', want=1).stderr
        assert 'kernel device' in top(folder, '-j', '--record', folder, device='rxe7', want=2).stderr
    p = subprocess.run([UNPIN, 'top', '-j', '-d', DEVICE], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert p.returncode == 1 and 'no kernel device' in p.stderr, p.stderr


# --- on a terminal ---

def the_screen_is_that_of_a_process_with_other_columns():
    with machine(netlink=record.connectx()) as folder, \
            terminal.Terminal(UNPIN, DEVICE, '-d', 'mlx5_0', '--root', folder, '-w', '0.2', width=130, height=36) as t:
        screen = t.until('unpin top: mlx5_0 of the kernel, firmware 16.35.2000', 'REGION', 'QP', 'COUNTER', 'sort: faults')
        assert re.search(r'^odp +18 +64 GiB a store +4242 (hot|warm) ', screen, re.M), screen
        assert re.search(r'^implicit +29 +all a\?\[2Jcache +5151 cold +0 ', screen, re.M), screen
        assert re.search(r'^- +17 +1 GiB a store +4242 - +- +- +- 0x1f01c4 +- +5', screen, re.M), screen
        assert re.search(r'^0x00004d RC +RTS +0x000051 a store +4242 +[\d.]+ +1 +5', screen, re.M), screen
        assert re.search(r'^0x000001 GSI +RTS +- +\[ib_core\] +- +- +1 +-', screen, re.M), screen
        assert re.search(r'^port1.port_rcv_data +1000 +0$', screen, re.M), screen
        assert 'used 950 KiB of 1000 KiB (95%)' in screen, screen
        t.press('4')
        t.gone('REGION')
        t.press('3')
        t.until('QP', 'UD')
        t.gone('COUNTER')
        t.press('2')
        t.gone('QP ')
        for _ in range(7):
            t.press('s')
        t.until('sort: length')
        t.wait(lambda s: [line.split()[1] for line in s.splitlines() if 'iB' in line and re.match(r'(odp|-) ', line)] == ['18', '17', '3'],
               'sorted by length')
        t.press('r')
        t.wait(lambda s: [line.split()[1] for line in s.splitlines() if re.match(r'(odp|-) ', line)] == ['3', '17', '18'], 'turned')
        t.press('1', '/')
        t.press('i', 'b', '_', 'Enter')
        t.until('filter: ib_', '[ib_core]')
        t.gone('a store')
        t.press('p')
        t.until('[PAUSED]')
        t.press('h')
        t.until('unpin top: keys', 'counters of the ports', 'CAP_NET_ADMIN')
        t.press('h', 'q')
        assert t.ended() == 0


def the_screen_fits_into_80_columns_and_says_what_is_not_told():
    with machine() as folder, terminal.Terminal(UNPIN, DEVICE, '-d', 'mlx5_0', '--root', folder, '-w', '0.2', width=80, height=24) as t:
        screen = t.until('not told: regions, queue pairs: not in the record', 'REGION', 'pref/s', 'COUNTER')
        assert screen.count('\nnone') == 2, screen
        shutil.rmtree(os.path.join(folder, 'sys'))
        t.until('The device has gone')
        t.press('q')
        assert t.ended() == 0


run_all(its_ports_have_counters, a_record_of_rxe_is_read, regions_have_owners_and_page_faults,
        queue_pairs_have_retries_where_they_have_a_counter, a_process_has_its_own_view, lines_leave_out_what_is_not_told, what_is_not_told_has_a_reason, an_interrupted_answer_is_asked_for_again,
        wrong_command_lines_are_explained, the_screen_is_that_of_a_process_with_other_columns,
        the_screen_fits_into_80_columns_and_says_what_is_not_told)
