#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that failed and missed writes comes back at assembly, or two of a
# RAID-6: nothing they missed is read from them, they are caught up, one after the
# other, and then they are as good as the others.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16


# comeback LEVEL MEMBERS
comeback() {
	local id=r$1
	rm -f "$LOG"
	null_members "$2" $MB
	wrap_members
	must array_create back level="$1" chunk=64K
	t_run "${id}_write" writes
	member_fail "${MEMBERS[1]}"
	t_run "${id}_write_degraded" writes
	t_run "${id}_stop" array_stop back
	# The one that is caught up cannot be written: only what it missed counts.
	dm_change d1 "$(delay_table /dev/m1 0 100)"
	t_run "${id}_assemble" array_assemble back
	t_is "$(<"$A/degraded")" 0 "${id}_not_degraded"
	t_run "${id}_verify_at_once" verify
	if [ "$1" != 6 ]; then
		# What it missed is nowhere but on the others.
		store "$(dir_of "${MEMBERS[0]}")/state" faulty
		t_is "$ERRNO" EBUSY "${id}_others_stay"
		t_run "${id}_says_why" grep -q "still being caught up" <<<"$WHY"
	fi
	t_run "${id}_write_meanwhile" writes
	dm_change d1 "$(linear_table /dev/m1)"
	t_run "${id}_caught_up" wait_until 60 quiet
	t_is "$(<"$A/last_sync_action")" recover "${id}_recovered"
	member_fail "${MEMBERS[0]}"
	t_run "${id}_verify_without_another" verify
	t_run "${id}_end" array_stop back
	drop_members
}

# Two members of a RAID-6, which missed different writes.
comeback_of_two() {
	local id=r6_two
	rm -f "$LOG"
	null_members 6 $MB
	wrap_members
	must array_create back level=6 chunk=64K
	t_run "${id}_write" writes
	member_fail "${MEMBERS[1]}"
	t_run "${id}_write_one_missing" writes
	member_fail "${MEMBERS[2]}"
	t_run "${id}_write_two_missing" writes
	t_run "${id}_stop" array_stop back
	dm_change d1 "$(delay_table /dev/m1 0 100)"
	dm_change d2 "$(delay_table /dev/m2 0 100)"
	t_run "${id}_assemble" array_assemble back
	t_is "$(<"$A/degraded")" 0 "${id}_not_degraded"
	t_run "${id}_verify_at_once" verify
	t_run "${id}_write_meanwhile" writes
	dm_change d1 "$(linear_table /dev/m1)"
	dm_change d2 "$(linear_table /dev/m2)"
	t_run "${id}_caught_up" wait_until 60 quiet
	t_is "$(<"$A/last_sync_action")" recover "${id}_recovered"
	oracle_copy
	t_run "${id}_stop_caught_up" array_stop back
	oracle_verify "$id" "$LOG"
	oracle_drop
	t_run "${id}_assemble_again" array_assemble back
	member_fail "${MEMBERS[0]}"
	member_fail "${MEMBERS[3]}"
	t_run "${id}_verify_without_others" verify
	t_run "${id}_end" array_stop back
	drop_members
}

# A write error on a member that another one is being caught up from: it just
# misses that write. Were it failed, all that the other one missed would be gone.
source_fails() {
	local id=source
	rm -f "$LOG"
	null_members 4 64
	wrap_members
	must array_create back level=5 chunk=64K
	t_run ${id}_write writes --length 8M
	member_fail "${MEMBERS[1]}"
	t_run ${id}_write_degraded writes --length 8M
	t_run ${id}_stop array_stop back
	dm_change d1 "$(delay_table /dev/m1 0 1000)"
	t_run ${id}_assemble array_assemble back
	# In another region than what was missed; its first write marks it.
	data_on 2 300
	must dd if=/dev/zero of="$NODE" bs=4K count=1 seek=$((START / 4096)) oflag=direct status=none
	dm_change d2 "$(fail_table /dev/m2 error_writes)"
	t_run ${id}_write_goes_on dd if=/dev/urandom of="$NODE" bs=4K count=1 seek=$((START / 4096)) oflag=direct status=none
	t_is "$(<"$A/sync_action")" recover ${id}_still_caught_up
	t_is "$(attr unsynced_regions)" 2 ${id}_misses_it
	dd if="$NODE" of="$WORK/written" bs=4K count=1 skip=$((START / 4096)) iflag=direct status=none
	t_run_fails ${id}_written cmp -s -n 4096 "$WORK/written" /dev/zero
	dm_change d2 "$(linear_table /dev/m2)"
	t_is "$(<"$A/degraded")" 0 ${id}_nobody_failed
	t_run ${id}_verify verify --length 8M
	dm_change d1 "$(linear_table /dev/m1)"
	t_run ${id}_caught_up wait_until 60 quiet
	member_fail "${MEMBERS[2]}"
	t_run ${id}_verify_without verify --length 8M
	dd if="$NODE" of="$WORK/again" bs=4K count=1 skip=$((START / 4096)) iflag=direct status=none
	t_run ${id}_written_without cmp "$WORK/written" "$WORK/again"
	t_run ${id}_end array_stop back
	drop_members
}

# A write error on a member that another one is being caught up from, in the same
# region and where that one has everything already: the write fails, and nothing
# else is lost. Were the member stale there, both would be, for good.
source_fails_near() { # LEVEL MEMBERS SOURCE
	local id=r$1_near
	rm -f "$LOG"
	null_members "$2" $MB
	wrap_members
	must array_create back level="$1" chunk=64K
	t_run "${id}_write" writes --length 8M
	member_fail "${MEMBERS[1]}"
	t_run "${id}_write_degraded" writes --length 8M
	t_run "${id}_stop" array_stop back
	dm_change d1 "$(delay_table /dev/m1 0 300)"
	t_run "${id}_assemble" array_assemble back
	START=0
	[ "$1" = 1 ] || data_on "$3"
	must dd if="$NODE" of="$WORK/near" bs=4K count=1 skip=$((START / 4096)) iflag=direct status=none
	# The region is marked, and the first stripes are done.
	must dd if="$WORK/near" of="$NODE" bs=4K seek=$((START / 4096)) oflag=direct status=none
	nap 1.5
	dm_change "d$3" "$(fail_table "/dev/m$3" error_writes)"
	t_run_fails "${id}_write_fails" dd if="$WORK/near" of="$NODE" bs=4K seek=$((START / 4096)) oflag=direct status=none
	dm_change "d$3" "$(linear_table "/dev/m$3")"
	dm_change d1 "$(linear_table /dev/m1)"
	t_is "$(<"$A/degraded")" 0 "${id}_nobody_failed"
	if [ "$1" != 1 ]; then
		# Parity may not match in one stripe, and it is not known in which.
		t_run "${id}_end_in_doubt" array_stop back
		t_run_fails "${id}_in_doubt" control assemble "members=$(with_commas "${MEMBERS[@]}")"
		t_is "$ERRNO" EUCLEAN "${id}_says_so"
		t_run "${id}_forced" array_assemble back force=1
	fi
	t_run "${id}_verify" verify --length 8M
	t_run "${id}_caught_up" wait_until 60 quiet
	member_fail "${MEMBERS[$3]}"
	t_run "${id}_verify_without" verify --length 8M
	t_run "${id}_end" array_stop back
	drop_members
}

start
comeback 5 4
source_fails
source_fails_near 5 4 2
source_fails_near 1 2 0
comeback 6 5
comeback_of_two
comeback 1 2
finish
