# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Records of rdma netlink answers, as src/tool/rdmanl.h reads them, from descriptions: nested lists of (attribute, value), where a value is
a number of the attribute's size, a text, bytes, or a list. Written as hexadecimal digits with the description as comments. The layout
of the messages is that of linux/rdma/rdma_netlink.h; what a ConnectX answers was made up from what rdma-statistic(8) shows of one.
"""
import os
import struct
import sys

NLMSG_ERROR, NLMSG_DONE = 2, 3
MULTI, INTERRUPTED = 2, 16
COMMANDS = {'devices': 1, 'queue-pairs': 10, 'regions': 13, 'region-counters': 17, 'queue-pair-counters': 17}
# Attribute: number and, of numbers, bytes.
ATTRS = {
    'DEV_INDEX': (1, 4), 'DEV_NAME': (2, 0), 'PORT_INDEX': (3, 4), 'FW_VERSION': (5, 0), 'RES_QP': (19, 0), 'RES_QP_ENTRY': (20, 0),
    'RES_LQPN': (21, 4), 'RES_RQPN': (22, 4), 'RES_RQ_PSN': (23, 4), 'RES_SQ_PSN': (24, 4), 'RES_PATH_MIG_STATE': (25, 1),
    'RES_TYPE': (26, 1), 'RES_STATE': (27, 1), 'RES_PID': (28, 4), 'RES_KERN_NAME': (29, 0), 'RES_MR': (40, 0), 'RES_MR_ENTRY': (41, 0),
    'RES_RKEY': (42, 4), 'RES_LKEY': (43, 4), 'RES_IOVA': (44, 8), 'RES_MRLEN': (45, 8), 'DRIVER': (52, 0), 'DRIVER_STRING': (54, 0),
    'DRIVER_PRINT_TYPE': (55, 1), 'DRIVER_S32': (56, 4), 'DRIVER_U32': (57, 4), 'DRIVER_S64': (58, 8), 'DRIVER_U64': (59, 8),
    'RES_PDN': (60, 4), 'RES_CQN': (61, 4), 'RES_MRN': (62, 4), 'DEV_PROTOCOL': (67, 0), 'STAT_MODE': (74, 4), 'STAT_COUNTER': (77, 0),
    'STAT_COUNTER_ENTRY': (78, 0), 'STAT_COUNTER_ID': (79, 4), 'STAT_HWCOUNTERS': (80, 0), 'STAT_HWCOUNTER_ENTRY': (81, 0),
    'STAT_HWCOUNTER_ENTRY_NAME': (82, 0), 'STAT_HWCOUNTER_ENTRY_VALUE': (83, 8),
}
FORMATS = {1: '=B', 4: '=I', 8: '=Q'}


def pad(b):
    return b + bytes(-len(b) % 4)


def attrs(described, depth, lines):
    """The bytes of attributes; lines gets them in pieces, with what they are."""
    out = b''
    for name, value in described:
        number, size = ATTRS[name]
        if isinstance(value, list):
            inner = []
            body = attrs(value, depth + 1, inner)
            said = name
        else:
            inner = []
            body = value if isinstance(value, bytes) else value.encode() + b'\0' if isinstance(value, str) else struct.pack(FORMATS[size], value)
            said = '%s %s' % (name, hex(value) if isinstance(value, int) and value > 99999 else value)
        head = struct.pack('=HH', 4 + len(body), number)
        lines.append((head if inner else pad(head + body), '  ' * depth + said))
        lines += inner
        out += pad(head + body)
    return out


def message(kind, described, lines, flags=MULTI, done=None):
    """done: the payload of NLMSG_DONE or NLMSG_ERROR, an errno."""
    inner = []
    body = struct.pack('=i', -done) if done is not None else attrs(described, 1, inner)
    if done is not None:
        inner = [(body, '  %d' % -done)]
    kind_number = kind if isinstance(kind, int) else 5 << 10 | COMMANDS[kind]
    lines.append((struct.pack('=IHHII', 16 + len(body), kind_number, flags, 1, 0),
                  {NLMSG_DONE: 'the end', NLMSG_ERROR: 'an error'}.get(kind, 'message: %s' % kind)))
    lines += inner


def answer(kind, messages, flags=MULTI, error=0):
    """The text of a file."""
    lines = []
    for m in messages:
        message(kind, m, lines, flags)
    message(NLMSG_DONE, [], lines, flags, done=error)
    return ''.join('%-40s # %s\n' % (b.hex(), said) for b, said in lines)


HANDLE = [('DEV_INDEX', 0), ('DEV_NAME', 'mlx5_0')]


def handle(index, name):
    return [('DEV_INDEX', index), ('DEV_NAME', name)]


def device(index, name, firmware, ports=1, protocol='ib'):
    return handle(index, name) + [('PORT_INDEX', ports), ('FW_VERSION', firmware), ('DEV_PROTOCOL', protocol)]


def owner(pid, pd):
    """pid: of a process; a text: a module of the kernel."""
    if isinstance(pid, str):
        return [('RES_KERN_NAME', pid)]
    return ([('RES_PDN', pd)] if pd is not None else []) + ([('RES_PID', pid)] if pid else [])


def region(number, length, pid, pd=1, key=None, odp=None, iova=None):
    """odp: None, 'explicit' or 'implicit'; key: told only to who may know it."""
    keys = [('RES_RKEY', key), ('RES_LKEY', key)] if key else []
    where = [('RES_IOVA', iova)] if iova else []
    driver = [('DRIVER', [('DRIVER_STRING', 'odp'), ('DRIVER_STRING', odp)])] if odp else []
    return ('RES_MR_ENTRY', keys + where + [('RES_MRLEN', length), ('RES_MRN', number)] + owner(pid, pd) + driver)


def qp(number, pid, pd=1, peer=None, kind=2, state=3, port=1):
    connected = [('RES_RQPN', peer), ('RES_RQ_PSN', 4711), ('RES_SQ_PSN', 815), ('RES_PATH_MIG_STATE', 0)] if peer else [('RES_SQ_PSN', 815)]
    return ('RES_QP_ENTRY', [('PORT_INDEX', port), ('RES_LQPN', number)] + owner(pid, pd) + connected + [('RES_TYPE', kind), ('RES_STATE', state)])


def hwcounters(values):
    return ('STAT_HWCOUNTERS', [('STAT_HWCOUNTER_ENTRY', [('STAT_HWCOUNTER_ENTRY_NAME', n), ('STAT_HWCOUNTER_ENTRY_VALUE', v)])
                                for n, v in values.items()])


def region_counters(number, faults=None, invalidations=0, prefetch=0):
    """faults None: not on demand."""
    values = {} if faults is None else {'page_faults': faults, 'page_faults_handled': faults, 'page_invalidations': invalidations,
                                        'page_invalidations_handled': invalidations, 'page_prefetch': prefetch}
    return ('RES_MR_ENTRY', [('RES_MRN', number)] + ([hwcounters(values)] if values else []))


def qp_counters(counter, numbers, values, port=1):
    return ('STAT_COUNTER_ENTRY', [('PORT_INDEX', port), ('STAT_COUNTER_ID', counter), ('STAT_MODE', 2),
                                   ('RES_QP', [('RES_QP_ENTRY', [('RES_LQPN', n)]) for n in numbers]), hwcounters(values)])


TABLES = {'regions': 'RES_MR', 'queue-pairs': 'RES_QP', 'region-counters': 'RES_MR', 'queue-pair-counters': 'STAT_COUNTER'}


def table(kind, rows, of=HANDLE, per_message=4, **how):
    """Rows as the kernel sends them: a few per message, each message with the device's name."""
    parts = [rows[i:i + per_message] for i in range(0, len(rows), per_message)]
    return answer(kind, [of + [(TABLES[kind], part)] for part in parts], **how)


def write(folder, files):
    """files: name -> text, or a list of texts: what is answered the first time, the second time, and so on."""
    os.makedirs(os.path.join(folder, 'netlink'), exist_ok=True)
    for name, texts in files.items():
        for i, text in enumerate([texts] if isinstance(texts, str) else texts):
            with open(os.path.join(folder, 'netlink', name if not i else '%s.%d' % (name, i + 1)), 'w') as f:
                f.write(text)


def connectx(before=1200, after=1650):
    """A ConnectX with two users: a store with a pinned and an on-demand region, a cache with an implicit one. Its page faults go on."""
    store, cache = 4242, 5151
    retries = {'rx_write_requests': 90000, 'packet_seq_err': 2, 'local_ack_timeout_err': 1, 'rnr_nak_retry_err': 4}
    return {
        'devices': answer('devices', [device(0, 'mlx5_0', '16.35.2000'), device(1, 'mlx5_1', '16.35.2000', protocol='roce')]),
        'mlx5_0.regions': table('regions', [
            region(3, 4096, 'ib_core'), region(17, 1 << 30, store, 5, key=0x1f01c4), region(18, 64 << 30, store, 5, key=0x1f02d7, odp='explicit'),
            region(29, (1 << 64) - 1, cache, 9, key=0x2000aa, odp='implicit')]),
        'mlx5_0.queue-pairs': table('queue-pairs', [
            qp(1, 'ib_core', kind=1), qp(0x4d, store, 5, peer=0x51), qp(0x4e, store, 5, peer=0x52, state=6), qp(0x90, cache, 9, kind=4)]),
        'mlx5_0.region-counters': [table('region-counters', [
            region_counters(3), region_counters(17), region_counters(18, f, 90 + f // 100, 512), region_counters(29, 7)]) for f in (before, after)],
        'mlx5_0.queue-pair-counters': [
            table('queue-pair-counters', [qp_counters(1, [0x4d], retries)]),
            table('queue-pair-counters', [qp_counters(1, [0x4d], dict(retries, packet_seq_err=12)),
                                          qp_counters(2, [0x4e, 0x90], {'packet_seq_err': 99})])],
    }


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit('usage: netlink_record.py FOLDER    writes the record of a ConnectX into FOLDER/netlink')
    write(sys.argv[1], connectx())
