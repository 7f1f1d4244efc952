#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Reads that others answer while a member is late, in each way to read, under writes to the same
# stripes: no block is of two generations, and nothing is written into the memory of a read that
# has ended. Also while the member is failed and removed, and when readers are killed and the array
# is stopped.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 LIMIT=10 LATE_MS=60
SECONDS_EACH=$(soak 2 120)

count() { echo "$(<"$A/reads_$1")"; }

# race ID SECONDS [OPTIONS...]: readers and writers; RACED becomes what they counted.
race() {
	local id=$1 seconds=$2
	t_run "$id" race_for "$seconds" "${@:3}"
	RACED=$(sed -n 's/^race=/&/p' "$WORK/race")
	OVERLAPPED=$((OVERLAPPED + $(raced overlapped)))
	t_note "$id: $RACED"
	t_note "$id: hedged $(count hedged), left out $(count left_out), proactive $(count proactive), removed $(count removed), promoted $(count promoted), avoided $(count avoided), fallback $(count fallback)"
}

race_for() { # SECONDS [OPTIONS...]
	race_begins "$@"
	wait "$RACE" || { cat "$WORK/race"; return 1; }
}

# race_begins SECONDS [OPTIONS...]: in the background; sets RACE.
race_begins() {
	SEED=$((SEED + 1))
	"$EXERCISE" race "$NODE" --seed "$SEED" --reads 1000000000 --seconds "$1" \
		--readers 6 --writers 2 --write-pause 2 --length 1M "${@:2}" >"$WORK/race" 2>&1 &
	RACE=$!
}

raced() { sed -nE "s/.*\\b$1=([0-9]+).*/\\1/p" <<<"$RACED"; }

# make LEVEL MEMBERS POLICY: an array whose member d1 answers reads late.
make() {
	null_members "$2" $MB
	wrap_members
	must array_create over level="$1" chunk=16K assume_clean=1
	must store "$A/read_policy" "$3"
	# Less than the clock can tell: what is late is overtaken.
	must store "$A/hedge_min_ms" 1
	must store "$A/hedge_max_ms" 2
	dm_change d1 "$(delay_table /dev/m1 $LATE_MS)"
}

# What is late is overtaken by the others' blocks, and comes back when its reader has gone on.
late_member() {
	local id=$1
	race "${id}_late" "$SECONDS_EACH" --rest 1
	t_run "${id}_late_writes_too" test "$(raced writes)" -gt 0
	t_run "${id}_late_came_back_late" test "$(orphans_of "${MEMBERS[1]}")" -gt 0
}

orphans_of() { sed -n 's/.*orphans //p' "$(dir_of "$1")/queue"; }

# Another one cannot read some blocks: whoever was asked in vain is not waited for.
late_and_unreadable() {
	local id=$1
	dm_change d2 "$(fail_table /dev/m2 error_reads $(($(<"$A/rd2/offset") + 128)) 256)"
	race "${id}_unreadable" "$SECONDS_EACH"
	t_run "${id}_unreadable_met" test "$(count fallback)" -gt 0
	dm_change d2 "$(linear_table /dev/m2)"
}

# All of its blocks are computed, from what writers change meanwhile.
sitting_out() {
	local id=$1 before
	must store "$(dir_of "${MEMBERS[1]}")/sit_out" 1
	before=$(count avoided)
	race "${id}_sits_out" "$SECONDS_EACH"
	# The other copies are as good as this one.
	[ "$(attr level)" = raid1 ] || t_run "${id}_sits_out_computed" test "$(count avoided)" -gt "$before"
	must store "$(dir_of "${MEMBERS[1]}")/sit_out" 0
}

# The member is failed and removed while it has reads.
removed() {
	local id=$1
	race_begins $((SECONDS_EACH + 1)) --rest 1
	nap 1
	member_fail "${MEMBERS[1]}"
	nap 0.3
	t_run "${id}_removed_under_reads" kill -0 "$RACE"
	member_remove "${MEMBERS[1]}"
	t_run "${id}_removed_all_right" wait "$RACE" || t_note "$(tail -n 5 "$WORK/race")"
	t_is "$(<"$A/degraded")" 1 "${id}_removed_degraded"
}

# Its readers are killed while a member has their reads, and the array is stopped.
stopped() {
	local id=$1 node=${MEMBERS[2]}
	race_begins 3600
	disown "$RACE"
	nap 1
	dm_stop_answering d2
	nap 0.5
	t_run "${id}_stopped_under_reads" kill -0 "$RACE"
	kill -KILL "$RACE"
	t_run "${id}_stops" wait_until $LIMIT control stop over
	t_run "${id}_stopped_readers_gone" wait_until $LIMIT gone "$RACE"
	dm_answer_again d2
	t_run "${id}_stopped_no_zombies" wait_until 5 free "$node"
}

free() { ! grep -qw "$(basename "$1")" $CONTROL/zombies; }

# everything LEVEL MEMBERS POLICY
everything() {
	local id=r$1_$3
	OVERLAPPED=0
	make "$@"
	late_member "$id"
	[ "$1" = 1 ] || late_and_unreadable "$id"
	sitting_out "$id"
	t_run "${id}_reads_and_writes_met" test $OVERLAPPED -gt 0
	removed "$id"
	stopped "$id"
	drop_members
}

start
everything 5 5 auto
everything 5 5 normal
everything 5 5 failfast
everything 5 5 proactive
everything 6 6 auto
everything 1 3 normal
finish
