#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A file system on the array, used by several at once while members are failed
# and sit out: its files are right and fsck finds nothing.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64
ROUNDS=$(soak 2 100)
# A process costs much where every access is checked.
[ "$ERAID_FLAVOUR" != kasan ] || ROUNDS=$(soak 1 30)
MOUNT=$WORK/mnt

# One process: files of its own, written, copied, renamed, cut, compared.
stress() {
	local dir=$MOUNT/p$1 round i
	mkdir "$dir" && cd "$dir" || return 1
	for ((round = 0; round < ROUNDS; round++)); do
		for i in 1 2 3 4; do
			head -c $((i * i * 61 * 1024 + round)) /dev/urandom >"f$i" || return 1
		done
		sha256sum f? >sums && mkdir copy && cp f? copy && mv copy moved || return 1
		sync -f .
		truncate -s 1000 moved/f1 && dd if=/dev/zero of=moved/f4 bs=4K count=3 seek=7 \
			conv=notrunc,fsync status=none || return 1
		sha256sum --quiet -c sums || return 1
		rm -r moved || return 1
	done
}

stress_all() {
	local n pids=() bad=0
	for n in 1 2 3 4; do
		stress "$1$n" &
		pids+=($!)
	done
	[ -z "${2:-}" ] || { sleep 1; "$2"; }
	for n in "${pids[@]}"; do wait "$n" || bad=1; done
	return $bad
}

check_all() {
	local dir
	for dir in "$MOUNT"/p*; do (cd "$dir" && sha256sum --quiet -c sums) || return 1; done
}

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
