#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Where a read without retries failed: of drives that tell, what came before the bad
# block is used; of others, all of it is in doubt.
. ./ktap_helpers.sh
. ./lib.sh

readonly DRIVES=5 BAD=h1 SIZE=8M
TRACE=/sys/kernel/tracing
set_to() { must store "/sys/block/$1/hddsim/$2" "$3"; }

# answers: for failed reads of several blocks of the bad drive, how often it was asked next for
# what is left behind a bad block ("rest"), and another one for as many blocks ("whole").
answers() {
	awk '
		function number(name) { match($0, name "=[0-9]+"); return substr($0, RSTART + length(name) + 1, RLENGTH - length(name) - 1) + 0 }
		!/ op=read / { next }
		{ slot = number("slot"); sector = number("sector"); count = number("sectors") }
		/_done:/ && slot == 1 && number("status") && count > 8 { at = sector; n = count }
		/_issue:/ && n && slot == 1 { rest += sector > at && sector + count == at + n; n = 0 }
		/_issue:/ && n && slot != 1 && sector == at && count == n { whole++; n = 0 }
		END { print rest + 0, whole + 0 }' $TRACE/trace
}

# places SENSE: reads with a drive of which every tenth block fails; sets REST and WHOLE.
places() {
	local id=sense_$1
	sim_members $DRIVES
	must array_create places level=5 chunk=64K assume_clean=1
	LOG=$WORK/places.log
	rm -f "$LOG"
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length $SIZE >/dev/null
	must store "$A/read_policy" failfast
	set_to $BAD sense_info "$1"
	set_to $BAD fail_mode persistent
	set_to $BAD fail_ppm 100000
	echo >$TRACE/trace
	must store $TRACE/events/eraid/eraid_subreq_issue/enable 1
	must store $TRACE/events/eraid/eraid_subreq_done/enable 1
	t_run "${id}_data" "$EXERCISE" verify "$NODE" --log "$LOG" --length $SIZE
	must store $TRACE/events/eraid/enable 0
	read -r REST WHOLE < <(answers)
	t_note "rest $REST, whole $WHOLE"
	t_run "${id}_stop" array_stop places
	sim_remove
}

start
places 1
t_run what_came_is_used test "$REST" -gt 0
places 0
t_run else_all_is_in_doubt test "$WHOLE" -gt 0
finish
