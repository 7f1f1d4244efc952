#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A file system on the array, used by several at once while members sit out, fail
# and are caught up: its files are right and fsck finds nothing.
. ./ktap_helpers.sh
. ./lib.sh

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
		"$2" || bad=1
		nap 0.5
	fi
	: >"$WORK/enough"
	for n in "${pids[@]}"; do wait "$n" || bad=1; done
	return $bad
}

# Files are read from the disk, not from memory: the mount is new.
check_all() { python3 ./fs_stress.py check "$MOUNT"/[abcd]?; }

# Each kind of file system with its options and its check, which changes nothing.
make_fs() {
	case $FS in
	ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$NODE" ;;
	xfs) mkfs.xfs -q -f "$NODE" ;;
	esac
}
check_fs() {
	case $FS in
	ext4) fsck.ext4 -fn "$NODE" ;;
	xfs) xfs_repair -n "$NODE" ;;
	esac
}
mount_fs() { mount -t $FS "$NODE" "$MOUNT"; }
remount() { umount "$MOUNT" && check_fs && mount_fs; }

sit_out() { must store "$(dir_of "${MEMBERS[1]}")/sit_out" 1; }
fail_one() { member_fail "${MEMBERS[2]}"; }

# The member that came back gets what it missed only now.
catch_up() {
	attr_is sync_action recover || return 1
	dm_change d2 "$(linear_table /dev/m2)"
	wait_until 60 quiet
}

# fs_test FS LEVEL MEMBERS MEMBER_MB
fs_test() {
	local id=$1_r$2
	FS=$1
	null_members "$3" "$4"
	wrap_members
	must array_create fs level="$2" chunk=64K
	mkdir -p "$MOUNT"
	t_run "${id}_mkfs" make_fs
	t_run "${id}_mount" mount_fs || return 0
	t_run "${id}_stress" stress_all a
	t_run "${id}_fsck" remount
	t_run "${id}_files" check_all
	[ "$2" = 0 ] || degraded_test "$id"
	umount "$MOUNT"
	t_run "${id}_stop_again" array_stop fs
	t_run "${id}_assemble_again" array_assemble fs
	t_run "${id}_mount_again" mount_fs
	t_run "${id}_files_again" check_all
	t_run "${id}_umount" umount "$MOUNT"
	t_run "${id}_end" array_stop fs
	drop_members
}

# Members sit out, fail and come back.
degraded_test() {
	local id=$1
	t_run "${id}_stress_sit_out" stress_all b sit_out
	must store "$(dir_of "${MEMBERS[1]}")/sit_out" 0
	t_run "${id}_stress_fail" stress_all c fail_one
	t_run "${id}_degraded_fsck" remount
	t_run "${id}_degraded_files" check_all
	umount "$MOUNT"
	t_run "${id}_stop" array_stop fs
	t_run "${id}_assemble_without" array_assemble fs degraded=1 \
		members="$(with_commas "${MEMBERS[@]:0:2}" "${MEMBERS[@]:3}")"
	t_run "${id}_mount_without" mount_fs
	t_run "${id}_files_without" check_all
	umount "$MOUNT"
	t_run "${id}_stop_without" array_stop fs
	dm_change d2 "$(delay_table /dev/m2 0 200)"
	t_run "${id}_assemble" array_assemble fs
	t_is "$(<"$A/degraded")" 0 "${id}_complete"
	t_run "${id}_mount_stale" mount_fs
	t_run "${id}_stress_catch_up" stress_all d catch_up
	t_run "${id}_caught_up_fsck" remount
	t_run "${id}_caught_up_files" check_all
}

start
only_in smp fs_test ext4 0 3 64
only_in smp fs_test ext4 1 3 64
fs_test ext4 5 5 64
only_in smp fs_test ext4 6 6 64
# mkfs.xfs makes none of less than 300 MB.
if grep -qw xfs /proc/filesystems || modprobe -q xfs; then
	fs_test xfs 5 5 128
	fs_test xfs 6 6 128
else
	t_skip xfs "this kernel has no CONFIG_XFS_FS"
fi
finish
