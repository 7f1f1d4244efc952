#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Simulated drives: what they show and refuse, that their times are those of the
# model, how they fail, slow down and hang, and what a loss of power leaves.
. ./ktap_helpers.sh

readonly CLASS=/sys/class/eraid-hddsim
readonly WORK=${TMPDIR:-/tmp}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM + 1))}

io() { python3 ./hddsim_io.py "$@"; }
store() { printf '%s\n' "$2" >"$1"; } 2>/dev/null
of() { echo "$(<"/sys/block/$1/hddsim/$2")"; }
set_to() { store "/sys/block/$1/hddsim/$2" "$3"; }
counter() { awk -v name="$2" '$1 == name { print $2 }' "/sys/block/$1/hddsim/counters"; }
create() { store $CLASS/create "$*" && need_block_dev "/dev/${1#name=}"; }
# A drive that was just closed may still be in use for a moment.
remove() { wait_for store $CLASS/remove "$1"; }
refusals() { head -n 1 $CLASS/last_error; }
load() { insmod "$ERAID_HDDSIM_KO"; }
unload() { wait_for rmmod eraid_hddsim; }
is_tt() { [ "$ERAID_FLAVOUR" = tt ]; }

wait_for() { # CMD...
	local tries=100
	until "$@" 2>/dev/null; do
		[ $((tries -= 1)) -gt 0 ] || return 1
		sleep 0.05
	done
}

all_end() { # PID...: whether all of these jobs succeeded
	local pid bad=0
	for pid in "$@"; do wait "$pid" || bad=1; done
	return $bad
}

between() { awk -v x="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(x >= a && x <= b) }'; }
now_ms() {
	local up
	read -r up _ </proc/uptime
	echo $((10#${up/./}0))
}

# took NAME MIN_MS MAX_MS CMD...: how long CMD takes; no upper bound where the
# clock is the machine's.
took() {
	local name=$1 min=$2 max=$3 start ms
	shift 3
	is_tt || max=1000000
	start=$(now_ms)
	t_run "$name" "$@" || return 0
	ms=$(($(now_ms) - start))
	t_note "$name: $ms ms"
	t_run "${name}_time" between $ms "$min" "$max"
}

read_one() { dd if="/dev/$1" of=/dev/null bs=4K count=1 skip="${2:-1000}" iflag=direct status=none; }

look() {
	local line name
	t_run create create name=h0 size=3T seed="$SEED"
	t_is "$(blockdev --getsize64 /dev/h0)" $((3 << 40)) size
	t_is "$(cat /sys/block/h0/queue/rotational)" 1 rotational
	t_is "$(cat /sys/block/h0/queue/physical_block_size)" 4096 physical_block
	t_is "$(cat /sys/block/h0/queue/logical_block_size)" 512 logical_block
	t_is "$(cat /sys/block/h0/queue/write_cache)" "write back" write_cache
	t_is "$(readlink -f $CLASS/drives/h0)" "$(readlink -f /sys/block/h0)" link
	local wrong=0 count=0 hash
	while IFS='=' read -r name line; do
		count=$((count + 1))
		[ "$(<"/sys/block/h0/hddsim/$name")" = "$line" ] || wrong=$((wrong + 1))
	done <<<"$(of h0 params)"
	t_run "every_parameter_has_its_file" test "$wrong" = 0 -a "$count" -gt 25
	hash=$(of h0 params_hash)
	t_run hash_is_16_digits grep -qE '^[0-9a-f]{16}$' <<<"$hash"
	t_run set_parameter set_to h0 rpm 5400
	t_run hash_changes test "$(of h0 params_hash)" != "$hash"
	t_is "$(of h0 rpm)" 5400 parameter_is_set
	t_run set_back set_to h0 rpm 7200
	t_is "$(of h0 params_hash)" "$hash" hash_is_of_the_values
}

# refused NAME FILE LINE: the write fails, is counted, and says why.
refused() {
	local before
	before=$(refusals)
	t_run_fails "$1" store "$2" "$3"
	t_is "$(refusals)" $((before + 1)) "$1_is_noted"
}

hostile() {
	local line n=0
	for line in '' 'name=' 'name=h0' 'size=1G' 'name=x size=0' 'name=x size=1000' 'name=x size=65T' \
		'name=x size=99999999999999999999' 'name=x size=-1' 'name=x rpm=0' 'name=x zones=33' 'name=x heads=0' \
		'name=x fail_ppm=1000001' 'name=x fail_mode=often' 'name=x colour=red' 'name=x seed=1 seed=2' \
		'name=../x' 'name=X' "name=$(printf 'x%.0s' {1..25})" 'name=x rpm' 'name=null size=1G' \
		"name=x seed=$(printf '1%.0s' {1..4000})" $'name=\x01'; do
		refused "create_refused_$((n += 1))" $CLASS/create "$line"
	done
	# In one write, which the shell itself would make two of.
	t_run_fails two_lines bash -c "env printf 'name=x\nname=y\n' >$CLASS/create"
	for line in 'rpm ' 'rpm -1' 'rpm 599' 'rpm 60001' 'rpm 7200rpm' 'rpm 1 2' 'fail_mode 0' 'queue_depth 0' 'hang 2' \
		'stall_ms -1' 'power off' 'power_cut x' 'reset 0'; do
		refused "set_refused_$((n += 1))" "/sys/block/h0/hddsim/${line%% *}" "${line#* }"
	done
	t_run_fails size_is_fixed set_to h0 size 1073741824
	for line in '' nobody ../h0 'h0 h0'; do refused "remove_refused_$((n += 1))" $CLASS/remove "$line"; done
	t_is "$(find $CLASS/drives/ -type l ! -name subsystem -printf %f)" h0 nothing_was_made
	t_run still_reads read_one h0
}

data() {
	local end=$(((3 << 40) - (4 << 20)))
	head -c 4M /dev/urandom >"$WORK/d"
	t_run write_end dd if="$WORK/d" of=/dev/h0 bs=64K oflag=direct,seek_bytes seek=$end status=none
	t_run read_end bash -c "dd if=/dev/h0 bs=1M iflag=direct,skip_bytes skip=$end status=none | cmp - $WORK/d"
	# Parts of blocks, and a place that was never written to.
	t_run write_part dd if="$WORK/d" of=/dev/h0 bs=512 count=3 seek=1000003 oflag=direct status=none
	t_run read_part bash -c "dd if=/dev/h0 bs=512 count=13 skip=999998 iflag=direct status=none |
		cmp - <(head -c 2560 /dev/zero; head -c 1536 $WORK/d; head -c 2560 /dev/zero)"
	# 2 GiB of zeros would not fit into this guest.
	t_run zeros_cost_nothing dd if=/dev/zero of=/dev/h0 bs=4M count="$(is_tt && echo 512 || echo 32)" oflag=direct status=none
	set_to h0 seed "$SEED"
	t_run mkfs bash -c 'mke2fs -q -t ext4 -E nodiscard,lazy_itable_init=1 /dev/h0 8G >/dev/null'
	mkdir -p "$WORK/mnt"
	t_run mount mount -t ext4 /dev/h0 "$WORK/mnt"
	cp "$WORK/d" "$WORK/mnt/d" && sync
	t_run_fails remove_in_use store $CLASS/remove h0
	umount "$WORK/mnt"
	t_run fsck e2fsck -fn /dev/h0
	t_run remove remove h0
	t_run is_gone test ! -e /sys/block/h0 -a ! -e $CLASS/drives/h0
}

# Exact times, where the clock is simulated.
timing() {
	local n=4000 four eighty bad
	t_run timing_create create name=h1 seed=1
	four=$(io times /dev/h1 $n 4096)
	eighty=$(io times /dev/h1 $n 81920)
	set_to h1 fail_ppm 20000
	bad=$(io times /dev/h1 $n 4096)
	t_note "4 KiB $four us, 80 KiB $eighty us, 4 KiB at 2% with 5 turns $bad us"
	# The model's own tests compare to the digit. 0.15 + 2 + 13 * 8/15 + 4.17 + 0.03 ms; standard deviation of a mean 0.06.
	t_run random_4k between "$four" 13080 13480
	t_run random_80k between "$eighty" 13630 14030
	t_run random_4k_with_retries between "$bad" 13810 14490
	t_run timing_remove remove h1

	# A turn of exactly 20 ms, so that two runs can start at the same angle.
	local run
	for run in 7.1 7.2 8.1; do
		create name=h2 seed="${run%.*}" rpm=3000 speed_spread_ppm=0 fail_ppm=20000
		set_to h2 reset 1
		io times /dev/h2 500 8192 "$WORK/times$run" >/dev/null
		remove h2
	done
	t_run same_seed_same_times io same "$WORK/times7.1" "$WORK/times7.2"
	t_run_fails other_seed_other_times io same "$WORK/times7.1" "$WORK/times8.1"

	create name=h3 speed_spread_ppm=0
	local start ms
	start=$(now_ms)
	dd if=/dev/h3 of=/dev/null bs=1M count=1000 iflag=direct status=none
	ms=$(($(now_ms) - start))
	t_note "1000 MiB in $ms ms"
	# 139.7 MB/s of media rate, and the turn-round of one at a time is hidden by reading on.
	t_run sequential_rate between "$ms" 7480 7620
	remove h3
}

failures() {
	local bad again block
	create name=h4 size=1G seed="$SEED" fail_ppm=50000 retry_turns=2
	t_is "$(io scan /dev/h4 300)" "" retries_read_everything
	t_run recovered_is_counted test "$(counter h4 recovered_sectors)" -gt 0
	t_is "$(counter h4 retry_turns)" $(($(counter h4 recovered_sectors) * 2)) turns_are_counted
	t_is "$(counter h4 unrecovered_reads)" 0 nothing_unrecovered
	set_to h4 fail_mode persistent
	t_is "$(io scan /dev/h4 300)" "" no_hint_no_error
	bad=$(io scan /dev/h4 300 1)
	t_note "bad: $bad"
	t_run duration_limit_turns_retries_off test -n "$bad"
	t_is "$(counter h4 unrecovered_reads)" "$(wc -w <<<"$bad")" unrecovered_is_counted
	set_to h4 retry_off never
	t_is "$(io scan /dev/h4 300 1)" "" never_is_never
	set_to h4 retry_off always
	t_is "$(io scan /dev/h4 300)" "$bad" bad_stays_bad
	block=${bad%% *}
	t_run rewrite io rewrite /dev/h4 "$block"
	again=$(io scan /dev/h4 300)
	t_is "$block $again" "$bad" rewriting_heals
	set_to h4 reset 1
	t_is "$(io scan /dev/h4 300)" "$bad" reset_forgets_healing
	t_run_fails failed_read_fails dd if=/dev/h4 of=/dev/null bs=4K count=1 skip="$block" iflag=direct status=none
	set_to h4 fail_ppm 0
	t_is "$(io scan /dev/h4 300)" "" no_failures_no_errors
	remove h4
}

# merged NAME WORDS LIMIT: reads of two good blocks, a bad one and two behind it,
# sent together, reach the drive as one command and end as WORDS say.
merged() {
	local before
	before=$(counter h4 reads)
	t_is "$(io together /dev/h4 "$BAD_BLOCK" 2 5 "$3")" "$2 " "$1"
	t_is $(($(counter h4 reads) - before)) 1 "$1_are_one_command"
}

# What the block layer has merged ends in parts, as sd ends it with sense data, or as
# a whole, as NVMe does. The bad block is none of those that the buffer holds.
merging() {
	local scheduler good='good good good good good' part='good good ENODATA ENODATA ENODATA'
	create name=h4 size=1G seed="$SEED" fail_ppm=50000 fail_mode=persistent
	BAD_BLOCK=$(io scan /dev/h4 300 1 | awk '{ for (i = 2; i < NF; i++)
		if ($i > $(i - 1) + 2 && $(i + 1) > $i + 2) { print $i; exit } }')
	t_note "bad block $BAD_BLOCK"
	for scheduler in none mq-deadline; do
		echo $scheduler >/sys/block/h4/queue/scheduler
		set_to h4 sense_info 1
		merged "${scheduler}_retries_off" "$part" 1
		merged "${scheduler}_retries_on" "$good" 0
		set_to h4 sense_info 0
		merged "${scheduler}_without_sense" 'ENODATA ENODATA ENODATA ENODATA ENODATA' 1
	done
	set_to h4 sense_info 1
	io rewrite /dev/h4 "$BAD_BLOCK"
	merged retries_off_and_rewritten "$good" 1
	remove h4
}

slowness() {
	local pid
	create name=h5 seed="$SEED"
	set_to h5 slow_percent 10000
	took slow_read 400 3000 read_one h5 100000000
	set_to h5 slow_percent 100
	set_to h5 delay_ms 1500
	took delayed_read 1500 1600 read_one h5 1
	set_to h5 delay_ms 0
	set_to h5 latency_ms 1000
	took late_reads 1000 1150 bash -c 'for i in 1 2 3 4; do
		dd if=/dev/h5 of=/dev/null bs=4K count=1 skip=$((i * 1000000)) iflag=direct status=none & done; wait'
	set_to h5 latency_ms 0
	set_to h5 stall_ms 2000
	took stalled_read 1900 2100 read_one h5 2
	set_to h5 stall_ms 600000
	set_to h5 stall_ms 0
	took stall_ends 0 100 read_one h5 3
	set_to h5 hang 1
	read_one h5 4 &
	pid=$!
	sleep 1
	t_run hangs kill -0 $pid
	t_is "$(counter h5 in_flight)" 1 hanging_command
	t_run_fails remove_hanging store $CLASS/remove h5
	set_to h5 hang 0
	t_run answers_again wait $pid
	# What hangs fails when power is lost, and so does all that follows.
	set_to h5 hang 1
	read_one h5 5 2>/dev/null &
	pid=$!
	sleep 0.5
	set_to h5 power_cut 1
	t_run_fails fails_without_power wait $pid
	t_run_fails no_power_no_reads read_one h5 6
	t_is "$(of h5 power)" off power_is_off
	set_to h5 power on
	t_run reads_with_power read_one h5 7
	remove h5
}

# fates "kept N lost N torn N": at least some of each.
some_of_each() { awk '{ exit !($2 > 0 && $4 > 0 && $6 > 0) }' <<<"$1"; }

power_loss() {
	local fates others
	create name=p0 size=200G seed="$SEED"
	t_run write io prepare /dev/p0 "$WORK/log" "$SEED" 0
	t_run all_is_there io check /dev/p0 "$WORK/log" kept
	remove p0
	create name=p0 size=200G seed="$SEED"
	t_run write_and_flush io prepare /dev/p0 "$WORK/log" "$SEED" 600000
	t_run cached_writes_wait test "$(counter p0 dirty_writes)" -gt 50
	set_to p0 power_cut "$SEED"
	t_is "$(counter p0 dirty_writes)" 0 cache_is_empty
	set_to p0 delay_ms 0
	set_to p0 power on
	fates=$(io check /dev/p0 "$WORK/log")
	t_run promises_are_kept test -n "$fates"
	t_note "$fates"
	t_run some_kept_some_lost_some_torn some_of_each "$fates"
	t_run_fails something_was_lost io check /dev/p0 "$WORK/log" kept
	remove p0

	# All drives at one moment; another drive loses other writes.
	create name=p0 size=200G seed=1
	create name=p1 size=200G seed=2
	io prepare /dev/p0 "$WORK/log" "$SEED" 600000
	io prepare /dev/p1 "$WORK/log1" "$SEED" 600000
	t_run power_cut_of_all store $CLASS/power_cut "$SEED"
	t_is "$(of p0 power)$(of p1 power)" offoff all_are_off
	for name in p0 p1; do
		set_to $name delay_ms 0
		set_to $name power on
	done
	fates=$(io check /dev/p0 "$WORK/log")
	others=$(io check /dev/p1 "$WORK/log1")
	t_note "$fates; $others"
	t_run each_drive_has_its_own test -n "$fates" -a -n "$others" -a "$fates" != "$others"
	# What a flush has answered survives, however soon the cut comes.
	local i
	for i in 1 2 3 4 5; do
		dd if=/dev/urandom of="$WORK/f" bs=64K count=8 status=none
		dd if="$WORK/f" of=/dev/p0 bs=64K oflag=direct conv=fsync status=none
		set_to p0 power_cut "$i"
		set_to p0 power on
		t_run "flushed_$i" bash -c "dd if=/dev/p0 bs=64K count=8 iflag=direct status=none | cmp - $WORK/f"
	done
	# Without a cache, what is answered is there.
	set_to p0 write_cache 0
	dd if="$WORK/d" of=/dev/p0 bs=64K count=8 oflag=direct status=none
	set_to p0 power_cut 6
	set_to p0 power on
	t_run uncached bash -c "dd if=/dev/p0 bs=64K count=8 iflag=direct status=none | cmp - <(head -c 512K $WORK/d)"
	remove p0
	remove p1
}

# Everything at once: I/O, changes of all parameters, making and removing.
storm() {
	local i pids=() end
	for i in 0 1 2; do create name="s$i" size=1G seed="$i" overhead_us=10 seek_min_us=10 seek_sqrt_us=10 rpm=60000; done
	for i in 0 1 2; do
		(for ((n = 0; n < 8; n++)); do
			dd if=/dev/urandom of=/dev/s$i bs=128K count=16 seek=$((RANDOM % 4000)) oflag=direct conv=fsync status=none &&
				dd if=/dev/s$i of=/dev/null bs=512 count=64 skip=$((RANDOM * 50)) iflag=direct status=none || exit 1
		done) &
		pids+=($!)
		(for ((n = 0; n < 16; n++)); do
			for pair in queue_depth=1 zones=7 heads=3 track_buffer=1 lookahead_kib=0 write_cache=0 age_ms=1 \
				queue_depth=64 zones=1 heads=8 write_cache=1 lookahead_kib=4096 write_cache_kib=16 age_ms=1000; do
				set_to s$i "${pair%=*}" "${pair#*=}" || exit 1
			done
			[ -n "$(of s$i counters)" ] || exit 1
		done) &
		pids+=($!)
	done
	(for ((n = 0; n < 8; n++)); do
		create name=s9 size=1G && remove s9 || exit 1
	done) &
	pids+=($!)
	t_run storm all_end "${pids[@]}"
	t_run settles wait_for set_to s0 reset 1
	for i in 0 1 2; do t_is "$(counter s$i in_flight)" 0 "storm_over_$i"; done
	t_run_fails no_unload_while_open bash -c 'exec 3</dev/s1; rmmod eraid_hddsim 2>/dev/null'
}

t_note "seed $SEED (SEED=$SEED repeats this run)"
t_run load load || t_bail "the module does not load: $(dmesg | tail -n 3)"
t_run class test -d $CLASS/drives
t_run unload_unused unload
t_run load_again load
look
hostile
data
if is_tt; then timing; fi
if [ "$ERAID_FLAVOUR" != stock ]; then
	failures
	merging
	slowness
	power_loss
fi
storm
# With drives there, and one of them hanging.
set_to s1 hang 1
t_run unload_with_drives unload
t_run class_is_gone test ! -e $CLASS
t_end
