#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Writes the corpus of fuzz_rdmanl.c: good answers, and ones with a mistake each. usage: netlink_corpus.py FOLDER
"""
import os
import re
import sys

import netlink_record as record

QUESTIONS = ['devices', 'regions', 'queue-pairs', 'region-counters', 'queue-pair-counters']


def binary(text):
    return bytes.fromhex(re.sub(r'#.*', '', text))


def deep(levels):
    value = [('RES_MRN', 1)]
    for i in range(levels):
        value = [('RES_MR_ENTRY' if i % 2 else 'RES_MR', value)]
    return record.HANDLE + value


def answers():
    for name, texts in record.connectx().items():
        text = texts if isinstance(texts, str) else texts[-1]
        yield name.replace('mlx5_0.', 'good-'), name.split('.')[-1], binary(text)
    regions = binary(record.table('regions', [record.region(1, 4096, 7, key=0x100, odp='explicit')]))
    yield 'no-end', 'regions', regions[:-20]
    yield 'cut', 'regions', regions[:50]
    yield 'error', 'regions', binary(record.answer(record.NLMSG_ERROR, [], error=22))
    yield 'interrupted', 'regions', binary(record.table('regions', [record.region(1, 4096, 7)], flags=record.MULTI | record.INTERRUPTED))
    yield 'long-message', 'regions', b'\xff\xff\xff\xff' + regions[4:]
    yield 'short-message', 'regions', b'\x0f\0\0\0' + regions[4:]
    yield 'negative-message', 'regions', b'\0\0\0\x80' + regions[4:]
    yield 'long-attribute', 'regions', regions[:16] + b'\xff\xff' + regions[18:]
    yield 'short-attribute', 'regions', regions[:16] + b'\x03\0' + regions[18:]
    yield 'empty-attribute', 'regions', regions[:16] + b'\0\0' + regions[18:]
    yield 'deep', 'regions', binary(record.answer('regions', [deep(64)]))
    yield 'numbers-of-wrong-size', 'queue-pairs', binary(record.answer('queue-pairs', [record.HANDLE + [('RES_QP', [
        ('RES_QP_ENTRY', [('RES_LQPN', b'\1\0'), ('RES_TYPE', b'\2\0\0\0')]), ('RES_QP_ENTRY', [('RES_LQPN', 3), ('RES_PID', b'')])])]]))
    yield 'text-without-end', 'devices', binary(record.answer('devices', [[('DEV_INDEX', 1), ('DEV_NAME', b'\x1b[2J' * 40)]]))
    yield 'counter-of-nobody', 'queue-pair-counters', binary(record.table('queue-pair-counters', [record.qp_counters(1, [], {'x': 1})]))


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, question, body in answers():
        with open(os.path.join(sys.argv[1], name), 'wb') as f:
            f.write(bytes([QUESTIONS.index(question)]) + body)


if len(sys.argv) != 2:
    sys.exit(__doc__)
main()
