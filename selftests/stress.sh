#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Scenario 41, in simulated time: eight processes use an ext4 on a RAID-5 of hard
# drives, one of which is slow for five seconds in ten. Nobody hangs for 30 seconds,
# and the file system and its files are right. Ten minutes in "lab soak", one else.
. ./ktap_helpers.sh
. ./lib.sh

readonly DRIVES=5 SLOW=h2 USERS=8 FS_SIZE=320M
readonly MOUNT=$WORK/mnt HUNG=/proc/sys/kernel/hung_task_timeout_secs
TIME=$(soak 60 600)

# The drives' own 8 ms or so, or 800 ms for each command, one at a time.
slow_for_ms() { must store "/sys/block/$SLOW/hddsim/delay_ms" "$1"; }

# stress: so many users, and the drive alternates; each user's last round ends well.
stress() {
	local n pids=() bad=0 passed
	for ((n = 0; n < USERS; n++)); do
		python3 ./fs_stress.py write "$MOUNT/u$n" "$SEED" 1 "$WORK/enough" &
		pids+=($!)
	done
	for ((passed = 0; passed < TIME; passed += 10)); do
		slow_for_ms 792
		nap 5
		slow_for_ms 0
		nap 5
	done
	: >"$WORK/enough"
	for n in "${pids[@]}"; do wait "$n" || bad=1; done
	return $bad
}

start
sim_members $DRIVES
t_run create array_create stress level=5 chunk=64K
mkdir -p "$MOUNT"
t_run mkfs mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$NODE" $FS_SIZE
t_run mount mount "$NODE" "$MOUNT"
# Looked for each second, so that nothing is seen late; the guest starts without.
echo 1 >/proc/sys/kernel/hung_task_check_interval_secs
echo 30 >$HUNG
t_run stress stress
t_note "the slow drive: $(tr '\n' ' ' </sys/block/$SLOW/hddsim/counters)"
t_is "$(dmesg | grep -c 'blocked .*for more than')" 0 nobody_hangs
echo 0 >$HUNG
t_is "$(<"$A/degraded")" 0 nobody_failed
t_run umount umount "$MOUNT"
t_run fsck fsck.ext4 -fn "$NODE"
t_run mount_again mount "$NODE" "$MOUNT"
t_run files python3 ./fs_stress.py check "$MOUNT"/u?
t_run umount_again umount "$MOUNT"
t_run stop array_stop stress
sim_remove
finish
