#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Timelines of programs that end in all manners: `unpin run --trace` and `unpin trace`. usage: trace_test.py UNPIN"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from cases import run_all, start  # noqa: E402

UNPIN = os.path.realpath(sys.argv[1])
DEVICE = 'tl%d' % os.getpid()
ENV = dict(os.environ, UNPIN_DEVICE=DEVICE)
ENV.pop('LD_PRELOAD', None)
# Enough to be sure that both processes are in the middle of it.
RECORDED = 200000


def run(*args, want=0):
    return start([UNPIN] + list(args), ENV, want, 60)


def wait(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, 'in a minute: not ' + what
        time.sleep(0.02)


def read(path):
    """The events, by name, of a timeline that must be whole; with its name first and what was dropped last."""
    with open(path) as f:
        events = json.load(f)
    assert events[0]['name'] == 'process_name' and events[-1]['name'] == 'dropped_events', (events[0], events[-1])
    names = {}
    for e in events:
        names[e['name']] = names.get(e['name'], 0) + 1
    return names


def spools(folder):
    return [name for name in os.listdir(folder) if name.endswith('.spool')]


def watchers(folder):
    """Processes beside programs with a timeline in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/comm' % pid) as comm, open('/proc/%s/cmdline' % pid) as line:
                if comm.read() == 'unpin-trace\n' and folder in line.read():
                    found.append(int(pid))
        except OSError:
            pass                # it has ended meanwhile
    return found


class Folder(tempfile.TemporaryDirectory):
    """Nobody is left who could write into it when it goes."""

    def __exit__(self, *unused):
        wait(lambda: not watchers(self.name), 'no process beside the program is left')
        super().__exit__(*unused)


class Bench:
    """A bench and its second process, which record for a long time, in a process group of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.file = os.path.join(folder, 't.json')
        self.p = subprocess.Popen([UNPIN, 'run', '--trace', self.file, '--', UNPIN, 'bench', '--pairs', '1001', '--only', 'latency',
                                   '--json', '-'], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        wait(lambda: self.p.poll() is not None or self.recorded(), 'recorded')
        assert self.p.poll() is None, self.p.stderr.read()

    def recorded(self):
        names = spools(self.folder)
        return len(names) == 2 and all(os.path.getsize(os.path.join(self.folder, n)) > RECORDED for n in names)

    def kill(self):
        os.killpg(self.p.pid, signal.SIGKILL)
        self.p.communicate(timeout=60)
        assert self.p.returncode == -signal.SIGKILL, self.p.returncode

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.p.poll() is None:
            self.kill()

    def timelines(self):
        return [os.path.join(self.folder, name) for name in sorted(os.listdir(self.folder)) if not name.endswith('.spool')]


def killed_programs_leave_timelines_of_all_that_they_recorded():
    with Folder() as folder, Bench(folder) as b:
        b.kill()
        wait(lambda: not spools(folder), 'the spools are finished')
        assert len(b.timelines()) == 2, b.timelines()
        for path in b.timelines():
            names = read(path)
            # At most 16 bytes for a moment.
            assert names['post_send'] + names.get('post_recv', 0) + names['completion'] > RECORDED / 32, names


def a_process_that_is_killed_while_the_program_goes_on_has_its_timeline():
    with Folder() as folder:
        path = os.path.join(folder, 't.json')
        with subprocess.Popen([UNPIN, 'run', '--trace', path, '--', 'sh', '-c',
                               '"$0" bench --pairs 1001 --only latency --json - >/dev/null 2>&1 & echo $!; read line', UNPIN],
                              env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as p:
            try:
                bench = int(p.stdout.readline())
                wait(lambda: len(spools(folder)) == 2, 'both processes record')
                os.kill(bench, signal.SIGKILL)
                wait(lambda: not spools(folder), 'the spools are finished')
                assert p.poll() is None
                for name in os.listdir(folder):
                    read(os.path.join(folder, name))
            finally:
                p.stdin.close()
                p.wait(timeout=60)


def two_runs_that_name_one_file_leave_two_timelines():
    program = '"$0" bench --pairs 1001 --only latency --json - >/dev/null 2>&1 & echo $!; wait'
    with Folder() as folder:
        path = os.path.join(folder, 't.json')
        runs, benches = [], []
        try:
            for i in range(2):
                env = dict(ENV, UNPIN_DEVICE='%s%d' % (DEVICE, i))
                runs.append(subprocess.Popen([UNPIN, 'run', '--trace', path, '--', 'sh', '-c', program, UNPIN], env=env,
                                             stdout=subprocess.PIPE, text=True, start_new_session=True))
                benches.append(int(runs[-1].stdout.readline()))
                wait(lambda: len(spools(folder)) == 2 * (i + 1), 'two more processes record')
        finally:
            for pid in benches:
                os.kill(pid, signal.SIGTERM)
            for p in runs:
                p.wait(timeout=60)
                p.stdout.close()
        wait(lambda: not spools(folder), 'the spools are finished')
        assert len(os.listdir(folder)) == 4, os.listdir(folder)
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as f:
                pids = {e['pid'] for e in json.load(f)}
            assert len(pids) == 1, (name, pids)


def when_nobody_watched_the_command_finishes_a_timeline():
    with Folder() as folder, Bench(folder) as b:
        for pid in watchers(folder):
            os.kill(pid, signal.SIGKILL)
        wait(lambda: not watchers(folder), 'the watcher has gone')
        b.kill()
        assert len(spools(folder)) == 2
        # What the bench did when it had the device open before is there.
        before = {path: read(path).get('completion', 0) for path in b.timelines()}
        assert '2 finished' in run('trace', b.file).stdout
        assert not spools(folder)
        for path in b.timelines():
            assert read(path)['completion'] > before[path] + 1000, before
        assert 'nothing is left' in run('trace', b.file).stdout


def of_a_program_that_runs_there_is_a_copy():
    with Folder() as folder, Bench(folder) as b:
        copy = os.path.join(folder, 'copy')
        assert 'process_name' in read(b.file)
        run('trace', b.file, copy)
        first = read(copy)
        assert first['completion'] > read(b.file).get('completion', 0) + 1000, first
        p = run('trace', b.file, copy, want=1)
        assert 'name a file that does not' in p.stderr, p.stderr
        p = run('trace', b.file, want=1)
        assert p.stderr.count('a process is writing') == 2, p.stderr
        b.p.send_signal(signal.SIGINT)
        b.p.communicate(timeout=60)
        wait(lambda: not spools(folder), 'the spools are finished')
        assert read(b.file)['completion'] >= first['completion']
        p = run('trace', b.file, copy + '2', want=1)
        assert 'no process is writing' in p.stderr, p.stderr


def the_program_is_the_process_that_was_started_and_has_no_child():
    with Folder() as folder:
        script = 'import os\ntry: os.wait()\nexcept ChildProcessError: print(os.getpid())'
        p = run('run', '--trace', os.path.join(folder, 't.json'), '--', sys.executable, '-c', script)
        assert p.stdout == '%d\n' % p.pid, (p.stdout, p.pid)
        run('run', '--trace', os.path.join(folder, 't.json'), '--', 'sh', '-c', 'exit 7', want=7)
        run('run', '--trace', os.path.join(folder, 't.json'), '--', 'sh', '-c', 'kill -9 $$', want=-signal.SIGKILL)
        assert not os.listdir(folder), os.listdir(folder)


def the_first_process_of_a_namespace_finds_no_child_either():
    with Folder() as folder:
        isolate = ['unshare', '--pid', '--fork', '--mount-proc']
        if os.geteuid() or subprocess.run(isolate + ['true'], stderr=subprocess.DEVNULL).returncode:
            print('[  SKIPPED ] a pid namespace cannot be made here')
            return
        script = 'import os\ntry: os.wait()\nexcept ChildProcessError: print(os.getpid())'
        # --fork: the command is the first process of the new namespace.
        p = start(isolate + [UNPIN, 'run', '--trace', os.path.join(folder, 't.json'), '--', sys.executable, '-c', script], ENV, 0, 60)
        assert p.stdout == '1\n', p.stdout


def wrong_command_lines_are_refused():
    assert 'which timeline' in run('trace', want=2).stderr
    assert 'which timeline' in run('trace', 'a', 'b', 'c', want=2).stderr
    assert 'directory cannot be read' in run('trace', '/no/such/t.json', want=1).stderr
    with tempfile.TemporaryDirectory() as folder:
        assert 'No such file' in run('trace', os.path.join(folder, 'mistyped.json'), want=1).stderr
    assert 'Usage: unpin trace' in run('trace', '--help').stdout


run_all(killed_programs_leave_timelines_of_all_that_they_recorded,
        a_process_that_is_killed_while_the_program_goes_on_has_its_timeline, two_runs_that_name_one_file_leave_two_timelines,
        when_nobody_watched_the_command_finishes_a_timeline, of_a_program_that_runs_there_is_a_copy,
        the_program_is_the_process_that_was_started_and_has_no_child,
        the_first_process_of_a_namespace_finds_no_child_either, wrong_command_lines_are_refused)
