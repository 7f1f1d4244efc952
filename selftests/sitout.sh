#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member sits out by hand: reads go around it, writes reach it, what only it
# has is read from it, and it comes back.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16

sit_out() { store "$(dir_of "$1")/sit_out" "$2"; }
sits() { [ "$(<"$(dir_of "$1")/sit_out")" != 0 ]; }

around_it() {
	local id=$1 member=${MEMBERS[1]} before
	# Reconstruction needs parity that is right wherever is read.
	t_run "${id}_sit_out" sit_out "$member" 1
	t_is "$(<"$(dir_of "$member")/sit_out")" 1 "${id}_reads_1"
	t_run "${id}_reason" test -n "$(<"$(dir_of "$member")/sit_out_reason")"
	t_is "$(<"$(dir_of "$member")/state")" in_sync "${id}_not_failed"
	t_is "$(<"$A/degraded")" 0 "${id}_not_degraded"
	t_run "${id}_verify" reads_of verify
	t_is "${READS[1]}" 0 "${id}_not_read"
	before=$(device_stat "$member" 5)
	t_run "${id}_write" writes
	t_run "${id}_is_written" test "$(device_stat "$member" 5)" -gt "$before"
	t_run "${id}_verify_again" reads_of verify
	t_is "${READS[1]}" 0 "${id}_still_not_read"
	t_run "${id}_end" sit_out "$member" 0
	t_run "${id}_verify_end" reads_of verify
	t_run "${id}_read_again" test "${READS[1]}" -gt 0
}

# RAID-6: two sit out at once; with two others failed what they have is read.
two_of_six() {
	local i
	null_members 6 $MB
	t_run r6_create array_create sit6 level=6 chunk=64K assume_clean=1
	t_run r6_write writes
	around_it r6
	for i in 1 4; do t_run "r6_sit_out_$i" sit_out "${MEMBERS[i]}" 1; done
	sit_out "${MEMBERS[2]}" 1
	t_is "$ERRNO" EBUSY r6_third_may_not
	t_run r6_verify_two reads_of verify
	t_is "${READS[1]} ${READS[4]}" "0 0" r6_two_not_read
	t_run r6_write_two writes
	member_fail "${MEMBERS[0]}"
	t_run r6_verify_failed verify
	# One equation is missing for what is gone, so one of them is asked, and not both.
	data_on 0
	t_run r6_failed_is_read reads_of "$EXERCISE" read-load "$NODE" --count 20 --offset "$START" --length "$LENGTH"
	t_is "${READS[1]} ${READS[4]}" "20 0" r6_one_of_two_is_read
	member_fail "${MEMBERS[3]}"
	t_run r6_verify_two_failed reads_of verify
	t_run r6_both_are_read test "${READS[1]}" -gt 0 -a "${READS[4]}" -gt 0
	t_run r6_stop array_stop sit6
	drop_members
	rm "$LOG"
}

last_ditch() {
	# Another member is unreadable in one of its chunks: only the one that sits out helps.
	local offset
	t_run ditch_sit_out sit_out "${MEMBERS[1]}" 1
	offset=$(<"$A/rd2/offset")
	dm_change d2 "$(fail_table /dev/m2 error_reads "$offset" 2048)"
	t_run ditch_unreadable verify
	t_is "$(<"$A/rd2/state")" in_sync ditch_not_ejected
	dm_change d2 "$(linear_table /dev/m2)"
	# Another one has failed.
	member_fail "${MEMBERS[3]}"
	t_run ditch_failed reads_of verify
	t_run ditch_is_read test "${READS[1]}" -gt 0
	t_run ditch_write writes
	t_run ditch_verify verify
}

start
null_members 4 $MB
wrap_members
t_run create array_create sit level=5 chunk=64K assume_clean=1
t_run write writes
around_it r5

# No more than the redundancy allows; nothing changes by being refused.
sit_out "${MEMBERS[0]}" 1
t_is "$ERRNO" ok first_may
sit_out "${MEMBERS[2]}" 1
t_is "$ERRNO" EBUSY second_may_not
t_run second_says_why test -n "$WHY"
t_run_fails second_reads_0 sits "${MEMBERS[2]}"
sit_out "${MEMBERS[0]}" 0

# A number of seconds.
t_run for_seconds sit_out "${MEMBERS[1]}" 3
LEFT=$(<"$(dir_of "${MEMBERS[1]}")/sit_out")
t_run counts_down test "$LEFT" -ge 1 -a "$LEFT" -le 3
nap 1
t_run still_out sits "${MEMBERS[1]}"
back_in() { ! sits "${MEMBERS[1]}"; }
t_run back_in wait_until 4 back_in

for bad in -1 x 1.5 "1 2" ""; do
	sit_out "${MEMBERS[1]}" "$bad"
	t_is "$ERRNO" EINVAL "refused_'$bad'"
done
sit_out "${MEMBERS[1]}" 100000000000000000000
t_is "$ERRNO" ERANGE refused_10^20

last_ditch
sit_out "${MEMBERS[0]}" 1
t_is "$ERRNO" EBUSY none_may_when_degraded
t_run stop array_stop sit
drop_members
rm "$LOG"

two_of_six

null_members 2 $MB
t_run r1_create array_create sit1 level=1
t_run r1_write writes
around_it r1
t_run r1_stop array_stop sit1
drop_members
rm "$LOG"

null_members 2 $MB
t_run r0_create array_create sit0 level=0 chunk=64K
sit_out /dev/m0 1
t_is "$ERRNO" EBUSY r0_has_nothing_else
t_run r0_stop array_stop sit0
finish
