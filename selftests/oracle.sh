#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Somebody else reads the members: after random writes, healthy and degraded,
# device-mapper's own RAID over copies of the members must find the same bytes,
# with all of them and with each one absent.
. ./ktap_helpers.sh
. ./lib.sh

# Several rotations of every array below; md, which reads the copies, is slow in
# a kernel with lockdep.
readonly MB=16 PART=4M
COUNT=$(soak "$(by_flavour 60 100)" 4000)

# random_writes NAME LOG: small and large ones, several at once in one stripe.
random_writes() {
	SEED=$((SEED + 1))
	t_run "$1" "$EXERCISE" write "$NODE" --log "$2" --seed "$SEED" --count "$COUNT" \
		--threads 4 --unit 128K --max-size 1M --sync-every 20 --length $PART
}

# oracle_test LEVEL MEMBERS CHUNK_KiB [CREATE OPTIONS]
oracle_test() {
	local id="r$1n$2c$3${4:+_${4%%=*}}" log victim
	log=$WORK/$id.log
	null_members "$2" $MB
	# Whatever the members held before must not shine through; assume_clean=1
	# says that it is zeros.
	[ -n "${4:-}" ] || for node in "${MEMBERS[@]}"; do
		must "$EXERCISE" pattern "$node" --seed 99 --offset 8M >/dev/null
	done
	t_run "${id}_create" array_create "$id" level="$1" chunk="$3K" ${4:-} || return 0
	random_writes "${id}_write" "$log"
	t_run "${id}_verify" "$EXERCISE" verify "$NODE" --log "$log" --length $PART
	oracle_copy
	oracle_verify "$id" "$log" --length $PART
	oracle_drop

	if [ "$1" != 0 ]; then
		random_below "$2"
		victim=${MEMBERS[RANDOM_NUMBER]}
		member_fail "$victim"
		t_is "$(<"$A/degraded")" 1 "${id}_degraded"
		random_writes "${id}_write_degraded" "$log"
		t_run "${id}_verify_degraded" "$EXERCISE" verify "$NODE" --log "$log" --length $PART
		oracle_copy
		oracle_verify "${id}_degraded" "$log" --length $PART
		oracle_drop
	fi
	t_run "${id}_stop" array_stop "$ARRAY"
	drop_members
	rm "$log"
}

start
oracle_test 0 3 64
oracle_test 1 2 64
oracle_test 5 3 64
oracle_test 5 5 8
oracle_test 5 6 64
oracle_test 5 4 128 assume_clean=1
finish
