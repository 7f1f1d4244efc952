#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Writes to one stripe that are handled together: those that wait for it, and
# those of a sequential writer, whose next write finds old blocks retained.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64 N=5 CHUNK=65536
readonly TRACE=/sys/kernel/tracing LOAD=$ERAID_TOOLS/eraid-load

# Writes of the members take so long.
members_take() { # MS
	local i
	for ((i = 0; i < N; i++)); do
		dm_change "d$i" "$(delay_table "$(below "d$i")" 0 "$1")"
	done
}

trace_begin() {
	echo >$TRACE/trace
	for event in eraid_write eraid_subreq_issue; do
		echo 1 >$TRACE/events/eraid/$event/enable
	done
}
trace_end() {
	for event in eraid_write eraid_subreq_issue; do
		echo 0 >$TRACE/events/eraid/$event/enable
	done
}
# Commands of an operation to members, as traced; metadata lies before the data.
commands() { # OP
	local from=$(($(<"$A/rd0/offset")))
	awk -v op="op=$1" -v from="$from" '/eraid_subreq_issue:/ && index($0, op " ") {
		match($0, /sector=[0-9]+/)
		if (substr($0, RSTART + 7, RLENGTH - 7) + 0 >= from) count++
	} END { print count + 0 }' $TRACE/trace
}
kinds() { grep -o 'eraid_write: .*' $TRACE/trace | grep -c "kind=$1 "; }

# One write has the stripe for 2 s. Four that come meanwhile, in three other
# columns and right behind it, are one batch: every member written once. One
# that would leave a gap is not part of it.
waiting_test() {
	printf '%s\n' 0,W,0,4096 500000,W,$CHUNK,4096 \
		510000,W,$((2 * CHUNK)),4096 520000,W,4096,4096 530000,W,$((3 * CHUNK)),4096 \
		540000,W,40960,4096 >"$WORK/trace.csv"
	# So that the first one need not wait for the region to be marked.
	must dd if=/dev/zero of="$NODE" bs=4k seek=4096 count=1 oflag=direct status=none
	members_take 2000
	trace_begin
	t_run waiting_writes "$LOAD" replay "$WORK/trace.csv" "$NODE"
	trace_end
	members_take 0
	# Data and parity of the first, four columns and parity, data and parity of the last.
	t_is "$(commands write)" $((2 + 5 + 2)) waiting_are_together
	t_is "$(kinds modify)" 2 alone_are_modified
}

# Of three writes that wait together the second cannot be made: its old block is
# unreadable, and what could compute it is missing. The others are made. The
# parity of the stripe, on the last member, takes 2 s to be written.
alone_test() {
	local from
	from=$(($(<"$A/rd0/offset") + 16))
	must dd if=/dev/zero of="$NODE" bs=4k seek=4096 count=1 oflag=direct status=none
	printf '%s\n' 0,W,$CHUNK,4096 500000,W,0,4096 510000,W,4096,4096 520000,W,8192,4096 \
		530000,W,12288,4096 >"$WORK/trace.csv"
	member_fail "${MEMBERS[3]}"
	dm_change d0 "$(fail_table "$(below d0)" error_reads "$from" 8)"
	dm_change d4 "$(delay_table "$(below d4)" 0 2000)"
	"$LOAD" replay "$WORK/trace.csv" "$NODE" >"$WORK/alone"
	t_is "$?" 1 alone_one_fails
	t_note "$(head -c 60 "$WORK/alone")"
	t_run alone_only_one grep -q "requests=4 errors=1 " "$WORK/alone"
	dm_change d4 "$(linear_table "$(below d4)")"
	dm_change d0 "$(linear_table "$(below d0)")"
	# The stripe is free, and not in doubt.
	t_run alone_goes_on timeout 20 dd if=/dev/zero of="$NODE" bs=256k count=1 oflag=direct status=none
	t_is "$(attr unsynced_regions)" 0 alone_in_no_doubt
}

# begun STRIPE: whether members got a command in that stripe, as traced so far.
begun() {
	local from=$(($(<"$A/rd0/offset") + $1 * CHUNK / 512))
	awk -v from=$from -v to=$((from + CHUNK / 512)) '/eraid_subreq_issue:/ {
		match($0, /sector=[0-9]+/)
		sector = substr($0, RSTART + 7, RLENGTH - 7) + 0
		if (sector >= from && sector < to) count++
	} END { exit !count }' $TRACE/trace
}

# A write that is to be durable does not wait with those it joins. While the stripe
# before is written, which here does not end, they would be held for 16 s.
fua_test() {
	local pids=()
	must store "$A/write_hold_us" 1000000
	must dd if=/dev/zero of="$NODE" bs=4k seek=4096 count=1 oflag=direct status=none
	members_take 60000
	trace_begin
	dd if=/dev/zero of="$NODE" bs=64k seek=3 count=1 oflag=direct status=none &
	pids+=($!)
	t_run fua_stripe_before wait_until 5 begun 0
	# Where that one ends, in the next stripe.
	dd if=/dev/zero of="$NODE" bs=4k seek=64 count=1 oflag=direct status=none &
	pids+=($!)
	nap 1
	t_run_fails fua_others_are_held begun 1
	dd if=/dev/zero of="$NODE" bs=4k seek=65 count=1 oflag=direct,dsync status=none &
	pids+=($!)
	t_run fua_is_not_held wait_until 5 begun 1
	# What is delayed ends at once when the tables change.
	members_take 0
	t_run fua_all_end all_end "${pids[@]}"
	trace_end
	must store "$A/write_hold_us" 4000
}

# A writer with 32 requests under way: whole stripes but at its ends.
stream_test() {
	local reads full
	members_take 20
	trace_begin
	t_run stream "$LOAD" closed "$NODE" --size 64K --sequential --in-flight 32 --count 400 --write-percent 100 --seed "$SEED"
	trace_end
	members_take 0
	full=$(kinds full)
	t_note "$full of 400 writes in full stripes, $(commands read) reads, $(commands write) writes"
	t_run stream_is_full test "$full" -ge 360
	reads=$(commands read)
	t_run stream_reads_little test "$reads" -le 20
}

# One write after the other: old blocks are read once for a chunk, not for each.
small_test() { # ID
	local data=$WORK/small.data
	[ -e "$data" ] || dd if=/dev/urandom of="$data" bs=4k count=64 status=none
	trace_begin
	t_run "$1_writes" dd if="$data" of="$NODE" bs=4k oflag=direct conv=notrunc status=none
	trace_end
	t_note "$1: $(commands read) reads for 64 writes"
	t_run "$1_reads_once" test "$(commands read)" -le 20
}

# same ID: all of what small_test wrote is there.
same() { t_run "$1" cmp -n $((64 * 4096)) "$WORK/small.data" "$NODE"; }

hold_test() {
	t_is "$(attr write_hold_us)" 4000 hold_default
	t_run hold_set store "$A/write_hold_us" 0
	t_is "$(attr write_hold_us)" 0 hold_is_set
	store "$A/write_hold_us" 1000001
	t_is "$ERRNO" ERANGE hold_too_long
	store "$A/write_hold_us" soon
	t_is "$ERRNO" EINVAL hold_no_number
	t_is "$(attr write_hold_us)" 0 hold_stays
	t_run hold_back store "$A/write_hold_us" 4000
}

start
null_members $N $MB
wrap_members
must array_create batches level=5 chunk=64K assume_clean=1
hold_test
waiting_test
fua_test
stream_test
small_test healthy
same healthy_same
# What was retained is worth nothing when a member changes; data and parity
# stay right: the other half of it is written degraded.
member_fail "${MEMBERS[1]}"
same degraded_same
rm "$WORK/small.data"
small_test degraded
same degraded_same_again
t_run stop array_stop batches
must array_create alone level=5 chunk=64K assume_clean=1 force=1
alone_test
t_run alone_stop array_stop alone
finish
