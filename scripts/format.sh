#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# format.sh write|check: clang-format over every C file of the project.
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null 2>&1; then
	echo 'unpin: clang-format is missing; install it with: apt-get install clang-format' >&2
	exit 1
fi
case ${1:-} in
write) flags='-i' ;;
check) flags='--dry-run --Werror' ;;
*)
	echo "usage: $0 write|check" >&2
	exit 2
	;;
esac
# shellcheck disable=SC2086 # several flags
find src tests examples bench \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 -r clang-format $flags
