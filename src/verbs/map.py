#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Makes the linker's version script from symbols.def:  map.py symbols.def libunpin.map

There is no "local: *": what is not exported is hidden by the compiler, and libc's names that mm/ interposes must stay in
the unnamed base version, which matches every version that a program may ask libc for.
"""
import re
import sys


def main(source, target):
    nodes, private = {}, {}
    for line in open(source):
        found = re.match(r"(PRIVATE_)?VERB\(([\d.]+), (\w+)\)$", line.strip())
        if found:
            table = private if found[1] else nodes
            table.setdefault(found[2], []).append(found[3])
    order = sorted(nodes, key=lambda node: [int(part) for part in node.split(".")])
    with open(target, "w") as out:
        before = ""
        for node in order:
            out.write("IBVERBS_%s {\n\tglobal:\n" % node)
            out.writelines("\t\t%s;\n" % name for name in sorted(nodes[node]))
            if not before:
                # What other code linked in leaves visible, and the names behind the private versions (.symver).
                out.write("\tlocal:\n\t\tio_uring_*;\n\t\t__io_uring_*;\n\t\tprivate_*;\n")
            out.write("}%s;\n\n" % before)
            before = " IBVERBS_" + node
        for abi in sorted(private, key=int):
            out.write("IBVERBS_PRIVATE_%s {\n};\n\n" % abi)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
