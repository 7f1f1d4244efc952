#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Six processes create, assemble, stop, fail and remove at once, partly the same
# devices and names; whatever is refused, nothing breaks and all of it unloads.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 WORKERS=6
# Each worker's; a count, so that a busy machine does no less.
STEPS=$(soak 40 2000) LIMIT=$(soak 200 4000)

# One worker: three members of its own, but sometimes one of its neighbour's.
worker() {
	local number=$1 own line step taken=0 refused=0
	local first=$((number * 3)) shared=$(((number * 3 + 3) % (WORKERS * 3)))
	RANDOM_STATE=$((SEED + number))
	hands_start
	for ((step = 1; step <= STEPS; step++)); do
		own=/dev/m$first,/dev/m$((first + 1)),/dev/m$((step % 5 ? first + 2 : shared))
		random_below 10
		case $RANDOM_NUMBER in
		0 | 1 | 2)
			random_below 3
			case $RANDOM_NUMBER in
			0) line="level=1 members=$own" ;;
			1) line="level=5 members=$own" ;;
			2) line="level=6 members=$own,missing" ;;
			esac
			control create "name=s$number $line chunk=64K force=1"
			;;
		3 | 4) control assemble "members=$own" ;;
		5) control assemble "members=/dev/m$first degraded=1" ;;
		6) control stop "s$number" ;;
		7)
			random_below 3
			store "/sys/class/eraid-control/arrays/s$number/eraid/rd$RANDOM_NUMBER/state" faulty
			;;
		8)
			random_below 3
			store "/sys/class/eraid-control/arrays/s$number/eraid/rd$RANDOM_NUMBER/state" remove
			;;
		9)
			array_use_quietly "s$number" && timeout -s KILL 5 "$EXERCISE" write "$NODE" \
				--log "$WORK/s$number.$step.log" --seed $step --count 20 --length 1M >/dev/null 2>&1
			cat "/sys/class/eraid-control/arrays/s$number/eraid/status" >/dev/null 2>&1
			rm -f "$WORK/s$number.$step.log"
			;;
		esac
		if [ "$ERRNO" = ok ]; then taken=$((taken + 1)); else refused=$((refused + 1)); fi
	done
	echo "$((step - 1)) $taken $refused" >"$WORK/worker$number"
}

array_use_quietly() {
	ERRNO=ENOENT
	[ -L "$CONTROL/arrays/$1" ] || return 1
	hands link "$CONTROL/arrays/$1"
	NODE=/dev/${ANSWER##*/}
	[ -b "$NODE" ] && ERRNO=ok
}

start
null_members $((WORKERS * 3)) $MB
PIDS=()
for ((n = 0; n < WORKERS; n++)); do
	worker $n &
	PIDS+=($!)
done
# Bounded: an array or a process that hangs is a failure.
(
	sleep $LIMIT
	kill -KILL "${PIDS[@]}" 2>/dev/null
) &
DOG=$!
for pid in "${PIDS[@]}"; do wait "$pid"; done
kill $DOG 2>/dev/null
for ((n = 0; n < WORKERS; n++)); do
	t_run "worker_$n" grep -q "^$STEPS " "$WORK/worker$n"
	t_note "worker $n: steps, taken, refused: $(cat "$WORK/worker$n" 2>/dev/null)"
done
TAKEN=$(cat "$WORK"/worker* | awk '{ sum += $2 } END { print sum + 0 }')
t_run some_were_taken test "$TAKEN" -gt 20
for name in $(arrays); do t_run "stop_$name" array_stop "$name"; done
t_is "$(cat $CONTROL/zombies)" "" no_zombies

# Sets that wait for members hold them, until aborted or unloaded.
t_run unload wait_until 10 rmmod eraid
t_run members_are_free claim /dev/m0
t_run load_again driver_load
t_run works_again array_create after level=5 chunk=64K members=/dev/m0,/dev/m1,/dev/m2 force=1
t_run works_again_stop array_stop after
finish
