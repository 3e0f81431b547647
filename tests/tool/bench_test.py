#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
`unpin bench` and `unpin stat` from outside, on unpin's device. usage: bench_test.py UNPIN

Figures are never judged here, for the machine may be busy: what is there, what must be zero, and what must add up is.
"""
import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from cases import NOBODY, Everyones, Skip, run_all, start  # noqa: E402
from report_folder import check_report, names, read        # noqa: E402

UNPIN = os.path.realpath(sys.argv[1])
DEVICE = 'bt%d' % os.getpid()
ENV = dict(os.environ, UNPIN_DEVICE=DEVICE)
ENV.pop('LD_PRELOAD', None)
MIB = 1 << 20


def run(*args, want=0, wrap=(), timeout=200, program=UNPIN):
    return start(list(wrap) + [program] + list(args), ENV, want, timeout)


def bench(*args):
    return json.loads(run('bench', '--quick', '--pairs', '3', '--json', '-', *args).stdout)


class Background:
    """A bench that goes on until it is interrupted, and its second process."""

    def __init__(self, *args, env=ENV):
        self.p = subprocess.Popen([UNPIN, 'bench', '--pairs', '1001', '--only', 'latency', '--json', '-'] + list(args), env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait(lambda: len(self.seen()) == 2 and all(s['memory_regions'] == 2 and s['counters']['tx_packets'] > 100
                                                        for s in self.seen()))

    def wait(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert self.p.poll() is None, 'the bench ended: ' + self.p.stderr.read()
            assert time.monotonic() < deadline, 'nothing happens: %s' % self.seen()
            time.sleep(0.05)

    @staticmethod
    def seen():
        return [s for s in json.loads(run('stat', '--json').stdout) if s['device'] == DEVICE]

    def other(self):
        return [s['pid'] for s in self.seen() if s['pid'] != self.p.pid][0]

    def finish(self, sig=signal.SIGINT):
        if self.p.poll() is None:
            self.p.send_signal(sig)
        out, err = self.p.communicate(timeout=60)
        return self.p.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.p.poll() is None:
            self.p.kill()
            self.p.communicate()


def positive(row, *keys):
    for key in keys:
        assert row.get(key, 0) > 0, '%s is not above 0 in %s' % (key, row)


def registration_takes_no_memory_on_demand_and_all_of_it_pinned():
    rows = bench('--only', 'registration', '--size', '16M,64M')['parts']['registration']['rows']
    assert len(rows) == 8, rows
    for row in rows:
        positive(row, 'size_bytes', 'register_p50_us', 'register_p99_us', 'deregister_p50_us', 'repetitions_count')
        grown = row['vm_pin_delta_bytes'] + row['vm_lck_delta_bytes']
        if row['region'] == 'on demand':
            assert grown == 0 and row['vm_rss_delta_bytes'] < MIB, row
        else:
            assert grown == row['size_bytes'], row
            assert row['memory'] == 'touched' or row['vm_rss_delta_bytes'] > row['size_bytes'] * 0.9, row
            positive(row, 'pinned_over_on_demand_ratio', 'pinned_over_on_demand_q1_ratio', 'pinned_over_on_demand_q3_ratio')
        assert row['vm_pin_after_bytes'] == row['vm_pin_before_bytes'], row


def every_part_of_the_basics_has_its_figures():
    result = bench('--only', 'first-touch,streaming,latency,bandwidth,idle,page-table')
    parts = result['parts']
    assert not result['interrupted'] and result['device'] == DEVICE and result['format'] == 1
    assert list(parts) == ['first_touch', 'streaming', 'latency', 'bandwidth', 'idle', 'page_table'], list(parts)
    for row in parts['first_touch']['rows']:
        positive(row, 'cold_p50_us', 'cold_p99_us', 'warm_p50_us', 'samples_count')
    assert len(parts['first_touch']['rows']) == 4
    assert len(parts['streaming']['rows']) == 5
    for row in parts['streaming']['rows']:
        positive(row, 'rate_gb_per_s', 'over_pinned_ratio', 'over_populate_memcpy_ratio', 'over_ring_ratio')
    assert len(parts['latency']['rows']) == 3
    for row in parts['latency']['rows']:
        positive(row, 'on_demand_p50_us', 'pinned_p50_us', 'on_demand_over_pinned_ratio', 'round_trips_count')
    for row in parts['bandwidth']['rows']:
        positive(row, 'on_demand_gb_per_s', 'pinned_gb_per_s', 'ring_gb_per_s', 'over_ring_ratio')
    assert len(parts['idle']['rows']) == 2
    dense, given_back, sparse = parts['page_table']['rows']
    positive(dense, 'table_bytes', 'leaves_count', 'table_per_page_bytes')
    assert sparse['leaves_count'] <= sparse['pages_count'], sparse
    for part in parts.values():
        assert part['title'] and part['meaning'] and part['targets'], part
        for target in part['targets']:
            assert isinstance(target['met'], bool) and ('at_most' in target) != ('at_least' in target), target


def the_parts_about_page_faults_have_their_figures():
    result = bench('--only', 'faults,invalidation,implicit,fault-modes,pitfalls')
    parts = result['parts']
    assert list(parts) == ['faults', 'invalidation', 'implicit', 'fault_modes', 'pitfalls'], list(parts)
    row, = parts['faults']['rows']
    positive(row, 'pages_count', 'device_pages_per_s', 'processor_pages_per_s', 'over_processor_ratio')
    rows = parts['invalidation']['rows']
    seen = {(r['notifier'], r.get('operation')) for r in rows}
    for operation in ('DONTNEED of a page, and its use', 'munmap of 1 TiB, untouched', 'DONTNEED of 1 TiB, untouched'):
        assert ('interpose', operation) in seen and ('none', operation) in seen, rows
    # A notifier that this machine does not have is named with the reason.
    assert {r['notifier'] for r in rows} == {'interpose', 'userfaultfd', 'none'}, rows
    for row in rows:
        if 'note' not in row:
            positive(row, 'with_us', 'without_us', 'samples_count')
    latency, bandwidth = parts['implicit']['rows']
    positive(latency, 'explicit_us', 'implicit_us', 'implicit_over_explicit_time_ratio')
    positive(bandwidth, 'explicit_gb_per_s', 'implicit_gb_per_s', 'implicit_over_explicit_time_ratio')
    assert [r['outstanding_count'] for r in parts['fault_modes']['rows']] == [1, 64, 4096], parts['fault_modes']
    for row in parts['fault_modes']['rows']:
        positive(row, 'precise_us', 'imprecise_us', 'imprecise_over_precise_ratio')
    assert [r['fault_reply'] for r in parts['pitfalls']['rows']] == ['park'] * 8 + ['rnr'] * 8, parts['pitfalls']
    for row in parts['pitfalls']['rows']:
        positive(row, 'cold_us', 'warm_us', 'samples_count')
        assert row['fault_reply'] == 'rnr' or row['rnr_per_fault_count'] == 0, row
    assert sum(r['rnr_per_fault_count'] for r in parts['pitfalls']['rows']) > 0, parts['pitfalls']
    for part in parts.values():
        assert part['title'] and part['meaning'], part


def the_text_says_what_each_part_means():
    text = run('bench', '--quick', '--pairs', '3', '--only', 'bandwidth').stdout
    for words in ('device ' + DEVICE, 'Bandwidth', 'WRITE 64 KiB', 'of the bare ring', 'target: at least'):
        assert words in text, '%r is not in:\n%s' % (words, text)
    assert '\r' not in text and not any(line != line.rstrip() for line in text.splitlines()), text


def a_small_limit_on_locked_memory_is_explained():
    # Root is not bound by the limit.
    wrap = ('prlimit', '--memlock=65536:65536') + (NOBODY if os.geteuid() == 0 else ())
    with Everyones(UNPIN) if os.geteuid() == 0 else contextlib.nullcontext(UNPIN) as program:
        result = json.loads(run('bench', '--quick', '--pairs', '3', '--json', '-', '--only', 'registration', '--size', '16M',
                                wrap=wrap, program=program).stdout)
    part = result['parts']['registration']
    assert any('ulimit -l' in n for n in part['notes']), part
    assert all('register_p50_us' in r for r in part['rows'] if r['region'] == 'on demand'), part


LEFT = ['/sys/fs/cgroup/memory/unpin-squeeze-%d', '/sys/fs/cgroup/unpin-squeeze-%d', '/var/tmp/unpin-squeeze-swap-%d']
LONG = ['sizes', 'distribution', 'prefetch', 'scaling', 'held', 'reuse', 'squeeze']


PROBE = """<script>
window.problems = [];
window.onerror = function (what) { window.problems.push(what); };
window.onload = function () {
  const empty = [], cut = [];
  for (const svg of document.querySelectorAll('svg')) {
    const box = svg.viewBox.baseVal, marks = svg.querySelectorAll('[class^=f], .n');
    if (![...marks].some(m => m.getTotalLength() > 1)) empty.push(svg.getAttribute('aria-label'));
    for (const text of svg.querySelectorAll('text')) {
      const b = text.getBoundingClientRect(), s = svg.getBoundingClientRect();
      if (b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1)
        cut.push(text.textContent);
    }
  }
  const out = document.createElement('pre');
  out.id = 'told';
  out.textContent = JSON.stringify({svgs: document.querySelectorAll('svg').length, empty: empty, cut: cut,
    problems: window.problems, wide: document.documentElement.scrollWidth > window.innerWidth});
  document.body.appendChild(out);
};
</script>"""


def look_at(folder, svgs):
    """The page in a browser: every plot is drawn, no text is cut off. A copy of it, with a script that looks."""
    browser = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
    if not browser:
        raise Skip('the report is there, but there is no Chromium to look at its page')
    with tempfile.TemporaryDirectory() as scratch:
        copy = os.path.join(scratch, 'copy.html')
        with open(copy, 'w', encoding='utf-8') as f:
            f.write(read(folder, 'index.html').replace('</head>', PROBE + '</head>'))
        p = subprocess.run([browser, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
                            '--disable-background-networking', '--disable-component-update', '--disable-sync',
                            '--user-data-dir=' + scratch, '--window-size=1100,900', '--dump-dom', 'file://' + copy], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        told = re.search(r'<pre id="told">(.*?)</pre>', p.stdout, re.S)
        assert told, 'the browser shows no page: ' + p.stderr[-500:]
        told = json.loads(html.unescape(told.group(1)))
        assert told == {'svgs': svgs, 'empty': [], 'cut': [], 'problems': [], 'wide': False}, told


def a_report_has_its_page_plots_and_figures():
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, 'report')
        only = ['streaming', 'latency', 'bandwidth', 'invalidation'] + LONG
        p = run('bench', '--quick', '--pairs', '3', '--report', folder, '--only', ','.join(only))
        assert folder + '/index.html' in p.stdout, p.stdout[-300:]
        result, svgs = check_report(folder)
        parts = result['parts']
        assert list(parts) == only + ['advice'], list(parts)
        assert result['finished'] and 'This report is partial' not in read(folder, 'index.html')
        assert result['processor'] and result['started'].endswith('UTC'), result
        for row in parts['sizes']['rows']:
            positive(row, 'size_bytes', 'pinned_us', 'on_demand_us', 'on_demand_prefetch_us')
        assert len(parts['sizes']['rows']) >= 5
        for row in parts['distribution']['rows']:
            positive(row, 'p50_us', 'p90_us', 'p99_us', 'max_us', 'samples_count')
            assert row['p50_us'] <= row['p90_us'] <= row['p99_us'] <= row['p999_us'] <= row['max_us'], row
        if len(parts['distribution']['rows']) == 4:
            # The file was read from the disk again: almost every touch of it was a major fault by the kernel's own count.
            for row in parts['distribution']['rows'][2:]:
                assert row['fault'] == 'major' and row['kernel_major_count'] > 0.9 * row['samples_count'], row
        else:
            assert 'No major faults' in parts['distribution']['notes'][0], parts['distribution']
        for row in parts['prefetch']['rows']:
            positive(row, 'rate_gb_per_s', 'over_cold_ratio')
        assert {(r['of'], r['number_count']) for r in parts['scaling']['rows']} == {
            ('queue pairs', 1), ('queue pairs', 4), ('queue pairs', 16), ('queue pairs', 64), ('threads', 1), ('threads', 2),
            ('threads', 4), ('threads', 8)}, parts['scaling']['rows']
        pinned, on_demand = parts['held']['rows']
        assert pinned['vm_pin_delta_bytes'] == 2 * pinned['length_bytes'] and on_demand['vm_pin_delta_bytes'] == 0, parts['held']
        # What was used, page tables, and what is rounded; never all of it.
        assert on_demand['vm_rss_delta_bytes'] < 2 * on_demand['hot_bytes'] < pinned['vm_rss_delta_bytes'], parts['held']
        assert {r['size_bytes'] for r in parts['reuse']['rows']} == {65536, MIB, 16 * MIB}, parts['reuse']['rows']
        if parts['squeeze']['rows']:
            assert [r['what'] for r in parts['squeeze']['rows']] == ['sweep'] * 9 + [
                'before the squeeze', 'squeezed', 'after the squeeze'], parts['squeeze']['rows']
            last = parts['squeeze']['rows'][8]
            assert last['of_limit_percent'] > 199 and last['major_faults_per_s'] > 0, last
        else:
            assert 'Not measured' in parts['squeeze']['notes'][0], parts['squeeze']
        advice = ' '.join(parts['advice']['notes'])
        for words in ('Break-even for a buffer of 1 MiB', 'When on demand pays', 'What prefetch saves', 'What a first touch costs'):
            assert words in advice, (words, advice)
        left = [name % p.pid for name in LEFT if os.path.exists(name % p.pid)]
        assert not left, '%s was left' % left
        # Two runs of the same: every figure stands beside itself.
        same = run('bench', '--compare', folder + '/bench.json', folder + '/bench.json').stdout
        assert 'Registration time against size' in same and 'B / A' in same and 'Only in one' not in same, same[:500]
        assert {line.split()[-1] for line in same.splitlines() if re.search(r'_(us|per_s|ratio) ', line)} <= {'1', '-'}, same
        look_at(folder, svgs)


def a_report_is_not_written_over_other_things():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'thesis.txt'), 'w') as f:
            f.write('mine')
        p = run('bench', '--quick', '--only', 'bandwidth', '--report', folder, want=1)
        assert 'thesis.txt' in p.stderr and names(folder) == {'thesis.txt'}, p.stderr
    p = run('bench', '--quick', '--only', 'bandwidth', '--report', '/proc/nosuch/folder', want=1)
    assert 'cannot make the folder' in p.stderr, p.stderr


def a_report_replaces_the_one_of_before_and_says_so():
    with tempfile.TemporaryDirectory() as folder:
        run('bench', '--quick', '--pairs', '3', '--only', 'bandwidth', '--report', folder)
        assert 'bandwidth_plot.svg' in names(folder)
        p = run('bench', '--quick', '--pairs', '3', '--only', 'page-table', '--report', folder)
        assert 'is replaced' in p.stderr, p.stderr
        assert 'bandwidth_plot.svg' not in names(folder) and 'bandwidth.csv' not in names(folder), names(folder)
        check_report(folder)


def an_interrupted_report_is_valid_and_says_so():
    for sig in (signal.SIGINT, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.Popen([UNPIN, 'bench', '--quick', '--pairs', '1001', '--only', 'page-table,prefetch,reuse', '--report', folder],
                                 env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                deadline = time.monotonic() + 60
                # A part was written, and another is being measured.
                while 'page_table.csv' not in names(folder):
                    assert p.poll() is None and time.monotonic() < deadline, 'nothing is written'
                    time.sleep(0.05)
                time.sleep(1)
                assert 'This report is partial' in read(folder, 'index.html')
                p.send_signal(sig)
                out, err = p.communicate(timeout=60)
                assert p.returncode == 130, (p.returncode, err)
            finally:
                p.kill()
                p.communicate()
            result, _ = check_report(folder)
            assert result['interrupted'] and not result['finished'], result
            assert result['parts']['prefetch']['rows'], result['parts']
            assert 'the measurement was interrupted' in read(folder, 'index.html')


def runs_of_another_format_are_not_compared():
    with tempfile.TemporaryDirectory() as folder:
        good, newer, other = (os.path.join(folder, n) for n in ('good.json', 'newer.json', 'other.json'))
        for path, value in ((good, {'format': 1, 'device': 'x', 'parts': {}}), (newer, {'format': 2, 'device': 'x', 'parts': {}}),
                            (other, {'traceEvents': []})):
            with open(path, 'w') as f:
                json.dump(value, f)
        run('bench', '--compare', good, good)
        p = run('bench', '--compare', good, newer, want=1)
        assert newer in p.stderr and 'format 2' in p.stderr and not p.stdout, p.stderr
        p = run('bench', '--compare', other, good, want=1)
        assert other in p.stderr and 'not a report' in p.stderr, p.stderr
    assert 'No such file' in run('bench', '--compare', '/no/such', '/no/such', want=1).stderr
    assert 'two files' in run('bench', '--compare', '/no/such', want=2).stderr


def a_terminal_sees_a_bar_and_a_file_does_not():
    primary, secondary = os.openpty()
    p = subprocess.Popen([UNPIN, 'bench', '--quick', '--pairs', '3', '--only', 'page-table,bandwidth', '--json', '-'], env=ENV,
                         stdout=subprocess.PIPE, stderr=secondary)
    os.close(secondary)
    seen = b''
    with contextlib.suppress(OSError):          # the other end is closed when the bench has ended
        while True:
            some = os.read(primary, 4096)
            if not some:
                break
            seen += some
    out, _ = p.communicate(timeout=100)
    os.close(primary)
    assert p.returncode == 0 and json.loads(out), p.returncode
    assert b'[....................] 1/2 ' in seen and b'[##########..........] 2/2 ' in seen, seen[:400]
    assert max(len(line) for line in re.split(rb'\r|\x1b\[K', seen)) < 80, seen[:400]


def a_device_that_is_not_there_is_named():
    p = run('bench', '-d', 'nosuch0', want=1)
    assert "no RDMA device 'nosuch0'" in p.stderr and 'unpin bench -d unpin0' in p.stderr, p.stderr


def wrong_command_lines_are_refused():
    assert 'did you mean bandwidth' in run('bench', '--only', 'bandwith', want=2).stderr
    assert '--pairs' in run('bench', '--pairs', '1', want=2).stderr
    assert '--size' in run('bench', '--size', '16X', want=2).stderr
    assert 'not understood' in run('bench', 'quick', want=2).stderr
    assert 'did you mean --quick' in run('bench', '--quik', want=2).stderr


def a_file_that_cannot_be_written_is_an_error():
    p = run('bench', '--quick', '--pairs', '3', '--only', 'registration', '--size', '16M', '--json', '/no/such/file', want=1)
    assert 'cannot write /no/such/file' in p.stderr, p.stderr


def an_interrupt_prints_what_was_measured():
    with Background() as b:
        time.sleep(1)
        status, out, err = b.finish()
        assert status == 130, (status, err)
        assert json.loads(out)['interrupted'] is True, out


def the_death_of_the_second_process_ends_the_bench():
    with Background() as b:
        other = b.other()
        os.kill(other, signal.SIGKILL)
        status, _, err = b.finish(0)
        assert status == 1, (status, err)
        assert 'latency:' in err, err
        assert not os.path.exists('/proc/%d' % other)


def the_death_of_the_first_process_ends_the_second():
    with Background() as b:
        other = b.other()
        b.finish(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(s['pid'] == other for s in b.seen()):
            assert time.monotonic() < deadline, 'it lives'
            time.sleep(0.05)


def stat_shows_a_running_process():
    # Another run of the tests may make the whole machine wait for memory meanwhile.
    with Background(env=dict(ENV, UNPIN_STORM_STALL='0')) as b:
        for s in b.seen():
            pid = str(s['pid'])
            first = json.loads(run('stat', pid, '--json').stdout)
            assert first['pid'] == s['pid'] and first['queue_pairs'] == 1 and first['memory_regions'] == 2, first
            kinds = sorted(r['kind'] for r in first['regions'])
            assert kinds == ['odp', 'pinned'], first['regions']
            assert all(r['length_bytes'] == 4096 and r['lkey'] for r in first['regions']), first['regions']
            assert sum(r['counters']['bytes_in'] for r in first['regions']) > 0
            assert set(first['fault_steps']) == {'minor', 'major'}
            for speed in first['fault_steps'].values():
                assert set(speed) == {'queue', 'resolve', 'resume', 'total'}, speed
                for step in speed.values():
                    assert step['p50_ns'] <= step['p99_ns'] <= step['max_ns'], speed
            assert (first['profile'], first['notifier']) == ('unpin', 'interpose'), first
            assert (first['fault_mode'], first['fault_reply']) == ('precise', 'park'), first
            assert first['open_ns'] > 0, first
            assert first['storm']['on'] is False and first['storm']['count'] == 0 and first['storm']['cause'] == 'none', first
            assert first['storm']['began_ago_ns'] is None and first['storm']['ended_ago_ns'] is None, first
            assert {'faults_imprecise', 'faults_rnr', 'faults_crowded', 'page_readahead', 'page_prefetch_dropped'} <= set(first['odp'])
            assert {'tx_lost', 'tx_reordered', 'tx_delayed'} <= set(first['counters'])
            b.wait(lambda: json.loads(run('stat', '-j', pid).stdout)['counters']['tx_packets'] > first['counters']['tx_packets'])
            text = run('stat', pid).stdout
            for words in ('device ' + DEVICE, 'page_faults', 'Memory regions', 'pinned', 'odp', 'storm: off; none so far',
                          'profile unpin, notifier interpose, fault mode precise, fault reply park'):
                assert words in text, '%r is not in:\n%s' % (words, text)
        text = run('stat').stdout
        assert DEVICE in text and 'processes' in text, text


def a_timeline_has_faults_posts_and_completions_of_both_processes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'trace.json')
        with open(path, 'w') as f:
            f.write('of another run')
        run('run', '--device', DEVICE, '--trace', path, '--', UNPIN, 'bench', '--quick', '--only', 'first-touch', '--json', '-')
        # The second process may end after the command; a timeline is done when its spool has gone.
        deadline = time.monotonic() + 60
        while any(name.endswith('.spool') for name in os.listdir(folder)) and time.monotonic() < deadline:
            time.sleep(0.02)
        files = sorted(os.listdir(folder))
        # The command, its second process, and no other.
        assert len(files) == 2 and files[0] == 'trace.json' and files[1].startswith('trace.json.'), files
        seen = {}
        for name in files:
            with open(os.path.join(folder, name)) as f:
                events = json.load(f)
            assert events[0]['name'] == 'process_name' and events[0]['args']['name'] == 'unpin', events[0]
            named = {e['tid'] for e in events if e['name'] == 'thread_name'}
            last = {}
            for e in events:
                seen[e['name'], e['ph']] = seen.get((e['name'], e['ph']), 0) + 1
                # What is told of regions comes from whichever thread tells it, once a second.
                if e['ph'] == 'i' and not e['name'].startswith(('region', 'past_region')):
                    assert e['tid'] in named, e
                    assert e['ts'] >= last.get(e['tid'], 0), e
                    last[e['tid']] = e['ts']
                if e['ph'] == 'X':
                    assert e['dur'] >= 0, e
            assert sorted(e['id'] for e in events if e['ph'] == 'b') == sorted(e['id'] for e in events if e['ph'] == 'e')
        assert seen['post_send', 'i'] >= 4000 and seen['completion', 'i'] >= 4000, seen
        # 1000 pages are written and 1000 are read for the first time.
        assert seen['fault', 'b'] >= 1000 and seen['fault', 'b'] == seen['fault', 'e'], seen
        assert seen['resolve', 'X'] >= 1000, seen


def settings_are_shown():
    env = dict(ENV, UNPIN_PROFILE='mlx5', UNPIN_NOTIFIER='none', UNPIN_FAULT_MODE='imprecise', UNPIN_FAULT_REPLY='rnr')
    with Background(env=env) as b:
        s = json.loads(run('stat', '-j', str(b.p.pid)).stdout)
        assert (s['profile'], s['notifier'], s['fault_mode'], s['fault_reply']) == ('mlx5', 'none', 'imprecise', 'rnr'), s


def stat_of_another_users_process_is_refused():
    with Everyones(UNPIN) as program, Background() as b:
        p = run('stat', str(b.p.pid), want=1, wrap=NOBODY, program=program)
        assert 'another user' in p.stderr, p.stderr
        assert str(b.p.pid) not in run('stat', wrap=NOBODY, program=program).stdout


def watching_prints_again_and_again():
    with Background() as b:
        p = subprocess.Popen([UNPIN, 'stat', '--json', '-w', '0.1', str(b.p.pid)], stdout=subprocess.PIPE, text=True)
        lines = [json.loads(p.stdout.readline()) for _ in range(3)]
        b.finish(signal.SIGKILL)
        p.communicate(timeout=30)
        assert p.returncode == 1, p.returncode       # the process has gone
        assert lines[0]['counters']['tx_packets'] <= lines[2]['counters']['tx_packets']


run_all(registration_takes_no_memory_on_demand_and_all_of_it_pinned, every_part_of_the_basics_has_its_figures,
        the_parts_about_page_faults_have_their_figures,
        the_text_says_what_each_part_means, a_small_limit_on_locked_memory_is_explained, a_device_that_is_not_there_is_named,
        wrong_command_lines_are_refused, a_file_that_cannot_be_written_is_an_error, an_interrupt_prints_what_was_measured,
        a_report_has_its_page_plots_and_figures, a_report_is_not_written_over_other_things,
        a_report_replaces_the_one_of_before_and_says_so, an_interrupted_report_is_valid_and_says_so,
        runs_of_another_format_are_not_compared, a_terminal_sees_a_bar_and_a_file_does_not,
        the_death_of_the_second_process_ends_the_bench, the_death_of_the_first_process_ends_the_second,
        stat_shows_a_running_process, settings_are_shown,
        a_timeline_has_faults_posts_and_completions_of_both_processes, stat_of_another_users_process_is_refused, watching_prints_again_and_again)
