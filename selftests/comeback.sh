#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that failed and missed writes comes back at assembly: nothing it
# missed is read from it, it is caught up, and then it is as good as the others.
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
	t_run "${id}_write_meanwhile" writes
	dm_change d1 "$(linear_table /dev/m1)"
	t_run "${id}_caught_up" wait_until 60 in_sync
	t_is "$(<"$A/last_sync_action")" recover "${id}_recovered"
	member_fail "${MEMBERS[0]}"
	t_run "${id}_verify_without_another" verify
	t_run "${id}_end" array_stop back
	drop_members
}

start
comeback 5 4
comeback 1 2
finish
