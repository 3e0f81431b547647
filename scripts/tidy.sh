#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tidy.sh BUILD: clang-tidy over src/ with the compile commands of a configured build directory.
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang-tidy >/dev/null 2>&1; then
	echo 'unpin: clang-tidy is missing; install it with: apt-get install clang-tidy' >&2
	exit 1
fi
[ -f "$1/compile_commands.json" ] || { echo "unpin: $1 is not configured: run make first" >&2; exit 1; }
find src -name '*.c' -print0 | xargs -0 -r -n 4 -P "$(nproc)" clang-tidy -p "$1" --quiet
