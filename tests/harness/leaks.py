# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What must not be left when the tests are over: processes, sockets of the device, shared memory, swap devices, control
groups, trees that stand for /sys."""
import fcntl
import glob
import os

from .process import TAG, command


class Snapshot:
    def __init__(self):
        self.shm = set(_shm())
        self.sysv = set(_sysv())
        self.swaps = set(_swaps())
        self.trees = set(_trees())

    def leaks(self, prefix):
        """Sentences about what is there now, of this run (whose devices and tags begin with prefix), and was not before."""
        found = ['process %d (%s)' % (pid, command(pid)) for pid in _processes(prefix)]
        found += ['socket ' + name for name in _sockets(prefix)]
        found += ['/dev/shm/' + name for name in set(_shm()) - self.shm if 'unpin' in name or prefix in name]
        found += ['System V segment %s' % key for key in set(_sysv()) - self.sysv]
        found += ['swap on ' + name for name in set(_swaps()) - self.swaps if not _squeezes(name)]
        found += ['file ' + name for name in _swap_files()]
        found += ['control group ' + name for name in _cgroups()]
        # One may be left by a process that was killed or ended by _exit(): whoever makes the next one removes it.
        trees = set(_trees()) - self.trees
        found += ['tree ' + name for name in trees if len(trees) > 1]
        return found


def _swaps():
    try:
        with open('/proc/swaps') as f:
            return [line.split()[0] for line in f.readlines()[1:]]
    except OSError:
        return []


def _squeezes(device):
    """Whether a process that lives now made this swap for a squeeze: its label, at 1052, is unpin-PID."""
    try:
        with open(device, 'rb') as f:
            f.seek(1052)
            label = f.read(16).split(b'\0')[0].decode('ascii', 'replace')
    except OSError:
        return False
    return label.startswith('unpin-') and os.path.exists('/proc/' + label[len('unpin-'):])


def _trees():
    """Those that stand for /sys and that no process holds any more (src/sysfs/tree.h)."""
    found = []
    for place in {os.environ.get('XDG_RUNTIME_DIR') or '/tmp', '/tmp', '/dev/shm'}:
        for name in glob.glob(place + '/unpin-sysfs-*'):
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(name)
            except OSError:
                pass
            os.close(fd)
    return found


def _swap_files():
    """Of squeezes whose process has ended."""
    names = glob.glob('/var/tmp/unpin-squeeze-swap-*')
    return [name for name in names if not os.path.exists('/proc/' + name.rsplit('-', 1)[-1])]


def _cgroups():
    """Of tests whose process has ended (several runs may overlap)."""
    found = []
    for root in ('/sys/fs/cgroup/memory', '/sys/fs/cgroup'):
        try:
            names = os.listdir(root)
        except OSError:
            continue
        for name in names:
            pid = name.rsplit('-', 1)[-1]
            if name.startswith(('unpin-test-', 'unpin-squeeze-')) and not os.path.exists('/proc/' + pid):
                found.append(os.path.join(root, name))
    return found


def _shm():
    try:
        return [name for name in os.listdir('/dev/shm') if not name.startswith('unpin-sysfs-')]
    except OSError:
        return []


def _sysv():
    """Segments whose creator is gone and that nobody has attached."""
    rows = []
    try:
        with open('/proc/sysvipc/shm') as f:
            for line in f.readlines()[1:]:
                field = line.split()
                if field[6] == '0' and not os.path.exists('/proc/' + field[4]):
                    rows.append(field[1])
    except OSError:
        pass
    return rows


def _sockets(prefix):
    """Abstract socket names of this run's devices: unpin/<euid>/<device>/<slot>."""
    names = []
    with open('/proc/net/unix') as f:
        for line in f:
            field = line.split()
            if len(field) > 7 and field[7].startswith('@unpin/') and ('/%sx' % prefix) in field[7]:
                names.append(field[7])
    return names


def _processes(prefix):
    want = ('%s=%s-' % (TAG, prefix)).encode()
    found = []
    for pid in os.listdir('/proc'):
        if pid.isdigit():
            try:
                with open('/proc/%s/environ' % pid, 'rb') as f:
                    if any(v.startswith(want) for v in f.read().split(b'\0')):
                        found.append(int(pid))
            except OSError:
                continue
    return found
