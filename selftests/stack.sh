#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Arrays as members of arrays: a RAID-0 over RAID-1 pairs, a RAID-5 over RAID-0.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=32

# pairs COUNT: low0, low1, ... of two members each; sets LOWER to their nodes.
pairs() {
	local i
	LOWER=()
	for ((i = 0; i < $1; i++)); do
		must array_create "low$i" level=1 members="${MEMBERS[2 * i]},${MEMBERS[2 * i + 1]}"
		LOWER+=("$NODE")
	done
}

raid10() {
	null_members 6 $MB
	pairs 3
	MEMBERS=("${LOWER[@]}")
	t_run r10_create array_create top level=0 chunk=64K || return 0
	t_is "$(ls "/sys/block/$ARRAY/slaves" | tr '\n' ' ')" "eraid0 eraid1 eraid2 " r10_slaves
	t_run r10_write writes --dsync-pct 5
	t_run r10_verify verify
	# A member of a lower array fails under load, nobody above notices.
	writes >"$WORK/out" 2>&1 &
	array_use low1
	member_fail /dev/m2
	t_run r10_write_failing wait $!
	t_is "$(<"$A/degraded")" 1 r10_lower_degraded
	array_use top
	t_is "$(<"$A/degraded")" 0 r10_upper_not_degraded
	t_run r10_verify_degraded verify
	# From the top down: what is a member cannot be stopped.
	control stop low0
	t_is "$ERRNO" EBUSY r10_lower_is_busy
	t_run r10_says_whose_member grep -q "member of array 'top' ($ARRAY)" <<<"$WHY"
	t_run r10_stop array_stop top
	for i in 0 1 2; do t_run "r10_stop_low$i" array_stop "low$i"; done
	# From the bottom up again; the failed one is caught up.
	MEMBERS=(/dev/m0 /dev/m1)
	t_run r10_assemble_low0 array_assemble low0
	MEMBERS=(/dev/m2 /dev/m3)
	t_run r10_assemble_low1 array_assemble low1
	MEMBERS=(/dev/m4 /dev/m5)
	t_run r10_assemble_low2 array_assemble low2
	MEMBERS=("${LOWER[@]}")
	t_run r10_assemble array_assemble top
	t_run r10_verify_again verify
	array_use low1
	t_run r10_recovers wait_quiet
	t_is "$(<"$A/degraded")" 0 r10_recovered
	array_use top
	t_run r10_write_again writes
	t_run r10_verify_end verify
	t_run r10_stop_again array_stop top
	for i in 0 1 2; do t_run "r10_stop_low${i}_again" array_stop "low$i"; done
	drop_members
	rm "$LOG"
}

# A whole lower array is a member that can fail.
raid50() {
	local i
	null_members 6 $MB
	LOWER=()
	for i in 0 1 2; do
		must array_create "low$i" level=0 chunk=64K members="/dev/m$((2 * i)),/dev/m$((2 * i + 1))"
		LOWER+=("$NODE")
	done
	MEMBERS=("${LOWER[@]}")
	t_run r50_create array_create top level=5 chunk=64K || return 0
	t_run r50_write writes
	member_fail "${LOWER[1]}"
	t_run r50_write_failed writes
	t_run r50_verify verify
	member_remove "${LOWER[1]}"
	t_run r50_stop_removed array_stop low1
	t_run r50_stop array_stop top
	for i in 0 2; do t_run "r50_stop_low$i" array_stop "low$i"; done
	drop_members
}

start
raid10
raid50
finish
