#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# An array without one of its members: it reads, writes, stops and comes back,
# and asks no member for more than it must.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16

# lose_one LEVEL MEMBERS VICTIM_SLOT STATUS
lose_one() {
	local id=r$1n$2 victim=/dev/m$3 other=$((($3 + 1) % $2))
	LOG=$WORK/$id.log
	null_members "$2" $MB
	t_run "${id}_create" array_create "$id" level="$1" chunk=64K || return 0
	t_run "${id}_write" writes
	member_fail "$victim"
	t_is "$(<"$A/degraded")" 1 "${id}_degraded"
	t_is "$(<"$(dir_of "$victim")/state")" faulty "${id}_state"
	t_run "${id}_status" grep -qF "[$2/$(($2 - 1))] $4" "$A/status"
	t_run "${id}_verify" verify
	t_run "${id}_write_degraded" writes
	t_run "${id}_verify_degraded" verify_all

	# What the data needs cannot be failed, what is in use cannot be removed.
	if [ "$1" = 5 ]; then
		store "$(dir_of "/dev/m$other")/state" faulty
		t_is "$ERRNO" EBUSY "${id}_last_ones_stay"
		t_run "${id}_says_why" test -n "$WHY"
	fi
	store "$(dir_of "/dev/m$other")/state" remove
	t_is "$ERRNO" EBUSY "${id}_in_use_stays"
	t_is "$(<"$A/degraded")" 1 "${id}_nothing_changed"

	member_remove "$victim"
	t_run "${id}_removed" test ! -e "$A/rd$3" -a ! -e "/sys/block/$ARRAY/slaves/m$3"
	t_run "${id}_removed_is_free" wait_until 5 claim "$victim"
	t_run "${id}_verify_removed" verify

	t_run "${id}_stop" array_stop "$ARRAY"
	unset "MEMBERS[$3]"
	t_run "${id}_assemble" array_assemble "$id"
	t_is "$(<"$A/degraded")" 1 "${id}_still_degraded"
	t_run "${id}_verify_assembled" verify
	t_run "${id}_write_assembled" writes
	t_run "${id}_verify_end" verify
	t_run "${id}_stop_again" array_stop "$ARRAY"
	drop_members
	rm "$LOG"
}

# RAID-6 without two of its members, which go one after the other.
lose_two() {
	local id=r6n6_two a=$1 b=$2 third=$((($2 + 1) % 6)) up=UUUUUU
	[ "$third" != "$a" ] || third=$(((a + 1) % 6))
	LOG=$WORK/$id.log
	null_members 6 $MB
	t_run "${id}_create" array_create "$id" level=6 chunk=64K || return 0
	t_run "${id}_write" writes
	member_fail "/dev/m$a"
	t_run "${id}_write_one_missing" writes
	member_fail "/dev/m$b"
	up=${up:0:a}_${up:a+1}
	up=${up:0:b}_${up:b+1}
	t_is "$(<"$A/degraded")" 2 "${id}_degraded"
	t_run "${id}_status" grep -qF "[6/4] [$up]" "$A/status"
	t_run "${id}_verify" verify
	t_run "${id}_write_degraded" writes
	t_run "${id}_verify_degraded" verify_all
	store "$(dir_of "/dev/m$third")/state" faulty
	t_is "$ERRNO" EBUSY "${id}_last_ones_stay"
	member_remove "/dev/m$a"
	t_run "${id}_stop" array_stop "$ARRAY"
	unset "MEMBERS[$a]" "MEMBERS[$b]"
	t_run "${id}_assemble" array_assemble "$id"
	t_is "$(<"$A/degraded")" 2 "${id}_still_degraded"
	t_run "${id}_verify_assembled" verify
	t_run "${id}_write_assembled" writes
	t_run "${id}_verify_end" verify
	t_run "${id}_stop_again" array_stop "$ARRAY"
	drop_members
	rm "$LOG"
}

# writes_until FILE: writes, over and over, until the file is there.
writes_until() {
	local round
	for ((round = 0; ; round++)); do
		"$EXERCISE" write "$NODE" --log "$LOG" --seed $((SEED + round)) --count $((COUNT * 5)) \
			--threads 4 --unit 64K || return 1
		[ ! -e "$1" ] || return 0
	done
}

# write_ended: a write to the array that began after this ends.
write_ended() {
	local before
	before=$(device_stat "$NODE" 5)
	# Four may have been under way.
	wait_until 5 more_writes $((before + 4))
}
more_writes() { [ "$(device_stat "$NODE" 5)" -gt "$1" ]; }

# Writes go on while first one and then another member of a RAID-6 is failed.
fail_under_writes() {
	local id=r6_under_writes pid
	LOG=$WORK/$id.log
	null_members 6 $MB
	t_run "${id}_create" array_create "$id" level=6 chunk=64K || return 0
	writes_until "$WORK/enough" >"$WORK/under" 2>&1 &
	pid=$!
	t_run "${id}_begin" write_ended
	member_fail /dev/m4
	t_run "${id}_go_on_without_one" write_ended
	member_fail /dev/m1
	t_run "${id}_go_on_without_two" write_ended
	: >"$WORK/enough"
	t_run "${id}_writes_end" wait $pid || t_note "$(tail -n 5 "$WORK/under")"
	t_is "$(<"$A/degraded")" 2 "${id}_degraded"
	t_run "${id}_verify" verify
	t_run "${id}_stop" array_stop "$ARRAY"
	drop_members
}

# Scenario 24: exactly n-1 reads of members for a random read of 4 KiB of what is
# missing, one for the rest.
count_reads() {
	local want=40
	null_members 5 $MB
	LOG=$WORK/count.log
	array_create count level=5 chunk=64K || t_bail "create: $WHY"
	must writes >/dev/null
	data_on 2
	t_run count_healthy reads_of "$EXERCISE" read-load "$NODE" --count $want \
		--offset "$START" --length "$LENGTH" --seed "$SEED"
	t_is "${READS[*]}" "0 0 $want 0 0" one_read_when_healthy
	member_fail /dev/m2
	t_run count_missing reads_of "$EXERCISE" read-load "$NODE" --count $want \
		--offset "$START" --length "$LENGTH" --seed "$SEED"
	t_is "${READS[*]}" "$want $want 0 $want $want" n_minus_1_reads_when_missing
	data_on 3
	t_run count_there reads_of "$EXERCISE" read-load "$NODE" --count $want \
		--offset "$START" --length "$LENGTH" --seed "$SEED"
	t_is "${READS[*]}" "0 0 0 $want 0" one_read_of_what_is_there
	t_run count_stop array_stop "$ARRAY"
	drop_members
}

# RAID-6 needs as many, whether one data chunk of a stripe is missing or two.
count_reads_of_two() {
	local want=40
	null_members 6 $MB
	LOG=$WORK/count.log
	array_create count level=6 chunk=64K || t_bail "create: $WHY"
	must writes >/dev/null
	# The first stripe has P on slot 5, Q on 0 and data on 1 to 4.
	data_on 2
	t_is "$START" 65536 count_two_where
	member_fail /dev/m2
	t_run count_two_one_missing reads_of "$EXERCISE" read-load "$NODE" --count $want \
		--offset "$START" --length "$LENGTH" --seed "$SEED"
	t_is "${READS[*]}" "0 $want 0 $want $want $want" n_minus_2_reads_by_P
	member_fail /dev/m3
	t_run count_two_missing reads_of "$EXERCISE" read-load "$NODE" --count $want \
		--offset "$START" --length "$LENGTH" --seed "$SEED"
	t_is "${READS[*]}" "$want $want 0 0 $want $want" n_minus_2_reads_by_P_and_Q
	t_run count_two_stop array_stop "$ARRAY"
	drop_members
}

# A second device goes: errors, no hang, and what is left can be read.
second_failure() {
	null_members 4 $MB
	LOG=$WORK/second.log
	wrap_members
	array_create second level=5 chunk=64K || t_bail "create: $WHY"
	must writes >/dev/null
	member_fail "${MEMBERS[0]}"
	dm_change d1 "$(error_table /dev/m1)"
	data_on 1
	t_run_fails second_own timeout 20 "$EXERCISE" read-load "$NODE" --count 1 --offset "$START" --length "$LENGTH"
	data_on 0
	t_run_fails second_missing timeout 20 "$EXERCISE" read-load "$NODE" --count 1 --offset "$START" --length "$LENGTH"
	t_is "$(timeout 20 "$EXERCISE" read-load "$NODE" --count 1 --offset "$START" --length "$LENGTH" 2>&1 |
		grep -o 'os error 5')" "os error 5" second_is_EIO
	data_on 2
	t_run second_others_read timeout 20 "$EXERCISE" read-load "$NODE" --count 5 --offset "$START" --length "$LENGTH"
	t_run_fails second_write timeout 20 "$EXERCISE" write "$NODE" --log "$WORK/lost.log" --seed 1 --count 20
	t_run second_stop array_stop "$ARRAY"
	drop_members
}

# Created without a member from the start.
born_degraded() {
	null_members 3 $MB
	LOG=$WORK/born.log
	t_run born_create array_create born level=5 chunk=64K members=/dev/m0,missing,/dev/m2 || return 0
	t_is "$(<"$A/degraded")" 1 born_degraded
	t_run born_write writes
	t_run born_verify verify
	t_run born_stop array_stop born
	drop_members
}

start
lose_one 1 2 0 '[_U]'
lose_one 5 5 1 '[U_UUU]'
lose_one 6 5 3 '[UUU_U]'
random_below 6
FIRST=$RANDOM_NUMBER
random_below 5
lose_two $FIRST $(((FIRST + 1 + RANDOM_NUMBER) % 6))
fail_under_writes
count_reads
count_reads_of_two
second_failure
born_degraded
finish
