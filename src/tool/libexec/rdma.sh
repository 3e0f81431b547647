#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# Stands in front of rdma(8) on the PATH of programs that `unpin run` starts, since some (pyverbs) ask it for the network
# interface of a port. unpin's device is unknown to the kernel, so its row is added here to what the system's own rdma,
# where there is one that works, says of `link show` and `dev show`. Everything else goes to the system's rdma.

here=$(cd -P -- "$(dirname -- "$0")" && pwd)

device=${UNPIN_DEVICE:-unpin0}
case $device in
*[!A-Za-z0-9_-]*) device=unpin0 ;;
esac

# The system's rdma: the next one on PATH, or where distributions put it. Runs in a subshell, so its settings end with it.
find_real() {
	set -f
	IFS=:
	for dir in $PATH /usr/sbin /sbin; do
		[ -n "$dir" ] || dir=.
		if [ ! -x "$dir/rdma" ] || [ -d "$dir/rdma" ]; then continue; fi
		[ "$(cd -P -- "$dir" && pwd)" = "$here" ] && continue
		printf '%s\n' "$dir/rdma"
		return 0
	done
	return 1
}

# An interface that is up; loopback when there is no other.
netdev() {
	for path in /sys/class/net/*; do
		name=${path##*/}
		[ "$name" = lo ] && continue
		[ "$(cat "$path/operstate" 2>/dev/null)" = up ] || continue
		printf '%s\n' "$name"
		return
	done
	printf 'lo\n'
}

json=no
words=
count=0
target=
for arg in "$@"; do
	case $arg in
	-j | --json | -jp | -pj) json=yes ;;
	-p | -d | --pretty | --details) ;;
	-*) words="$words other" ;;
	*)
		count=$((count + 1))
		if [ "$count" -le 2 ]; then words="$words $arg"; else target=$arg; fi
		;;
	esac
done
real=$(find_real) || real=

row=
if [ -z "$target" ] || [ "$target" = "$device" ] || [ "$target" = "$device/1" ]; then
	case $words in
	" link" | " link show" | " link list")
		net=$(netdev)
		index=$(cat "/sys/class/net/$net/ifindex" 2>/dev/null || echo 1)
		row="link $device/1 state ACTIVE physical_state LINK_UP netdev $net "
		row_json="{\"ifname\":\"$device\",\"port\":1,\"state\":\"ACTIVE\",\"physical_state\":\"LINK_UP\""
		row_json="$row_json,\"netdev\":\"$net\",\"netdev_index\":$index}"
		;;
	" dev" | " dev show" | " dev list")
		row="$device: node_type ca "
		row_json="{\"ifname\":\"$device\",\"node_type\":\"ca\"}"
		;;
	esac
fi

if [ -z "$row" ]; then
	[ -n "$real" ] && exec "$real" "$@"
	echo "rdma: not installed; unpin answers 'link show' and 'dev show' for $device only" >&2
	exit 1
fi

theirs=
if [ -n "$real" ] && [ -z "$target" ]; then
	theirs=$("$real" "$@" 2>/dev/null) || theirs=
fi
if [ "$json" = no ]; then
	[ -z "$theirs" ] || printf '%s\n' "$theirs"
	printf '%s\n' "$row"
	exit 0
fi
# Their list without its brackets; nothing when it is empty or no list.
case $theirs in
'['*']')
	theirs=${theirs#'['}
	theirs=${theirs%']'}
	;;
*) theirs= ;;
esac
case $theirs in
*[!\ ]*'{'* | '{'*) printf '[%s,%s]\n' "$theirs" "$row_json" ;;
*) printf '[%s]\n' "$row_json" ;;
esac
