#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What a timeline costs a ping-pong of two processes that both poll (ibv_rc_pingpong), each with its timeline.

Runs without and with one alternate, so that whatever else the machine does meets both; printed are the medians of the
time per round trip, the median and quartiles of the ratio of neighbours, and how many events were dropped. On a machine with
other work, give the runs a share of their own, for example a cgroup with many cpu.shares, and start this in it.

Each process has a processor of its own, the first two that this one may use, so that the scheduler does not move them about.

Usage: trace_pingpong.py UNPIN [ROUNDS [ITERATIONS]]
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

DEVICE = 'tracecost%d' % os.getpid()
PORT = str(20000 + os.getpid() % 20000)


def listens():
    tables = [open('/proc/net/' + name).read() for name in ('tcp', 'tcp6')]
    return re.search(r':%04X [0-9A-F]+:0000 0A ' % int(PORT), ''.join(tables))


def pingpong(unpin, iterations, folder):
    """Microseconds per round trip; timelines in the folder, unless that is None."""
    def start(name, cpu, *host):
        trace = ['--trace', os.path.join(folder, name)] if folder else []
        return subprocess.Popen([unpin, 'run', '--device', DEVICE] + trace + [
            '--', 'ibv_rc_pingpong', '-d', DEVICE, '-g', '0', '-s', '64', '-p', PORT, '-n', str(iterations)] + list(host),
            stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    cpus = sorted(os.sched_getaffinity(0))
    server = start('server.json', cpus[0])
    with server:
        while not listens():
            if server.poll() is not None:
                sys.exit('the server ended early')
        with start('client.json', cpus[-1 if len(cpus) < 2 else 1], 'localhost') as client:
            found = re.search(r'= ([0-9.]+) usec/iter', client.communicate()[0])
        if not found:
            server.kill()
        server.communicate()
    if not found:
        sys.exit('the ping-pong failed')
    return float(found.group(1))


def count(folder):
    events = dropped = 0
    for name in os.listdir(folder):
        last = ''
        with open(os.path.join(folder, name)) as f:
            for line in f:
                events += '"cat"' in line
                last = line if 'dropped_events' in line else last
        dropped += json.loads(last)['args']['dropped']
    return events, dropped


def main():
    unpin = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    iterations = int(sys.argv[3]) if len(sys.argv) > 3 else 300000
    plain, traced, events, dropped = [], [], 0, 0
    for i in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            # Who goes first alternates, too.
            for folder_or_none in (None, folder) if i % 2 else (folder, None):
                (traced if folder_or_none else plain).append(pingpong(unpin, iterations, folder_or_none))
            e, d = count(folder)
            events, dropped = events + e, dropped + d
    ratios = [t / p for t, p in zip(traced, plain)]
    low, _, high = statistics.quantiles(ratios, n=4)
    print('without %.3f us, with %.3f us per round trip; ratio %.3f (quartiles %.3f to %.3f) in %d pairs; '
          '%d events, %.2f %% dropped' % (statistics.median(plain), statistics.median(traced), statistics.median(ratios),
                                           low, high, rounds, events, 100 * dropped / max(events + dropped, 1)))


main()
