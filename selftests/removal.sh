#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In simulated time, on simulated hard drives: two members of a RAID-6 are failed
# and removed under random writes, one after the other. No write waits for long,
# and all data is there.
. ./ktap_helpers.sh
. ./lib.sh

readonly SIM=/sys/class/eraid-hddsim TRACE=/sys/kernel/tracing DRIVES=6
readonly LONGEST_US=1000000
COUNT=$(soak 1500 20000)

# Without write caches: a flush of a full one takes the model seconds, removal or
# not.
drives_create() {
	local i
	must insmod "$ERAID_HDDSIM_KO"
	MEMBERS=()
	for ((i = 0; i < DRIVES; i++)); do
		must store $SIM/create "name=h$i size=1G write_cache_kib=0 seed=$((SEED + i))"
		MEMBERS+=("/dev/h$i")
	done
	need_block_dev "${MEMBERS[@]}"
}

drives_remove() {
	local i
	for ((i = 0; i < DRIVES; i++)); do must wait_until 10 store $SIM/remove "h$i"; done
	must wait_until 10 rmmod eraid_hddsim
}

# latencies: sets WRITES and LATENCY, the longest in microseconds, of the trace.
latencies() {
	read -r WRITES LATENCY < <(sed -n 's/.*eraid_write: .* latency_us=//p' $TRACE/trace |
		awk '{ n++; if ($1 > max) max = $1 } END { print n + 0, max + 0 }')
	t_note "$WRITES writes, the longest took $LATENCY us"
}

# phase NAME COMMAND...: the writes of one of three runs; COMMAND comes in its middle.
phase() {
	local id=$1 pid
	shift
	echo >$TRACE/trace
	SEED=$((SEED + 1))
	"$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count $COUNT --threads 8 --unit 64K \
		--max-size 4K >"$WORK/out" 2>&1 &
	pid=$!
	nap 10
	"$@"
	t_run "${id}_writes" wait $pid || t_note "$(tail -n 5 "$WORK/out")"
	latencies
	t_run "${id}_all_traced" test "$WRITES" -ge $COUNT
	t_run "${id}_no_stall" test "$LATENCY" -lt $LONGEST_US
}

take_out() {
	t_run "taken_out_$1_under_writes" kill -0 "$pid"
	member_fail "${MEMBERS[$1]}"
	member_remove "${MEMBERS[$1]}"
}

start
drives_create
t_run create array_create gone level=6 chunk=64K
echo 1 >$TRACE/events/eraid/eraid_write/enable
phase healthy true
phase one_removed take_out 4
t_is "$(<"$A/degraded")" 1 one_degraded
phase two_removed take_out 1
t_is "$(<"$A/degraded")" 2 two_degraded
echo 0 >$TRACE/events/eraid/eraid_write/enable
t_run verify verify --written-only
t_run stop array_stop gone
drives_remove
finish
