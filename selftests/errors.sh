#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Members that answer with errors, and commands that must reach them.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16
TRACE=/sys/kernel/tracing

state_of() { cat "$(dir_of "$1")/state"; }

# setup LEVEL MEMBERS [ARGUMENTS]
setup() {
	rm -f "$LOG"
	null_members "$2" $MB cache_size=4
	wrap_members
	must array_create err level="$1" chunk=64K "${@:3}"
	must writes >/dev/null
}

teardown() {
	t_run "$1_stop" array_stop err
	drop_members
}

# Unreadable sectors are answered from the others, and cost nobody his place.
errors_of() { [ "$(<"$(dir_of "$1")/errors")" -gt 0 ]; }
read_errors() {
	local id=read_r$1 offset
	setup "$1" "$2" assume_clean=1
	offset=$(<"$A/rd1/offset")
	# Copies are read from either: let it be this one, the other as a last resort.
	[ "$1" != 1 ] || must store "$(member_dir 0)/sit_out" 1
	dm_change d1 "$(fail_table /dev/m1 error_reads $((offset + 64)) 4096)"
	t_run "${id}_verify" verify
	[ "$1" != 1 ] || must store "$(member_dir 0)/sit_out" 0
	t_is "$(state_of "${MEMBERS[1]}")" in_sync "${id}_not_ejected"
	t_is "$(<"$A/degraded")" 0 "${id}_not_degraded"
	# First they are read without retries; what fails is read again when there is time.
	t_run "${id}_counted" wait_until 10 errors_of "${MEMBERS[1]}"
	# All of it unreadable is no reason either.
	dm_change d1 "$(fail_table /dev/m1 error_reads)"
	t_run "${id}_verify_all" verify
	t_is "$(state_of "${MEMBERS[1]}")" in_sync "${id}_all_not_ejected"
	t_run "${id}_write" writes
	dm_change d1 "$(linear_table /dev/m1)"
	t_run "${id}_verify_after" verify
	oracle_copy
	oracle_verify "$id" "$LOG"
	oracle_drop
	teardown "$id"
}

# RAID-0 has nothing else: an error for that range and for nothing more.
read_error_r0() {
	local offset
	setup 0 3
	offset=$(<"$A/rd1/offset")
	dm_change d1 "$(fail_table /dev/m1 error_reads "$offset" 128)"
	t_run_fails read_r0_error "$EXERCISE" read-load "$NODE" --count 1 --offset 64K --length 64K
	t_run read_r0_before "$EXERCISE" read-load "$NODE" --count 4 --length 64K
	t_run read_r0_after "$EXERCISE" read-load "$NODE" --count 4 --offset 128K --length 1M
	teardown read_r0
}

# A member that cannot be written fails; what was acknowledged is there.
write_errors() {
	local id=write_r$1
	setup "$1" "$2"
	dm_change d1 "$(fail_table /dev/m1 error_writes)"
	t_run "${id}_write" writes
	t_is "$(state_of "${MEMBERS[1]}" | cut -d , -f 1)" faulty "${id}_failed"
	t_is "$(<"$A/degraded")" 1 "${id}_degraded"
	t_run "${id}_verify" verify
	t_run "${id}_stop" array_stop err
	# It is recorded: the array comes back without it, and without being told.
	dm_change d1 "$(linear_table /dev/m1)"
	unset "MEMBERS[1]"
	t_run "${id}_assemble" array_assemble err
	t_is "$(<"$A/degraded")" 1 "${id}_recorded"
	t_run "${id}_verify_again" verify
	oracle_copy
	oracle_verify "$id" "$LOG"
	oracle_drop
	teardown "$id"
}

# A flush that fails on one member says nothing to the user, but the member is
# not trusted any more.
flush_error() {
	local id=flush_r$1
	setup "$1" "$2"
	must dd if=/dev/zero of="$WORK/zero" bs=64K count=1 status=none
	t_run "${id}_before" "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 1 --length 64K
	dm_change d1 "$(fail_table /dev/m1 error_writes)"
	t_run "${id}_fsync" sync "$NODE"
	t_run "${id}_untrusted" wait_until 5 bash -c "grep -q faulty '$(dir_of "${MEMBERS[1]}")/state'"
	t_run "${id}_fsync_again" sync "$NODE"
	dm_change d1 "$(linear_table /dev/m1)"
	t_run "${id}_verify" verify
	teardown "$id"
}

# Parity of what was never written vouches for nothing. A write beside a block that
# cannot be read writes that anew, too, and all else its member has stays as good as
# it was.
written_anew() { # LEVEL MEMBERS
	local id=anew_r$1 offset
	rm -f "$LOG"
	null_members "$2" $MB
	wrap_members
	must array_create err level="$1" chunk=64K
	# The first stripe has data on both: here garbage, which parity knows nothing of.
	offset=$(<"$A/rd1/offset")
	must dd if=/dev/urandom of=/dev/m1 bs=64K count=1 seek=$((offset * 512)) oflag=direct,seek_bytes status=none
	dm_change d1 "$(fail_table /dev/m1 error_reads "$offset" 128)"
	data_on 2
	echo 1 >$TRACE/events/eraid/eraid_write/enable
	t_run "${id}_write" "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 1 --min-size 4K --max-size 4K \
		--offset "$START" --length 4K
	echo 0 >$TRACE/events/eraid/eraid_write/enable
	t_run "${id}_rebuilt" grep -q 'eraid_write: .* kind=rebuild ' $TRACE/trace
	echo >$TRACE/trace
	t_is "$(<"$A/unsynced_regions")" 0 "${id}_nobody_is_stale"
	dm_change d1 "$(linear_table /dev/m1)"
	t_run "${id}_verify" verify
	member_fail "${MEMBERS[2]}"
	t_run "${id}_verify_decoded" verify
	teardown "$id"
}

# Of the members that a write could do without one cannot be read and one cannot
# be written, which is one too many: the write fails, and nothing else is lost.
one_too_many() {
	local id=too_many offset
	setup 5 4
	offset=$(<"$A/rd1/offset")
	dm_change d1 "$(fail_table /dev/m1 error_reads "$offset" 128)"
	data_on 2
	dm_change d2 "$(fail_table /dev/m2 error_writes "$offset" 128)"
	# The first stripe has data on both.
	t_run_fails ${id}_write dd if=/dev/zero of="$NODE" bs=4K count=1 seek=$((START / 4096)) oflag=direct status=none
	t_is "$(<"$A/degraded")" 0 ${id}_nobody_failed
	dm_change d1 "$(linear_table /dev/m1)"
	dm_change d2 "$(linear_table /dev/m2)"
	t_run ${id}_verify_others verify --offset 1M
	data_on 1
	t_run ${id}_verify_unreadable verify --offset "$START" --length "$LENGTH"
	t_run ${id}_in_sync wait_until 60 attr_is unsynced_regions 0
	t_run ${id}_verify_in_sync verify --offset 1M
	teardown ${id}
}

# seen NODE REGEX: how many requests of that kind the disk below got.
seen() {
	local dev
	dev=$(tr : , <"/sys/class/block/$(kernel_name "$1")/dev")
	grep -cE "block_rq_issue: $dev $2" "$WORK/trace"
}

# fua_data NODE: how many durable writes of data; the map, whose writes are durable
# too, lies before it. It may be cleared at any time.
fua_data() {
	local dev
	dev=$(tr : , <"/sys/class/block/$(kernel_name "$1")/dev")
	# "block_rq_issue: DEVICE FLAGS BYTES (COMMAND) SECTOR + SECTORS ..."
	awk -v dev="$dev" -v from="$(<"$A/rd0/offset")" '{
		for (i = 1; i < NF && $i != "block_rq_issue:"; i++);
		if ($(i + 1) != dev || $(i + 2) !~ /^F?WF/) next
		while (i < NF && $i != "+") i++
		if ($(i - 1) >= from) count++
	} END { print count + 0 }' "$WORK/trace"
}

trace_on() { echo >$TRACE/trace; echo 1 >$TRACE/events/block/block_rq_issue/enable; }
trace_off() {
	echo 0 >$TRACE/events/block/block_rq_issue/enable
	cp $TRACE/trace "$WORK/trace"
}

# Flushes reach all members, FUA reaches those that are written.
flush_and_fua() {
	local id=fua_r$1 i fua=0
	rm -f "$LOG"
	null_members "$2" $MB cache_size=4
	must array_create err level="$1" chunk=64K assume_clean=1
	# The first write of a region brings writes of its own.
	must "$EXERCISE" write "$NODE" --log "$LOG" --seed 1 --count 1 --max-size 4K --length 4K >/dev/null
	trace_on
	must "$EXERCISE" write "$NODE" --log "$LOG" --seed 1 --count 1 --min-size 4K --max-size 4K --length 4K --dsync-pct 100 >/dev/null
	trace_off
	for ((i = 0; i < $2; i++)); do [ "$(fua_data "/dev/m$i")" = 0 ] || fua=$((fua + 1)); done
	case $1 in
	0) t_is $fua 1 ${id}_members_with_FUA ;;
	6) t_is $fua 3 ${id}_members_with_FUA ;;
	*) t_is $fua 2 ${id}_members_with_FUA ;;
	esac
	trace_on
	must sync "$NODE"
	trace_off
	for ((i = 0; i < $2; i++)); do
		t_run "${id}_flush_m$i" test "$(seen "/dev/m$i" 'FF?[A-Z]* 0 .* \+ 0 ')" -ge 1
	done
	t_run "${id}_stop" array_stop err
	drop_members
}

start
flush_and_fua 0 3
flush_and_fua 1 2
flush_and_fua 5 4
flush_and_fua 6 5
read_errors 5 4
read_errors 6 5
read_errors 1 2
written_anew 5 4
written_anew 6 5
one_too_many
read_error_r0
write_errors 5 4
write_errors 6 5
write_errors 1 2
flush_error 5 4
flush_error 6 5
flush_error 1 2
finish
