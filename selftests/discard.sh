#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Write zeroes, and discards: whole regions are forgotten, parity stays right.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64 REGION=$((16 << 20)) # of each member
readonly SAFELY=/sys/module/eraid/parameters/devices_handle_discard_safely

# zero START LENGTH, discard START LENGTH, in bytes.
zero() { blkdiscard -z -o "$1" -l "$2" "$NODE"; }
discard() { blkdiscard -o "$1" -l "$2" "$NODE"; }
is_zero() { cmp -n "$2" -i "$1:0" "$NODE" /dev/zero; }
limit() { echo "$(<"/sys/block/$ARRAY/queue/$1")"; }

# member_is_zero NODE REGION: whether the member has nothing left there. The page
# cache of its device does not know what the array does.
member_is_zero() {
	local offset=$(($(<"$(dir_of "$1")/offset") * 512 + $2 * REGION))
	dd if="$1" bs=1M count=$((REGION >> 20)) skip=$offset iflag=direct,skip_bytes status=none |
		cmp -n $REGION - /dev/zero
}

# zeroes LEVEL MEMBERS: the log knows the blocks before and behind.
zeroes() {
	local id=zero_r$1 at=$((192 * 1024 + 4096)) len=$((1024 * 1024 + 8192))
	null_members "$2" 32
	must array_create zero level="$1" chunk=64K
	t_run "${id}_limit" test "$(limit write_zeroes_max_bytes)" -gt 0
	t_run "${id}_write" writes --length 8M
	t_run "${id}_blkdiscard" zero $at $len
	t_run "${id}_is_zero" is_zero $at $len
	t_run "${id}_unaligned" zero 512 512
	t_run "${id}_fallocate" fallocate -z -o $((4 << 20)) -l $((3 << 20)) "$NODE"
	t_run "${id}_fallocate_is_zero" is_zero $((4 << 20)) $((3 << 20))
	t_run "${id}_punch" fallocate -p -o $((12 << 20)) -l 1M "$NODE"
	t_run "${id}_punch_is_zero" is_zero $((12 << 20)) $((1 << 20))
	# What is not zeroed is as it was, from every single copy and without each member.
	sync "$NODE"
	if [ "$1" != 0 ]; then
		member_fail /dev/m1
		echo 3 >/proc/sys/vm/drop_caches
		t_run "${id}_degraded_is_zero" is_zero $at $len
		t_run "${id}_degraded_zero" zero $((9 << 20)) $len
		member_remove /dev/m1
		t_run "${id}_degraded_is_zero_too" is_zero $((9 << 20)) $len
	fi
	t_run "${id}_before" "$EXERCISE" verify "$NODE" --log "$LOG" --offset 64K --length 128K
	t_run "${id}_behind" "$EXERCISE" verify "$NODE" --log "$LOG" --offset 2M --length 2M
	t_run "${id}_stop" array_stop zero
	drop_members
	rm "$LOG"
}

# forgets LEVEL MEMBERS COLUMNS: a whole region, and nothing else.
forgets() {
	local id=discard_r$1 data=$((REGION * $3)) unit=$((REGION * $3)) i discards
	# Without a map there are no regions, and a stripe is a whole.
	[ "$1" != 0 ] || unit=$((65536 * $3))
	null_members "$2" $MB discard=1
	must array_create forget level="$1" chunk=64K
	t_run "${id}_granularity" test "$(limit discard_granularity)" -ge $unit -a "$(limit discard_granularity)" -lt $((2 * unit))
	t_run "${id}_max" test "$(limit discard_max_bytes)" -ge $data
	# Regions 0, 1, 2; the log is of 0 and 2.
	must "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 60 --offset $((data / 2)) --length $((data / 2)) >/dev/null
	must dd if=/dev/urandom of="$NODE" bs=1M seek=$((data >> 20)) count=4 oflag=direct status=none
	must "$EXERCISE" write "$NODE" --log "$LOG.2" --seed "$SEED" --count 60 --offset $((2 * data)) --length $((data / 2)) >/dev/null
	# Parts of regions are left alone.
	discards=$(device_stat /dev/m0 12)
	t_run "${id}_part" discard 0 4096
	t_run "${id}_parts" discard 8192 $((unit - 8192 - 4096))
	t_run "${id}_verify_parts" "$EXERCISE" verify "$NODE" --log "$LOG" --written-only
	t_is "$(device_stat /dev/m0 12)" "$discards" "${id}_members_got_none"
	t_run "${id}_whole" discard $((data - unit / 2)) $((data + unit))
	for ((i = 0; i < $2; i++)); do
		t_run "${id}_m${i}_discarded" member_is_zero "/dev/m$i" 1
	done
	t_run "${id}_kept_before" "$EXERCISE" verify "$NODE" --log "$LOG" --written-only
	t_run "${id}_kept_behind" "$EXERCISE" verify "$NODE" --log "$LOG.2" --written-only
	# Piece by piece, as requests come that are smaller than a region.
	must dd if=/dev/urandom of="$NODE" bs=1M seek=$((data >> 20)) count=4 oflag=direct status=none
	for ((i = 0; i < 4; i++)); do must discard $((data + i * data / 4)) $((data / 4)); done
	t_run "${id}_pieces" member_is_zero /dev/m1 1
	# A write right behind it, and parity is right for it.
	rm "$LOG"
	t_run "${id}_write_after" "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 40 --offset $data --length $((data / 4))
	t_run "${id}_verify_after" "$EXERCISE" verify "$NODE" --log "$LOG" --written-only
	if [ "$1" != 0 ]; then
		member_fail /dev/m0
		t_run "${id}_verify_degraded" "$EXERCISE" verify "$NODE" --log "$LOG" --written-only
		t_run "${id}_degraded" discard 0 $((3 * data))
		t_run "${id}_degraded_write" "$EXERCISE" write "$NODE" --log "$LOG.3" --seed "$SEED" --count 40 --length $data
		t_run "${id}_degraded_verify" "$EXERCISE" verify "$NODE" --log "$LOG.3" --written-only
	fi
	t_is "$(<"/sys/block/$ARRAY/inflight")" "       0        0" "${id}_nothing_in_flight"
	t_run "${id}_stop" array_stop forget
	if [ "$1" != 0 ]; then
		t_run "${id}_comeback" array_assemble forget
		t_run "${id}_recovered" wait_quiet
		t_run "${id}_verify_comeback" "$EXERCISE" verify "$NODE" --log "$LOG.3" --written-only
		member_fail /dev/m1
		t_run "${id}_verify_end" "$EXERCISE" verify "$NODE" --log "$LOG.3" --written-only
		t_run "${id}_stop_again" array_stop forget
	fi
	drop_members
	rm -f "$LOG" "$LOG.2" "$LOG.3"
}

# With parity, members get discards only if the administrator vouches for them.
not_vouched() {
	local data=$((REGION * 2)) discards
	null_set $SAFELY N
	null_members 3 $MB discard=1
	must array_create unsure level=5 chunk=64K
	must "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 40 --length $data >/dev/null
	discards=$(device_stat /dev/m0 12)
	t_run unsure_whole discard 0 $data
	t_is "$(device_stat /dev/m0 12)" "$discards" unsure_members_got_none
	null_set $SAFELY Y
	t_run unsure_vouched discard 0 $data
	t_run unsure_members_got_some test "$(device_stat /dev/m0 12)" -gt "$discards"
	t_run unsure_stop array_stop unsure
	drop_members
	rm "$LOG"
}

# Writers and discards at once, over and over: data written after is there, and
# whatever is left agrees with its parity.
storm() {
	local data=$((REGION * 2)) i
	null_members 3 $MB discard=1
	must array_create storm level=5 chunk=64K
	for ((i = 0; i < $(soak 6 200); i++)); do discard 0 $((2 * data)) || exit 1; done &
	t_run storm_write "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 400 --threads 4 --offset $((2 * data)) --length 8M
	t_run storm_write_there "$EXERCISE" write "$NODE" --log "$WORK/lost" --seed "$SEED" --count 200 --threads 4 --length 8M
	t_run storm_discards wait $!
	t_run storm_verify "$EXERCISE" verify "$NODE" --log "$LOG" --written-only
	rm "$LOG"
	t_run storm_write_last writes --length 8M
	oracle_copy
	oracle_verify storm "$LOG" --length 8M
	oracle_drop
	t_run storm_stop array_stop storm
	drop_members
	rm "$LOG"
}

# Members without discard: the map forgets all the same. File systems use it.
trims() {
	null_members 3 64
	must array_create trim level=5 chunk=64K
	mkdir -p "$WORK/mnt"
	t_run trim_mkfs mkfs.ext4 -q -F -E discard "$NODE"
	t_run trim_mount mount "$NODE" "$WORK/mnt" || return 0
	t_run trim_fill dd if=/dev/urandom of="$WORK/mnt/file" bs=1M count=24 status=none
	sum=$(md5sum <"$WORK/mnt/file")
	must dd if=/dev/zero of="$WORK/mnt/gone" bs=1M count=20 status=none
	must rm "$WORK/mnt/gone"
	t_run trim_fstrim fstrim "$WORK/mnt"
	must umount "$WORK/mnt"
	t_run trim_fsck fsck.ext4 -fn "$NODE"
	must mount "$NODE" "$WORK/mnt"
	t_is "$(md5sum <"$WORK/mnt/file")" "$sum" trim_data
	must umount "$WORK/mnt"
	t_run trim_stop array_stop trim
	drop_members
}

start
not_vouched
zeroes 0 3
zeroes 1 2
zeroes 5 4
zeroes 6 5
forgets 0 2 2
forgets 1 2 1
forgets 5 3 2
forgets 6 4 2
storm
trims
finish
