# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What a test program said: how many of its cases passed, failed and were skipped, and why."""
import re


class Result:
    """The outcome of one test: a program, which may hold several cases."""

    def __init__(self, passed=0, failed=0, skipped=0, notes=None, said=None):
        self.passed = passed
        self.failed = failed
        self.skipped = skipped
        self.notes = notes or []    # printed under the test's line
        self.said = said or []      # printed at the end of the run if the test failed: what tells why

    @classmethod
    def ok(cls):
        return cls(passed=1)

    @classmethod
    def fail(cls, why, said=None):
        return cls(failed=1, notes=[why], said=said)

    @classmethod
    def skip(cls, why):
        return cls(skipped=1, notes=[why])

    def word(self):
        if self.failed:
            return 'FAIL'
        return 'ok' if self.passed else 'skip'


# cmocka's standard format, which tests/users/check.c prints too. Passed cases go to stdout and failed ones to stderr, so the
# order of the lines means nothing; failed and skipped names come again in the closing summary.
_CASE = re.compile(r'^\[\s*(OK|FAILED|SKIPPED|ERROR)\s*\] (\S.*)$')
_SUMMARY = re.compile(r'^(tests: |\d+ test\(s\))|test\(s\)')


def parse_cases(text):
    """(passed count, failed names, skipped names) from the output of a test program."""
    passed, failed, skipped = 0, [], []
    for line in text.splitlines():
        m = _CASE.match(line)
        if not m or _SUMMARY.search(m.group(2)):
            continue
        word, name = m.group(1), m.group(2).strip()
        if word == 'OK':
            passed += 1
        elif word == 'FAILED':
            if name not in failed:
                failed.append(name)
        elif word == 'SKIPPED':
            if name not in skipped:
                skipped.append(name)
    return passed, failed, skipped


def from_program(status, text, why_not=''):
    """The Result of a program that exited with status (negative: the signal) and printed text."""
    passed, failed, skipped = parse_cases(text)
    notes = ['failed: ' + n for n in failed] + ['skipped: ' + n for n in skipped]
    nfailed = len(failed)
    if why_not:
        nfailed += 1
        notes.append(why_not)
    elif status == 77 and not (passed or failed):
        return Result(skipped=max(1, len(skipped)), notes=notes or [last_line(text)])
    elif status != 0 and not failed:
        nfailed += 1
        notes.append('killed by signal %d' % -status if status < 0 else 'exit status %d' % status)
    elif status == 0 and not (passed or failed or skipped):
        passed = 1
    return Result(passed, nfailed, len(skipped), notes, what_tells_why(text) if nfailed else None)


def what_tells_why(text, most=30):
    """The last lines that are not about cases that passed: whoever reads of a failure may not have the log."""
    lines = [line[:400] for line in text.splitlines() if line.strip() and not re.match(r'^\[ (RUN|      OK) ', line)]
    return lines[-most:]


def last_line(text):
    lines = [l for l in text.splitlines() if l.strip()]
    return lines[-1] if lines else '(no output)'
