#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A file system on the array, used by several at once while members are failed
# and sit out: its files are right and fsck finds nothing.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64
ROUNDS=$(soak 1 100)
MOUNT=$WORK/mnt

# stress_all TAG [EVENT]: four users at once; EVENT happens while they are at it.
stress_all() {
	local n pids=() bad=0
	rm -f "$WORK/enough"
	for n in 1 2 3 4; do
		python3 ./fs_stress.py write "$MOUNT/$1$n" "$SEED" "$ROUNDS" "$WORK/enough" &
		pids+=($!)
	done
	if [ -n "${2:-}" ]; then
		wait_until 60 test -e "$MOUNT/${1}1/sums" || bad=1
		"$2"
		nap 0.5
	fi
	: >"$WORK/enough"
	for n in "${pids[@]}"; do wait "$n" || bad=1; done
	return $bad
}

# Files are read from the disk, not from memory: the mount is new.
check_all() { python3 ./fs_stress.py check "$MOUNT"/[abc]?; }

remount() { umount "$MOUNT" && fsck.ext4 -fn "$NODE" && mount "$NODE" "$MOUNT"; }
sit_out() { must store "$(dir_of /dev/m1)/sit_out" 1; }
fail_one() { member_fail /dev/m2; }

# fs_test LEVEL MEMBERS
fs_test() {
	local id=r$1
	null_members "$2" $MB
	must array_create fs level="$1" chunk=64K
	mkdir -p "$MOUNT"
	t_run "${id}_mkfs" mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$NODE"
	t_run "${id}_mount" mount "$NODE" "$MOUNT" || return 0
	t_run "${id}_stress" stress_all a
	t_run "${id}_fsck" remount
	t_run "${id}_files" check_all
	if [ "$1" != 0 ]; then
		t_run "${id}_stress_sit_out" stress_all b sit_out
		must store "$(dir_of /dev/m1)/sit_out" 0
		t_run "${id}_stress_fail" stress_all c fail_one
		t_run "${id}_degraded_fsck" remount
		t_run "${id}_degraded_files" check_all
	fi
	umount "$MOUNT"
	t_run "${id}_stop" array_stop fs
	unset 'MEMBERS[2]'
	[ "$1" != 0 ] || MEMBERS[2]=/dev/m2
	t_run "${id}_assemble" array_assemble fs
	t_run "${id}_mount_again" mount "$NODE" "$MOUNT"
	t_run "${id}_files_again" check_all
	t_run "${id}_umount" umount "$MOUNT"
	t_run "${id}_stop_again" array_stop fs
	drop_members
}

start
fs_test 0 3
fs_test 1 3
fs_test 5 5
finish
