#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# deps.sh check|install GROUP...    GROUP: build, test, vm
#
# check    names the missing Debian packages and the command that installs them; status 1 when any is missing
# install  installs the missing ones as root or with sudo; calls neither apt nor sudo when nothing is missing
#
# On a system without dpkg nothing is checked: meson names what it does not find.
set -eu

build_packages='gcc libc6-dev meson ninja-build pkgconf libibverbs-dev librdmacm-dev libjson-c-dev libmnl-dev libncurses-dev liburing-dev'
# python3 and util-linux are the runner's, clang and clang-tidy the suite's of the sources (another compiler, static analysis),
# musl-tools and libucx0 are for programs of another C library and for UCX's hooks; the rest are the clients that the tests run
# and the library they use.
test_packages='libcmocka-dev python3 util-linux clang clang-tidy musl-tools libucx0 iproute2 ibverbs-utils infiniband-diags hwloc-nox
rdmacm-utils librdmacm-dev libfabric-bin fio perftest qperf python3-pyverbs rdma-core gdb tmux chromium'
# The guest of tests/vm: what builds it, and what runs it.
vm_packages='qemu-system-x86 mmdebstrap squashfs-tools-ng cpio gzip xz-utils debian-archive-keyring'

usage()
{
	echo "usage: $0 check|install build|test|vm..." >&2
	exit 2
}

[ $# -ge 2 ] || usage
action=$1
shift
wanted=
for group; do
	case $group in
	build) wanted="$wanted $build_packages" ;;
	test) wanted="$wanted $test_packages" ;;
	vm) wanted="$wanted $vm_packages" ;;
	*) usage ;;
	esac
done

if ! command -v dpkg-query >/dev/null 2>&1; then
	exit 0
fi

missing=
for package in $wanted; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
	[ "$status" = installed ] || missing="$missing $package"
done
missing=${missing# }
[ -n "$missing" ] || exit 0

case $action in
check)
	printf 'unpin: missing packages: %s\n' "$missing" >&2
	printf 'install them with: %sapt-get install --no-install-recommends %s\n' \
		"$([ "$(id -u)" = 0 ] || echo 'sudo ')" "$missing" >&2
	exit 1
	;;
install) ;;
*) usage ;;
esac

as_root=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		printf 'unpin: missing packages, and neither root nor sudo to install them: %s\n' "$missing" >&2
		exit 1
	fi
	as_root=sudo
fi
printf 'unpin: installing missing packages: %s\n' "$missing"
apt()
{
	# shellcheck disable=SC2086 # as_root may be empty
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
# The package lists may be absent (a fresh container) or old (a version that the mirror no longer has): fetch them when
# the first attempt fails.
# shellcheck disable=SC2086 # a list of words
if ! apt install --no-install-recommends $missing; then
	apt update
	apt install --no-install-recommends $missing
fi
