#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a user of a block device expects: sizes of blocks and members, large,
# small, direct, buffered and asynchronous I/O, partitions on the array and as
# members, counts, read-only arrays, and words where something is not possible.
. ./ktap_helpers.sh
. ./lib.sh

readonly SIM=/sys/class/eraid-hddsim DATA=$WORK/data BACK=$WORK/back

limit() { echo "$(<"/sys/block/$ARRAY/queue/$1")"; }
direct_write() { dd if="$DATA" of="$NODE" oflag=direct,seek_bytes conv=notrunc status=none "$@"; }
direct_read() { dd if="$NODE" of="$BACK" iflag=direct,skip_bytes,fullblock status=none "$@"; }

# --- blocks and members -----------------------------------------------------------

# 512 bytes, 512 on 4096, 4096: the largest logical and physical block rules.
mixed_blocks() {
	local COUNT=40
	null_member m0 64
	null_member m1 64 blocksize=4096
	insmod "$ERAID_HDDSIM_KO" || t_bail "the drive model does not load"
	must store $SIM/create "name=h0 size=1G seed=$SEED"
	need_block_dev /dev/h0
	t_is "$(block_size /dev/h0) $(<"/sys/block/h0/queue/physical_block_size")" "512 4096" blocks_of_512e
	MEMBERS=(/dev/m0 /dev/h0)
	must array_create blocks level=1
	t_is "$(limit logical_block_size) $(limit physical_block_size)" "512 4096" blocks_512_and_512e
	t_is "$(limit rotational)" 1 blocks_rotational
	t_run blocks_stop array_stop blocks
	MEMBERS=(/dev/m0 /dev/m1 /dev/h0)
	t_run blocks_create array_create mixed level=5 chunk=64K force=1
	t_is "$(limit logical_block_size) $(limit physical_block_size)" "4096 4096" blocks_mixed
	t_run blocks_write writes --length 8M
	t_run blocks_verify verify --length 8M
	t_run_fails blocks_no_smaller_io dd if=/dev/zero of="$NODE" bs=512 count=1 oflag=direct status=none
	t_run blocks_logged bash -c "dmesg | grep -q 'mixed: [0-9]* KiB of h0 are not used: the smallest member rules'"
	t_run_fails blocks_smallest_not_logged bash -c "dmesg | grep 'mixed: .*m[01] are not used'"
	# The smallest member of 64 MiB rules the one of 1 GiB.
	t_run blocks_size test "$(<"$A/component_size")" -lt $((64 * 1024)) -a "$(sectors "$NODE")" = $((4 * $(<"$A/component_size")))
	t_run blocks_stop_mixed array_stop mixed
	MEMBERS=(/dev/m0 /dev/m1 /dev/h0)
	t_run blocks_assemble array_assemble mixed
	t_run blocks_verify_again verify --length 8M
	t_run blocks_stop_again array_stop mixed
	must wait_until 10 store $SIM/remove h0
	must wait_until 5 rmmod eraid_hddsim
	drop_members
	rm "$LOG"
	# A member copied to a disk with larger blocks than the array has.
	null_members 2 32
	must array_create small level=1
	t_run blocks_stop_small array_stop small
	null_member m2 32 blocksize=4096
	must copy_device /dev/m1 /dev/m2
	control assemble members=/dev/m0,/dev/m2
	t_is "$ERRNO" EINVAL blocks_too_large
	t_run blocks_too_large_says_why grep -q "m2 has logical blocks of 4096 bytes, the array has 512" <<<"$WHY"
	drop_members
}

# Partitions and mapped devices as members; partitions on the array.
partitions() {
	local i
	null_members 3 48
	for i in 0 1; do
		t_run "parts_label_m$i" sgdisk -a 1 -n 1:2047:+4M -n 2:0:0 "/dev/m$i"
		wait_until 5 test -b "/dev/m${i}p2" || t_bail "no partition of m$i"
	done
	dm half "0 80000 linear /dev/m2 1000"
	MEMBERS=(/dev/m0p2 /dev/m1p2 "$DM")
	t_run parts_create array_create parts level=5 chunk=64K || return 0
	t_is "$(basename "$(member_dir 0)")" dev-m0p2 parts_member_name
	t_run parts_write writes
	t_run parts_verify verify
	rm "$LOG"
	t_run parts_table sgdisk -n 1:2048:+8M -n 2:0:+8M "$NODE"
	t_run parts_nodes wait_until 5 test -b "${NODE}p2"
	t_is "$(sectors "${NODE}p1")" 16384 parts_size
	must dd if=/dev/urandom of="$DATA" bs=1M count=2 status=none
	t_run parts_write_p2 dd if="$DATA" of="${NODE}p2" bs=64k seek=16 oflag=direct status=none
	direct_read bs=1M count=2 skip=$((($(<"/sys/class/block/${ARRAY}p2/start") * 512) + (1 << 20)))
	t_run parts_lands_there cmp "$DATA" "$BACK"
	exec 5<"${NODE}p1"
	t_run_fails parts_reread_busy blockdev --rereadpt "$NODE"
	control stop parts
	t_is "$ERRNO" EBUSY parts_stop_busy
	exec 5<&-
	t_run parts_reread wait_until 5 blockdev --rereadpt "$NODE"
	t_run parts_nodes_again test -b "${NODE}p2"
	t_run parts_stop array_stop parts
	t_run parts_gone test ! -e "${NODE}p1"
	t_run parts_assemble array_assemble parts
	t_run parts_found test -b "${NODE}p2"
	t_run parts_stop_again array_stop parts
	drop_members
}

# --- I/O ----------------------------------------------------------------------------

# stat FIELD: 1 reads, 3 read sectors, 5 writes, 7 written sectors, 9 in flight,
# 12 discards, 14 discarded sectors, 16 flushes.
stat() { device_stat "$NODE" "$1"; }

# counts NAME WANT FIELD... -- COMMAND: by how much the fields grow.
counts() {
	local name=$1 want=$2 fields=() before=() grown=() i
	shift 2
	while [ "$1" != -- ]; do
		fields+=("$1")
		before+=("$(stat "$1")")
		shift
	done
	shift
	must "$@"
	for i in "${!fields[@]}"; do grown+=($(($(stat "${fields[i]}") - before[i]))); done
	t_is "${grown[*]}" "$want" "$name"
	t_is "$(stat 9)" 0 "${name}_none_in_flight"
}

# Of the array exactly what the user did, whatever it takes of the members (without
# -f blkdiscard reads, too).
iostat() {
	counts stat_writes "16 128 0 0" 5 7 1 3 -- direct_write bs=4k count=16 seek=$((64 * 1024 - 4096))
	counts stat_reads "16 128 0 0" 1 3 5 7 -- direct_read bs=4k count=16 skip=$((64 * 1024 - 4096))
	counts stat_zeroes "2 4096 0" 5 7 12 -- blkdiscard -f -z -o 0 -l $((2 << 20)) "$NODE"
	counts stat_discard "2048 0 0" 14 7 3 -- blkdiscard -f -o 0 -l $((1 << 20)) "$NODE"
	counts stat_flush "0 0" 7 3 -- sync "$NODE"
	# What fails counts, and ends.
	member_fail /dev/m1
	counts stat_degraded "4 32" 1 3 -- direct_read bs=4k count=4
}

io() {
	local at=$((1 << 20))
	must dd if=/dev/urandom of="$DATA" bs=1M count=16 status=none
	# Larger than a request and than a stripe.
	t_run io_limits test "$(limit max_sectors_kb)" -lt 16384
	t_run io_large direct_write bs=16M count=1 seek=$((3 << 9))
	direct_read bs=16M count=1 skip=$((3 << 9))
	t_run io_large_same cmp "$DATA" "$BACK"
	# Down to the logical block, across chunks, not aligned to anything larger.
	t_run io_small "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 200 --threads 4 \
		--offset 20M --length 2M --min-size 512 --max-size 200K --read-back-pct 30
	t_run io_small_verify "$EXERCISE" verify "$NODE" --log "$LOG" --offset 20M --length 2M
	# Through the page cache and around it.
	t_run io_buffered dd if="$DATA" of="$NODE" bs=7777 count=300 conv=fsync,notrunc status=none
	direct_read bs=512 count=4096
	t_run io_buffered_direct cmp -n 2097152 "$DATA" "$BACK"
	# In the page cache when it is written around that.
	t_run io_cached cmp -n $((300 * 7777)) "$DATA" "$NODE"
	t_run io_direct direct_write bs=96k count=10 seek=$at
	t_run io_direct_buffered cmp -n $((960 * 1024)) -i "0:$at" "$DATA" "$NODE"
	t_run io_uring fio --name=u --filename="$NODE" --ioengine=io_uring --iodepth=16 --direct=1 \
		--offset=24M --size=4M --rw=randwrite --bsrange=512-64k --verify=crc32c --verify_fatal=1 \
		--verify_state_save=0 --randseed="$SEED" --minimal
	t_run io_uring_buffered fio --name=u --filename="$NODE" --ioengine=io_uring --iodepth=4 --direct=0 \
		--offset=24M --size=2M --rw=randwrite --bs=12k --verify=crc32c --verify_fatal=1 --fsync=16 \
		--verify_state_save=0 --randseed="$SEED" --minimal
}

# --- what is refused ------------------------------------------------------------------

reshape() {
	local pair file value
	for pair in level=6 layout=0 chunk_size=131072 raid_disks=5 component_size=max; do
		file=${pair%=*}
		value=$(<"$A/$file")
		store "$A/$file" "${pair#*=}"
		t_is "$ERRNO" EOPNOTSUPP "no_change_of_$file"
		t_run "no_change_of_${file}_says_why" grep -q "not supported" <<<"$WHY"
		t_is "$(<"$A/$file")" "$value" "no_change_of_${file}_at_all"
	done
}

read_only() {
	local before
	must dd if="$DATA" of="$NODE" bs=1M count=1 oflag=direct status=none
	t_run ro_set blockdev --setro "$NODE"
	t_is "$(<"/sys/block/$ARRAY/ro")" 1 ro_shown
	t_run_fails ro_write dd if=/dev/zero of="$NODE" bs=4k count=1 oflag=direct status=none
	t_run_fails ro_zero blkdiscard -z -o 0 -l 1M "$NODE"
	t_run_fails ro_discard blkdiscard -o 0 -l 1M "$NODE"
	t_run ro_read cmp -n 1048576 "$DATA" "$NODE"
	t_run ro_unset blockdev --setrw "$NODE"
	t_run ro_write_again direct_write bs=4k count=1
	t_run ro_stop array_stop user
	MEMBERS=(/dev/m0 /dev/m2 /dev/m3)
	before=$(device_stat /dev/m0 5)
	t_run ro_assemble array_assemble user readonly=1
	t_is "$(<"$A/array_state")" readonly ro_state
	t_run_fails ro_write_array dd if=/dev/zero of="$NODE" bs=4k count=1 oflag=direct status=none
	# That is not for a user of the device to change.
	blockdev --setrw "$NODE"
	t_run_fails ro_write_array_still dd if=/dev/zero of="$NODE" bs=4k count=1 oflag=direct status=none
	t_run ro_read_array cmp -n 1048576 "$DATA" "$NODE"
	t_run ro_stop_array array_stop user
	t_is "$(device_stat /dev/m0 5)" "$before" ro_wrote_nothing
}

start
mixed_blocks
partitions
null_members 4 32 discard=1
must array_create user level=5 chunk=64K
io
reshape
iostat
read_only
drop_members
finish
