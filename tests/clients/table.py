# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Debian's verbs programs as they are: a row of a table each. Pairs run as two processes of one device, a server and a client
that finds it by TCP on a free port.
"""
import re
import shutil

from harness.process import Session, free_port
from harness.programs import Test
from harness.result import Result

TIMEOUT = 60


class Row:
    """One pair (or single program): its name, command, and what its output must and must not say."""

    def __init__(self, name, command, must=(), must_not=(), pair=True, few=False, ask=(), lacks=None):
        self.name = name
        self.lacks = lacks      # (what the client says where something that it needs is missing, what that is)
        self.command = command
        self.ask = list(ask)    # what the client says behind the server's name
        self.must = must
        self.must_not = must_not
        self.pair = pair
        self.few = few      # also run once per fallback and as somebody else


def pingpong(options, few=False):
    # As on every RoCE port, it has to be told to use a GID.
    return Row(('ibv_rc_pingpong -g 0 ' + options).strip(),
               ['ibv_rc_pingpong', '-d', '{device}', '-p', '{port}', '-g', '0'] + options.split(),
               must=(r'^\d+ bytes in [\d.]+ seconds', r'^\d+ iters in [\d.]+ seconds'),
               must_not=(r'invalid data', r"Couldn't", r'Failed'), few=few)


def perftest(tool, options, few=False):
    options = options.split()
    if '-n' not in options:
        options += ['-n', '100']
    # A result line begins with the message size and the number of iterations.
    return Row('%s %s' % (tool, ' '.join(options)), [tool, '-d', '{device}', '-F', '-p', '{port}'] + options,
               must=(r'^ *\d+ +\d+ +[\d.]+ ',), must_not=(r'(?i)\bfailed\b', r"(?i)couldn't", r'(?i)\berror\b', r'nan\b'),
               few=few)


SINGLE = [
    Row('ibv_devices', ['ibv_devices'], must=(r'{device}\s+[0-9a-f]{{16}}',), pair=False),
    Row('ibv_devinfo', ['ibv_devinfo', '-d', '{device}'], must=(r'PORT_ACTIVE', r'link_layer:\s+Ethernet'), pair=False),
    Row('ibv_devinfo -v', ['ibv_devinfo', '-v', '-d', '{device}'], pair=False,
        must=(r'hca_id:\s+{device}', r'general_odp_caps:', r'ODP_SUPPORT\b', r'ODP_SUPPORT_IMPLICIT', r'rc_odp_caps:',
              r'SUPPORT_SEND', r'SUPPORT_RECV', r'SUPPORT_WRITE', r'SUPPORT_READ', r'SUPPORT_ATOMIC', r'RoCE v2', r'atomic_cap:\s+ATOMIC_HCA'),
        must_not=(r'SUPPORT_SRQ',)),
    Row('ibv_devinfo -l', ['ibv_devinfo', '-l'], must=(r'{device}',), pair=False),
]

# Programs that do not ask the verbs but look in /sys/class/infiniband. ibstat and ibstatus need no umad for it.
CLASS = '/sys/class/infiniband'
GUID = r'[0-9a-f]{{4}}(:[0-9a-f]{{4}}){{3}}'
SYSFS = [
    Row('ibstat', ['ibstat', '{device}'], pair=False, few=True,
        must=(r"^CA '{device}'", r'Number of ports: 1', r'Firmware version: \d', r'Node GUID: 0x[0-9a-f]{{16}}', r'State: Active',
              r'Physical state: LinkUp', r'Rate: 100', r'Link layer: Ethernet'), must_not=(r'(?i)failed',)),
    Row('ibstat -l', ['ibstat', '-l'], must=(r'^{device}$',), pair=False),
    Row('ibstatus', ['ibstatus', '{device}'], pair=False,
        must=(r"device '{device}' port 1", r'state:\s+4: ACTIVE', r'rate:\s+100 Gb/sec \(4X EDR\)', r'link_layer:\s+Ethernet')),
    # hwloc leaves virtual devices out unless it is asked for them.
    Row('lstopo', ['env', 'HWLOC_VIRTUAL_LINUX_OSDEV=1', 'lstopo-no-graphics', '--whole-io', '-v'], pair=False,
        must=(r'OpenFabrics .*NodeGUID=' + GUID + r'.*Port1State=4.*Port1GID0=.*"{device}"',)),
    Row('ls -la', ['ls', '-la', CLASS, CLASS + '/{device}/'], pair=False,
        must=(r' {device} -> \.\./\.\./devices/virtual/infiniband/{device}$', r'\bnode_guid$', r'\bports$'),
        must_not=(r'cannot|No such file',)),
    Row('find', ['find', CLASS + '/{device}/ports/1/gids', '-name', '[0-9]*'], must=(r'/gids/63$',), pair=False),
    Row('cat', ['cat', CLASS + '/{device}/ports/1/gid_attrs/types/0'], must=(r'^RoCE v2$',), pair=False),
    Row('realpath', ['realpath', CLASS + '/{device}'], must=(r'^/sys/devices/virtual/infiniband/{device}$',), pair=False),
    Row('a shell in it', ['bash', '-c', 'cd ' + CLASS + '/{device}/ports/1 && pwd -P && cat state && echo gids/6*'], pair=False,
        must=(r'^/sys/devices/virtual/infiniband/{device}/ports/1$', r'^4: ACTIVE$', r'^gids/6 gids/60 gids/61 gids/62 gids/63$')),
    Row('python', ['python3', '-c', 'import os; print(os.listdir("' + CLASS + '"), open("' + CLASS + '/{device}/node_type").read())'],
        pair=False, must=(r"^\[.*'{device}'.*\] 1: CA$",)),
]

PINGPONG = ([pingpong(o, few=o in ('-o -c', '-e', '-O -P -c')) for o in
             ('', '-o', '-e', '-o -e', '-c', '-o -c', '-N', '-N -o -c', '-o -e -c', '-r 1 -c', '-m 256 -c',
              '-m 4096 -o -c', '-O', '-O -c', '-O -e -c', '-N -O -c', '-o -P', '-o -P -c', '-O -P', '-O -P -c')]
            + [pingpong('-s %d -n %d -c%s' % (size, 20 if size > 65536 else 200, odp))
               for size in (1, 7, 64, 511, 1000, 4096, 4097, 65536, 1 << 20) for odp in ('', ' -o')])

LATENCY = {
    'ib_send_lat': ('', '-a -n 20', '-e', '-I 64 -s 64', '-s 65536'),
    'ib_write_lat': ('', '-a -n 20', '-s 65536', '-I 0 -s 32'),
    'ib_read_lat': ('', '-a -n 20', '-e', '-o 1 -s 4096'),
    'ib_atomic_lat': ('', '-e', '-A CMP_AND_SWAP'),
}
BANDWIDTH = {
    'ib_send_bw': ('', '-a -n 20', '-b', '-e', '-q 8', '-r 16'),
    'ib_write_bw': ('', '-a -n 20', '-b', '-q 8', '-q 8 -b -s 4096'),
    'ib_read_bw': ('', '-a -n 20', '-b', '-e', '-q 8'),
    'ib_atomic_bw': ('', '-b', '-e', '-q 8', '-A CMP_AND_SWAP'),
}
FEW = ('ib_write_bw --odp', 'ib_read_lat', 'ib_atomic_lat', 'ib_send_bw --odp')


def perftests():
    rows = []
    for table in (LATENCY, BANDWIDTH):
        for tool, variants in table.items():
            for variant in variants:
                # perftest itself refuses atomics on demand.
                for odp in ('',) if 'atomic' in tool else ('', '--odp'):
                    options = (variant + ' ' + odp).strip()
                    rows.append(perftest(tool, options, few=(tool + ' ' + options).strip() in FEW))
    rows.append(perftest('ib_write_bw', '-x 0 --odp'))
    rows.append(perftest('ib_send_lat', '--use_old_post_send --odp'))
    rows.append(perftest('ib_write_bw', '--use_old_post_send'))
    return rows


QPERF_TESTS = ('rc_lat', 'rc_bw', 'rc_bi_bw', 'rc_rdma_read_lat', 'rc_rdma_read_bw', 'rc_rdma_write_lat', 'rc_rdma_write_bw',
               'rc_rdma_write_poll_lat', 'rc_compare_swap_mr', 'rc_fetch_add_mr', 'ver_rc_compare_swap', 'ver_rc_fetch_add')


def qperf(tests):
    # The server says nothing and ends when it is told to. The client frees the list of devices by itself. It knows no
    # GIDs, so on a RoCE port it works with rdma_cm only.
    return Row('qperf -cm 1 ' + ' '.join(tests), ['qperf', '-lp', '{port}'],
               lacks=(r'rdma_create_event_channel failed', 'there is no rdma_cm'),
               ask=['-cm', '1', '-t', '1'] + list(tests) + ['quit'], must=[r'^%s:\n +[a-z_]+ += ' % t for t in tests],
               must_not=(r'(?i)failed', r'(?i)error'))


ROWS = SINGLE + SYSFS + PINGPONG + perftests() + [qperf(QPERF_TESTS[i:i + 4]) for i in range(0, len(QPERF_TESTS), 4)]


def verdict(row, session, text):
    """What is wrong with the output, or ''."""
    for pattern in row.must:
        if not re.search(pattern.format(device=session.device), text, re.M):
            return 'the output lacks /%s/' % pattern
    for pattern in row.must_not:
        found = re.search(pattern, text, re.M)
        if found:
            return 'the output says: ' + next(l for l in text.splitlines() if found.group(0) in l)
    return ''


class Lacks(Exception):
    """What the row needs and is not there."""


def single(row, session, prefix):
    p = session.start(prefix + [a.format(device=session.device) for a in row.command])
    status, why = session.finish(p)
    if not why and status:
        why = 'exit status %d' % status
    return why or verdict(row, session, p.output())


def pair(row, session, prefix):
    port = free_port()
    command = [a.format(device=session.device, port=port) for a in row.command]
    server = session.start(prefix + command, 'server')
    if not session.listening(server, port):
        return 'the server does not listen: ' + ('it runs' if server.running() else 'status %s' % server.popen.poll())
    client = session.start(prefix + command + ['localhost'] + row.ask, 'client')
    for role, p in (('client', client), ('server', server)):
        status, why = session.finish(p)
        if row.lacks and re.search(row.lacks[0], p.output()):
            raise Lacks(row.lacks[1])
        if why or status:
            return '%s: %s' % (role, why or 'exit status %d' % status)
    return verdict(row, session, client.output()) or verdict_server(row, session, server.output())


def verdict_server(row, session, text):
    """A server may have nothing to report, but what must not be said holds for it too."""
    return verdict(Row(row.name, row.command, must_not=row.must_not), session, text)


# perftest measures the processor's clock against the time of day. When the machine is busy it does not believe its own
# measurement, and prints inf and nan: that says nothing about the device.
CALIBRATION = 'Correlation coefficient r^2'
ATTEMPTS = 5


def attempt(row, session, prefix):
    """Runs the row, again where perftest could not measure the clock. What is wrong, or ''."""
    run = pair if row.pair else single
    for _ in range(ATTEMPTS - 1):
        before = len(session.processes)
        why = run(row, session, prefix)
        if not why or not any(CALIBRATION in p.output() for p in session.processes[before:]):
            return why
        for p in session.processes[before:]:
            p.kill()
    return run(row, session, prefix)


def test(row, suite, label='', env=None, wrap=(), stage=None):
    def function(runner, t):
        program = row.command[2 if row.command[0] == 'env' else 0]
        if not shutil.which(program):
            return Result.skip('%s is not installed' % program)
        session = Session(runner, t.suite + '.' + t.name, TIMEOUT, env)
        unpin = stage(runner, runner.unpin) if stage else runner.unpin
        prefix = list(wrap) + [unpin, 'run', '--']
        try:
            why = attempt(row, session, prefix)
        except Lacks as e:
            session.close()
            return Result.skip(str(e))
        said = session.accounts(runner.unpin) if why else []
        left = session.close()
        why = why or left
        return Result.fail(why, said) if why else Result.ok()

    return Test(suite, label + row.name, function, TIMEOUT)


def cause(runner, t):
    """
    The first bad completion that ibv_rc_pingpong gets says why; it prints no other. All that the client sends comes later
    than its retries last, so its request runs out of retries while receives are posted.
    """
    if not shutil.which('ibv_rc_pingpong'):
        return Result.skip('ibv_rc_pingpong is not installed')
    session = Session(runner, t.suite + '.' + t.name, TIMEOUT)
    port = free_port()
    command = [runner.unpin, 'run', '--', 'ibv_rc_pingpong', '-d', session.device, '-p', str(port), '-g', '0']
    server, why = session.start(command, 'server'), ''
    if session.listening(server, port):
        client = session.start(['env', 'UNPIN_DELAY=1s'] + command + ['localhost'], 'client')
        session.finish(client)
        if 'Failed status transport retry counter exceeded' not in client.output():
            why = 'the client does not say why it failed'
    else:
        why = 'the server does not listen'
    said = session.accounts(runner.unpin) if why else []
    left = session.close()
    return Result.fail(why or left, said) if why or left else Result.ok()


def all(runner):
    return [test(row, 'clients') for row in ROWS] + [Test('clients', 'ibv_rc_pingpong says why it failed', cause, TIMEOUT)]


def few(runner, suite, label='', env=None, wrap=(), stage=None):
    return [test(row, suite, label, env, wrap, stage) for row in ROWS if row.few]
