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

gone() { echo "$(<"$A/degraded")"; }
sitting() { cat "$A"/dev-*/sit_out | grep -vc '^0$'; }
in_sync() { quiet && attr_is unsynced_regions 0; }

# One thing that an administrator or a device does.
change() { # PARITY
	random_below ${#MEMBERS[@]}
	local dir
	dir=$(dir_of "${MEMBERS[RANDOM_NUMBER]}")
	random_below 4
	case $RANDOM_NUMBER in
	# Refused while another one is being caught up.
	0) [ "$(gone)" -ge "$1" ] || store "$dir/state" faulty || true ;;
	1) [ "$(($(gone) + $(sitting)))" -ge "$1" ] || store "$dir/sit_out" 1 || true ;;
	2) store "$dir/sit_out" 0 || true ;;
	3) nap 0.05 ;;
	esac
}

# history LEVEL MEMBERS PARITY
history() {
	local id=r$1n$2 step writer failed=0
	rm -f "$MAP"
	null_members "$2" $MB
	must array_create model level="$1" chunk=16K
	for ((step = 1; step <= STEPS; step++)); do
		BURSTS=$step
		burst >"$WORK/burst" 2>&1 &
		writer=$!
		change "$3"
		change "$3"
		wait $writer || failed=$((failed + 1))
		random_below 3
		if [ $RANDOM_NUMBER = 0 ]; then
			# All that failed come back, and are caught up while the next burst runs.
			must array_stop model
			must array_assemble model
			[ "$(gone)" = 0 ] || failed=$((failed + 1))
		fi
	done
	t_is $failed 0 "${id}_every_step"
	t_run "${id}_verify" check
	must array_stop model
	must array_assemble model
	t_run "${id}_caught_up" wait_until 60 in_sync
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
