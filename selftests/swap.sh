#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The array under memory pressure: a swap file and a file system on it, and a
# memory cgroup far too small for the process that uses both. It must get
# through, with right data; a hung task fails the suite.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=160 HOG=48 LIMIT=32 MOUNT=$WORK/mnt CGROUP=$WORK/cgroup

swapped_out() { awk '$1 == "pswpout" { print $2 }' /proc/vmstat; }

# hog SECONDS: in the cgroup, until it is through.
hog() {
	bash -c 'echo $$ >"$0/hog/cgroup.procs" && exec python3 ./memory_hog.py "$@"' "$CGROUP" \
		"$MOUNT/file" $HOG "$(soak "$1" 300)" "$SEED"
}
filled() { grep -q filled "$WORK/hog"; }

# swap_on: a file system on the array, and a swap file on that.
swap_on() {
	t_run "$1_mkfs" mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$NODE"
	t_run "$1_mount" mount "$NODE" "$MOUNT" || t_bail "no file system"
	must fallocate -l $((2 * HOG))M "$MOUNT/swap"
	must chmod 600 "$MOUNT/swap"
	must mkswap -q "$MOUNT/swap"
	t_run "$1_swapon" swapon "$MOUNT/swap"
}

# pressure TAG SECONDS MEMBER: the process runs, and MEMBER of the array in A
# fails meanwhile.
pressure() {
	local before pid
	before=$(swapped_out)
	mkdir -p "$CGROUP/hog"
	must null_set "$CGROUP/hog/memory.max" ${LIMIT}M
	hog "$2" >"$WORK/hog" 2>&1 &
	pid=$!
	t_run "$1_fills" wait_until 300 filled
	nap 1
	member_fail "$3"
	t_run "$1_ends" wait $pid
	t_note "$(tail -n 1 "$WORK/hog")"
	t_run "$1_got_on" grep -qE 'changed [0-9]{3,} pages' "$WORK/hog"
	t_run "$1_swapped" test $(($(swapped_out) - before)) -ge $((HOG * 256 / 2))
	t_is "$(grep -c '^oom_kill 0' "$CGROUP/hog/memory.events")" 1 "$1_nobody_was_killed"
	rmdir "$CGROUP/hog"
	t_run "$1_swapoff" swapoff "$MOUNT/swap"
	t_run "$1_umount" umount "$MOUNT"
	t_run "$1_fsck" fsck.ext4 -fn "$NODE"
}

parity() {
	local pool
	null_members 3 $MB
	must array_create swap level=5 chunk=64K
	pool=$(<"$A/pool")
	t_run status_says_pool grep -qE '^commands [0-9]+ of [0-9]+, pages [0-9]+ of [0-9]+, operations 0$' "$A/status"
	t_is "$(grep '^commands' "$A/status")" "$pool" pool_says_the_same
	swap_on r5
	pressure r5 5 /dev/m1
	# What was written last is retained until there is a reason not to.
	t_run r5_discard blkdiscard -f "$NODE"
	t_run r5_pool_is_whole wait_until 10 attr_is pool "$pool"
	t_note "pool: $(<"$A/pool")"
	t_run r5_stop array_stop swap
	drop_members
}

# Each array has workers of its own: the upper one's must not need the lower one's.
stacked() {
	local i lower=()
	null_members 4 $((MB * 3 / 2))
	for i in 0 1; do
		must array_create "low$i" level=1 members="/dev/m$((2 * i)),/dev/m$((2 * i + 1))"
		lower+=("$NODE")
	done
	MEMBERS=("${lower[@]}")
	must array_create swap level=0 chunk=64K
	swap_on r10
	# What fails is a member of the first pair.
	array_use low0
	NODE=/dev/$(array_of swap)
	pressure r10 4 /dev/m0
	t_is "$(<"$A/degraded")" 1 r10_degraded
	t_run r10_stop array_stop swap
	for i in 0 1; do t_run "r10_stop_low$i" array_stop "low$i"; done
	drop_members
}

# array_of NAME: its eraidN.
array_of() { hands link "$CONTROL/arrays/$1" && echo "${ANSWER##*/}"; }

start
mkdir -p "$MOUNT" "$CGROUP"
must mount -t cgroup2 none "$CGROUP"
must null_set "$CGROUP/cgroup.subtree_control" +memory
parity
stacked
must umount "$CGROUP"
finish
