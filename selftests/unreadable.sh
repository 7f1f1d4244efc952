#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Reads from hard drives with unreadable sectors while others write the same stripes, in each way to
# read: one drive has sectors that no retry reads, all have some that take retries. Each block is one
# that was current, nothing fails, and no drive is ejected.
. ./ktap_helpers.sh
. ./lib.sh

readonly DRIVES=6 BAD=h1
# In simulated time idle drives cost nothing.
if [ "$ERAID_FLAVOUR" = tt ]; then TIME=$(soak 20 1200); else TIME=$(soak 4 120); fi
count() { echo "$(<"$A/reads_$1")"; }

# set_all FILE VALUE
set_all() {
	local member
	for member in "${MEMBERS[@]}"; do must store "/sys/block/${member##*/}/hddsim/$1" "$2"; done
}

# mixed ID SECONDS: readers and writers, and what became of them.
mixed() {
	t_run "$1" race_for "$2"
	t_note "$1: $(tail -n 1 "$WORK/race")"
	t_note "$1: fallback $(count fallback), repaired $(count repaired), proactive $(count proactive), failfast $(count failfast), normal $(count normal)"
}

race_for() {
	"$EXERCISE" race "$NODE" --seed $((SEED += 1)) --reads 1000000000 --seconds "$1" \
		--readers 8 --writers 2 --write-pause 20 --length 8M --rest 1 >"$WORK/race" 2>&1 ||
		{ cat "$WORK/race"; return 1; }
}

# unreadable LEVEL POLICY
unreadable() {
	local id=r$1_$2
	sim_members $DRIVES
	must array_create bad level="$1" chunk=16K assume_clean=1
	must store "$A/read_policy" "$2"
	set_all fail_ppm 20000
	must store "/sys/block/$BAD/hddsim/retry_off" always
	mixed "$id" "$TIME"
	t_run "${id}_some_failed" test "$(count fallback)" -gt 0
	must store "$(dir_of /dev/h3)/sit_out" 1
	mixed "${id}_one_sits_out" "$TIME"
	t_is "$(<"$A/degraded")" 0 "${id}_nobody_ejected"
	t_run "${id}_stop" array_stop bad
	sim_remove
}

start
for policy in auto normal failfast proactive; do unreadable 5 $policy; done
unreadable 6 auto
finish
