#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The benchmark of what work costs, in one guest: three arrays on null_blk drives
# that keep no data, under the same load in turn. LOADS are lines of
# overhead.loads, separated by ";"; ROUNDS is how often each array has its turn,
# besides a first one that does not count. Prints a line for each run.
#
#   md         md's defaults
#   md-tuned   stripe_cache_size 8192, group_thread_cnt 2
#   eraid      eRAID's defaults
#
# md has no superblock and no bitmap, because drives without memory cannot give
# them back to it; that spares it some work.
set -u
# shellcheck source=head.sh
. /lab/repo/scripts/bench/head.sh

# Bytes of a chunk, MiB of a drive, the member that fails: on that one lies
# every sixth chunk, from the sixth on (left-symmetric).
readonly CHUNK=65536 DRIVE_MB=16384 LAST=5
readonly MD=/sys/module/md_mod/parameters
readonly STACKS=(md md-tuned eraid)
declare -A NODES=()

# drives PREFIX: sets MEMBERS to six drives. They complete in a softirq on the
# processor that submitted, as most real ones do.
drives() {
	local i
	MEMBERS=()
	for i in 0 1 2 3 4 5; do
		null_member "$1$i" $DRIVE_MB memory_backed=0 rotational=0 irqmode=1 submit_queues=2
		echo none >"/sys/block/$1$i/queue/scheduler" || t_bail "no scheduler is refused"
		MEMBERS+=("/dev/$1$i")
	done
}

put() { echo "$2" >"$1" || t_bail "$1 does not take $2"; }

# md_create NAME PREFIX: what mdadm would do, but for the superblock.
md_create() {
	local md=/sys/block/$1/md slot dev
	drives "$2"
	put $MD/new_array "$1"
	put "$md/metadata_version" none
	put "$md/level" raid5
	put "$md/layout" 2
	put "$md/chunk_size" $CHUNK
	put "$md/raid_disks" 6
	put "$md/component_size" $(((DRIVE_MB - 128) * 1024))
	for slot in 0 1 2 3 4 5; do
		dev=$2$slot
		put "$md/new_dev" "$(<"/sys/block/$dev/dev")"
		put "$md/dev-$dev/slot" $slot
	done
	put "$md/resync_start" none
	put "$md/array_state" active
	NODE=/dev/$1
	need_block_dev "$NODE"
	[ "$(<"$md/degraded") $(<"$md/sync_action")" = '0 idle' ] || t_bail "$1 is not in sync"
}

arrays_create() {
	md_create md_defaults a
	NODES[md]=$NODE
	md_create md_tuned t
	put /sys/block/md_tuned/md/stripe_cache_size 8192
	put /sys/block/md_tuned/md/group_thread_cnt 2
	NODES[md-tuned]=$NODE
	drives e
	must insmod "$ERAID_KO"
	must array_create bench level=5 chunk=$((CHUNK / 1024))K assume_clean=1
	NODES[eraid]=$NODE
}

# One member of each array fails, unless that has happened.
arrays_degrade() {
	attr_is degraded 0 || return 0
	put /sys/block/md_defaults/md/dev-a$LAST/state faulty
	put /sys/block/md_tuned/md/dev-t$LAST/state faulty
	member_fail /dev/e$LAST
	wait_until 5 attr_is degraded 1 || t_bail "eRAID's member did not fail"
	wait_until 5 md_degraded md_defaults || t_bail "md's member did not fail"
	wait_until 5 md_degraded md_tuned || t_bail "md's member did not fail"
}

md_degraded() { [ "$(<"/sys/block/$1/md/degraded")" = 1 ]; }

# measure NODE SEED: sets IOPS and KBPS. System calls are dear in user-mode Linux,
# so half of the requests under way go out and come back together. A job of fio
# that is a thread would share its memory with fio's main one, and the kernel
# lets only one of them run.
measure() {
	local batch=$(((SET[iodepth] + 1) / 2))
	local job=(fio --name=load --filename="$1" --direct=1 --ioengine=libaio
		--rw="${SET[rw]}" --bs="${SET[bs]}" --iodepth="${SET[iodepth]}"
		--iodepth_batch_submit="$batch" --iodepth_batch_complete_min="$batch"
		--iodepth_batch_complete_max="${SET[iodepth]}" --norandommap --randseed="$2"
		--gtod_reduce=1 --time_based --runtime=1 --output-format=terse --terse-version=3)
	local line fields at=6
	[ -z "${SET[degraded]:-}" ] ||
		job+=(--zonemode=strided --zonerange=$((LAST * CHUNK)) --zonesize=$((LAST * CHUNK)) "--zoneskip=$CHUNK")
	line=$("${job[@]}" 2>"$WORK/fio") || t_bail "fio: $(<"$WORK/fio")"
	IFS=';' read -ra fields <<<"$line"
	case ${SET[rw]} in *write) at=47 ;; esac
	KBPS=${fields[at]} IOPS=${fields[at + 1]}
	[[ $IOPS =~ ^[1-9] ]] || t_bail "fio: $line"
}

run_load() { # LINE
	local word round turn stack
	declare -gA SET=()
	for word in ${1#* }; do SET[${word%%=*}]=${word#*=}; done
	[ -z "${SET[degraded]:-}" ] || arrays_degrade
	for ((round = 0; round <= ROUNDS; round++)); do
		# Each round another one is first.
		for turn in 0 1 2; do
			stack=${STACKS[(turn + round) % 3]}
			measure "${NODES[$stack]}" $((SEED * 1000 + round))
			[ $round = 0 ] ||
				echo "run load=${1%% *} array=$stack round=$round iops=$IOPS kBps=$KBPS"
		done
	done
}

arrays_create
echo "kernel=$(uname -r) processors=$(nproc) fio=$(fio --version)"
IFS=';' read -ra lines <<<"$LOADS"
for line in "${lines[@]}"; do run_load "$line"; done
