#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Seeded random writes over several rotations, partial stripes among them, then
# every byte compared: each level, several widths and chunks.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16
COUNT=$(soak "$(by_flavour 60 150)" 4000)

# data_test LEVEL MEMBERS CHUNK_KiB [BLOCK_SIZE]
data_test() {
	local id="r$1n$2c$3" log rotation
	[ "${4:-512}" = 512 ] || id+="b$4"
	log=$WORK/$id.log
	SEED=$((SEED + 1))
	null_members "$2" $MB blocksize="${4:-512}"
	t_run "${id}_create" array_create "$id" level="$1" chunk="$3K" || return 0
	# Small writes all over two rotations, so that the rotation's every step has
	# partial stripes; then anything anywhere, several at a time in one stripe.
	rotation=$(($3 * 1024 * $2 * $2 * 2))
	[ $rotation -lt $(($(sectors "$NODE") * 512)) ] || rotation=$(($(sectors "$NODE") * 512))
	t_run "${id}_small" "$EXERCISE" write "$NODE" --log "$log" --seed "$SEED" --count "$COUNT" \
		--length "$rotation" --max-size "$(($3 > 16 ? 16 : $3))K" --read-back-pct 30
	t_run "${id}_mixed" "$EXERCISE" write "$NODE" --log "$log" --seed "$SEED" --count "$COUNT" \
		--threads 4 --unit "$3K" --max-size 1M --read-back-pct 20 --dsync-pct 5 --sync-every 50
	t_run "${id}_large" "$EXERCISE" write "$NODE" --log "$log" --seed "$SEED" --count $((COUNT / 10)) \
		--max-size 4M
	t_run "${id}_at_once" "$EXERCISE" write "$NODE" --log "$log" --seed "$SEED" --count "$COUNT" \
		--threads 8 --overlap --length "$((rotation / 2))" --max-size 64K
	t_run "${id}_verify" "$EXERCISE" verify "$NODE" --log "$log" --threads 2 --seed "$SEED"
	t_run "${id}_stop" array_stop "$ARRAY"
	t_run "${id}_assemble" array_assemble "$id"
	t_run "${id}_verify_again" "$EXERCISE" verify "$NODE" --log "$log" --max-size 64K
	t_run "${id}_end" array_stop "$ARRAY"
	drop_members
	rm "$log"
}

start
# Which byte lies where does not depend on the kernel: an array of each level is
# enough in most of them.
data_test 0 5 8
data_test 1 3 64
data_test 5 5 64
data_test 6 8 16 4096
only_in smp data_test 0 2 64
only_in smp data_test 1 2 64
only_in smp data_test 5 3 512
only_in kasan data_test 5 4 8
only_in smp data_test 5 6 64 4096
only_in kasan data_test 5 9 16
only_in kasan data_test 6 4 64
finish
