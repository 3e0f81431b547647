#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Beside devices of the kernel's:  kernel_class_test.py UNPIN

In a mount namespace of its own /sys/class is that of a machine with RDMA devices, whose links lead to a directory that any
machine has. Theirs stay in place, and the class lists theirs and ours.
"""
import os
import subprocess
import sys
import tempfile

UNPIN = sys.argv[1]
SCRIPT = r'''
set -e
fake=$1 unpin=$2
mkdir -p "$fake/class/infiniband" "$fake/class/infiniband_verbs/uverbs0" "$fake/class/net" "$fake/class/misc"
ln -s ../../devices/virtual/net/lo "$fake/class/infiniband/mlx5_0"   # a directory that is there
ln -s ../../devices/virtual/net/lo "$fake/class/infiniband/rxe_7"
mount --bind "$fake/class" /sys/class
'''
failed = 0


def inside(script, fake):
    return subprocess.run(['unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', SCRIPT + script, 'sh', fake, UNPIN],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)


def case(name, script, wanted):
    global failed
    with tempfile.TemporaryDirectory(prefix='unpin-class-') as fake:
        probe = inside('exit 0', fake)
        if probe.returncode:
            print('[  SKIPPED ] %s\n  no mount namespace to be had: %s' % (name, probe.stdout.strip()))
            return
    with tempfile.TemporaryDirectory(prefix='unpin-class-') as fake:
        done = inside(script, fake)
    good = done.returncode == 0 and done.stdout.split() == wanted.split()
    print('[%s] %s' % ('       OK ' if good else '  FAILED  ', name))
    if not good:
        failed += 1
        print('  status %d, not "%s" but: %s' % (done.returncode, wanted, done.stdout))


os.environ.pop('UNPIN_DEVICE', None)
case('the_class_lists_theirs_and_ours', '$unpin run -- ls /sys/class/infiniband', 'mlx5_0 rxe_7 unpin0')
case('so_does_find', '$unpin run -- find /sys/class/infiniband/ -type l -name "*[0-9]" | sort',
     '/sys/class/infiniband/mlx5_0 /sys/class/infiniband/rxe_7 /sys/class/infiniband/unpin0')
case('their_links_are_as_they_were', '$unpin run -- readlink /sys/class/infiniband/mlx5_0', '../../devices/virtual/net/lo')
case('their_links_lead_where_they_led', '''
$unpin run -- sh -c 'cd /sys/class/infiniband && ls -dL mlx5_0/mtu && readlink rxe_7 && cat mlx5_0/mtu | wc -l'
''', 'mlx5_0/mtu ../../devices/virtual/net/lo 1')
case('theirs_are_opened_where_they_are', '$unpin run -- realpath /sys/class/infiniband/mlx5_0', '/sys/devices/virtual/net/lo')
case('infiniband_verbs_is_left_alone', '$unpin run -- ls /sys/class/infiniband_verbs', 'uverbs0')
case('theirs_of_our_name_is_the_one_shown', '''
ln -s ../../devices/virtual/net/lo "$fake/class/infiniband/unpin0"
$unpin run -- realpath /sys/class/infiniband/unpin0
$unpin run -- ls /sys/class/infiniband
''', '/sys/devices/virtual/net/lo mlx5_0 rxe_7 unpin0')
case('a_device_that_comes_later_is_listed', '''
FAKE=$fake $unpin run -- bash -c 'p() { for f in /sys/class/infiniband/*; do echo ${f##*/}; done; }
p; ln -s ../../devices/virtual/net/lo $FAKE/class/infiniband/siw0; p'
''', 'mlx5_0 rxe_7 unpin0 mlx5_0 rxe_7 siw0 unpin0')
case('without_a_place_for_it_a_warning_says_so', '''
for place in /tmp /dev/shm; do mount --bind $place $place && mount -o remount,ro,bind $place; done
unset XDG_RUNTIME_DIR
$unpin run -- ls /sys/class/infiniband 2>&1 | sed 's/.*unpin0 is not shown in .sys.class.infiniband.*Read-only.*/warned/'
''', 'warned mlx5_0 rxe_7')
sys.exit(1 if failed else 0)
