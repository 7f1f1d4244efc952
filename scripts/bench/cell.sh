#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One cell of a benchmark, in a guest of its own: six model drives, an array
# (STACK: md or eraid), one load. CELL is a line of a .cells file, which says
# what the words mean, or of "eraid-report failslow-boots", which has besides
#
#   drives       how many there are
#   up_to        the largest size: 1, 2, ... times the size
#   shape        bursty or day: how the rate of arrivals changes
#   array.FILE   what is written to a file of eRAID's sysfs directory
#   may_fail     1: that md throws out a drive, or does not end, is a result
#
# Prints KEY=VALUE lines, then the histogram of latencies.
set -u
# shellcheck source=head.sh
. /lab/repo/scripts/bench/head.sh

readonly SIM=/sys/class/eraid-hddsim CHOSEN=2
declare -A SET=() # what the line sets, by key

# The array's own name for a device node does not matter here. Without
# assume-clean the array starts read-only, so that its initial resync can be
# frozen before it begins.
md_create() {
	local sync=(--assume-clean)
	[ "$STATE" = full ] || sync=(--force --readonly)
	MDADM_NO_UDEV=1 mdadm --create /dev/md0 --run --metadata=1.2 --level="$LEVEL" \
		--raid-devices="$DRIVES" --chunk="${CHUNK%K}" --layout=left-symmetric \
		--bitmap="${SET[bitmap]:-none}" ${SET[bitmap_chunk]:+"--bitmap-chunk=${SET[bitmap_chunk]}"} "${sync[@]}" "${MEMBERS[@]}" >"$WORK/mdadm" 2>&1 ||
		t_bail "$(<"$WORK/mdadm")"
	NODE=/dev/md0
	if [ "$STATE" != full ]; then
		echo frozen >/sys/block/md0/md/sync_action
		mdadm --readwrite $NODE >"$WORK/mdadm" 2>&1 || t_bail "$(<"$WORK/mdadm")"
	fi
	need_block_dev $NODE
	md_check
}

# md is in the state that the cell is about: in sync, or not begun; and whole.
md_check() {
	local want='idle none 0' is
	[ "$STATE" = full ] || want='frozen 0 0'
	is="$(</sys/block/md0/md/sync_action) $(</sys/block/md0/md/resync_start) $(</sys/block/md0/md/degraded)"
	[ "$is" = "$want" ] || t_bail "md's sync_action, resync_start and degraded are '$is', not '$want'"
}

md_fail() {
	mdadm "$NODE" --fail "$1" >"$WORK/mdadm" 2>&1 || t_bail "$(<"$WORK/mdadm")"
	[ "$(</sys/block/md0/md/degraded)" = 1 ] || t_bail "$1 did not fail"
}

eraid_create() {
	local clean=()
	[ "$STATE" != full ] || clean=(assume_clean=1)
	must insmod "$ERAID_KO"
	must array_create bench level="$LEVEL" chunk="$CHUNK" "${clean[@]}"
}

eraid_check() {
	quiet && attr_is degraded 0 ||
		t_bail "sync_action is $(attr sync_action), degraded $(attr degraded)"
}

md_degraded() { cat /sys/block/md0/md/degraded; }
eraid_degraded() { attr degraded; }

# What eRAID has counted of its reads: "FILE NUMBER" lines. md counts nothing.
eraid_counters() {
	local file
	for file in "$A"/reads_*; do
		[ ! -e "$file" ] || echo "${file##*/} $(<"$file")"
	done
}
md_counters() { :; }

md_set() { :; }
eraid_set() {
	local key
	for key in "${!SET[@]}"; do
		case $key in array.*) must store "$A/${key#array.}" "${SET[$key]}" ;; esac
	done
}

eraid_fail() {
	member_fail "$1"
	wait_until 5 attr_is degraded 1 || t_bail "$1 did not fail"
}

drives_create() {
	local i
	must insmod "$ERAID_HDDSIM_KO"
	MEMBERS=()
	for ((i = 0; i < DRIVES; i++)); do
		must store $SIM/create "name=h$i seed=$((SEED * 100 + i))"
		# As many requests as the load may have under way: nobody waits for a tag.
		echo mq-deadline >"/sys/block/h$i/queue/scheduler" || t_bail "no mq-deadline"
		echo 2048 >"/sys/block/h$i/queue/nr_requests" || t_bail "nr_requests"
		MEMBERS+=("/dev/h$i")
	done
	need_block_dev "${MEMBERS[@]}"
}

# Only when the array is there: it must not take ages to make.
drives_set() {
	local key i
	for key in "${!SET[@]}"; do
		case $key in
		all.*)
			for ((i = 0; i < DRIVES; i++)); do
				must store "/sys/block/h$i/hddsim/${key#all.}" "${SET[$key]}"
			done
			;;
		one.*) must store "/sys/block/h$CHOSEN/hddsim/${key#one.}" "${SET[$key]}" ;;
		esac
	done
	# Where the heads are and what comes next of the failures is the same for
	# every array. A drive must have written its cache by then.
	for ((i = 0; i < DRIVES; i++)); do
		wait_until 60 store "/sys/block/h$i/hddsim/reset" 1 || t_bail "h$i does not rest"
	done
}

# One write to each part of the array, so that every region has some: 512 parts,
# for there are at most 448 regions.
first_pass() {
	local part=$(($(sectors "$NODE") / 8 / 512 * 4096))
	awk -v part="$part" 'BEGIN {
		for (i = 0; i < 512; i++) printf "%d,W,%.0f,4096\n", i * 30000, i * part
	}' >"$WORK/first"
	"$ERAID_TOOLS/eraid-load" replay "$WORK/first" "$NODE" >"$WORK/first.out" 2>&1 ||
		t_bail "first pass: $(<"$WORK/first.out")"
	# Long enough for both to mark their regions as clean again.
	sleep 60
}

for word in ${CELL#* }; do SET[${word%%=*}]=${word#*=}; done
LEVEL=${SET[level]:-5} CHUNK=${SET[chunk]:-8K} STATE=${SET[state]:-full}
DRIVES=6
[ "$LEVEL" = 5 ] || DRIVES=8
DRIVES=${SET[drives]:-$DRIVES}
# Every medium error prints a line.
dmesg -n 1
drives_create
${STACK}_create
if [ -n "${SET[fail]:-}" ]; then "${STACK}_fail" "${MEMBERS[CHOSEN]}"; fi
"${STACK}_set"
# md and eRAID write their metadata some time after they start.
sleep 5
[ "$STATE" != partial ] || first_pass
drives_set

load=("$NODE" --size "${SET[size]}" --count "${SET[count]}"
	--warm-up "${SET[warm_up]:-0}" --seed "$SEED" --histogram "$WORK/histogram")
if [ -n "${SET[sequential]:-}" ]; then
	load+=(--sequential)
else
	load+=(--align "${SET[align]:-${SET[size]}}")
fi
[ -z "${SET[up_to]:-}" ] || load+=(--up-to "${SET[up_to]}")
[ -z "${SET[write_percent]:-}" ] || load+=(--write-percent "${SET[write_percent]}")
[ -z "${SET[fsync]:-}" ] || load+=(--fsync)
if [ -n "${SET[in_flight]:-}" ]; then
	load=(closed "${load[@]}" --in-flight "${SET[in_flight]}")
else
	load=(poisson "${load[@]}" --every "${SET[every]}" --shape "${SET[shape]:-steady}")
fi
if [ -n "${SET[stall]:-}" ]; then
	(sleep "${SET[stall]%:*}" && echo "${SET[stall]#*:}" >"/sys/block/h$CHOSEN/hddsim/stall_ms") &
fi
"${STACK}_counters" >"$WORK/counters"
echo "cell=${CELL%% *} array=$STACK drive_seed=$SEED kernel=$(uname -r)" \
	"drives=$(cat /sys/block/h*/hddsim/params_hash | sha256sum | cut -c 1-16)"
"$ERAID_TOOLS/eraid-load" "${load[@]}" 2>&1
status=$?
# Requests that failed are a result too.
[ $status -le 1 ] || t_bail "eraid-load: status $status"
for ((i = 0; i < DRIVES; i++)); do
	echo "h$i=$(tr ' \n' '=,' <"/sys/block/h$i/hddsim/counters")"
done
# Since the load began.
"${STACK}_counters" | awk 'NR == FNR { before[$1] = $2; next } { print $1 "=" $2 - before[$1] }' "$WORK/counters" -
echo "degraded=$("${STACK}_degraded")"
[ -n "${SET[fail]:-}${SET[may_fail]:-}" ] || "${STACK}_check"
cat "$WORK/histogram"
