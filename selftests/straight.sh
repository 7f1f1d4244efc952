#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Reads that go straight to devices whose driver does not sleep (here scsi_debug;
# null_blk with memory does), and by way of the member's job when the device has
# no room for them.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64 N=4 AGAIN=12 # BLK_STS_AGAIN
TRACE=/sys/kernel/tracing
PARAMS=/sys/bus/pseudo/drivers/scsi_debug
LOG=$WORK/log

# scsi_disks: N disks in memory with a queue of two commands; sets MEMBERS.
scsi_disks() {
	local host disk
	# Nobody loads it for new disks here; UML kernels have it built in.
	modprobe -q sd_mod
	must modprobe scsi_debug add_host=$N per_host_store=1 dev_size_mb=$MB max_queue=2 ndelay=1000000
	MEMBERS=()
	for host in /sys/bus/pseudo/devices/adapter*; do
		wait_until 10 bash -c "compgen -G '$host/host*/target*/*/block/*'" >/dev/null ||
			t_bail "no disk below $host"
		disk=$(compgen -G "$host/host*/target*/*/block/*")
		need_block_dev "/dev/${disk##*/}"
		# A scheduler would have a queue of its own.
		must null_set "/sys/block/${disk##*/}/queue/scheduler" none
		MEMBERS+=("/dev/${disk##*/}")
	done
	t_is ${#MEMBERS[@]} $N disks
}

# Every member is both: fast when there is room, refused by the device when not.
data_test() {
	array_create straight level=5 chunk=64K assume_clean=1 >/dev/null || t_bail "create: $WHY"
	must "$EXERCISE" fill "$NODE" --log "$LOG" --seed "$SEED" --length 16M >/dev/null
	echo >$TRACE/trace
	echo 'status != 0' >$TRACE/events/eraid/eraid_subreq_done/filter
	echo 1 >$TRACE/events/eraid/eraid_subreq_done/enable
	t_run reads_with_room "$EXERCISE" read-load "$NODE" --count 300 --length 16M --seed "$SEED"
	t_run_fails none_refused grep -q "status=$AGAIN" $TRACE/trace
	t_run reads_without_room "$EXERCISE" read-load "$NODE" --count 3000 --threads 32 --length 16M --seed "$SEED"
	t_run some_refused grep -q "op=read .*status=$AGAIN" $TRACE/trace
	t_run_fails no_errors grep -qv "status=$AGAIN\|^#" $TRACE/trace
	t_run mixed_writes "$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count 1500 \
		--threads 16 --length 16M --read-back-pct 50
	t_run verify "$EXERCISE" verify "$NODE" --log "$LOG" --length 16M
	echo 0 >$TRACE/events/eraid/eraid_subreq_done/enable
	echo 0 >$TRACE/events/eraid/eraid_subreq_done/filter
	echo >$TRACE/trace
	t_is "$(for i in 0 1 2 3; do cat "$A/rd$i/errors"; done | sort -u)" 0 no_member_has_errors
	t_run data_stop array_stop straight
}

reader() { dd if="$NODE" of=/dev/null bs="$2" skip="$1" count=1 iflag=direct,skip_bytes status=none & }

# Commands take 3 s now (UML has 100 jiffies in one). Two readers fill the queue
# of the first member; who reads from it and from the next one must not be held
# on the way to the next one. RAID-0, where nobody comes to the rescue.
no_room_test() {
	array_create room level=0 chunk=64K force=1 >/dev/null || t_bail "create: $WHY"
	must "$EXERCISE" fill "$NODE" --log "$WORK/room.log" --seed "$SEED" --length 16M >/dev/null
	wait_until 5 null_set $PARAMS/delay 300
	t_is "$(cat $PARAMS/delay)" 300 disks_are_slow
	reader 0 4096
	reader 8192 4096
	t_run first_member_is_full wait_until 5 in_flight "${MEMBERS[0]}" 2
	reader 61440 8192
	t_run other_member_is_asked wait_until 5 in_flight "${MEMBERS[1]}" 1
	t_run first_member_still_is in_flight "${MEMBERS[0]}" 2
	wait
	# Not while a disk holds commands.
	t_run disks_are_fast wait_until 30 null_set $PARAMS/delay 0
	t_run verify_again "$EXERCISE" verify "$NODE" --log "$WORK/room.log" --length 16M
	t_run stop array_stop room
}

# in_flight NODE COUNT: the device holds so many commands.
in_flight() {
	local reads writes
	read -r reads writes <"/sys/class/block/$(kernel_name "$1")/inflight"
	[ $((reads + writes)) = "$2" ]
}

start
scsi_disks
data_test
no_room_test
t_run disks_go wait_until 10 rmmod scsi_debug
finish
