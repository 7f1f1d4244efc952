#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Putting an array together again: in any order, one by one, without some,
# with what does not belong, after a crash, with torn superblocks.
# lib.sh uses what is set here.
# shellcheck disable=SC2034
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 N=4
readonly SLOT_A=$((64 * 1024)) SLOT_B=$((1024 * 1024))
readonly DUMP=$ERAID_TOOLS/eraid-dump

started() { [ -L $CONTROL/arrays/arr ]; }
line() { with_commas "$@"; }

# refused NAME ERRNO WORD LINE: and the array is not started.
refused() {
	control assemble "$4"
	t_is "$ERRNO" "$2" "$1"
	t_run "${1}_says_why" grep -q "$3" <<<"$WHY"
	t_run_fails "${1}_not_started" started
}

# starts NAME LINE: it starts and holds what it must.
starts() {
	t_run "$1" control assemble "$2" || t_note "$ERRNO: $WHY"
	t_run "${1}_started" array_use arr || return 0
	t_run "${1}_verify" verify
	t_run "${1}_stop" array_stop arr
}

# dumped NODE KEY: what a reader other than the driver finds in the metadata.
dumped() { "$DUMP" "$1" | sed -n "s/^$2=//p"; }

# overwrite NODE OFFSET BYTES: damage.
overwrite() { must dd if=/dev/urandom of="$1" bs=512 seek=$(($2 / 512)) count=$(($3 / 512)) oflag=direct conv=notrunc status=none; }

start
null_members $N $MB
t_run create array_create arr level=5 chunk=64K
UUID=$(attr uuid)
OFFSET=$(($(<"$A/rd0/offset") * 512))
t_run write writes
t_run stop array_stop arr
for i in 0 1 2 3; do t_run "dump_m$i" "$DUMP" "/dev/m$i"; done
t_is "$(dumped /dev/m2 array)" "$UUID" dump_uuid
t_is "$(dumped /dev/m2 slot)" 2 dump_slot
t_is "$(dumped /dev/m0 active)" 0 dump_was_stopped
t_is "$(dumped /dev/m0 regions_in_flight)" 0 dump_nothing_in_flight

# --- order --------------------------------------------------------------------
starts reversed "members=/dev/m3,/dev/m2,/dev/m1,/dev/m0"
starts shuffled "members=/dev/m2,/dev/m0,/dev/m3,/dev/m1 dev=eraid5"

for i in 2 0 3; do
	control assemble "members=/dev/m$i"
	t_is "$ERRNO" ok "one_by_one_m$i"
	t_run_fails "not_started_after_m$i" started
done
t_run_fails waiting_members_are_held claim /dev/m2
t_run abort control abort "$UUID"
t_run aborted_are_free claim /dev/m2
for i in 3 1 0 2; do control assemble "members=/dev/m$i"; done
t_run last_one_starts_it array_use arr
t_is "$(<"$A/degraded")" 0 complete
t_is "$(<"$A/uuid")" "$UUID" same_uuid
t_run one_by_one_verify verify
control assemble "members=/dev/m0"
t_is "$ERRNO" EBUSY runs_already
t_run one_by_one_stop array_stop arr

# --- what does not belong -----------------------------------------------------
null_member o0 $MB
null_member o1 $MB
must array_create other level=1 members=/dev/o0,/dev/o1
must array_stop other
refused foreign EINVAL o0 "members=/dev/m0,/dev/m1,/dev/m2,/dev/o0"
null_member blank $MB
refused blank EINVAL blank "members=/dev/m0,/dev/m1,/dev/m2,/dev/blank"
null_remove blank
null_member clone $MB
must copy_device /dev/m1 /dev/clone
refused clone EEXIST clone "members=/dev/m0,/dev/m1,/dev/clone,/dev/m2,/dev/m3"
t_run clone_instead control assemble "members=/dev/m0,/dev/clone,/dev/m2,/dev/m3"
t_run clone_instead_stop array_stop arr
# The original has missed what the clone has seen.
null_remove clone
dm short "$(linear_table /dev/m2 0 $(((MB - 2) * 2048)))"
refused too_short EINVAL "$(basename "$DM")" "members=/dev/m0,/dev/m1,$DM,/dev/m3"
must dm_remove short

# --- superblocks --------------------------------------------------------------
# The clone's turn above left m1 behind: a new array for the rest.
for i in 0 1 2 3; do null_remove "m$i"; done
rm "$LOG"
null_members $N $MB
must array_create arr level=5 chunk=64K
UUID=$(attr uuid)
must writes >/dev/null
must array_stop arr
null_member save $MB
must copy_device /dev/m1 /dev/save
overwrite /dev/m0 $SLOT_A 4096
t_is "$(dumped /dev/m0 superblock)" b dump_torn_A
starts torn_A "members=$(line "${MEMBERS[@]}")"
overwrite /dev/m0 $((SLOT_B + 512)) 512
starts torn_B "members=$(line "${MEMBERS[@]}")"
overwrite /dev/m2 $SLOT_A 512
overwrite /dev/m2 $SLOT_B 512
t_run_fails dump_both_torn "$DUMP" /dev/m2
refused both_torn EINVAL m2 "members=$(line "${MEMBERS[@]}")"
refused both_torn_degraded EINVAL m2 "members=$(line "${MEMBERS[@]}") degraded=1"

# --- without some -------------------------------------------------------------
control assemble "members=/dev/m0,/dev/m1,/dev/m3"
t_is "$ERRNO" ok without_one_waits
t_run_fails without_one_not_started started
t_run without_one_abort control abort "$UUID"
t_run without_one control assemble "members=/dev/m0,/dev/m1,/dev/m3 degraded=1"
t_run without_one_started array_use arr
t_is "$(<"$A/degraded")" 1 without_one_degraded
t_run without_one_verify verify
t_run without_one_write writes
t_run without_one_stop array_stop arr
# An old copy of a member is named and refused.
refused stale EINVAL save "members=/dev/m0,/dev/save,/dev/m3"
refused two_missing ENODEV slot "members=/dev/m0,/dev/m3 degraded=1"
starts degraded_again "members=/dev/m0,/dev/m1,/dev/m3"
t_run read_only control assemble "members=/dev/m0,/dev/m1,/dev/m3 readonly=1"
t_run read_only_started array_use arr
t_is "$(cat "/sys/block/$ARRAY/ro")" 1 read_only_disk
t_run_fails read_only_write dd if=/dev/zero of="$NODE" bs=4K count=1 oflag=direct status=none
t_run read_only_verify verify
t_run read_only_stop array_stop arr
drop_members
null_remove save

# --- after a crash ------------------------------------------------------------
# Copies made while the array runs are what a power cut leaves behind.
rm "$LOG"
null_members $N $MB
must array_create arr level=5 chunk=64K
must writes >/dev/null
oracle_copy
must array_stop arr
drop_members
t_run crash_dump "$DUMP" /dev/c1
t_is "$(dumped /dev/c1 active)" 1 crash_dump_was_running
t_run crash_dump_in_flight test "$(dumped /dev/c1 regions_in_flight)" -gt 0
# Parity that was not written in time, in the first stripes.
O_DISKS=$N
for stripe in 0 1 2 3 4 5; do
	overwrite "/dev/c$(parity_slot $stripe)" $((OFFSET + stripe * 65536)) 65536
done
MEMBERS=(/dev/c0 /dev/c1 /dev/c2 /dev/c3)
t_run crash_assemble array_assemble arr
t_run crash_verify_at_once verify
t_run crash_resync wait_quiet
t_is "$(<"$A/last_sync_action")" resync crash_was_resync
t_run crash_verify verify
t_run crash_stop array_stop arr
COPIES=("${MEMBERS[@]}")
ALL_ABSENT=1 oracle_verify crash "$LOG"

# In sync by now: it can do without a member.
t_run crash_clean_assemble array_assemble arr members=/dev/c0,/dev/c1,/dev/c3 degraded=1
t_run crash_clean_verify verify
t_run crash_clean_stop array_stop arr
drop_members
oracle_drop

# --- after a crash while degraded ---------------------------------------------
# The others know that a member failed before a write that it missed is done.
rm "$LOG"
null_members $N $MB
must array_create arr level=5 chunk=64K assume_clean=1
must writes >/dev/null
member_fail /dev/m1
must writes >/dev/null
oracle_copy
null_member c1 $MB
must copy_device /dev/m1 /dev/c1
must array_stop arr
drop_members
MEMBERS=(/dev/c0 /dev/c2 /dev/c3)
# What was being written cannot be vouched for without it; who was there is known.
t_run degraded_crash_assemble array_assemble arr force=1
t_is "$(<"$A/degraded")" 1 degraded_crash_recorded
t_run degraded_crash_verify verify
t_run degraded_crash_stop array_stop arr
# It is caught up with the others, or refused, but never believed.
MEMBERS=(/dev/c0 /dev/c1 /dev/c2 /dev/c3)
if array_assemble arr; then
	t_run degraded_crash_caught_up wait_quiet
	t_run degraded_crash_verify_all verify
	t_run degraded_crash_stop_all array_stop arr
fi
for i in 0 1 2 3; do null_remove "c$i"; done

# Dirty and a member gone: refused in words, force starts it.
rm "$LOG"
null_members $N $MB
must array_create arr level=5 chunk=64K
must writes >/dev/null
oracle_copy
must array_stop arr
refused dirty_degraded EUCLEAN force "members=/dev/c0,/dev/c1,/dev/c3 degraded=1"
t_run dirty_forced array_assemble arr members=/dev/c0,/dev/c1,/dev/c3 degraded=1 force=1
t_run dirty_forced_names_regions bash -c 'dmesg | tail -n 40 | grep -q "eraid.*region"'
t_run dirty_forced_verify verify
t_run dirty_forced_stop array_stop arr

# --- RAID-6 after a crash -------------------------------------------------------
# Neither P nor Q were written in time; both are computed anew.
rm "$LOG"
for i in 0 1 2 3; do null_remove "c$i"; done
drop_members
null_members 5 $MB
must array_create arr level=6 chunk=64K
must writes >/dev/null
oracle_copy
must array_stop arr
drop_members
O_DISKS=5
for stripe in 0 1 2 3 4 5; do
	overwrite "/dev/c$(parity_slot $stripe)" $((OFFSET + stripe * 65536)) 65536
	overwrite "/dev/c$((($(parity_slot $stripe) + 1) % 5))" $((OFFSET + stripe * 65536)) 65536
done
MEMBERS=("${COPIES[@]}")
t_run r6_crash_assemble array_assemble arr
t_run r6_crash_verify_at_once verify
t_run r6_crash_resync wait_quiet
t_is "$(<"$A/last_sync_action")" resync r6_crash_was_resync
t_run r6_crash_verify verify
t_run r6_crash_stop array_stop arr
COPIES=("${MEMBERS[@]}")
oracle_verify r6_crash "$LOG"
oracle_drop

# --- copies of a RAID-1 that ran apart -----------------------------------------
for i in 0 1; do null_remove "o$i"; done
null_member o0 $MB
null_member o1 $MB
must array_create other level=1 members=/dev/o0,/dev/o1
must array_stop other
for i in 0 1; do
	must array_assemble other members=/dev/o$i degraded=1
	must dd if=/dev/urandom of="$NODE" bs=64K count=1 oflag=direct status=none
	must array_stop other
done
control assemble "members=/dev/o0,/dev/o1"
t_is "$ERRNO" EUCLEAN halves_ran_apart
t_run halves_say_why test -n "$WHY"
finish
