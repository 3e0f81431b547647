# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Test programs that meson knows: found by introspection, run one by one."""
import json
import os
import shutil
import subprocess

from .process import Session
from .result import Result, from_program, what_tells_why


class Test:
    """One line of the output. run(runner) returns a Result. alone: nothing else of its suite runs beside it."""

    def __init__(self, suite, name, function, timeout, alone=False):
        self.alone = alone
        self.suite = suite
        self.name = name
        self.function = function
        self.timeout = timeout

    def run(self, runner):
        return self.function(runner, self)


def introspect(build):
    out = subprocess.run(['meson', 'introspect', '--tests', build], stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout)


def suites_of(entry):
    return {s.split(':')[-1] for s in entry['suite']}


def program(suite, name, entry, env=None, wrap=(), factor=1, stage=None, directory=None):
    """A Test that runs a program registered with meson. wrap is put before its command; stage maps its files; directory
    is where it was built, if not in the runner's."""
    timeout = entry['timeout'] * factor

    def function(runner, test):
        session = Session(runner, test.suite + '.' + test.name, timeout, dict(entry['env'], **(env or {})))
        command = [stage(runner, c) for c in entry['cmd']] if stage else entry['cmd']
        # As meson does: commands name files relative to the build directory.
        p = session.start(list(wrap) + command, cwd=entry.get('workdir') or directory or runner.build)
        status, why = session.finish(p)
        left = session.close()
        return from_program(status, p.output(), why or left)

    return Test(suite, name, function, timeout, not entry['is_parallel'])


def build(suite, directory, jobs, options, env=None):
    """A Test that configures and builds a directory."""

    def function(runner, test):
        session = Session(runner, test.suite + '.' + test.name, 1200, env)
        p = session.start([os.path.join(runner.source, 'scripts', 'build.sh'), directory, jobs or ''] + options,
                          cwd=runner.source)
        status, why = session.finish(p)
        session.close()
        if status == 0:
            return Result.ok()
        return Result.fail(why or 'the build failed: see ' + p.path, what_tells_why(p.output()))

    return Test(suite, 'build', function, 1200)


class Stage:
    """
    A copy of the built files in a folder that every user may enter, for tests that run as somebody else: the source
    tree may lie in a home directory.
    """

    def __init__(self):
        self.copied = {}

    def __call__(self, runner, path):
        path = str(path)
        if not path.startswith(runner.build + '/') or not os.path.isfile(path):
            return path
        if path not in self.copied:
            for name in ('unpin', 'libunpin.so'):
                source = os.path.join(runner.build, name)
                if os.path.exists(source) and source not in self.copied:
                    self.copied[source] = shutil.copy(source, runner.scratch('stage'))
            if path not in self.copied:
                self.copied[path] = shutil.copy(path, runner.scratch('stage'))
        return self.copied[path]
