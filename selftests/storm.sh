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

# What can be done, and the random choices among it.
readonly KINDS=(create write fail remove stop assemble)
readonly CHOICES=(create create create assemble assemble assemble_one stop fail remove write)

# One worker: three members of its own, but sometimes one of its neighbour's. It
# begins with one of each kind, in an order in which they can be taken.
worker() {
	local number=$1 own line step kind slot refused=0
	local -A taken=()
	local first=$((number * 3)) shared=$(((number * 3 + 3) % (WORKERS * 3)))
	RANDOM_STATE=$((SEED + number))
	hands_start
	for ((step = 1; step <= STEPS; step++)); do
		own=/dev/m$first,/dev/m$((first + 1)),/dev/m$((step % 5 ? first + 2 : shared))
		random_below ${#CHOICES[@]}
		kind=${KINDS[step - 1]:-${CHOICES[RANDOM_NUMBER]}}
		random_below 3
		slot=$RANDOM_NUMBER
		[ $step -gt ${#KINDS[@]} ] || slot=1
		case $kind in
		create)
			random_below 3
			case $RANDOM_NUMBER in
			0) line="level=1 members=$own" ;;
			1) line="level=5 members=$own" ;;
			2) line="level=6 members=$own,missing" ;;
			esac
			control create "name=s$number $line chunk=64K force=1"
			;;
		assemble) control assemble "members=$own" ;;
		assemble_one) control assemble "members=/dev/m$first degraded=1" ;;
		stop) control stop "s$number" ;;
		fail) store "$CONTROL/arrays/s$number/eraid/rd$slot/state" faulty ;;
		remove) store "$CONTROL/arrays/s$number/eraid/rd$slot/state" remove ;;
		write) write_some "s$number" "$step" ;;
		esac
		if [ "$ERRNO" = ok ]; then taken[$kind]=$((taken[$kind] + 1)); else refused=$((refused + 1)); fi
	done
	echo "steps $((step - 1)) refused $refused" >"$WORK/worker$number"
	for kind in "${!taken[@]}"; do echo "taken $kind ${taken[$kind]}"; done >>"$WORK/worker$number"
}

# write_some NAME SEED: to an array that may go at any moment.
write_some() {
	ERRNO=ENOENT
	[ -L "$CONTROL/arrays/$1" ] || return 0
	hands link "$CONTROL/arrays/$1"
	NODE=/dev/${ANSWER##*/}
	[ -b "$NODE" ] || return 0
	ERRNO=EIO
	timeout -s KILL 5 "$EXERCISE" write "$NODE" --log "$WORK/$1.log" --seed "$2" --count 20 \
		--length 1M >/dev/null 2>&1 && ERRNO=ok
	cat "$CONTROL/arrays/$1/eraid/status" >/dev/null 2>&1
	rm -f "$WORK/$1.log"
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
	t_run "worker_$n" grep -q "^steps $STEPS " "$WORK/worker$n"
	t_note "worker $n: $(tr '\n' ' ' <"$WORK/worker$n")"
done
for kind in "${KINDS[@]}"; do
	t_run "${kind}_was_taken" grep -q "^taken $kind [1-9]" "$WORK"/worker*
done
for name in $(arrays); do t_run "stop_$name" array_stop "$name"; done
t_is "$(cat $CONTROL/zombies)" "" no_zombies

# Sets that wait for members hold them, until aborted or unloaded.
t_run unload wait_until 10 rmmod eraid
t_run members_are_free claim /dev/m0
t_run load_again driver_load
t_run works_again array_create after level=5 chunk=64K members=/dev/m0,/dev/m1,/dev/m2 force=1
t_run works_again_stop array_stop after
finish
