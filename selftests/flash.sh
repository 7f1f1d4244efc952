#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Members none of which rotates: reads go straight into the memory of whoever
# asked, and nobody gets that memory back as long as a device may write to it.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 DATA=$WORK/flash.data SIZE=$((4 << 20))

# members COUNT ROTATIONAL
members() {
	null_members "$1" $MB rotational="$2"
	wrap_members
}

# free_of commands|pages
free_of() { sed -n "s/.*$1 \([0-9]*\) of.*/\1/p" "$A/pool"; }

filled() { # LEVEL
	must array_create flash level="$1" chunk=64K assume_clean=1 force=1
	must python3 -c "import random, sys
open(sys.argv[1], 'wb').write(random.Random($SEED).randbytes($SIZE))" "$DATA"
	must dd if="$DATA" of="$NODE" bs=1M oflag=direct status=none
}

reader() { # OUTPUT OFFSET LENGTH
	dd if="$NODE" of="$1" bs="$3" iflag=direct,skip_bytes skip="$2" count=1 status=none &
	READER=$!
	disown $READER
}

# What the waiting reads of 64 KiB hold: commands, and pages only for drives that rotate.
memory_test() { # ROTATIONAL PAGES
	local id=rotational$1 pages commands
	members 4 "$1"
	filled 5
	pages=$(free_of pages) commands=$(free_of commands)
	dm_stop_answering d1
	data_on 1
	reader /dev/null "$START" "$LENGTH"
	t_run "${id}_waits" wait_until 5 fewer_commands "$commands"
	t_is $((pages - $(free_of pages))) "$2" "${id}_pages"
	dm_answer_again d1
	t_run "${id}_ends" wait_until 10 gone $READER
	t_run "${id}_stop" array_stop flash
	drop_members
}

fewer_commands() { [ "$(free_of commands)" -lt "$1" ]; }

# scatter_test LEVEL MEMBERS
scatter_test() {
	local id=r$1
	members "$2" 0
	filled "$1"
	t_run "${id}_in_pieces" python3 ./scatter.py "$NODE" "$DATA" "$SEED"
	t_run "${id}_in_one" cmp -n $SIZE "$DATA" "$NODE"
	[ "$1" = 0 ] || errors_test
	t_run "${id}_stop" array_stop flash
	drop_members
}

# Parts of what a member has cannot be read: the others fill those in. Of two
# copies it is the one that is asked.
errors_test() {
	[ "$id" != r1 ] || must store "$(member_dir 0)/sit_out" 1
	dm_change d1 "$(fail_table "$(below d1)" error_reads $(($(<"$(member_dir 1)/offset") + 256)) 512)"
	t_run "${id}_with_errors" python3 ./scatter.py "$NODE" "$DATA" "$SEED"
	t_run "${id}_had_errors" test "$(<"$(member_dir 1)/errors")" -gt 0
	dm_change d1 "$(linear_table "$(below d1)")"
	t_run "${id}_without_errors" python3 ./scatter.py "$NODE" "$DATA" $((SEED + 1))
	attr_is degraded 0
	t_is $? 0 "${id}_nobody_failed"
}

# A member that hangs: whatever is done to it, the reader has its memory back
# when the device lets go of it, and the right data in it if it still wants that.
hung_test() {
	local late=$WORK/late
	members 4 0
	filled 5
	data_on 1
	dm_stop_answering d1
	reader "$late" "$START" "$LENGTH"
	nap 4
	t_run_fails hung_not_overtaken gone $READER
	member_fail "${MEMBERS[1]}"
	nap 1
	t_run_fails hung_waits_after_failing gone $READER
	t_run hung_others_read timeout -s KILL 5 dd if="$NODE" of="$WORK/new" bs=1M count=1 iflag=direct status=none
	t_run hung_others_data cmp -n $((1 << 20)) "$WORK/new" "$DATA"
	dm_answer_again d1
	t_run hung_ends wait_until 10 gone $READER
	t_run hung_data cmp -n "$LENGTH" -i "0:$START" "$late" "$DATA"
	t_run hung_stop array_stop flash
	t_run hung_no_zombies wait_until 5 bash -c "! grep -q dm- $CONTROL/zombies"
	drop_members
}

# The same, and the reader is killed: it goes when the device has answered.
killed_test() {
	members 4 0
	filled 5
	data_on 1
	dm_stop_answering d1
	reader /dev/null "$START" "$LENGTH"
	nap 1
	kill -KILL $READER
	nap 1
	t_run_fails killed_stop_refused control stop flash
	t_is "$ERRNO" EBUSY killed_stop_busy
	dm_answer_again d1
	t_run killed_is_gone wait_until 5 gone $READER
	t_run killed_stop array_stop flash
	drop_members
}

start
memory_test 0 0
memory_test 1 16
scatter_test 0 3
scatter_test 1 2
scatter_test 5 4
scatter_test 6 5
hung_test
killed_test
finish
