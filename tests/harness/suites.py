# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Which tests there are. Each function returns the tests of one suite, in the order in which they run."""
import os
import re
import shutil
import subprocess
import sys

from .process import Session
from .programs import Stage, Test, build, introspect, program, suites_of
from .result import Result, what_tells_why

# UNPIN_DISABLE values that the device's tests are repeated with (decision: every kernel facility is optional).
FALLBACKS = ('io_uring', 'process_vm', 'pagemap_scan', 'procmap_query', 'populate',
             'io_uring,process_vm,pagemap_scan,procmap_query,populate')
# Settings of the device that the same programs are repeated with: what they prove holds whatever the manners.
MODES = {
    'imprecise faults': {'UNPIN_FAULT_MODE': 'imprecise'},
    'receiver not ready': {'UNPIN_FAULT_REPLY': 'rnr'},
    'slow faults': {'UNPIN_FAULT_LATENCY': '200us'},
    'userfaultfd': {'UNPIN_NOTIFIER': 'userfaultfd'},
    'no notifier': {'UNPIN_NOTIFIER': 'none'},
    'bad fabric': {'UNPIN_LOSS': '1%', 'UNPIN_REORDER': '1%', 'UNPIN_DELAY': '50us'},
    'three engine threads': {'UNPIN_ENGINE_THREADS': '3'},
}
# A bad fabric may lose the answer that tells why a queue pair failed, so programs that ask for it are left out there.
MODE_PROGRAMS = ('bytes', 'churn', 'remap', 'holes', 'dereg', 'soak')
BAD_FABRIC_PROGRAMS = ('bytes', 'churn', 'soak')
# Rooms whose unit tests depend on the kernel's facilities.
KERNEL_ROOMS = ('mm/', 'odp/', 'nic/')
MEMLOCK = 8 << 20

ASAN = {
    'ASAN_OPTIONS': 'abort_on_error=0:exitcode=86:allow_user_segv_handler=1:detect_leaks=1',
    'UBSAN_OPTIONS': 'print_stacktrace=1:halt_on_error=1:exitcode=86',
}
TSAN = {'TSAN_OPTIONS': 'halt_on_error=1:exitcode=86:second_deadlock_stack=1:history_size=4'}


def source(runner):
    """Rules that every file of the project keeps."""

    def spdx(runner, test):
        if not shutil.which('git'):
            return Result.skip('git is not installed')
        files = subprocess.run(['git', 'ls-files', '-z'], cwd=runner.source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if files.returncode:
            return Result.skip('not a git checkout')
        missing = []
        for name in files.stdout.decode().split('\0'):
            path = os.path.join(runner.source, name)
            if not re.search(r'(\.[ch]|\.sh|\.py|\.map|man/.*\.[1-8]|meson\.build|Makefile|/run)$', name) or not os.path.isfile(path):
                continue
            with open(path, 'rb') as f:
                if b'SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only' not in f.read(400):
                    missing.append(name)
        return Result.fail('no SPDX line: ' + ', '.join(missing)) if missing else Result.ok()

    def literals(runner, test):
        # Its life ends with the innermost block, which may be a single statement behind an if. No compiler warns.
        kept = re.compile(r'^\s+[^\s=]+ = (?:[^;]* [?:] )?&\((?:const )?(?:struct |union )?\w+\)\s*\{', re.M)
        found = []
        for folder in ('src', 'bench', 'examples', 'tests'):
            for where, _, names in os.walk(os.path.join(runner.source, folder)):
                for name in names:
                    if not name.endswith(('.c', '.h')):
                        continue
                    path = os.path.join(where, name)
                    with open(path, encoding='utf-8') as f:
                        text = f.read()
                    found += ['%s:%d' % (os.path.relpath(path, runner.source), text.count('\n', 0, m.end()) + 1)
                              for m in kept.finditer(text)]
        return Result.fail('assigned: ' + ', '.join(found)) if found else Result.ok()

    def analysis(tool, program_name):
        def function(runner, test):
            if not shutil.which(program_name):
                return Result.skip(program_name + ' is not installed')
            s = Session(runner, test.suite + '.' + test.name, test.timeout, None)
            p = s.start([sys.executable, os.path.join(runner.source, 'scripts', 'analyze.py'), tool, runner.build], cwd=runner.source)
            status, why = s.finish(p)
            s.close()
            if status == 0:
                return Result.ok()
            return Result.fail(why or 'it finds something: see ' + p.path, what_tells_why(p.output()))

        return function

    def unchanged_clang(runner, test):
        if not shutil.which('clang'):
            return Result.skip('clang is not installed')
        return build('source', runner.build + '-clang', runner.build_jobs, ['-Dtests=true', '-Dwerror=true', '-Dbuildtype=debug'],
                     {'CC': 'clang'}).function(runner, test)

    return [Test('source', 'every file has its licence line', spdx, 10),
            Test('source', 'nobody keeps the address of a compound literal', literals, 10),
            Test('source', 'the analyzer of gcc finds nothing', analysis('gcc', 'gcc'), 1200),
            Test('source', 'clang-tidy finds nothing', analysis('tidy', 'clang-tidy'), 2400),
            Test('source', 'clang builds it without a warning', unchanged_clang, 1200)]


def unit(runner):
    return [program('unit', t['name'], t) for t in introspect(runner.build) if suites_of(t) & {'unit', 'stress', 'shell'}]


def moved(entry, here, there):
    """A test of one build directory as it is in another: also where it finds the library (LD_LIBRARY_PATH), or a
    sanitizer's programs would run with the plain one."""

    def move(text):
        return text.replace(here + '/', there + '/')

    return dict(entry, cmd=[move(c) for c in entry['cmd']], env={k: move(v) for k, v in entry['env'].items()},
                workdir=None)


def sanitized(runner, suite, options, env, wrap=(), but=()):
    directory = '%s-%s' % (runner.build, suite)
    tests = [build(suite, directory, runner.build_jobs, ['-Dtests=true', '-Ddebug_checks=true', '-Db_lundef=false'] + options)]
    # Names come from the plain build: the sanitizers' may not exist yet.
    for t in introspect(runner.build):
        if suites_of(t) & {'unit', 'stress'} and not t['name'].startswith(but):
            tests.append(program(suite, t['name'], moved(t, runner.build, directory), env, wrap, factor=4, directory=directory))
    return tests


def asan(runner):
    return sanitized(runner, 'asan', ['-Db_sanitize=address,undefined', '-Dc_args=-fsanitize=float-cast-overflow'], ASAN)


def tsan(runner):
    # ThreadSanitizer does not know address spaces as random as some kernels make them. ib/, the model and the squeeze have no
    # threads; the sanitizer's own memory would be squeezed.
    wrap = ()
    setarch = ['setarch', os.uname().machine, '--addr-no-randomize']
    if shutil.which('setarch') and subprocess.run(setarch + ['true'], stderr=subprocess.DEVNULL).returncode == 0:
        wrap = setarch
    return sanitized(runner, 'tsan', ['-Db_sanitize=thread'], TSAN, wrap, but=('ib/', 'odp/protocol_model', 'tool/squeeze'))


def users(runner):
    return [program('users', strip(t['name']), t) for t in introspect(runner.build) if 'users' in suites_of(t)]


def strip(name):
    return name[len('users/'):] if name.startswith('users/') else name


def fallback(runner):
    """The device's tests once per facility that can be switched off."""
    tests = []
    for value in FALLBACKS:
        env = {'UNPIN_DISABLE': value}
        label = 'no ' + value if ',' not in value else 'none of them'
        for t in introspect(runner.build):
            if 'once' in suites_of(t):
                continue
            if 'users' in suites_of(t) or (t['name'].startswith(KERNEL_ROOMS) and 'unit' in suites_of(t)):
                tests.append(program('fallback', '%s: %s' % (label, strip(t['name'])), t, env))
        from clients import rdmacm, table
        tests += table.few(runner, 'fallback', label + ': ', env)
        tests += rdmacm.few(runner, 'fallback', label + ': ', env)
    return tests


def modes(runner):
    """Programs that must not notice how faults, the notifier and the fabric behave."""
    tests = []
    for label, env in MODES.items():
        env = dict(env, UNPIN_SOAK_SECONDS='4')
        for t in introspect(runner.build):
            wanted = BAD_FABRIC_PROGRAMS if 'UNPIN_LOSS' in env else MODE_PROGRAMS
            if 'users' in suites_of(t) and strip(t['name']) in wanted:
                tests.append(program('modes', '%s: %s' % (label, strip(t['name'])), t, env))
    return tests


def nonroot(runner):
    """The device's tests as somebody without privileges and with a small limit on locked memory."""
    limit = ['prlimit', '--memlock=%d:%d' % (MEMLOCK, MEMLOCK)]
    become = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--inh-caps=-all', '--bounding-set=-all']
    wrap = limit + (become if os.geteuid() == 0 else [])
    stage = Stage() if os.geteuid() == 0 else None
    env = {'HOME': '/tmp'}
    tests = [program('nonroot', strip(t['name']), t, env, wrap, stage=stage) for t in introspect(runner.build)
             if 'users' in suites_of(t) and 'once' not in suites_of(t)]
    from clients import rdmacm, table
    return (tests + table.few(runner, 'nonroot', '', env, wrap, stage)
            + rdmacm.few(runner, 'nonroot', '', env, wrap, stage))


def clients(runner):
    from clients import rdmacm, table
    return table.all(runner) + rdmacm.all(runner)


def pyverbs(runner):
    from clients import rdma_core
    return rdma_core.all(runner)


def kernel(runner):
    from . import kernel as of_the_guest
    return of_the_guest.tests(runner)


# name -> (tests of it, may they run beside each other). In the order of the run: what is quick and basic first.
SUITES = {
    'source': (source, False),
    'unit': (unit, True),
    'users': (users, False),
    'clients': (clients, False),
    'pyverbs': (pyverbs, False),
    'fallback': (fallback, False),
    'modes': (modes, False),
    'nonroot': (nonroot, False),
    'asan': (asan, True),
    'tsan': (tsan, True),
    'kernel': (kernel, False),
}
# Only when they are named: what they need is large.
ON_REQUEST = ('kernel',)


def session(runner, test, env=None):
    return Session(runner, test.suite + '.' + test.name, test.timeout, env)
