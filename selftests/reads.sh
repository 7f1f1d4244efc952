#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# How reads ask the members: each policy does what it says, what a drive cannot read
# comes from the others and is rewritten, and a drive that is slow or hangs holds up no read.
. ./ktap_helpers.sh
. ./lib.sh

readonly DRIVES=5 BAD=h1 SIZE=8M
is_tt() { [ "$ERAID_FLAVOUR" = tt ]; }
set_to() { must store "/sys/block/$1/hddsim/$2" "$3"; }
sim_counter() { awk -v name="$2" '$1 == name { print $2 }' "/sys/block/$1/hddsim/counters"; }
count() { echo "$(<"$A/reads_$1")"; }
verify() { "$EXERCISE" verify "$NODE" --log "$LOG" --length $SIZE >/dev/null; }
# some_reads N: of 8 KiB each, one after the other.
some_reads() { "$EXERCISE" read-load "$NODE" --count "$1" --size 8K --length $SIZE >/dev/null; }

# make LEVEL DRIVES: an array of drives in which nothing is wrong, with some data.
make() {
	sim_members "$2"
	must array_create reads level="$1" assume_clean=1
	LOG=$WORK/reads.log
	rm -f "$LOG"
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length $SIZE >/dev/null
}

unmake() {
	t_run "$1_stop" array_stop reads
	sim_remove
}

# policy NAME COUNTER: reads of this policy are counted as that, and are right.
policy() {
	local before extra
	t_run "$1_set" store "$A/read_policy" "$1"
	t_is "$(<"$A/read_policy")" "$1" "$1_reads_back"
	before=$(count "$2") extra=$(count extra)
	t_run "$1_reads" some_reads 20
	t_is $(($(count "$2") - before)) 20 "$1_counted"
	case $1 in
	proactive) t_run "$1_asks_others" test $(($(count extra) - extra)) -ge 80 ;;
	*) t_is $(($(count extra) - extra)) 0 "$1_asks_nobody_else" ;;
	esac
	t_run "$1_verify" verify
}

policies() {
	make 5 $DRIVES
	t_run_fails no_such_policy store "$A/read_policy" fastest
	policy normal normal
	policy failfast failfast
	policy proactive proactive
	t_run auto_set store "$A/read_policy" auto
	t_run auto_verify verify
	t_is "$(count fallback) $(count repaired)" "0 0" healthy_needs_no_help
	unmake policies
}

# Whether the drive has had no bad sector to report while all was read.
all_is_readable() {
	local before
	# Repair is for when the drives have nothing else to do.
	nap 2
	before=$(sim_counter $BAD unrecovered_reads)
	verify && [ "$(sim_counter $BAD unrecovered_reads)" = "$before" ]
}

# repaired LEVEL DRIVES POLICY PPM: so many bad sectors, which no retry reads, until they are written.
repaired() {
	local id=repair_r$1_$3 dir
	make "$1" "$2"
	dir=$(member_dir 1)
	must store "$A/read_policy" "$3"
	[ "$1" != 1 ] || must store "$(member_dir 0)/sit_out" 1
	set_to $BAD fail_mode persistent
	set_to $BAD retry_off always
	set_to $BAD fail_ppm "$4"
	t_run "${id}_verify" verify
	[ "$1" != 1 ] || must store "$(member_dir 0)/sit_out" 0
	t_run "${id}_failed_before" test "$(sim_counter $BAD unrecovered_reads)" -gt 0
	# Some may have to wait for the next read: the list has an end.
	[ "$1" != 1 ] || must store "$(member_dir 0)/sit_out" 1
	t_run "${id}_readable_in_the_end" wait_until 90 all_is_readable
	t_run "${id}_counted" test "$(count repaired)" -gt 0
	t_run "${id}_errors" test "$(<"$dir/errors")" -gt 0
	t_is "$(<"$dir/state")" in_sync "${id}_not_ejected"
	unmake "$id"
}

# Failures that the drive gets over: nothing is rewritten.
retried() {
	local dir
	make 5 $DRIVES
	dir=$(member_dir 1)
	must store "$A/read_policy" failfast
	set_to $BAD fail_ppm 20000
	t_run retried_verify verify
	t_run retried_failed test "$(count fallback)" -gt 0
	nap 2
	t_is "$(<"$dir/errors") $(count repaired)" "0 0" retried_no_error
	unmake retried
}

# A block that the member takes, and cannot read again, is not repaired, and costs the member nothing.
rewritten_in_vain() {
	local id=in_vain dir
	null_members 4 16
	wrap_members
	must array_create reads level=5 chunk=64K assume_clean=1
	LOG=$WORK/reads.log
	rm -f "$LOG"
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length $SIZE >/dev/null
	dir=$(member_dir 1)
	data_on 1
	dm_change d1 "$(fail_table /dev/m1 error_reads \
		$(($(<"$dir/offset") + START / (LENGTH * 3) * (LENGTH / 512))) 8)"
	t_run ${id}_verify verify
	t_run ${id}_was_tried wait_until 10 told 'cannot be read back'
	t_is "$(count repaired)" 0 ${id}_not_counted
	t_is "$(<"$dir/state")" in_sync ${id}_not_ejected
	dm_change d1 "$(linear_table /dev/m1)"
	t_run ${id}_stop array_stop reads
	drop_members
}

told() { dmesg | grep -q "eraid.*$1"; }

# load MODE COUNT [OPTIONS...]: of 8 KiB anywhere; sets MEAN_US. For simulated time.
load() {
	"$ERAID_TOOLS/eraid-load" "$1" "$NODE" --size 8K --align 8K --count "$2" "${@:3}" \
		--seed $((SEED += 1)) >"$WORK/load" 2>&1 || return 1
	MEAN_US=$(sed -nE 's/.*\bmean_us=([0-9]+).*/\1/p' "$WORK/load" | head -n 1)
}

# A drive ten times slower than the others is left out, and the others answer.
left_out() {
	local healthy before
	make 5 $DRIVES
	must load closed 300 --in-flight 1
	healthy=$MEAN_US
	set_to $BAD slow_percent 1000
	must load closed 200 --in-flight 1
	before=$(count left_out)
	t_run left_out_reads load closed 1000 --in-flight 1
	t_note "mean $MEAN_US us, healthy $healthy us; left out $(($(count left_out) - before))"
	# It has a fifth of the data.
	t_run left_out_counted test $(($(count left_out) - before)) -ge 150
	t_run left_out_in_time test "$MEAN_US" -lt $((healthy * 2))
	set_to $BAD slow_percent 100
	t_run left_out_verify verify
	unmake left_out
}

# A drive whose answers are always late is no reason to ask all others all the time: they may be
# asked for 5% of the reads, four of them each, and for 20 reads that were saved up.
budget() {
	local before hedged count=1500
	make 5 $DRIVES
	must store "$A/read_policy" normal
	must load closed 300 --in-flight 1
	set_to $BAD latency_ms 100
	# Until it is known to be no drive that hangs.
	must load closed 500 --in-flight 1
	before=$(count hedged)
	t_run budget_reads load closed $count --in-flight 1
	hedged=$(($(count hedged) - before))
	t_note "mean $MEAN_US us, hedged $hedged of $count"
	t_run budget_some_are_hedged test $hedged -ge 5
	t_run budget_not_more test $hedged -le $(((count / 20 + 20) / 4))
	set_to $BAD latency_ms 0
	unmake budget
}

# All drives are busy: what is not needed any more leaves the queues, and what is needed after all, since
# a drive fails, does not wait there.
crowded() {
	local count=2000 member reads=0
	make 5 $DRIVES
	must store "$A/read_policy" proactive
	set_to $BAD retry_off always
	set_to $BAD fail_ppm 50000
	for member in "${MEMBERS[@]}"; do
		reads=$((reads - $(sim_counter "${member##*/}" reads)))
	done
	t_run crowded_reads load closed $count --in-flight 16
	for member in "${MEMBERS[@]}"; do
		reads=$((reads + $(sim_counter "${member##*/}" reads)))
	done
	t_note "mean $MEAN_US us; removed $(count removed), promoted $(count promoted); $reads reads of drives"
	t_run crowded_removed test "$(count removed)" -ge $((count / 4))
	# Besides what is asked for after a failure.
	t_run crowded_spares_the_drives test $((reads + $(count removed))) -le $((count * DRIVES * 11 / 10))
	t_run crowded_promoted test "$(count promoted)" -gt 0
	set_to $BAD fail_ppm 0
	t_run crowded_verify verify
	unmake crowded
}

# hung LEVEL DRIVES POLICY: no read waits for a drive that does not answer.
hung() {
	local id=hung_r$1_$3 max
	make "$1" "$2"
	must store "$A/read_policy" "$3"
	some_reads 200
	set_to $BAD hang 1
	"$ERAID_TOOLS/eraid-load" closed "$NODE" --size 8K --align 8K --count 300 --in-flight 1 \
		--seed "$SEED" >"$WORK/load" 2>&1
	t_is $? 0 "${id}_no_error"
	max=$(sed -nE 's/.*\bmax_us=([0-9]+).*/\1/p' "$WORK/load" | head -n 1)
	t_note "max ${max:-?} us; hedged $(count hedged), left out $(count left_out), avoided $(count avoided)"
	t_run "${id}_in_time" test "${max:-9999999}" -lt 1000000
	t_is "$(<"$(member_dir 1)/state")" in_sync "${id}_not_ejected"
	set_to $BAD hang 0
	t_run "${id}_verify" verify
	unmake "$id"
}

# loaded SIZE KEY MAX: reads of this size every 8 ms, from drives of which each sector in 50 takes five
# turns. No result depends on chance: it is the same load and the same sectors each time.
loaded() {
	local id=loaded_$1 value i
	sim_members 6
	must array_create reads level=5 chunk=8K assume_clean=1
	must store "$A/read_policy" proactive
	for ((i = 0; i < 6; i++)); do
		set_to "h$i" retry_turns 5
		set_to "h$i" fail_mode persistent
		set_to "h$i" fail_ppm 20000
	done
	"$ERAID_TOOLS/eraid-load" poisson "$NODE" --every 8ms --size "$1" --align 8K --count 4000 \
		--warm-up 400 --seed 1 >"$WORK/load" 2>&1
	t_is $? 0 "${id}_no_error"
	value=$(sed -nE "s/.*\\b$2=([0-9]+).*/\\1/p" "$WORK/load" | head -n 1)
	t_note "$2 ${value:-?}; promoted $(count promoted), removed $(count removed)"
	t_run "${id}_$2" test "${value:-99999999}" -lt "$3"
	unmake "$id"
}

start
policies
repaired 5 $DRIVES failfast 20000
repaired 6 6 normal 20000
repaired 1 2 auto 6000
retried
if is_tt; then
	left_out
	budget
	crowded
	# After a failure each answer is looked at: else the last one waited for the extra commands.
	loaded 40K p99_us 650000
	# However many wait for memory, what has begun gets more: else it all began anew.
	loaded 80K mean_us 500000
	hung 5 $DRIVES normal
	hung 6 6 auto
	hung 1 2 normal
else
	rewritten_in_vain
fi
finish
