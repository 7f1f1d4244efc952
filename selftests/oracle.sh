#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Somebody else reads the members: after random writes, healthy and degraded,
# device-mapper's own RAID, or md, over copies of the members must find the same
# bytes, with all of them and with each one absent, or each two.
. ./ktap_helpers.sh
. ./lib.sh

# Several rotations of every array below; md, which reads the copies, is slow in
# a kernel with lockdep.
readonly MB=16
PART=4M MAX=1M
COUNT=$(soak "$(by_flavour 60 100)" 4000)

# random_writes NAME LOG: small and large ones, several at once in one stripe.
random_writes() {
	SEED=$((SEED + 1))
	t_run "$1" "$EXERCISE" write "$NODE" --log "$2" --seed "$SEED" --count "$COUNT" \
		--threads 4 --unit 128K --max-size $MAX --sync-every 20 --length $PART
}

# degraded_test NAME SLOT DEGRADED: the same without the member of SLOT, which
# makes so many.
degraded_test() {
	member_fail "${MEMBERS[$2]}"
	t_is "$(<"$A/degraded")" "$3" "$1"
	random_writes "${1}_write" "$log"
	t_run "${1}_verify" "$EXERCISE" verify "$NODE" --log "$log" --length $PART
	oracle_copy
	oracle_verify "$1" "$log" --length $PART
	oracle_drop
}

# oracle_test LEVEL MEMBERS CHUNK_KiB [CREATE OPTIONS]
oracle_test() {
	local id="r$1n$2c$3${4:+_${4%%=*}}" log first
	log=$WORK/$id.log
	null_members "$2" $MB
	# Whatever the members held before must not shine through; assume_clean=1
	# says that it is zeros.
	[ -n "${4:-}" ] || for node in "${MEMBERS[@]}"; do
		must "$EXERCISE" pattern "$node" --seed 99 --offset 8M --length $PART >/dev/null
	done
	t_run "${id}_create" array_create "$id" level="$1" chunk="$3K" ${4:-} || return 0
	random_writes "${id}_write" "$log"
	t_run "${id}_verify" "$EXERCISE" verify "$NODE" --log "$log" --length $PART
	oracle_copy
	oracle_verify "$id" "$log" --length $PART
	oracle_drop

	random_below "$2"
	first=$RANDOM_NUMBER
	if [ "$1" != 0 ]; then
		degraded_test "${id}_degraded" "$first" 1
	fi
	if [ "$1" = 6 ]; then
		degraded_test "${id}_degraded_twice" $(((first + DISTANCE) % $2)) 2
	fi
	t_run "${id}_stop" array_stop "$ARRAY"
	drop_members
	rm "$log"
}

start
# Which byte lies where does not depend on the kernel: an array of each level is
# enough in most of them.
ALL_ABSENT=1
oracle_test 0 3 64
oracle_test 1 2 64
oracle_test 5 5 8
only_in kasan oracle_test 5 3 64
only_in kasan oracle_test 5 6 64
only_in kasan oracle_test 5 4 128 assume_clean=1
# So many pairs may be absent that a small part with small chunks has to do.
PART=1M MAX=256K
[ "$ERAID_FLAVOUR" = kasan ] || ALL_ABSENT=
# DISTANCE: from the first member that fails to the second. Parity rotates, so
# these make every two roles of a stripe miss, P, Q and any data.
DISTANCE=2
oracle_test 6 5 8
DISTANCE=1
only_in kasan oracle_test 6 4 16
DISTANCE=3
only_in kasan oracle_test 6 6 32 assume_clean=1
finish
