# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Cases of a test that starts the command from outside: each is a function whose name is the sentence that it proves. Output is in
cmocka's format.
"""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

NOBODY = ('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups')
failed = []


class Skip(Exception):
    """Raised by a case that cannot be tried here; the reason is printed."""


def case(function):
    try:
        function()
        print('[       OK ] %s' % function.__name__, flush=True)
    except Skip as e:
        print('[  SKIPPED ] %s' % function.__name__, flush=True)
        print(e)
    except Exception as e:       # whatever goes wrong is this case's failure, and the next one runs
        failed.append(function.__name__)
        print('[  FAILED  ] %s\n  %s: %s' % (function.__name__, type(e).__name__, e), file=sys.stderr, flush=True)


def run_all(*functions):
    """Runs them and ends the test."""
    for function in functions:
        case(function)
    sys.exit(1 if failed else 0)


def start(command, env, want, timeout):
    """Runs a command to its end, which must be with status want. As of subprocess.run, with the process's number as pid."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        try:
            out, err = p.communicate(timeout=timeout)
        except BaseException:
            p.kill()
            raise
    assert p.returncode == want, 'status %d, not %d: %s\n%s%s' % (p.returncode, want, ' '.join(command), out, err)
    done = subprocess.CompletedProcess(command, p.returncode, out, err)
    done.pid = p.pid
    return done


@contextlib.contextmanager
def ready(command, env, last=''):
    """
    A program that runs beside the case: it has said "ready", and ends with status 0 after its standard input has brought it
    last and ended. If it ends before it is ready, with status 77, it has said why it cannot be tried here.
    """
    p = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = []
        for line in iter(p.stdout.readline, 'ready\n'):
            said.append(line)
            if not line:
                if p.wait(timeout=30) == 77:
                    raise Skip(''.join(said).strip())
                raise AssertionError('it does not begin (status %s): %s\n%s' % (p.returncode, ' '.join(command), ''.join(said)))
        yield p
        if p.poll() is None:
            p.stdin.write(last)
            p.stdin.close()
            assert p.wait(timeout=30) == 0, p.stdout.read()
    finally:
        if p.poll() is None:
            p.kill()
        p.wait()


class Everyones:
    """A copy of the command and its library that every user may run: the build may lie in a home directory."""

    def __init__(self, unpin):
        self.unpin = unpin

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip('not root: there is nobody else to be')
        self.folder = tempfile.mkdtemp(prefix='unpin-everyones-')
        try:
            os.chmod(self.folder, 0o755)
            for name in ('unpin', 'libunpin.so'):
                os.chmod(shutil.copy(os.path.join(os.path.dirname(self.unpin), name), self.folder), 0o755)
            # Asked of a program that is that user by then: setpriv itself still has root's rights when it executes one.
            if subprocess.run(NOBODY + ('test', '-r', os.path.join(self.folder, 'libunpin.so'))).returncode:
                raise Skip('another user cannot read what lies in ' + self.folder)
        except BaseException:
            self.__exit__()
            raise
        return os.path.join(self.folder, 'unpin')

    def __exit__(self, *unused):
        shutil.rmtree(self.folder)
