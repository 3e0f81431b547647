# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""`unpin top` in a terminal that nobody sees: tmux keeps it, a test reads it and presses keys."""
import os
import shutil
import subprocess
import tempfile
import time

from cases import Skip


class Terminal:
    """args: of unpin top. device: for names of files, and UNPIN_DEVICE."""

    def __init__(self, unpin, device, *args, width=130, height=36, term='screen-256color'):
        if not shutil.which('tmux'):
            raise Skip('tmux is not installed')
        self.folder = tempfile.mkdtemp(prefix=device)
        self.status = os.path.join(self.folder, 'status')
        command = 'TERM=%s UNPIN_DEVICE=%s "%s" top %s; echo $? >"%s"; sleep 600' % (term, device, unpin, ' '.join(args), self.status)
        self.tmux('-f', '/dev/null', 'new-session', '-d', '-x', str(width), '-y', str(height), command)

    def tmux(self, *args):
        return subprocess.run(('tmux', '-S', os.path.join(self.folder, 'socket')) + args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=True, timeout=30, env={k: v for k, v in os.environ.items() if k != 'TMUX'}).stdout

    def screen(self):
        return self.tmux('capture-pane', '-p')

    def press(self, *keys):
        self.tmux('send-keys', *keys)

    def wait(self, condition, what):
        deadline = time.monotonic() + 30
        while True:
            screen = self.screen()
            if condition(screen):
                return screen
            assert time.monotonic() < deadline, 'not %s within 30 s:\n%s' % (what, screen)
            time.sleep(0.1)

    def until(self, *texts):
        return self.wait(lambda s: all(t in s for t in texts), ' and '.join(texts))

    def gone(self, text):
        return self.wait(lambda s: text not in s, 'rid of ' + text)

    def ended(self):
        deadline = time.monotonic() + 20
        while not os.path.exists(self.status) or not os.path.getsize(self.status):
            assert time.monotonic() < deadline, 'it goes on:\n' + self.screen()
            time.sleep(0.05)
        with open(self.status) as f:
            return int(f.read())

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        subprocess.run(('tmux', '-S', os.path.join(self.folder, 'socket'), 'kill-server'), stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder)
