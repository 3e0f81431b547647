# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Starting and ending the processes of one test.

Every process of a test carries the test's tag in its environment and inherits it to its children, so that what is left
behind can be found whatever process group or parent it has by then; only processes with the tag are ever ended.
"""
import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import time

from .result import what_tells_why

TAG = 'UNPIN_TEST_TAG'


class Process:
    """One started program in its own session, its output (both streams) in a file."""

    def __init__(self, cmd, env, log, cwd=None):
        self.cmd = cmd
        self.path = log
        with open(log, 'ab') as out:
            out.write(('$ ' + ' '.join(cmd) + '\n').encode())
            out.flush()
            self.start = out.tell()
            self.popen = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                          env=env, cwd=cwd, start_new_session=True)

    @property
    def pid(self):
        return self.popen.pid

    def wait(self, timeout):
        """The exit status (negative: the signal), or None when it still runs after timeout seconds."""
        try:
            return self.popen.wait(max(0, timeout))
        except subprocess.TimeoutExpired:
            return None

    def running(self):
        return self.popen.poll() is None

    def output(self):
        with open(self.path, 'rb') as f:
            f.seek(self.start)
            return f.read().decode(errors='replace')

    def kill(self):
        if self.running():
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.popen.wait()


class Session:
    """The processes of one test: a tag, a private device name, a folder for logs, a deadline."""

    counter = 0

    def __init__(self, run, name, timeout, env=None):
        Session.counter += 1
        self.name = name
        self.tag = '%s-%d' % (run.prefix, Session.counter)
        self.device = '%sx%d' % (run.prefix, Session.counter)
        self.deadline = time.monotonic() + timeout
        self.timeout = timeout
        self.base = os.path.join(run.logs, name.replace('/', '.').replace(' ', '_'))
        self.processes = []
        self.env = dict(os.environ)
        for inherited in ('UNPIN_DISABLE', 'UNPIN_LOG', 'LD_PRELOAD'):
            self.env.pop(inherited, None)
        self.env['UNPIN_DEVICE'] = self.device
        self.env.update(env or {})
        self.env[TAG] = self.tag
        for old in os.listdir(run.logs):
            if old.startswith(os.path.basename(self.base) + '.'):
                os.unlink(os.path.join(run.logs, old))

    def remaining(self):
        return self.deadline - time.monotonic()

    def start(self, cmd, role='log', cwd=None):
        p = Process([str(c) for c in cmd], self.env, '%s.%s' % (self.base, role), cwd)
        self.processes.append(p)
        return p

    def finish(self, p):
        """Waits for p until the deadline. Returns (status, ''), or (None, why) after writing down where it hangs."""
        status = p.wait(self.remaining())
        if status is not None:
            return status, ''
        for each in tagged(self.tag):
            backtrace(each, p.path)
        return None, 'did not end within %d s' % self.timeout

    def accounts(self, unpin, grace=3):
        """For a test that failed: how each of its processes ended, or what the device counts in it; the last it said."""
        lines = []
        until = time.monotonic() + grace
        for p in self.processes:
            status = p.wait(until - time.monotonic())
            lines.append('%s: %s' % (os.path.basename(p.path), 'still runs' if status is None else 'status %d' % status))
            if status is None:
                lines += ['  ' + line for line in counters(unpin, p.pid)]
            lines += ['  ' + line for line in what_tells_why(p.output())]
        return lines

    def listening(self, p, port):
        """Waits until somebody listens on the TCP port: True, or False when p ended or time ran out."""
        while self.remaining() > 0 and p.running():
            if tcp_listens(port):
                return True
            time.sleep(0.01)
        return tcp_listens(port)

    def rdma_listening(self, p, port):
        """The same for a port of rdma_cm on this session's device."""
        while self.remaining() > 0 and p.running():
            if rdma_listens(self.device, port):
                return True
            time.sleep(0.01)
        return rdma_listens(self.device, port)

    def close(self):
        """Ends whatever of the test still runs. Returns a sentence about processes that should have been gone, or ''."""
        leaders = {p.pid for p in self.processes if p.running()}
        for p in self.processes:
            p.kill()
        # A process that the test's programs have already let go of may need a moment to be gone.
        for _ in range(100):
            left = tagged(self.tag)
            if not left:
                return ''
            if leaders:
                break
            time.sleep(0.01)
        names = ', '.join('%d (%s)' % (pid, command(pid)) for pid in left)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return '' if leaders else 'left processes behind: ' + names


def tagged(tag):
    """Process ids whose environment carries the tag (zombies have none)."""
    want = ('%s=%s' % (TAG, tag)).encode()
    found = []
    for pid in os.listdir('/proc'):
        if not pid.isdigit():
            continue
        try:
            with open('/proc/%s/environ' % pid, 'rb') as f:
                if want in f.read().split(b'\0'):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def command(pid):
    try:
        with open('/proc/%d/cmdline' % pid, 'rb') as f:
            return f.read().replace(b'\0', b' ').decode(errors='replace').strip()
    except OSError:
        return 'gone'


def backtrace(pid, log):
    """Appends to the log where every thread of the process is."""
    if not shutil.which('gdb'):
        return
    with open(log, 'ab') as out:
        out.write(('\n--- %d %s\n' % (pid, command(pid))).encode())
        out.flush()
        env = {k: v for k, v in os.environ.items() if k != TAG}
        try:
            subprocess.run(['gdb', '-batch', '-nx', '-p', str(pid), '-ex', 'thread apply all backtrace 24'],
                           stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, timeout=30)
        except subprocess.TimeoutExpired:
            out.write(b'(gdb hung)\n')


def counters(unpin, pid):
    """What unpin's device has counted in the process: the lines of unpin stat that are not about nothing."""
    try:
        done = subprocess.run([unpin, 'stat', str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=30)
    except subprocess.TimeoutExpired:
        return ['unpin stat hung']
    lines = done.stdout.decode(errors='replace').splitlines()
    return [line for line in lines if line.strip() and line.split()[1:2] != ['0']]


def free_port():
    """
    A TCP port that nobody uses now, below those that the kernel gives to connections: one of these may be somebody's by the
    time that a server has started.
    """
    with open('/proc/sys/net/ipv4/ip_local_port_range') as f:
        end = int(f.read().split()[0])
    family = socket.AF_INET6 if os.path.exists('/proc/net/if_inet6') else socket.AF_INET
    for _ in range(1000):
        port = random.randrange(10000, end) if end > 11000 else 0
        with socket.socket(family) as s:
            try:
                s.bind(('', port))
                return s.getsockname()[1]
            except OSError as e:
                if e.errno != errno.EADDRINUSE:
                    raise
    raise OSError(errno.EADDRINUSE, 'a thousand ports are in use')


def tcp_listens(port):
    want = ':%04X' % port
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            with open(table) as f:
                for line in f:
                    field = line.split()
                    if field[1].endswith(want) and field[3] == '0A':
                        return True
        except OSError:
            continue
    return False


def rdma_listens(device, port):
    """Listeners of rdma_cm have an abstract name: src/rdmacm/port.h."""
    want = '/%s/106/%d/' % (device, port)
    try:
        with open('/proc/net/unix') as f:
            return any('@unpin/cm/' in line and want in line for line in f)
    except OSError:
        return False
