#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Scenario 23, in simulated time, on simulated hard drives: two members of a RAID-6
# are failed and removed under random writes of 4 KiB, eight at a time, some of which
# are read back, one after the other. Nobody waits for long, and all data is there.
. ./ktap_helpers.sh
. ./lib.sh

readonly DRIVES=6
readonly LONGEST_US=1000000
COUNT=$(soak 1500 20000)

# phase NAME COMMAND...: the writes of one of three runs; COMMAND comes in its middle.
phase() {
	local id=$1 pid longest
	shift
	SEED=$((SEED + 1))
	"$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count $COUNT --threads 8 --unit 4K \
		--min-size 4K --max-size 4K --read-back-pct 20 >"$WORK/out" 2>&1 &
	pid=$!
	nap 10
	"$@"
	t_run "${id}_writes" wait $pid || t_note "$(tail -n 5 "$WORK/out")"
	longest=$(sed -n 's/^write=ok .* longest_us=//p' "$WORK/out")
	t_note "$id: the longest took $longest us"
	t_run "${id}_no_stall" test "$longest" -gt 0 -a "$longest" -lt $LONGEST_US
}

take_out() {
	t_run "taken_out_$1_under_writes" kill -0 "$pid"
	member_fail "${MEMBERS[$1]}"
	member_remove "${MEMBERS[$1]}"
}

start
# Without write caches: a flush of a full one takes the model seconds, removal or
# not.
sim_members $DRIVES write_cache_kib=0
t_run create array_create gone level=6 chunk=64K
phase healthy true
phase one_removed take_out 4
t_is "$(<"$A/degraded")" 1 one_degraded
phase two_removed take_out 1
t_is "$(<"$A/degraded")" 2 two_degraded
t_run verify verify
t_run stop array_stop gone
sim_remove
finish
