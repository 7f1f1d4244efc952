#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A failed disk is replaced while the array runs. Nothing is read from the new one
# where it was not rebuilt yet, a stop, a crash or a failure in between costs
# nothing, and in the end it is as good as the one before. The old one, should it
# come back, is given only what it missed.
. ./ktap_helpers.sh
. ./lib.sh

# Four regions of a member, with a chunk of 64 KiB.
readonly MB=64
readonly TRACE=/sys/kernel/tracing

# spare_disk: one more disk below a mapped one; sets SPARE, and its mapped name.
spare_disk() {
	null_member "m$1" $MB
	dm "d$1" "$(linear_table "/dev/m$1")"
	SPARE=$DM
}

slow_down() { dm_change "d$1" "$(delay_table "/dev/m$1" 0 "$2")"; }
speed_up() { dm_change "d$1" "$(linear_table "/dev/m$1")"; }

state_of() { echo "$(<"$(dir_of "$1")/state")"; }
state_is() { [ "$(<"$(dir_of "$1")/state")" = "$2" ]; }
new_dev() { store "$A/new_dev" "$1"; }
recovered() { quiet && attr_is degraded "${1:-0}"; }
# Some regions are done and some are not.
half_done() { [ "$(<"$(dir_of "$SPARE")/recovery_start")" -gt 0 ] 2>/dev/null; }

# The whole array is written to, so that every region has something in it.
fill() {
	# shellcheck disable=SC2034 # for "writes"
	local COUNT=400
	writes
}

# restart: nothing is marked as being written any more.
restart() {
	array_stop rep && array_assemble rep
}

# replace LEVEL MEMBERS
replace() {
	local id=r$1 reads
	rm -f "$LOG"
	null_members "$2" $MB
	wrap_members
	spare_disk "$2"
	must array_create rep level="$1" chunk=64K
	t_run "${id}_fill" fill
	member_fail "${MEMBERS[1]}"
	member_remove "${MEMBERS[1]}"
	t_run "${id}_write_degraded" writes
	slow_down "$2" 20
	echo >$TRACE/trace
	t_run "${id}_add" new_dev "$SPARE"
	slow_down "$2" 200
	t_is "$(state_of "$SPARE")" spare "${id}_is_a_spare"
	t_is "$(attr degraded)" 1 "${id}_still_degraded"
	t_run "${id}_rebuild_begins" wait_until 5 attr_is sync_action recover
	t_run "${id}_status_says_so" grep -q 'recover = [0-9]*% ([0-9]*/[0-9]*).*speed=' "$A/status"
	if [ "$1" != 6 ]; then
		t_run_fails "${id}_others_are_needed" store "$(dir_of "${MEMBERS[0]}")/state" faulty
		t_is "$ERRNO" EBUSY "${id}_others_stay"
	fi
	echo 1 >$TRACE/events/eraid/eraid_subreq_issue/enable
	t_run "${id}_verify_at_once" verify
	echo 0 >$TRACE/events/eraid/eraid_subreq_issue/enable
	unrebuilt_reads
	t_is "$reads" 0 "${id}_nothing_unrebuilt_is_read"
	t_run "${id}_write_meanwhile" writes
	speed_up "$2"
	t_run "${id}_rebuilt" wait_until 60 recovered
	t_run "${id}_in_sync" wait_until 5 state_is "$SPARE" in_sync
	t_is "$(<"$A/last_sync_action")" recover "${id}_was_a_recovery"
	t_run "${id}_event_added" grep -q "eraid_ereport: .*member=${SPARE##*/} slot=1 reason=added: is being rebuilt" $TRACE/trace
	t_run "${id}_event_rebuilt" grep -q "eraid_ereport: .*member=${SPARE##*/} slot=1 reason=rebuilt" $TRACE/trace
	t_run "${id}_verify" verify
	oracle_copy
	t_run "${id}_stop" array_stop rep
	oracle_verify "$id" "$LOG"
	oracle_drop
	# The old one is another's now.
	t_run_fails "${id}_old_one" control assemble "members=$(with_commas "${MEMBERS[@]}") degraded=1"
	t_run "${id}_old_one_is_named" grep -q "belongs to another member now" <<<"$WHY"
	MEMBERS[1]=$SPARE
	t_run "${id}_assemble" array_assemble rep
	t_is "$(<"$A/degraded")" 0 "${id}_complete"
	member_fail "${MEMBERS[0]}"
	t_run "${id}_verify_without_another" verify
	t_run "${id}_end" array_stop rep
	drop_members
}

# Sets "reads" to how many reads of users went to slot 1 at or behind where its
# rebuild was when they began. Reads of the rebuild are never from there.
unrebuilt_reads() {
	local offset start
	offset=$(<"$(dir_of "$SPARE")/offset")
	start=$(<"$(dir_of "$SPARE")/recovery_start")
	[ "$start" != none ] || t_bail "the rebuild was over too soon"
	# A region more: what was done in the meantime.
	reads=$(awk -v from="$((offset + start + 32768))" '/slot=1 op=read/ {
		match($0, /sector=[0-9]+/); if (substr($0, RSTART + 7, RLENGTH - 7) + 0 >= from) n++
	} END { print n + 0 }' $TRACE/trace)
}

# A rebuild is stopped, and crashes, and each time goes on where it was.
interrupted() {
	local id=interrupted before i
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	spare_disk 4
	must array_create rep level=5 chunk=64K
	t_run ${id}_fill fill
	member_fail "${MEMBERS[1]}"
	member_remove "${MEMBERS[1]}"
	slow_down 4 10
	t_run ${id}_add new_dev "$SPARE"
	t_run ${id}_some_is_done wait_until 60 half_done
	slow_down 4 100
	before=$(<"$(dir_of "$SPARE")/recovery_start")
	t_run ${id}_stop array_stop rep
	MEMBERS[1]=$SPARE
	t_run ${id}_assemble array_assemble rep
	t_is "$(state_of "$SPARE")" spare ${id}_goes_on
	t_is "$(attr degraded)" 1 ${id}_still_degraded
	t_run ${id}_from_where_it_was test "$(<"$(dir_of "$SPARE")/recovery_start")" -ge "$before"
	t_run ${id}_verify verify
	# What a power cut leaves, when nothing was written for a while.
	for i in 0 1 2 3; do
		null_member "c$i" $MB
		must copy_device "${MEMBERS[i]}" "/dev/c$i"
	done
	t_run ${id}_stop_again array_stop rep
	drop_members
	MEMBERS=(/dev/c0 /dev/c1 /dev/c2 /dev/c3)
	SPARE=/dev/c1
	t_run ${id}_assemble_crashed array_assemble rep
	t_run ${id}_verify_crashed verify
	t_run ${id}_rebuilt wait_until 60 recovered
	member_fail /dev/c2
	t_run ${id}_verify_without verify
	t_run ${id}_end array_stop rep
	for i in 0 1 2 3; do null_remove "c$i"; done
}

# The new one fails; nothing else is harmed. It is added once more, and goes on.
new_one_fails() {
	local id=new_fails
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	spare_disk 4
	must array_create rep level=5 chunk=64K
	t_run ${id}_fill fill
	t_run ${id}_restart restart
	member_fail "${MEMBERS[1]}"
	member_remove "${MEMBERS[1]}"
	slow_down 4 10
	t_run ${id}_add new_dev "$SPARE"
	t_run ${id}_some_is_done wait_until 60 half_done
	dm_change d4 "$(fail_table /dev/m4 error_writes)"
	t_run ${id}_failed wait_until 20 state_is "$SPARE" faulty,write_error
	t_is "$(attr degraded)" 1 ${id}_degraded
	t_run ${id}_idle wait_until 20 attr_is sync_action idle
	t_run ${id}_verify verify
	# Not in the first region.
	t_run ${id}_write writes --offset 100M --length 8M
	speed_up 4
	member_remove "$SPARE"
	t_run ${id}_add_again wait_until 5 new_dev "$SPARE"
	t_run ${id}_some_is_done_already half_done
	t_run ${id}_rebuilt wait_until 60 recovered
	member_fail "${MEMBERS[2]}"
	t_run ${id}_verify_without verify
	t_run ${id}_end array_stop rep
	drop_members
}

# The member of the slot is back: it is given what it missed, no more.
comes_back() {
	local id=back written
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	must array_create rep level=5 chunk=64K
	t_run ${id}_fill fill
	t_run ${id}_restart restart
	member_fail "${MEMBERS[1]}"
	member_remove "${MEMBERS[1]}"
	t_run ${id}_write writes --length 8M
	written=$(device_stat "${MEMBERS[1]}" 7)
	t_run ${id}_add wait_until 5 new_dev "${MEMBERS[1]}"
	t_run ${id}_caught_up wait_until 60 recovered
	# A region, of four, and the map.
	written=$(($(device_stat "${MEMBERS[1]}" 7) - written))
	t_run ${id}_not_all test $written -lt 50000
	member_fail "${MEMBERS[2]}"
	t_run ${id}_verify_without verify
	t_run ${id}_end array_stop rep
	drop_members
}

# Nothing was written but at the start: that is all there is to rebuild.
hardly_used() {
	local id=hardly_used written
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	spare_disk 4
	must array_create rep level=5 chunk=64K
	t_run ${id}_write writes --length 8M
	member_fail "${MEMBERS[1]}"
	member_remove "${MEMBERS[1]}"
	written=$(device_stat "$SPARE" 7)
	t_run ${id}_add new_dev "$SPARE"
	t_run ${id}_rebuilt wait_until 60 recovered
	written=$(($(device_stat "$SPARE" 7) - written))
	t_run ${id}_not_all test $written -lt 60000
	t_run ${id}_write_elsewhere writes --offset 100M --length 8M
	member_fail "${MEMBERS[2]}"
	t_run ${id}_verify_without verify
	t_run ${id}_end array_stop rep
	drop_members
}

# refused NAME ERRNO WORDS DEVICE
refused() {
	t_run_fails "$1" new_dev "$4"
	t_is "$ERRNO" "$2" "${1}_errno"
	t_run "${1}_why" grep -q "$3" <<<"$WHY"
}

refusals() {
	null_members 4 $MB
	null_member small 32
	null_member other $MB
	null_member big $MB blocksize=4096
	must array_create rep level=5 chunk=64K
	must array_create other level=1 members=/dev/other,missing
	array_use rep
	member_fail /dev/m1
	member_remove /dev/m1
	refused no_path EINVAL "path" nonsense
	refused no_device ENOENT "" /dev/nothing
	refused of_another EBUSY "is a member of array 'other'" /dev/other
	refused twice EBUSY "is a member of array 'rep'" /dev/m2
	refused too_small ENOSPC "a member of rep needs" /dev/small
	refused large_blocks EINVAL "logical blocks of 4096 bytes" /dev/big
	must array_stop other
	refused foreign EEXIST "is a member of the eRAID array other; clear it first" /dev/other
	array_use rep
	t_is "$(attr degraded)" 1 refused_changes_nothing
	t_run stop_refusing array_stop rep
	t_run read_only control assemble "members=/dev/m0,/dev/m2,/dev/m3 readonly=1"
	array_use rep
	refused read_only_array EROFS "read-only" /dev/m1
	t_run stop_read_only array_stop rep
	must array_create r0 level=0 members=/dev/m0,/dev/m1 force=1
	refused raid0 EINVAL "RAID-0" /dev/m2
	t_run stop_raid0 array_stop r0
	drop_members
	null_remove small
	null_remove other
	null_remove big
}

# As fast as it may, not faster.
limited() {
	local id=limited begin
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	spare_disk 4
	must array_create rep level=5 chunk=64K
	t_run ${id}_fill fill
	t_run_fails ${id}_zero store "$A/sync_speed_max" 0
	must store "$A/sync_speed_max" 8000
	t_is "$(attr sync_speed_max)" 8000 ${id}_is_set
	t_is "$(attr sync_speed)" none ${id}_no_speed
	member_fail "${MEMBERS[1]}"
	member_remove "${MEMBERS[1]}"
	begin=$SECONDS
	t_run ${id}_add new_dev "$SPARE"
	nap 3
	t_run ${id}_speed test "$(attr sync_speed)" -le 12000
	t_run ${id}_rebuilt wait_until 60 recovered
	# Some 58 MiB, the first 8 at once.
	t_run ${id}_takes_its_time test $((SECONDS - begin)) -ge 5
	t_run ${id}_end array_stop rep
	drop_members
}

start
echo 1 >$TRACE/events/eraid/eraid_ereport/enable
refusals
replace 5 4
only_in smp replace 1 2
only_in smp replace 6 5
interrupted
new_one_fails
comes_back
hardly_used
only_in smp limited
echo 0 >$TRACE/events/eraid/eraid_ereport/enable
finish
