#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that never answers, under readers and a writer: who is killed goes,
# the array stops, and what still hangs is listed until it answers.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 LIMIT=10

seconds() { cut -d . -f 1 /proc/uptime; }

# stuck_test LEVEL MEMBERS
stuck_test() {
	local id=r$1 pids=() begun node
	rm -f "$LOG" "$WORK/lost.log"
	null_members "$2" $MB
	wrap_members
	must array_create stuck level="$1" chunk=64K assume_clean=1
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 8M >/dev/null
	node=${MEMBERS[1]}
	dm_stop_answering d1

	# At low priority: what others have they read without end, and the rest of the
	# test would wait for its turn.
	for i in 1 2 3; do
		nice -n 19 "$EXERCISE" read-load "$NODE" --count 1000000000 --threads 2 --seed $i --length 8M >/dev/null 2>&1 &
		pids+=($!)
	done
	nice -n 19 "$EXERCISE" write "$NODE" --log "$WORK/lost.log" --seed 1 --count 1000000000 --length 8M >/dev/null 2>&1 &
	pids+=($!)
	disown -a
	nap 2

	# What the stuck member is not needed for goes on.
	if [ "$1" != 1 ]; then
		data_on 2 100
		t_run "${id}_others_read" timeout -s KILL 5 "$EXERCISE" read-load "$NODE" --count 20 --offset "$START" --length "$LENGTH"
	fi

	begun=$(seconds)
	kill -KILL "${pids[@]}"
	# A request may have to be given up before its process can go; stopping does that.
	wait_until $LIMIT control stop stuck
	t_is "$ERRNO" ok "${id}_stops"
	t_run "${id}_stops_in_time" test $(($(seconds) - begun)) -lt $((LIMIT * SCALE))
	t_run "${id}_killed_are_gone" wait_until 2 gone "${pids[@]}"
	t_run "${id}_disk_is_gone" test ! -e "$NODE" -a ! -e "/sys/block/$ARRAY"

	# The device is a zombie and says so.
	t_run "${id}_zombie_is_listed" grep -qw "$(basename "$node")" $CONTROL/zombies
	t_run_fails "${id}_rmmod_refused" rmmod eraid
	control create "name=again level=1 members=$node,/dev/m9 force=1"
	t_is "$ERRNO" EBUSY "${id}_zombie_not_reused"
	t_run "${id}_says_why" grep -qiE 'zombie|still|outstanding|answer|stopped' <<<"$WHY"
	control assemble "members=$node"
	t_is "$ERRNO" EBUSY "${id}_zombie_not_assembled"

	# The others are free at once.
	null_member extra0 $MB
	t_run "${id}_others_free" array_create other level=1 members="${MEMBERS[0]},/dev/extra0" force=1
	t_run "${id}_other_stops" array_stop other
	null_remove extra0

	# It answers at last.
	dm_answer_again d1
	t_run "${id}_no_zombies" wait_until 5 bash -c "! grep -qw '$(basename "$node")' $CONTROL/zombies"
	t_run "${id}_device_is_free" claim "$node"
	drop_members
}

# Stuck while nobody uses the array: it stops all the same.
idle_test() {
	local begun
	null_members 3 $MB
	wrap_members
	must array_create idle level=5 chunk=64K assume_clean=1
	must "$EXERCISE" write "$NODE" --log "$WORK/idle.log" --seed 1 --count 20 >/dev/null
	dm_stop_answering d2
	begun=$(seconds)
	control stop idle
	t_is "$ERRNO" ok idle_stops
	t_run idle_stops_in_time test $(($(seconds) - begun)) -lt $((LIMIT * SCALE))
	dm_answer_again d2
	t_run idle_no_zombies wait_until 5 bash -c "! grep -q dm- $CONTROL/zombies"
	MEMBERS=("${MEMBERS[@]}")
	t_run idle_assembles array_assemble idle
	t_run idle_verify "$EXERCISE" verify "$NODE" --log "$WORK/idle.log"
	t_run idle_end array_stop idle
	drop_members
}

# A write that was given up may land at any time. Where the array cannot do
# without the member nothing is written any more that it could land on.
haunted_test() {
	local pid
	null_members 3 $MB
	wrap_members
	must array_create ghost level=0 chunk=64K
	must dd if=/dev/zero of="$NODE" bs=64K count=3 oflag=direct status=none
	exec {HELD}<"$NODE"
	dm_stop_answering d1
	dd if=/dev/zero of="$NODE" bs=64K count=1 seek=1 oflag=direct status=none 2>/dev/null &
	pid=$!
	disown $pid
	nap 2
	t_run_fails ghost_stop control stop ghost
	t_is "$ERRNO" EBUSY ghost_is_open
	t_run ghost_write_ended wait_until 5 gone $pid
	t_run_fails ghost_no_writes dd if=/dev/zero of="$NODE" bs=64K count=1 oflag=direct status=none
	t_run ghost_reads dd if="$NODE" of=/dev/null bs=64K count=1 iflag=direct status=none
	dm_answer_again d1
	t_run_fails ghost_still_no_writes dd if=/dev/zero of="$NODE" bs=64K count=1 oflag=direct status=none
	exec {HELD}<&-
	t_run ghost_stops array_stop ghost
	t_run ghost_assembles array_assemble ghost
	t_run ghost_writes dd if=/dev/zero of="$NODE" bs=64K count=3 oflag=direct status=none
	t_run ghost_end array_stop ghost
	drop_members
}

# A write is given up that all have but the member that hangs: that one misses it,
# and nothing is in doubt.
given_up_test() {
	local pid id=given_up
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	must array_create given level=5 chunk=64K assume_clean=1
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 4M >/dev/null
	data_on 1
	must dd if="$NODE" of="$WORK/old" bs=64K count=1 skip=$((START / LENGTH)) iflag=direct status=none
	exec {HELD}<"$NODE"
	dm_stop_answering d1
	dd if="$WORK/old" of="$NODE" bs=64K seek=$((START / LENGTH)) oflag=direct status=none 2>/dev/null &
	pid=$!
	disown $pid
	nap 2
	t_run_fails ${id}_stop control stop given
	t_run ${id}_write_ended wait_until 5 gone $pid
	t_is "$(<"$A/degraded")" 1 ${id}_failed
	t_run ${id}_verify verify --length 4M
	dm_answer_again d1
	exec {HELD}<&-
	t_run ${id}_stops array_stop given
	t_run ${id}_assembles array_assemble given
	t_is "$(<"$A/degraded")" 0 ${id}_complete
	t_run ${id}_verify_at_once verify --length 4M
	t_run ${id}_caught_up wait_quiet
	member_fail "${MEMBERS[2]}"
	t_run ${id}_verify_without_another verify --length 4M
	t_run ${id}_end array_stop given
	drop_members
}

# The very first write to a region waits for its mark on all members, one of
# which hangs. Killed and stopped all the same.
first_write_test() {
	local begun pid
	null_members 4 $MB
	wrap_members
	must array_create first level=5 chunk=64K
	dm_stop_answering d1
	"$EXERCISE" write "$NODE" --log "$WORK/first.log" --seed 1 --count 1 >/dev/null 2>&1 &
	pid=$!
	disown -a
	nap 2
	begun=$(seconds)
	kill -KILL $pid
	wait_until $LIMIT control stop first
	t_is "$ERRNO" ok first_write_stops
	t_run first_write_stops_in_time test $(($(seconds) - begun)) -lt $((LIMIT * SCALE))
	t_run first_write_is_gone wait_until 2 gone $pid
	dm_answer_again d1
	t_run first_write_no_zombies wait_until 5 bash -c "! grep -q dm- $CONTROL/zombies"
	drop_members
}

# However many readers wait for the one that hangs, what the others have is read.
many_readers_test() {
	local pids=() i
	null_members 4 $MB
	wrap_members
	must array_create many level=5 chunk=64K assume_clean=1
	must "$EXERCISE" fill "$NODE" --log "$WORK/many.log" --seed 1 --length 4M >/dev/null
	dm_stop_answering d1
	for i in 1 2 3 4; do
		nice -n 19 "$EXERCISE" read-load "$NODE" --count 1000000000 --threads 16 --size 64K --seed $i >/dev/null 2>&1 &
		pids+=($!)
	done
	disown -a
	nap 6
	kill -KILL "${pids[@]}"
	data_on 2
	t_run many_readers_others_read timeout -s KILL 5 "$EXERCISE" read-load "$NODE" --count 50 \
		--offset "$START" --length "$LENGTH"
	data_on 1
	t_run many_readers_missing_read timeout -s KILL 8 "$EXERCISE" read-load "$NODE" --count 1 \
		--offset "$START" --length "$LENGTH"
	dm_answer_again d1
	t_run many_readers_gone wait_until 5 gone "${pids[@]}"
	t_run many_readers_verify "$EXERCISE" verify "$NODE" --log "$WORK/many.log" --length 4M
	t_run many_readers_stop array_stop many
	drop_members
}

# A member is given up by a read, and asked for something else by the same read, since
# another one has a bad block. What it answers first is not what it was asked last.
asked_again_test() {
	local got=$WORK/got id=asked_again reader
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	must array_create again level=5 chunk=64K assume_clean=1
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 4M >/dev/null
	# The second half of a chunk and the first half of the next one, which is on slot 2.
	data_on 1
	START=$((START + 32768))
	read_at $START 64K "$WORK/right"
	wait $READER
	dm_change d2 "$(fail_table /dev/m2 error_reads "$(<"$A/rd2/offset")" 64)"
	dm_stop_answering d1
	read_at $START 64K "$got"
	reader=$READER
	# It is given up after two seconds, or soon after.
	nap 4
	t_run_fails ${id}_waits gone $reader
	dm_answer_again d1
	t_run ${id}_ends wait_until 5 gone $reader
	t_run ${id}_data cmp "$WORK/right" "$got"
	dm_change d2 "$(linear_table /dev/m2)"
	t_run ${id}_verify verify
	t_run ${id}_stop array_stop again
	drop_members
}

# Two members of a RAID-6 hang at once: every block is read all the same.
two_of_raid6_test() {
	rm -f "$LOG"
	null_members 6 $MB
	wrap_members
	must array_create both level=6 chunk=64K assume_clean=1
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 4M >/dev/null
	dm_stop_answering d1
	dm_stop_answering d2
	data_on 1
	t_run two_of_raid6_first timeout -s KILL 10 "$EXERCISE" read-load "$NODE" --count 1 \
		--offset "$START" --length "$LENGTH"
	data_on 2
	t_run two_of_raid6_second timeout -s KILL 10 "$EXERCISE" read-load "$NODE" --count 1 \
		--offset "$START" --length "$LENGTH"
	# In stripe 2 both have data, in stripe 3 one of them P.
	t_run two_of_raid6_verify timeout -s KILL 60 "$EXERCISE" verify "$NODE" --log "$LOG" \
		--offset 512K --length 512K --threads 32 --max-size 64K
	dm_answer_again d1
	dm_answer_again d2
	t_is "$(<"$A/degraded")" 0 two_of_raid6_not_ejected
	t_run two_of_raid6_all_given_back wait_until 10 pool_is_full
	t_run two_of_raid6_stop array_stop both
	drop_members
}

# What a member delivers late is for nobody: reads that others have answered come
# back while the same places wait for reads of other blocks.
late_answers_test() {
	local round pid
	rm -f "$LOG"
	null_members 4 $MB
	wrap_members
	must array_create late level=5 chunk=64K assume_clean=1
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 16M >/dev/null
	for round in 1 2 3; do
		dm_stop_answering d1
		"$EXERCISE" verify "$NODE" --log "$LOG" --length 16M --threads 8 --max-size 16K >"$WORK/late" 2>&1 &
		pid=$!
		# Rescues come after two seconds and then one a second: by now some reads of
		# the device are nobody's, and others have been sent after them.
		sleep 3.5
		dm_answer_again d1
		t_run "late_answers_$round" wait $pid || t_note "$(tail -n 5 "$WORK/late")"
	done
	t_run late_answers_were_orphans test "$(orphans_of "${MEMBERS[1]}")" -gt 0
	t_is "$(<"$A/degraded")" 0 late_answers_not_ejected
	t_run late_answers_stop array_stop late
	drop_members
}

orphans_of() { sed -n 's/.*orphans //p' "$(dir_of "$1")/queue"; }

# read_at OFFSET LENGTH FILE: in the background, for it may hang; sets READER.
read_at() {
	dd if="$NODE" of="$3" bs="$2" skip="$1" count=1 iflag=direct,skip_bytes status=none &
	READER=$!
}

# A write hangs in its commit, on the parity member, and the member whose block
# it writes is missing: readers get the block from the write. What the write
# does not have waits for it.
commit_read_test() {
	local new=$WORK/new got=$WORK/got writer waiting
	null_members 4 $MB
	wrap_members
	must array_create commit level=5 chunk=64K assume_clean=1
	data_on 1
	member_fail "${MEMBERS[1]}"
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 1M >/dev/null
	head -c 32768 /dev/urandom >"$new"
	dm_stop_answering "d$(parity_slot $((START / LENGTH / 3)))"
	dd if="$new" of="$NODE" bs=32K count=1 seek="$START" oflag=direct,seek_bytes status=none &
	writer=$!
	sleep 1
	t_run_fails commit_hangs gone $writer

	echo 1 >/sys/kernel/tracing/events/eraid/eraid_read/enable
	read_at "$START" 32K "$got"
	t_run commit_is_read wait_until 5 gone $READER
	t_run commit_new_data cmp "$new" "$got"
	read_at $((START + 4096)) 8K "$got"
	t_run commit_part_is_read wait_until 5 gone $READER
	t_run commit_part cmp -n 8192 -i 4096:0 "$new" "$got"
	t_run commit_traced grep -q 'eraid_read: .*mode=commit .*sectors=64 ' /sys/kernel/tracing/trace
	echo 0 >/sys/kernel/tracing/events/eraid/eraid_read/enable
	read_at $((START + 28672)) 8K "$got"
	waiting=$READER
	sleep 1
	t_run_fails commit_rest_waits gone $waiting

	dm_answer_again "d$(parity_slot $((START / LENGTH / 3)))"
	t_run commit_ends wait_until 5 gone $writer $waiting
	t_run commit_rest_new cmp -n 4096 -i 28672:0 "$new" "$got"
	read_at "$START" 32K "$got"
	wait
	t_run commit_stays cmp "$new" "$got"
	t_run commit_stop array_stop commit
	drop_members
}

# Two members hang, more than can be done without, under readers and writers that
# want all memory there is: what has to do with others only goes on.
two_hang_test() {
	local pids=() i id=two_hang new=$WORK/new got=$WORK/got
	null_members 6 $MB
	wrap_members
	must array_create two level=5 chunk=64K assume_clean=1
	O_DISKS=6
	# The chunk on slot 3 of stripe 95, whose parity is on slot 0.
	t_is "$(parity_slot 95)" 0 ${id}_parity
	START=$(((95 * 5 + 2) * 65536))
	LENGTH=65536
	head -c $LENGTH /dev/urandom >"$new"
	write_all "$new"
	dm_stop_answering d1
	dm_stop_answering d2
	for i in 1 2 3 4; do
		"$EXERCISE" read-load "$NODE" --count 1000000000 --threads 32 --size 1M --seed $i --length 16M >/dev/null 2>&1 &
		pids+=($!)
		"$EXERCISE" write "$NODE" --log "$WORK/lost$i.log" --seed $i --count 1000000000 --threads 32 \
			--max-size 256K --offset $((16 + i))M --length 1M >/dev/null 2>&1 &
		pids+=($!)
	done
	disown -a
	sleep 4
	t_note "pool: $(attr pool | tr '\n' ' ')"
	read_at $START $LENGTH "$got"
	t_run ${id}_others_read wait_until 5 gone $READER
	t_run ${id}_others_data cmp "$new" "$got"
	head -c $LENGTH /dev/urandom >"$new"
	write_all "$new" &
	t_run ${id}_others_write wait_until 5 gone $!
	# Still so, with every reader and writer stuck by now.
	sleep 2
	t_note "pool: $(attr pool | tr '\n' ' ')"
	read_at $START $LENGTH "$got"
	t_run ${id}_others_read_again wait_until 5 gone $READER
	t_run ${id}_others_new_data cmp "$new" "$got"

	kill -KILL "${pids[@]}"
	dm_answer_again d1
	dm_answer_again d2
	t_run ${id}_go wait_until 10 gone "${pids[@]}"
	read_at $START $LENGTH "$got"
	t_run ${id}_read_after wait_until 30 gone $READER
	t_run ${id}_same_data cmp "$new" "$got"
	t_run ${id}_all_given_back wait_until 10 pool_is_full
	t_run ${id}_stop array_stop two
	drop_members
}

# write_all FILE: of LENGTH, to START; no flush, which would need all members.
write_all() { dd if="$1" of="$NODE" bs="$LENGTH" seek="$START" oflag=direct,seek_bytes status=none; }

# pool_is_full: nobody holds memory of the array.
pool_is_full() { attr pool | awk '{ exit !($2 == $4 + 0 && $6 == $8 + 0) }'; }

start
late_answers_test
idle_test
haunted_test
given_up_test
commit_read_test
two_hang_test
first_write_test
many_readers_test
asked_again_test
two_of_raid6_test
stuck_test 5 5
stuck_test 6 6
stuck_test 1 2
finish
