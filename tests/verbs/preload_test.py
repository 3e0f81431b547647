#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""libunpin.so in other people's programs, from outside:

    preload_test.py LIBUNPIN EXPECTED SECOND-LIBRARY SECOND-TEST UNTOUCHED OWNERS LISTER ASAN-LISTER|-
"""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile

ARGUMENTS = 9
(LIBRARY, EXPECTED, SECOND_LIBRARY, SECOND_TEST, UNTOUCHED, OWNERS, LISTER, ASAN_LISTER) = \
    [os.path.realpath(a) if a != '-' else None for a in sys.argv[1:ARGUMENTS]]
DEVICE = os.environ.get('UNPIN_DEVICE', 'unpin0')
failed = False


def report(word, name, *notes):
    global failed
    print('[%s] %s' % ({'ok': '       OK ', 'failed': '  FAILED  ', 'skipped': '  SKIPPED '}[word], name))
    for note in notes:
        print('  ' + str(note))
    failed |= word == 'failed'
    sys.stdout.flush()


def check(name, good, *notes):
    report('ok' if good else 'failed', name, *(() if good else notes))


def run(command, preload=(LIBRARY,), **env):
    environment = {k: v for k, v in os.environ.items() if not k.startswith('LD_')}
    environment.update(env)
    if preload:
        environment['LD_PRELOAD'] = ' '.join(preload)
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)


def text(p):
    return p.stdout.decode(errors='replace')


def expected():
    for line in open(EXPECTED):
        fields = line.split('#')[0].split()
        if fields:
            yield ('IBVERBS_' + fields[0].rstrip('*') if fields[0] != 'libc' else None), fields[1]


# --- symbols, as programs look for them ----------------------------------------------------------------------------------

libc = ctypes.CDLL(None)
for function in (libc.dlvsym, libc.dlsym, libc.dlopen):
    function.restype = ctypes.c_void_p
RTLD_NOW, RTLD_NOLOAD, RTLD_DEFAULT = 2, 4, None


def object_at(address):
    """The file that an address is mapped from."""
    for line in open('/proc/self/maps'):
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        if address and start <= address < end:
            return os.path.realpath(line.split()[-1])
    return None


def by_handle():
    """A program that opens us by name, as NCCL can be told to."""
    handle = ctypes.c_void_p(libc.dlopen(LIBRARY.encode(), RTLD_NOW))
    wrong = []
    for node, name in expected():
        if node and object_at(libc.dlvsym(handle, name.encode(), node.encode())) != LIBRARY:
            wrong.append('dlvsym %s %s' % (name, node))
        if object_at(libc.dlsym(handle, name.encode())) != LIBRARY:
            wrong.append('dlsym ' + name)
    return wrong


def by_default():
    """Run preloaded, in a process of its own: what the dynamic linker finds first."""
    return ['%s %s' % (name, node or '') for node, name in expected()
            if object_at(libc.dlvsym(RTLD_DEFAULT, name.encode(), node.encode()) if node else
                         libc.dlsym(RTLD_DEFAULT, name.encode())) != LIBRARY]


def inside(what):
    """Runs the function above preloaded."""
    p = run([sys.executable, __file__] + sys.argv[1:ARGUMENTS] + [what])
    return [] if p.returncode == 0 else [text(p)]


# --- programs ---------------------------------------------------------------------------------------------------------------

def owners():
    """References to libc carry libc's versions; ours, which have none, must serve all of them."""
    p = run([OWNERS])
    wrong = [line for line in text(p).splitlines() if line.split()[1:] != ['libunpin.so']]
    check('calls_of_libc_reach_us_first', p.returncode == 0 and not wrong and 'munmap' in text(p), *wrong)


def untouched():
    plain, preloaded = run([UNTOUCHED], preload=()), run([UNTOUCHED])
    check('a_program_without_verbs_is_not_changed',
          preloaded.returncode == 0 and text(plain) == text(preloaded) and 'threads' in text(plain),
          'without: ' + text(plain), 'with: ' + text(preloaded))
    check('a_program_without_verbs_loads_no_libibverbs', 'libibverbs' not in text(preloaded), text(preloaded))


def children():
    p = run(['sh', '-c', 'env -u NOTHING sh -c "exec \\"\\$0\\" \\"\\$1\\"" "$0" "$1"', LISTER, DEVICE])
    check('children_inherit', p.returncode == 0 and DEVICE in text(p).split(), text(p))


def sanitizer():
    name = 'a_program_with_address_sanitizer_starts'
    if not ASAN_LISTER:
        report('skipped', name, 'the compiler has no AddressSanitizer')
        return
    runtime = re.search(r'(/\S*libasan\S*)', subprocess.run(['ldd', ASAN_LISTER], stdout=subprocess.PIPE).stdout.decode())
    first = (runtime[1],) if runtime else ()  # some compilers link it into the program
    p = run([ASAN_LISTER, DEVICE], preload=first + (LIBRARY,), ASAN_OPTIONS='allow_user_segv_handler=1')
    check(name, p.returncode == 0 and DEVICE in text(p).split() and 'registered' in text(p), text(p))


def second(scratch):
    where = os.path.join(scratch, 'second')
    os.mkdir(where)
    shutil.copy(SECOND_LIBRARY, os.path.join(where, 'libibverbs.so.1'))
    p = run([SECOND_TEST], LD_LIBRARY_PATH=where)
    check('a_second_device_is_listed_beside_ours_and_passed_through', p.returncode == 0, text(p))


def fork_init(scratch):
    """Called before anything is listed, as programs do: passed on if the kernel shows a device, else not needed."""
    where = os.path.join(scratch, 'second')
    devices = os.path.join(scratch, 'sys', 'class', 'infiniband_verbs')
    os.makedirs(devices)
    for name, kernel in (('no_device', ()), ('a_device', ('uverbs0',))):
        for entry in kernel + ('abi_version',):
            open(os.path.join(devices, entry), 'w').close()
        p = run([SECOND_TEST, 'fork', 'passed' if kernel else 'unneeded'], LD_LIBRARY_PATH=where,
                SYSFS_PATH=os.path.join(scratch, 'sys'))
        check('fork_init_with_%s_of_the_kernel' % name, p.returncode == 0, text(p))


def alone(scratch):
    """A library that cannot be loaded is none. The program itself must not need it: the linker would stop it."""
    where = os.path.join(scratch, 'alone')
    os.mkdir(where)
    open(os.path.join(where, 'libibverbs.so.1'), 'w').close()
    p = run([SECOND_TEST + '_alone', 'alone'], preload=(), LD_LIBRARY_PATH=where)
    check('without_a_real_library_our_device_works_alone', p.returncode == 0, text(p))


def main():
    check('dlvsym_of_our_handle_gives_ours', not (wrong := by_handle()), *wrong)
    check('every_name_is_ours_first', not (wrong := inside('by_default')), *wrong)
    owners()
    untouched()
    children()
    sanitizer()
    with tempfile.TemporaryDirectory(prefix='unpin-verbs-') as scratch:
        second(scratch)
        fork_init(scratch)
        alone(scratch)
    return 1 if failed else 0


if __name__ == '__main__':
    if sys.argv[ARGUMENTS:] == ['by_default']:
        problems = by_default()
        print('\n'.join(problems))
        sys.exit(1 if problems else 0)
    sys.exit(main())
