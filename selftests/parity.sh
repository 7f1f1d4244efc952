#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel's parity library, as the driver uses it, against arithmetic that
# shares nothing with it (eraid-parity): what writes of all kinds, the rebuilding
# of members and a resync leave on the members, and what reads decode, of RAID-6
# without any two roles of a stripe.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 TRACE=/sys/kernel/tracing
COUNT=$(soak "$(by_flavour 60 100)" 4000)
declare -A KINDS=()

# Only where something is written: what never was is zeros everywhere.
PART=2M

# recompute NAME: the members and the array, of what PART covers.
recompute() {
	local slot members=() width stripes level
	level=$(<"$A/level")
	O_DISKS=$(<"$A/raid_disks")
	for ((slot = 0; slot < O_DISKS; slot++)); do
		members+=(-)
		[ -L "$A/rd$slot" ] || continue
		case $(<"$A/rd$slot/state") in *in_sync*) members[slot]=$(member_of $slot) ;; esac
		OFFSET=$(<"$A/rd$slot/offset")
	done
	width=$((($(<"$A/chunk_size") * (O_DISKS - $(parities)))))
	stripes=$((${PART%M} * 1048576 / width + 1))
	t_run "$1" "$ERAID_TOOLS/eraid-parity" "$NODE" "${members[@]}" --level "${level#raid}" \
		--chunk "$(<"$A/chunk_size")" --component "$(<"$A/component_size")K" \
		--offset $((OFFSET * 512)) --stripes $stripes
}

# random_writes NAME: from a block to several stripes, several in one at a time.
random_writes() {
	SEED=$((SEED + 1))
	t_run "$1" "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count "$COUNT" \
		--threads 4 --overlap --max-size 512K --length $PART
}

# kinds_seen: takes the kinds of writes from the trace.
kinds_seen() {
	local kind
	while read -r kind; do KINDS[$kind]=1; done < <(
		sed -n 's/.*eraid_write: .* kind=\([a-z-]*\) .*/\1/p' $TRACE/trace | sort -u)
	echo >$TRACE/trace
}

in_sync() { quiet && attr_is unsynced_regions 0; }

# all_back NAME: who failed comes back, and what it missed is rebuilt.
all_back() {
	must array_stop parity
	t_run "${1}_assemble" array_assemble parity
	t_is "$(<"$A/degraded")" 0 "${1}_complete"
	t_run "${1}_caught_up" wait_until 60 in_sync
	recompute "${1}_rebuilt"
}

# without NAME SLOT...: these fail one after the other, and writes go on.
without() {
	local name=$1 slot absent=0
	shift
	t_note "$name: without slots $*"
	for slot in "$@"; do
		absent=$((absent + 1))
		member_fail "${MEMBERS[slot]}"
		recompute "${name}_decoded_$absent"
		random_writes "${name}_write_$absent"
		recompute "${name}_written_$absent"
	done
	t_run "${name}_verify" verify --length $PART
	all_back "$name"
}

# parity_test LEVEL MEMBERS CHUNK_KiB BLOCK_SIZE "DISTANCES" [CREATE OPTIONS]: a
# pair of members at each of these distances fails. Parity rotates, so a distance
# stands for all pairs of roles that lie so far from each other.
parity_test() {
	local id="r$1n$2c$3${6:+_full}" distance
	rm -f "$LOG"
	null_members "$2" $MB blocksize="$4"
	t_run "${id}_create" array_create parity level="$1" chunk="$3K" ${6:-} || return 0
	random_writes "${id}_write"
	recompute "${id}_generated"
	for distance in $5; do
		random_below "$2"
		case $1 in
		5) without "$id" $RANDOM_NUMBER ;;
		6) without "${id}_d$distance" $RANDOM_NUMBER $(((RANDOM_NUMBER + distance) % $2)) ;;
		esac
	done
	t_run "${id}_stop" array_stop parity
	kinds_seen
	drop_members
}

# What a crash leaves: parity that was not written in time is computed anew.
resynced() {
	local stripe slot id=r6_resync
	rm -f "$LOG"
	null_members 5 $MB
	must array_create parity level=6 chunk=64K
	random_writes "${id}_write"
	# Copies made while it runs are what a power cut leaves.
	oracle_copy
	must array_stop parity
	drop_members
	O_DISKS=5
	for ((stripe = 0; stripe < 10; stripe++)); do
		for slot in "$(parity_slot $stripe)" $((($(parity_slot $stripe) + 1) % 5)); do
			must dd if=/dev/urandom of="/dev/c$slot" bs=64K count=1 oflag=direct,seek_bytes \
				seek=$((O_OFFSET * 512 + stripe * 65536)) conv=notrunc status=none
		done
	done
	MEMBERS=("${COPIES[@]}")
	t_run "${id}_assemble" array_assemble parity
	t_run "${id}_done" wait_quiet
	t_is "$(<"$A/last_sync_action")" resync "${id}_was_one"
	recompute "${id}_generated"
	# And it would notice.
	must hands poke "$(member_of "$(parity_slot 1)")" $((O_OFFSET * 512 + 65536 + 700)) '\xa5\x5a'
	t_run_fails "${id}_wrong_bytes_are_noticed" "$ERAID_TOOLS/eraid-parity" "$NODE" "${COPIES[@]}" \
		--level 6 --chunk 64K --component "$(<"$A/component_size")K" --offset $((O_OFFSET * 512))
	t_run "${id}_stop" array_stop parity
	oracle_drop
}

start
echo 1 >$TRACE/events/eraid/eraid_write/enable
only_in smp parity_test 5 4 16 512 "1"
only_in smp parity_test 6 4 16 512 "1 2"
parity_test 6 5 8 512 "1 2" assume_clean=1
parity_test 6 6 32 512 "1 2 3"
only_in smp parity_test 6 7 16 4096 "2" assume_clean=1
# The highest powers in Q.
parity_test 6 32 8 512 "13"
echo 0 >$TRACE/events/eraid/eraid_write/enable
for kind in full reconstruct modify rebuild data-only; do
	t_is "${KINDS[$kind]:-0}" 1 "kind_$kind"
done
resynced
finish
