# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Programs that connect through librdmacm, as Debian has them: a row of a table each, run as a server and its clients on
one device. The port is rdma_cm's.
"""
import glob
import os
import re
import shutil
import time

from harness.process import Session, free_port
from harness.programs import Test
from harness.result import Result

TIMEOUT = 90


class Row:
    """
    A server and a client by their commands, in which {port}, {device} and {dir} stand for those of the test. must and
    must_not are about the client's output, tells about the server's. clients: how many run at once. ends: the server
    ends by itself; else it is ended when the clients are done. gap: seconds between their starts. bound: the port that the server listens on is rdma_cm's.
    """

    def __init__(self, name, server, client, must=(), must_not=(), tells=(), clients=1, gap=0, ends=True, bound=True,
                 preload='', prepare=None, check=None, few=False):
        self.name = name
        self.server = server.split()
        self.client = client.split()
        self.must = must
        self.must_not = tuple(must_not) + (r'(?i)\bfailed\b', r'(?i)\berror\b')
        self.tells = tells
        self.clients = clients
        self.gap = gap
        self.ends = ends
        self.bound = bound
        self.preload = preload
        self.prepare = prepare
        self.check = check
        self.few = few


def rping(options='', host='127.0.0.1', few=False, **more):
    bind = '' if host == '127.0.0.1' else '-a ' + host
    return Row(('rping %s %s' % (host, options)).replace('  ', ' '),
               'rping -s %s -p {port} -V -C 10 %s' % (bind, options),
               'rping -c -a %s -p {port} -V -C 10 %s' % (host, options), few=few, **more)


def perftest(tool, options=''):
    common = '%s -R -d {device} -F -p {port} -n 100 %s' % (tool, options)
    return Row(('%s -R %s' % (tool, options)).strip(), common, common + ' 127.0.0.1', must=(r'^ *\d+ +\d+ +[\d.]+ ',),
               must_not=(r"(?i)couldn't", r'nan\b'))


def one_file(session, directory):
    with open(os.path.join(directory, 'sent'), 'wb') as f:
        f.write(os.urandom(3000000))


def same_file(session, directory):
    with open(os.path.join(directory, 'sent'), 'rb') as a, open(os.path.join(directory, 'received'), 'rb') as b:
        return '' if a.read() == b.read() else 'the file that arrived is another one'


def fio(verb):
    """The server's job reads what the client's writes; the engine moves it as the verb says."""
    job = 'fio --name=job --thread --ioengine=rdma --port={port} --bs=4k --size=400k '
    return Row('fio rdma %s' % verb, job + '--rw=read', job + '--rw=write --hostname=127.0.0.1 --iodepth=4 --verb=' + verb,
               must=(r'err= 0',), must_not=(r'err= [1-9]',), tells=(r'err= 0',))


RPING = [
    rping(few=True), rping('-v'), rping('-S 64'), rping('-S 65000 -C 20'), rping('-q', host='127.0.0.1'), rping(host='::1', few=True),
    # -P serves each client in a thread of its own and never ends. It keeps the last request alone until it has looked at it,
    # so that two that come together are one to it.
    Row('rping -P, ten clients', 'rping -s -P -p {port} -V', 'rping -c -a 127.0.0.1 -p {port} -V -C 300', clients=10, gap=0.4, ends=False),
]

EXAMPLES = [
    Row('ucmatose', 'ucmatose -p {port}', 'ucmatose -p {port} -s 127.0.0.1', must=(r'return status 0',), tells=(r'return status 0',)),
    # -m moves each id to another channel.
    Row('ucmatose -m', 'ucmatose -p {port} -m -c 20', 'ucmatose -p {port} -s 127.0.0.1 -m -c 20', must=(r'return status 0',),
        tells=(r'return status 0',)),
    Row('rdma_client', 'rdma_server -p {port}', 'rdma_client -s 127.0.0.1 -p {port}', must=(r'rdma_client: end 0',),
        tells=(r'rdma_server: end 0',), few=True),
    Row('cmtime', 'cmtime -p {port}', 'cmtime -p {port} -s 127.0.0.1 -c 40', must=(r'^connect',), ends=False),
    Row('rstream', 'rstream -p {port} -T v -S 4096 -C 100', 'rstream -p {port} -T v -S 4096 -C 100 -s 127.0.0.1', must=(r'^custom',)),
    Row('rstream -T n', 'rstream -p {port} -T n -T v -S 70000 -C 20', 'rstream -p {port} -T n -T v -S 70000 -C 20 -s 127.0.0.1',
        must=(r'^custom',)),
    # Not -T a: rstream takes an end of the connection that is told beside the last data for a failure, so that it fails
    # whenever the server is done before the client has looked.
    Row('rstream -T r', 'rstream -p {port} -T r -S 64 -C 100', 'rstream -p {port} -T r -S 64 -C 100 -s 127.0.0.1', must=(r'^custom',)),
    Row('riostream', 'riostream -p {port} -T v -S 4096 -C 100', 'riostream -p {port} -T v -S 4096 -C 100 -s 127.0.0.1',
        must=(r'^custom',)),
    Row('rcopy', 'rcopy -p {port}', 'rcopy {dir}/sent 127.0.0.1:{dir}/received -p {port}', ends=False, prepare=one_file, check=same_file),
]

PERFTEST = [perftest(tool, options) for tool in
            ('ib_send_bw', 'ib_send_lat', 'ib_write_bw', 'ib_write_lat', 'ib_read_bw', 'ib_read_lat', 'ib_atomic_bw', 'ib_atomic_lat')
            for options in ('',)] + [perftest('ib_write_bw', '-q 4 -b'), perftest('ib_read_bw', '--odp')]

OTHERS = [
    Row('qperf -cm 1', 'qperf -lp {port}', 'qperf -lp {port} -cm 1 127.0.0.1 -t 1 rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_lat quit',
        must=(r'^rc_lat:', r'^rc_bw:', r'^rc_rdma_read_bw:', r'^rc_rdma_write_lat:'), bound=False),
    # A program for TCP, unchanged.
    Row('TCP over rspreload', 'rstream -T s -p {port} -S 4096 -C 50', 'rstream -T s -p {port} -S 4096 -C 50 -s 127.0.0.1',
        must=(r'^custom',), preload='librspreload.so'),
    fio('write'), fio('read'),
    Row('fi_pingpong verbs', 'fi_pingpong -p verbs -e msg -B {port} -I 50', 'fi_pingpong -p verbs -e msg -P {port} -I 50 127.0.0.1',
        must=(r'^64 ', r'^1m '), bound=False),
    Row('fi_pingpong verbs;ofi_rxm', 'fi_pingpong -p verbs;ofi_rxm -e rdm -B {port} -I 50',
        'fi_pingpong -p verbs;ofi_rxm -e rdm -P {port} -I 50 127.0.0.1', must=(r'^64 ', r'^1m '), bound=False),
]

ROWS = RPING + EXAMPLES + PERFTEST + OTHERS


def rsocket_library(name):
    found = glob.glob('/usr/lib/*/rsocket/' + name)
    return found[0] if found else ''


def said(patterns, text, who):
    for pattern in patterns:
        if not re.search(pattern, text, re.M):
            return 'the output of the %s lacks /%s/' % (who, pattern)
    return ''


def verdict(row, output, server):
    for text in output:
        why = said(row.must, text, 'client')
        for pattern in row.must_not:
            found = re.search(pattern, text, re.M)
            if found:
                why = why or 'the client says: ' + next(l for l in text.splitlines() if found.group(0) in l)
        if why:
            return why
    return said(row.tells, server, 'server')


def play(row, session, prefix, directory):
    values = {'port': free_port(), 'device': session.device, 'dir': directory}
    fill = lambda words: [w.format(**values) for w in words]

    if row.prepare:
        row.prepare(session, directory)
    server = session.start(prefix + fill(row.server), 'server')
    listening = session.rdma_listening if row.bound else session.listening
    if not listening(server, values['port']):
        return 'the server does not listen: ' + ('it runs' if server.running() else 'status %s' % server.popen.poll())
    clients = []
    for i in range(row.clients):
        clients.append(session.start(prefix + fill(row.client), 'client%d' % i))
        time.sleep(row.gap)
    for p in clients + ([server] if row.ends else []):
        status, why = session.finish(p)
        if why or status:
            return '%s: %s' % ('server' if p is server else 'client', why or 'exit status %d' % status)
    if not row.ends:
        server.kill()
    why = row.check(session, directory) if row.check else ''
    return why or verdict(row, [p.output() for p in clients], server.output())


def test(row, suite, label='', env=None, wrap=(), stage=None):
    def function(runner, t):
        for program in (row.server[0], row.client[0]):
            if not shutil.which(program):
                return Result.skip('%s is not installed' % program)
        settings = dict(env or {})
        prefix = list(wrap) + [stage(runner, runner.unpin) if stage else runner.unpin, 'run', '--']
        if row.preload:
            library = rsocket_library(row.preload)
            if not library:
                return Result.skip('%s is not installed' % row.preload)
            prefix += ['sh', '-c', 'LD_PRELOAD=$LD_PRELOAD:%s exec "$@"' % library, 'sh']
        session = Session(runner, t.suite + '.' + t.name, TIMEOUT, settings)
        directory = session.base + '.files'
        os.makedirs(directory, exist_ok=True)
        why = play(row, session, prefix, directory)
        lines = session.accounts(runner.unpin) if why else []
        why = why or session.close()
        session.close()
        shutil.rmtree(directory, ignore_errors=True)
        return Result.fail(why, lines) if why else Result.ok()

    return Test(suite, label + row.name, function, TIMEOUT)


def killed(who):
    """One of two connected programs is killed: the other is told that the connection has ended."""
    def function(runner, t):
        session = Session(runner, t.suite + '.' + t.name, TIMEOUT)
        prefix = [runner.unpin, 'run', '--']
        port = str(free_port())
        pair = {'server': session.start(prefix + ['stdbuf', '-o0', 'rping', '-s', '-d', '-p', port], 'server')}
        if not session.rdma_listening(pair['server'], int(port)):
            return Result.fail('the server does not listen')
        pair['client'] = session.start(prefix + ['stdbuf', '-o0', 'rping', '-c', '-d', '-a', '127.0.0.1', '-p', port], 'client')
        other = pair['client' if who == 'server' else 'server']
        while session.remaining() > 0 and not all_say(pair.values(), 'RDMA_CM_EVENT_ESTABLISHED'):
            time.sleep(0.01)
        pair[who].kill()
        status, why = session.finish(other)
        if not why and 'RDMA_CM_EVENT_DISCONNECTED' not in other.output():
            why = 'no event tells of the end'
        return Result.fail(why) if session.close() or why else Result.ok()

    return Test('clients', 'rdma_cm: the %s is killed' % who, function, TIMEOUT)


def all_say(processes, text):
    return not [p for p in processes if text not in p.output()]


def all(runner):
    return [test(row, 'clients') for row in ROWS] + [killed('server'), killed('client')]


def few(runner, suite, label='', env=None, wrap=(), stage=None):
    return [test(row, suite, label, env, wrap, stage) for row in ROWS if row.few]
