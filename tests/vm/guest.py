# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
A guest with a kernel of its own, emulated by QEMU: start it, run commands in it, stop it. README.md beside this tells more.

A guest lives in a folder: what the host shares with it (host/, which is /host inside), the pipe that commands go through, its
console, its process id. Whoever knows the folder can use it; several guests do not know of each other.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.realpath(__file__))
BOOT_SECONDS = 180
MEMORY_MIB = 3072


class GuestError(Exception):
    """The guest cannot be built, does not start, or has ended."""


class NoGuest(GuestError):
    """It cannot be built here, and that is nobody's mistake: the mirror lacks something or cannot be reached."""


def image(directory=None):
    """The folder with the image of the recipe as it is now, built if it has to be."""
    p = subprocess.run([os.path.join(HERE, 'build')] + ([directory] if directory else []), stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise (NoGuest if p.returncode == 77 else GuestError)(p.stderr.strip() or 'status %d' % p.returncode)
    return p.stdout.split('\n')[0]


class Done:
    """What came of a command. status is None when it did not end in time (it was ended then)."""

    def __init__(self, status, output, seconds):
        self.status = status
        self.output = output
        self.seconds = seconds


class Guest:
    def __init__(self, folder):
        self.folder = os.path.realpath(folder)
        self.shared = os.path.join(self.folder, 'host')
        self.child = None

    # --- life ---

    def start(self, files, memory=MEMORY_MIB, cpus=2, arguments='', env=None):
        """Boots the image in the folder files; returns the seconds until commands could be run. The folder must be new."""
        os.makedirs(os.path.join(self.shared, 'jobs'))
        for end in ('in', 'out'):
            os.mkfifo(self._path('jobs.' + end))
        command = [
            'qemu-system-x86_64', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-m', '%dM' % memory, '-smp', str(cpus),
            '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-nic', 'none',
            '-kernel', os.path.join(files, 'vmlinuz'), '-initrd', os.path.join(files, 'initrd'),
            '-append', 'console=ttyS0 quiet panic=-1 mitigations=off ' + arguments,
            '-drive', 'file=%s,if=none,id=root,format=raw,readonly=on' % os.path.join(files, 'root.squashfs').replace(',', ',,'),
            '-device', 'virtio-blk-pci,drive=root',
            '-fsdev', 'local,id=host,path=%s,security_model=none,multidevs=remap' % self.shared.replace(',', ',,'),
            '-device', 'virtio-9p-pci,fsdev=host,mount_tag=host',
            '-device', 'virtio-serial-pci', '-chardev', 'pipe,id=jobs,path=' + self._path('jobs').replace(',', ',,'),
            '-device', 'virtserialport,chardev=jobs,name=jobs', '-device', 'virtio-rng-pci',
            '-serial', 'file:' + self._path('console').replace(',', ',,')]
        started = time.monotonic()
        with open(self._path('qemu.log'), 'wb') as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                          start_new_session=True)
        with open(self._path('pid'), 'w') as f:
            f.write('%d\n' % self.child.pid)
        try:
            while not os.path.exists(os.path.join(self.shared, 'ready')):
                if not self.alive():
                    raise GuestError('the guest ended while it started: ' + self._last_words())
                if time.monotonic() - started > BOOT_SECONDS:
                    raise GuestError('the guest is not there after %d s: %s' % (BOOT_SECONDS, self._last_words()))
                time.sleep(0.05)
        except BaseException:
            self._kill()
            raise
        return time.monotonic() - started

    def alive(self):
        if self.child:
            return self.child.poll() is None
        try:
            with open('/proc/%d/cmdline' % self._pid(), 'rb') as f:
                return self.shared.encode() in f.read()     # and nobody else who has its number by now
        except (OSError, ValueError):
            return False

    def stop(self):
        """Shuts the guest down, or ends it when it does not listen; its folder goes."""
        if self.alive():
            with contextlib.suppress(OSError):
                self._say('off')
            deadline = time.monotonic() + 20
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.05)
        self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- use ---

    def put(self, path, name=None):
        """Copies a file to where the guest sees it as /host/NAME."""
        shutil.copy(path, os.path.join(self.shared, name or os.path.basename(path)))

    def run(self, command, timeout=60):
        """Runs a command of bash in the guest, as root. Raises GuestError when the guest ends meanwhile."""
        name = 'job-%d-%d' % (os.getpid(), time.monotonic_ns())
        folder = os.path.join(self.shared, 'jobs', name)
        os.makedirs(folder)
        # What is too slow is ended inside, so that nothing of it goes on; the host waits a little longer.
        with open(os.path.join(folder, 'script'), 'w') as f:
            f.write(command + '\n')
        with open(os.path.join(folder, 'command'), 'w') as f:
            f.write('exec timeout -k 5 %d bash /host/jobs/%s/script\n' % (timeout, name))
        started = time.monotonic()
        self._say(name)
        while not os.path.exists(os.path.join(folder, 'status')):
            if not self.alive():
                raise GuestError('the guest ended: ' + self._last_words())
            if time.monotonic() - started > timeout + 30:
                raise GuestError('the guest does not answer: ' + self._last_words())
            time.sleep(0.02)
        with open(os.path.join(folder, 'status')) as f:
            status = int(f.read())
        with open(os.path.join(folder, 'output'), errors='replace') as f:
            output = f.read()
        shutil.rmtree(folder, ignore_errors=True)
        return Done(None if status in (124, 137) else status, output, time.monotonic() - started)

    # --- inside ---

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _pid(self):
        with open(self._path('pid')) as f:
            return int(f.read())

    def _say(self, line):
        # Not blocking: a guest that is gone has no reader any more.
        fd = os.open(self._path('jobs.in'), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, (line + '\n').encode())
        finally:
            os.close(fd)

    def _last_words(self):
        said = []
        for name in ('qemu.log', 'console'):
            with contextlib.suppress(OSError), open(self._path(name), errors='replace') as f:
                said += [line.strip() for line in f.read().split('\n') if line.strip()][-4:]
        return ' | '.join(said) or 'it said nothing'

    def _kill(self):
        if self.alive():
            with contextlib.suppress(OSError, ValueError):
                os.kill(self.child.pid if self.child else self._pid(), signal.SIGKILL)
        if self.child:
            self.child.wait()
