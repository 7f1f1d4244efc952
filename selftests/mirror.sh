#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# RAID-1: reads go where they are expected to be answered first, to a slow or
# sitting-out member last; any single copy of eight is enough.
. ./ktap_helpers.sh
. ./lib.sh

readonly SIM=/sys/class/eraid-hddsim N=3
# Percent of all reads: what equal members get at least and at most, and a slow one at most.
# Only simulated time is exact; elsewhere the machine makes any member slow at times.
if [ "$ERAID_FLAVOUR" = tt ]; then
	readonly HOW_MANY=400 LEAST=20 MOST=47 SLOW=8
else
	readonly HOW_MANY=200 LEAST=10 MOST=65 SLOW=16
fi

# drives: N simulated drives as members.
drives() {
	local i
	insmod "$ERAID_HDDSIM_KO" || t_bail "the drive model does not load"
	MEMBERS=()
	for ((i = 0; i < N; i++)); do
		must store $SIM/create "name=h$i size=8G seed=$((SEED + i))"
		MEMBERS+=("/dev/h$i")
	done
	need_block_dev "${MEMBERS[@]}"
}

drives_go() {
	local i
	for ((i = 0; i < N; i++)); do must wait_until 10 store $SIM/remove "h$i"; done
	wait_until 5 rmmod eraid_hddsim
}

# Whoever writes changes the data meanwhile: copies are equal all the same.
equal_copies() {
	local i offset
	null_members 3 16
	must array_create equal level=1
	t_run equal_write python3 ./scribble.py "$NODE" $((64 << 10)) "$(soak 300 20000)"
	offset=$(($(<"$A/rd0/offset") * 512))
	t_run equal_stop array_stop equal
	for i in 1 2; do t_run "equal_copy_$i" cmp -i $offset -n $((8 << 20)) /dev/m0 "/dev/m$i"; done
	drop_members
}

slow() { must store "/sys/block/h1/hddsim/slow_percent" "$1"; }

# load IN_FLIGHT: reads anywhere; sets READS, and SHARE to percent of each member.
load() {
	local i sum=0
	must reads_of "$ERAID_TOOLS/eraid-load" closed "$NODE" --in-flight "$1" --count "$HOW_MANY" \
		--size 8K --seed "$SEED" >/dev/null
	for i in "${READS[@]}"; do sum=$((sum + i)); done
	SHARE=()
	for i in "${!READS[@]}"; do SHARE[i]=$((READS[i] * 100 / sum)); done
	t_note "$1 in flight: reads ${READS[*]}"
}

balance() {
	local i
	must array_create mirror level=1 chunk=64K assume_clean=1
	load 6
	for i in "${!SHARE[@]}"; do t_run "equal_share_$i" test "${SHARE[i]}" -ge $LEAST -a "${SHARE[i]}" -le $MOST; done
	# A stream of neighbouring stripes stays on one member, unless the machine under the guest
	# makes that one slow meanwhile.
	if [ "$ERAID_FLAVOUR" = tt ]; then
		reads_of dd if="$NODE" of=/dev/null bs=64K count=8 skip=64 iflag=direct status=none
		t_is "$(printf '%s\n' "${READS[@]}" | grep -vc '^0$')" 1 stream_on_one_member
	fi
	slow 1000
	# The driver has to notice first.
	load 6
	for i in 1 2 6; do
		load "$i"
		t_run "slow_is_last_of_$i" test "${SHARE[1]}" -le $SLOW
	done
	t_run slow_is_not_failed attr_is degraded 0
	slow 100
	# What is known of it is forgotten; only simulated time is free.
	if [ "$ERAID_FLAVOUR" = tt ]; then
		sleep 20
		load 6
		load 6
		t_run well_again test "${SHARE[1]}" -ge 20
	fi
	# Never excluded: when it is all there is, the member that sits out is read.
	must store "$(dir_of /dev/h1)/sit_out" 1
	load 6
	t_is "${READS[1]}" 0 sits_out
	member_fail /dev/h0
	member_fail /dev/h2
	load 2
	t_run last_choice test "${READS[1]}" -ge "$HOW_MANY"
	t_run mirror_stop array_stop mirror
}

# Data is right whichever copies are left.
eight() {
	local i
	null_members 8 16
	t_run eight_create array_create eight level=1 chunk=64K || return 0
	t_is "$(<"$A/raid_disks")" 8 eight_members
	t_run eight_write writes
	reads_of verify
	# Times of disks in memory are noise; so are the shares.
	t_run eight_several_are_read test "$(printf '%s\n' "${READS[@]}" | grep -vc '^0$')" -ge 3
	for i in 0 2 4 6; do member_fail "/dev/m$i"; done
	t_run eight_write_degraded writes
	t_run eight_verify verify
	for i in 1 5 7; do member_fail "/dev/m$i"; done
	t_is "$(<"$A/degraded")" 7 eight_degraded
	t_run eight_verify_last verify
	store "$(dir_of /dev/m3)/state" faulty
	t_is "$ERRNO" EBUSY eight_last_is_kept
	t_run eight_stop array_stop eight
	drop_members
}

start
drives
balance
t_run drives_go drives_go
# In simulated time a loop that does nothing but write to memory has no end.
[ "$ERAID_FLAVOUR" = tt ] || equal_copies
eight
finish
