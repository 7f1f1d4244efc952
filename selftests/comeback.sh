#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that failed and missed writes comes back at assembly, or two of a
# RAID-6: nothing they missed is read from them, they are caught up, one after the
# other, and then they are as good as the others.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16

in_sync() { quiet && attr_is unsynced_regions 0; }

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
	dm_change d1 "$(delay_table /dev/m1 0 300)"
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
	t_run "${id}_caught_up" wait_until 60 in_sync
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
	dm_change d1 "$(delay_table /dev/m1 0 300)"
	dm_change d2 "$(delay_table /dev/m2 0 300)"
	t_run "${id}_assemble" array_assemble back
	t_is "$(<"$A/degraded")" 0 "${id}_not_degraded"
	t_run "${id}_verify_at_once" verify
	t_run "${id}_write_meanwhile" writes
	dm_change d1 "$(linear_table /dev/m1)"
	dm_change d2 "$(linear_table /dev/m2)"
	t_run "${id}_caught_up" wait_until 60 in_sync
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

start
comeback 5 4
comeback 6 5
comeback_of_two
comeback 1 2
finish
