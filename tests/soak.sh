#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# soak.sh BUILD SECONDS [SEED]: runs the soak again and again, each time with the next seed. A failing seed is printed;
# the same dice are thrown again with SEED=, though threads do not meet in the same order twice.
set -eu
build=$1 seconds=$2 seed=${3:-$(date +%s)}
end=$(($(date +%s) + seconds))
runs=0
while [ "$(date +%s)" -lt "$end" ]; do
	left=$((end - $(date +%s)))
	[ "$left" -gt 20 ] && left=20
	UNPIN_SOAK_SECONDS=$left UNPIN_SOAK_SEED=$seed "$build/unpin" run --device "unpin-soak-$$" -- \
		"$build/tests/users/users_soak" || {
		echo "soak: seed $seed failed"
		exit 1
	}
	runs=$((runs + 1))
	seed=$((seed + 1))
done
echo "soak: $runs runs in $seconds s, every byte right"
