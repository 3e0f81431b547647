#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
analyze.py gcc|tidy BUILD [FILE...]

Static analysis with the compile commands of a configured build directory: by gcc, with -fanalyzer and with warnings that are too
slow or too eager for every build, and by clang-tidy. Prints what they find; the exit status is 0 if that is nothing. FILE: only
these (relative to the source tree).

gcc looks at src/ only: its analyzer does not know that cmocka's assertions end a test. clang-tidy looks at everything; what it looks
for, and what is silenced and why, is in .clang-tidy and tests/.clang-tidy.
"""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# -fanalyzer reads the program as it was written only where nothing is optimised: at -O2 gcc has dropped a malloc() that is freed
# twice before it looks.
ANALYZER = ['-O0', '-U_FORTIFY_SOURCE', '-fanalyzer']
# These follow values through inlined functions.
WARNINGS = ['-O2', '-Wdangling-pointer=2', '-Wuse-after-free=3', '-Wstringop-overflow=4', '-Warray-bounds=2', '-Wformat=2',
            '-Wformat-overflow=2', '-Wduplicated-cond', '-Wlogical-op', '-Walloc-zero', '-Wnull-dereference', '-Wpointer-arith',
            '-Wwrite-strings',
            # Formats come from tables (report.c, advise_words.c), whose types the callers keep.
            '-Wno-format-nonliteral']

# What gcc says wrongly: file, warning, why.
GCC_KNOWN = [
    ('src/cm/table.c', 'analyzer-malloc-leak', 'it is on a list from then on: gcc does not follow lists'),
    ('src/base/list.h', 'analyzer-malloc-leak', 'the same, where it is put on the list'),
    ('src/mm/residency.c', 'analyzer-use-of-uninitialized-value', 'the kernel fills the array, by a system call that gcc does not know'),
    ('src/nic/qp.c', 'analyzer-malloc-leak', 'the ring belongs to the row, which the table keeps'),
    ('src/tool/report.c', 'analyzer-file-leak', 'the stream is stdout, or is closed'),
    ('src/tool/report.c', 'analyzer-malloc-leak', 'the stream is stdout, or is closed'),
    ('src/tool/top_gather.c', 'analyzer-file-leak', 'the file is closed whenever it was opened'),
    ('src/tool/top_gather.c', 'analyzer-malloc-leak', 'the file is closed whenever it was opened'),
    ('src/tool/rdmanl_answer.c', 'analyzer-null-dereference', 'no byte is looked at where there is no attribute: its length is 0'),
    ('src/wire/guest.c', 'analyzer-double-free', 'a node is unlinked before it is freed: gcc does not follow lists'),
    ('src/wire/meet.c', 'analyzer-null-dereference', 'CMSG_FIRSTHDR() of a buffer that has room for a header'),
    ('src/wire/peer.c', 'analyzer-use-after-free', 'a peer is unlinked before it is freed: gcc does not follow lists'),
]
FINDING = re.compile(r'^(?P<file>[^:\s]+):\d+:\d+: (warning|error): .*\[-W(?P<name>[^\]=]+)(=[^\]]*)?\]$')


def commands(build):
    """file -> (directory, words of its compile command); a file that is built twice is looked at once."""
    with open(os.path.join(build, 'compile_commands.json')) as f:
        entries = json.load(f)
    found = {}
    for e in entries:
        path = os.path.relpath(os.path.join(e['directory'], e['file']), SOURCE)
        if path.endswith('.c') and not path.startswith('..'):
            found.setdefault(path, (e['directory'], shlex.split(e['command'])))
    return found


def without_outputs(words):
    """The command, without ccache, optimisation level and the files that it writes."""
    kept, skip = [], False
    for w in words:
        if skip or w in ('-MD', '-MQ', '-MF', '-o') or re.match(r'-O.$', w):
            skip = w in ('-MQ', '-MF', '-o')
        elif not kept and os.path.basename(w) == 'ccache':
            continue
        else:
            kept.append(w)
    return kept


def gcc(path, directory, words):
    command = without_outputs(words)
    command[0] = 'gcc'
    found = []
    for options in (ANALYZER, WARNINGS):
        p = subprocess.run(command + options + ['-fdiagnostics-plain-output', '-o', '/dev/null'], cwd=directory,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in p.stdout.splitlines():
            m = FINDING.match(line)
            if not m:
                continue
            file = os.path.relpath(os.path.join(directory, m['file']), SOURCE)
            if not any(file == f and m['name'] == name for f, name, _ in GCC_KNOWN):
                found.append(file + line[len(m['file']):])
        if p.returncode and not found:
            found = p.stdout.splitlines() or ['%s: gcc failed' % path]
    return found


def tidy(path, directory, words, build):
    p = subprocess.run(['clang-tidy', '-p', build, '--quiet', path], cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return p.stdout.splitlines() + (p.stderr.splitlines() if p.returncode and not p.stdout else [])


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ('gcc', 'tidy'):
        sys.exit(__doc__.strip())
    tool, build, only = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
    program = 'gcc' if tool == 'gcc' else 'clang-tidy'
    if not shutil.which(program):
        sys.exit('unpin: %s is missing; install it with: scripts/deps.sh install test' % program)
    if not os.path.exists(os.path.join(build, 'compile_commands.json')):
        sys.exit('unpin: %s is not configured: run make first' % build)
    files = {p: c for p, c in commands(build).items() if (p in only or not only) and (tool == 'tidy' or p.startswith('src/'))}
    if not files:
        sys.exit('unpin: there is nothing to look at')

    def look(path):
        directory, words = files[path]
        return gcc(path, directory, words) if tool == 'gcc' else tidy(path, directory, words, build)

    found = []
    # The large files first: they take longest.
    order = sorted(files, key=lambda p: -os.path.getsize(os.path.join(SOURCE, p)))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for lines in pool.map(look, order):
            for line in lines:
                if line not in found:
                    print(line, flush=True)
                    found.append(line)
    print('%s: %d files, %s' % (program, len(files), 'clean' if not found else '%d lines' % len(found)))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
