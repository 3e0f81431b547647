#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# build.sh DIR JOBS [-Doption=value...] [target...]
#
# Configures DIR if it is not, or if options are given that it was not configured with, and builds it: the targets, or
# everything. JOBS may be empty (as many as ninja likes). Without cmocka a new DIR is configured without the test programs.
set -eu

dir=$1
jobs=$2
shift 2
targets=
for word; do
	shift
	case $word in
	-D*) set -- "$@" "$word" ;;
	*) targets="$targets $word" ;;
	esac
done
cd "$(dirname "$0")/.."

if [ ! -f "$dir/build.ninja" ]; then
	tests=
	case " $* " in
	*' -Dtests='*) ;;
	*) pkg-config --exists cmocka || tests=-Dtests=false ;;
	esac
	# shellcheck disable=SC2086 # tests may be empty
	meson setup "$dir" $tests "$@"
else
	for option; do
		grep -qxF -- "$option" "$dir/.options" 2>/dev/null || { meson configure "$dir" "$@"; break; }
	done
fi
# The latest value of each option that was asked for, one a line.
for option; do
	name=${option%%=*}
	if [ -f "$dir/.options" ]; then
		grep -v "^$name=" "$dir/.options" >"$dir/.options.new" || true
	else
		: >"$dir/.options.new"
	fi
	echo "$option" >>"$dir/.options.new"
	mv "$dir/.options.new" "$dir/.options"
done
# shellcheck disable=SC2086 # a flag and its value, or nothing; a list of words
exec ninja -C "$dir" ${jobs:+-j $jobs} $targets
