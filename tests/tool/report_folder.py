# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What must be so of the folder that `unpin bench --report` writes, on any device."""
import csv
import io
import json
import os
import re
import xml.etree.ElementTree


def names(folder):
    return set(os.listdir(folder))


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read()


def check_report(folder):
    """What must be so of any report, finished or not; returns its JSON."""
    result = json.loads(read(folder, 'bench.json'))
    page = read(folder, 'index.html')
    assert '<script' not in page and page.rstrip().endswith('</html>'), page[-200:]
    assert set(re.findall(r'https?://[^"\' <]+', page)) <= {'http://www.w3.org/2000/svg'}, 'the page needs a network'
    drawn = 0
    for key, part in result['parts'].items():
        if part['rows']:
            rows = list(csv.DictReader(io.StringIO(read(folder, key + '.csv'))))
            assert len(rows) == len(part['rows']), key
            for row, told in zip(rows, part['rows']):
                assert {k for k, v in row.items() if v} >= {k for k in told if k in row}, (row, told)
        for plot in part.get('plots', []):
            assert plot['title'].endswith('.') and plot['x'], plot
            if plot['key'] + '.svg' not in names(folder):
                continue
            drawn += 1
            root = xml.etree.ElementTree.parse(os.path.join(folder, plot['key'] + '.svg')).getroot()
            assert root.tag.endswith('svg') and len(root.findall('.//{*}path')) > 5, plot['key']
            points = list(csv.reader(io.StringIO(read(folder, plot['key'] + '.csv'))))
            assert len(points) == 1 + sum(len(s['points']) for s in plot['series']), plot['key']
    assert page.count('<svg') == drawn, (page.count('<svg'), drawn)
    # Nothing is left of files that were being written, and every file that is there is named by the page.
    assert not [n for n in names(folder) if n.startswith('.')], names(folder)
    assert names(folder) == set(page.splitlines()[1].split()[4:-1]) | {'index.html'}, names(folder)
    return result, drawn
