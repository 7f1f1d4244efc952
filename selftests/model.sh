#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random histories: mixed, overlapping, unaligned writes with reads between them,
# while members fail, sit out and come back, against a model of the whole array.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 MAP=$WORK/model.log
STEPS=$(soak "$(by_flavour 6 10)" 200)
BURST=$(soak "$(by_flavour 60 200)" 5000)

# burst: writes of any size to anywhere, some over each other at the same time,
# some read back at once; the model knows what may be there afterwards.
burst() {
	local how=(--overlap)
	[ $((BURSTS % 2)) = 0 ] || how=(--unit 16K --read-back-pct 20)
	"$EXERCISE" write "$NODE" --log "$MAP" --seed $((SEED + BURSTS)) --count "$BURST" \
		--threads 4 --max-size 192K --dsync-pct 10 "${how[@]}"
}
check() { "$EXERCISE" verify "$NODE" --log "$MAP" --threads 2 --max-size 256K; }

missing() { echo "$(<"$A/degraded")"; }
sitting() { cat "$A"/dev-*/sit_out | grep -vc '^0$'; }

# take KIND FILE VALUE: does it, and counts when it was taken.
declare -A TAKEN
take() { store "$2" "$3" && TAKEN[$1]=$((TAKEN[$1] + 1)); }

# change PARITY [KIND]: one thing that an administrator or a device does.
change() {
	local kinds=(fail sit_out sit_in nap) kind=$2 dir
	random_below ${#MEMBERS[@]}
	dir=$(dir_of "${MEMBERS[RANDOM_NUMBER]}")
	random_below 4
	case ${kind:-${kinds[RANDOM_NUMBER]}} in
	# Refused while another one is being caught up.
	fail) [ "$(missing)" -ge "$1" ] || take fail "$dir/state" faulty ;;
	sit_out) [ "$(($(missing) + $(sitting)))" -ge "$1" ] || take sit_out "$dir/sit_out" 1 ;;
	sit_in) [ "$(<"$dir/sit_out")" = 0 ] || take sit_in "$dir/sit_out" 0 ;;
	nap) nap 0.05 ;;
	esac
}

# All that failed come back, and are caught up while the next burst runs.
return_all() {
	local before
	before=$(missing)
	must array_stop model
	must array_assemble model
	TAKEN[return]=$((TAKEN[return] + before - $(missing)))
	[ "$(missing)" = 0 ]
}

# history LEVEL MEMBERS PARITY
history() {
	local id=r$1n$2 step writer failed=0 kind first=([1]=sit_out [2]=fail)
	rm -f "$MAP"
	TAKEN=([fail]=0 [sit_out]=0 [sit_in]=0 [return]=0)
	null_members "$2" $MB
	must array_create model level="$1" chunk=16K
	for ((step = 1; step <= STEPS; step++)); do
		BURSTS=$step
		burst >"$WORK/burst" 2>&1 &
		writer=$!
		# Of each kind one is certain.
		change "$3" "${first[step]:-}"
		change "$3"
		wait $writer || failed=$((failed + 1))
		random_below 3
		if [ $RANDOM_NUMBER = 0 ] || [ $step = 2 ]; then
			return_all || failed=$((failed + 1))
		fi
	done
	for kind in fail sit_out return; do
		t_note "$id: $kind ${TAKEN[$kind]} times"
		t_run "${id}_$kind" test "${TAKEN[$kind]}" -ge 1
	done
	t_is $failed 0 "${id}_every_step"
	t_run "${id}_verify" check
	must array_stop model
	must array_assemble model
	t_run "${id}_caught_up" wait_until 60 quiet
	# What it holds must not depend on anybody.
	member_fail "${MEMBERS[0]}"
	[ "$3" -lt 2 ] || member_fail "${MEMBERS[2]}"
	t_run "${id}_verify_without" check
	t_run "${id}_stop" array_stop model
	drop_members
}

start
history 5 4 1
history 6 6 2
history 1 3 2
finish
