#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What libunpin.so shows and needs:  symbols_test.py LIBUNPIN EXPECTED

Every name of the table, in its node, and nothing else; nothing needed but libc; bound at load, never unloaded.
"""
import re
import subprocess
import sys

LIBRARY, EXPECTED = sys.argv[1:3]
TLS_LIMIT = 1024  # bytes of initial-exec thread storage: the loader keeps little for libraries that come late
failed = False


def readelf(*options):
    return subprocess.run(['readelf', '-W', *options, LIBRARY], check=True, stdout=subprocess.PIPE).stdout.decode()


def case(name, problems):
    global failed
    print('[%s] %s' % ('  FAILED  ' if problems else '       OK ', name))
    for problem in problems:
        print('  ' + problem)
        failed = True


def visible():
    """(node, name, is it the default) of every defined dynamic symbol; the base version is ''."""
    symbols = set()
    for line in readelf('--dyn-syms').splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(':').isdigit() or fields[6] == 'UND' or fields[3] == 'SECTION':
            continue
        name, at, node = re.match(r'([^@]+)(@*)(.*)$', fields[7]).groups()
        if fields[6] == 'ABS' and name.startswith('IBVERBS_'):
            continue  # the nodes themselves
        symbols.add((node, name, at != '@'))
    return symbols


def expected():
    symbols = set()
    for line in open(EXPECTED):
        fields = line.split('#')[0].split()
        if fields:
            node = '' if fields[0] == 'libc' else 'IBVERBS_' + fields[0].rstrip('*')
            symbols.add((node, fields[1], not fields[0].endswith('*')))
    return symbols


def show(symbol):
    return '%s in %s%s' % (symbol[1], symbol[0] or 'the base version', '' if symbol[2] else ' (hidden)')


def main():
    found, wanted = visible(), expected()
    case('every_public_symbol_is_in_its_node', ['missing: ' + show(s) for s in sorted(wanted - found)])
    case('nothing_else_is_visible', ['not expected: ' + show(s) for s in sorted(found - wanted)])

    dynamic = readelf('-d')
    needed = re.findall(r'\(NEEDED\).*\[(.*)\]', dynamic)
    case('it_needs_libc_alone', ['needs ' + n for n in needed if not re.match(r'(libc\.so|ld-linux)', n)])
    case('it_is_bound_at_load', [] if re.search(r'FLAGS.*\bNOW\b', dynamic) else ['no DF_BIND_NOW'])
    case('it_is_never_unloaded', [] if 'NODELETE' in dynamic else ['no DF_1_NODELETE'])
    case('it_has_no_text_relocations', ['DT_TEXTREL'] if 'TEXTREL' in dynamic else [])
    case('its_name_is_its_own', [] if '[libunpin.so]' in dynamic else ['the soname is not libunpin.so'])

    tls = [int(line.split()[5], 16) for line in readelf('-l').splitlines() if line.split()[:1] == ['TLS']]
    case('its_thread_storage_is_small', ['%d bytes' % n for n in tls if n > TLS_LIMIT])
    general = [line for line in readelf('-r').splitlines() if 'DTPMOD' in line]
    case('its_thread_storage_is_initial_exec', general)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
