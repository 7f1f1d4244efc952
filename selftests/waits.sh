#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# How long a read waits when one drive is slow, stuck or never answers: scenarios 1,
# 3, 5 and 25, in simulated time, on simulated hard drives of 1 GiB.
. ./ktap_helpers.sh
. ./lib.sh

readonly BAD=h1 SIZE=8M BLOCK=4096
COUNT=$(soak 1500 20000)
set_to() { must store "/sys/block/$BAD/hddsim/$1" "$2"; }
sim_counter() { awk -v name="$1" '$1 == name { print $2 }' "/sys/block/$BAD/hddsim/counters"; }
count() { echo "$(<"$A/reads_$1")"; }

# make LEVEL DRIVES: an array of drives in which nothing is wrong, with some data.
make() {
	sim_members "$2"
	must array_create waits level="$1" chunk=64K assume_clean=1
	LOG=$WORK/waits.log
	rm -f "$LOG"
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length $SIZE >/dev/null
	# The drives' caches are empty, and the times of the metadata forgotten.
	nap 5
}

unmake() {
	# What it was told to take its time for.
	until drive_rests; do nap 5; done
	t_run "$1_verify" verify
	t_run "$1_stop" array_stop waits
	sim_remove
}

drive_rests() { [ "$(sim_counter in_flight)" = 0 ]; }

# random_reads: of 4 KiB, anywhere, one after the other; what they took is in WORK/load.
random_reads() {
	"$ERAID_TOOLS/eraid-load" closed "$NODE" --in-flight 1 --size 4K --align 4K \
		--count "$COUNT" --seed $((SEED += 1)) >"$WORK/load" 2>&1
}

# took ID: sets P99 and MAX to what the reads took, in microseconds.
took() {
	P99=$(load_word p99_us) MAX=$(load_word max_us)
	t_note "$1: 99% ${P99:-?} us, max ${MAX:-?} us; hedged $(count hedged), left out $(count left_out)"
	P99=${P99%.*} MAX=${MAX%.*}
}

load_word() { sed -nE "s/.*\\b$1=([0-9.]+).*/\\1/p;" "$WORK/load" | head -n 1; }

# under ID LIMIT_US TIME_US
under() { t_run "$1" test "${3:-999999999}" -le "$2"; }

# Scenario 1: each command of a drive takes two seconds, one at a time.
member_takes_two_seconds() {
	local id=raid5_member_takes_2s healthy
	make 5 5
	t_run ${id}_healthy random_reads
	took ${id}_healthy
	healthy=$P99
	set_to delay_ms 2000
	# Ten seconds are for finding out.
	"$EXERCISE" read-load "$NODE" --count 1000000000 --size 4K --seed "$SEED" >/dev/null 2>&1 &
	disown $!
	nap 10
	kill -KILL $!
	wait_until 5 gone $!
	t_run ${id}_no_error random_reads
	took ${id}
	under ${id}_p99_in_3_times_healthy $((3 * healthy)) "$P99"
	t_is "$(<"$A/degraded")" 0 ${id}_not_ejected
	t_run ${id}_all_5_of_5 grep -qF '[5/5] [UUUUU]' "$A/status"
	set_to delay_ms 0
	unmake $id
}

# Scenario 3: one of two copies takes a minute for each command, from the middle of the reads on.
copy_is_stuck() {
	local id=raid1_copy_is_stuck reads
	make 1 2
	random_reads &
	reads=$!
	nap 5
	t_run ${id}_under_reads kill -0 $reads
	set_to delay_ms 60000
	t_run ${id}_no_error wait $reads
	took $id
	under ${id}_all_under_1s 1000000 "$MAX"
	# The same when it was so from the start.
	t_run ${id}_no_later_error random_reads
	took ${id}_later
	under ${id}_all_later_under_1s 1000000 "$MAX"
	t_is "$(<"$A/degraded")" 0 ${id}_not_ejected
	set_to delay_ms 0
	unmake $id
}

# unreadable_block: sets AT to where in the array a block of 4 KiB lies that the bad drive
# cannot read, and ON_DRIVE to where on the drive, both in blocks.
unreadable_block() {
	local skip said start
	start=$(<"$(member_dir 1)/offset")
	for ((skip = 0; skip < 20; skip++)); do
		data_on 1 $skip
		ON_DRIVE=$((start / 8 + START / (LENGTH * 4) * (LENGTH / BLOCK)))
		said=$(read_drive $((LENGTH / BLOCK)) 2>&1) && continue
		said=${said#*error*$'\n'}
		said=${said%%+*}
		AT=$((START / BLOCK + said)) ON_DRIVE=$((ON_DRIVE + said))
		return 0
	done
	return 1
}

# read_drive BLOCKS: from ON_DRIVE on, past the array.
read_drive() {
	LC_ALL=C dd if=/dev/$BAD of=/dev/null bs=$BLOCK skip="$ON_DRIVE" count="$1" iflag=direct
}

# Scenario 5: a drive does not answer a read of a bad block. After 30 s the host gives up, resets
# the link, and the read fails.
read_is_never_answered() {
	local id=raid5_read_never_answered before
	make 5 5
	set_to fail_mode persistent
	set_to retry_off always
	set_to fail_ppm 20000
	t_run ${id}_has_a_bad_block unreadable_block
	set_to hang 1
	"$EXERCISE" verify "$NODE" --log "$LOG" --offset $((AT * BLOCK)) --length $BLOCK >"$WORK/out" 2>&1 &
	nap 1
	t_run ${id}_answered_in_1s gone $!
	t_run ${id}_right wait $!
	nap 29
	set_to hang 0
	t_run ${id}_rewritten wait_until 10 is_repaired
	t_is "$(<"$(member_dir 1)/state")" in_sync ${id}_still_active
	t_is "$(<"$(member_dir 1)/errors")" 1 ${id}_one_error
	t_run ${id}_drive_reads_it read_drive 1
	before=$(sim_counter unrecovered_reads)
	t_run ${id}_right_again "$EXERCISE" verify "$NODE" --log "$LOG" --offset $((AT * BLOCK)) --length $BLOCK
	t_is "$(sim_counter unrecovered_reads)" "$before" ${id}_without_help
	set_to fail_ppm 0
	unmake $id
}

is_repaired() { test "$(count repaired)" = 1; }

# Scenario 25: the longest patience is set by hand, and one copy is stuck.
patience_by_hand() {
	local id=raid1_patience_of_50ms healthy extra patience=50000
	make 1 2
	t_run ${id}_set store "$A/hedge_max_ms" 50
	extra=$(count extra)
	t_run ${id}_healthy random_reads
	took ${id}_healthy
	healthy=$P99
	under ${id}_healthy_extra_1_in_100 $((COUNT / 100)) $(($(count extra) - extra))
	random_reads &
	nap 5
	t_run ${id}_under_reads kill -0 $!
	set_to delay_ms 60000
	t_run ${id}_no_error wait $!
	took $id
	under ${id}_all_in_time $((patience + healthy + 50000)) "$MAX"
	t_is "$(<"$A/degraded")" 0 ${id}_not_ejected
	set_to delay_ms 0
	unmake $id
}

start
member_takes_two_seconds
copy_is_stuck
read_is_never_answered
patience_by_hand
finish
