#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The driver at work, to be watched: six slow disks become a RAID-5 with a real
# file system and real files on it; one disk turns bad; it sits out; another one
# fails; the array is stopped and started without it. Everything is measured,
# and every file is compared with its checksum at each step.
set -u

# shellcheck source=/dev/null
. ./demo_helpers.sh
# shellcheck source=/dev/null
. ./lib.sh

readonly MB=96 FAST_MS=8 SLOW_MS=160
readonly MOUNT=$WORK/mnt SUMS=$WORK/sums
readonly TREES=(/usr/lib/gcc /usr/lib/git-core /usr/lib/udev /usr/share/qemu
	/usr/lib/python3.13 /usr/share/perl /usr/share/doc)
TRACE=/sys/kernel/tracing
ROWS=()
BAD=0
SINCE=$SECONDS

# --- events -------------------------------------------------------------------

events_on() {
	[ -d $TRACE/events/eraid/eraid_ereport ] || t_bail "no tracepoint eraid:eraid_ereport"
	echo 1 >$TRACE/events/eraid/eraid_ereport/enable
	# As they come, between the lines of the demo.
	sed -u -n 's/^.*eraid_ereport: \(.*\) value=.*/   * event: \1/p' <$TRACE/trace_pipe &
	EVENTS=$!
}

events_off() {
	sleep 0.5
	echo 0 >$TRACE/events/eraid/eraid_ereport/enable
	kill $EVENTS 2>/dev/null
	wait $EVENTS 2>/dev/null
}

# --- measuring ----------------------------------------------------------------

# check_files: reads every file from the disks, not from memory; sets WRONG to
# what is wrong and TOOK to the milliseconds it took.
check_files() {
	local begun
	must umount "$MOUNT"
	must mount "$NODE" "$MOUNT"
	begun=${EPOCHREALTIME/./}
	# Four readers, as a server has several.
	WRONG=$(cd "$MOUNT" && split -n r/4 --filter='sha256sum --quiet --check' "$SUMS" 2>&1)
	TOOK=$(((${EPOCHREALTIME/./} - begun) / 1000))
}

# measure LABEL: a row of the table at the end.
measure() {
	local load files
	load=$("$EXERCISE" read-load "$NODE" --count 150 --size 64K --threads 2 --seed 5) ||
		t_bail "reading failed"
	check_files
	files=right
	[ -z "$WRONG" ] || { files=WRONG; BAD=1; show <<<"$WRONG"; }
	tell "64 KiB reads anywhere: half of them within $(ms "$(field p50_us "$load")") ms, 99% within" \
		"$(ms "$(field p99_us "$load")") ms, $(field MBps "$load") MB/s"
	tell "all $FILES files ($TREE_MB MB) read in $(ms $((TOOK * 1000))) ms: every checksum is $files"
	ROWS+=("$1|$(ms "$(field p50_us "$load")")|$(ms "$(field p99_us "$load")")|$(ms "$(field max_us "$load")")|$(
		field MBps "$load")|$(awk -v b=$TREE_MB -v t=$TOOK 'BEGIN { printf "%.1f", b * 1000 / t }')|$files")
}

ms() { echo $((($1 + 500) / 1000)); }

table() {
	local line='+--------------------------------+-----------------------+--------+---------+-----------+'
	echo "$line"
	printf '| %-30s | %-21s | %-6s | %-7s | %-9s |\n' '' '64 KiB reads, ms' '' 'files' 'checksums' \
		'six disks, RAID-5' ' half    99%  longest' 'MB/s' 'MB/s' "of $FILES"
	echo "$line"
	local row cells
	for row in "${ROWS[@]}"; do
		IFS='|' read -ra cells <<<"$row"
		printf '| %-30s | %5s  %5s    %5s | %6s | %7s | %-9s |\n' "${cells[@]}"
	done
	echo "$line"
}

# --- the demo -----------------------------------------------------------------

trap clean_up EXIT
say "The machine: $(uname -sr), unpatched"
tell "insmod eraid.ko"
must insmod "$ERAID_KO"
events_on

say "Six disks, in memory, each answering after $FAST_MS ms"
null_members 6 $MB
DISKS=()
for i in 0 1 2 3 4 5; do
	dm "disk$i" "$(delay_table "/dev/m$i" $FAST_MS $FAST_MS)"
	DISKS+=("$DM")
done
MEMBERS=("${DISKS[@]}")
tell "${DISKS[*]}"

say "A RAID-5 of them, through sysfs"
tell "echo name=demo level=5 chunk=64K members=$(with_commas "${DISKS[@]}") > $CONTROL/create"
must array_create demo level=5 chunk=64K
show <"$A/status"

say "A file system with real files"
must mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -N 8192 "$NODE"
mkdir -p "$MOUNT"
must mount "$NODE" "$MOUNT"
TREE_MB=0
for tree in "${TREES[@]}"; do
	[ -d "$tree" ] && [ $TREE_MB -lt 100 ] || continue
	must cp -a --parents "$tree" "$MOUNT/"
	(cd / && find ".$tree" -type f -print0 | sort -z | xargs -0 sha256sum) >>"$SUMS"
	TREE_MB=$(du -sm --exclude=lost+found "$MOUNT" | cut -f 1)
done
[ $TREE_MB -ge 100 ] || t_bail "only $TREE_MB MB of files found to copy"
FILES=$(wc -l <"$SUMS")
tell "$FILES files, $TREE_MB MB, copied; their checksums are those of the originals"
sync

say "1. Healthy"
measure "healthy"

say "2. One disk turns slow: ${DISKS[2]} answers after $SLOW_MS ms"
dm_change disk2 "$(delay_table /dev/m2 $SLOW_MS $SLOW_MS)"
measure "one disk slow ($SLOW_MS ms)"

say "3. It sits out: reads go around it, writes still reach it"
tell "echo 1 > $(dir_of "${DISKS[2]}")/sit_out"
must store "$(dir_of "${DISKS[2]}")/sit_out" 1
measure "the slow disk sits out"
show <"$A/status"

say "4. It is well again and back in; another one fails: ${DISKS[4]}"
dm_change disk2 "$(delay_table /dev/m2 $FAST_MS $FAST_MS)"
must store "$(dir_of "${DISKS[2]}")/sit_out" 0
tell "echo faulty > $(dir_of "${DISKS[4]}")/state"
member_fail "${DISKS[4]}"
measure "another disk failed"
show <"$A/status"

say "5. Stopped, and started again without the failed disk"
must umount "$MOUNT"
tell "echo demo > $CONTROL/stop"
must array_stop demo
MEMBERS=("${DISKS[@]:0:4}" "${DISKS[5]}")
tell "echo members=$(with_commas "${MEMBERS[@]}") degraded=1 > $CONTROL/assemble"
must array_assemble demo degraded=1
must mount "$NODE" "$MOUNT"
measure "re-assembled, one disk gone"
must umount "$MOUNT"
must fsck.ext4 -fn "$NODE" >"$WORK/fsck" 2>&1
tell "fsck: $(tail -n 1 "$WORK/fsck")"

must array_stop demo
events_off
clean_up
trap - EXIT
must driver_unload
say "What was seen"
table
echo
tell "Each disk answers after $FAST_MS ms, the slow one after $SLOW_MS ms. A read that needs the slow disk"
tell "waits for it, until it sits out: then the other five compute what it holds."
tell "This act took $((SECONDS - SINCE)) s."
[ $BAD = 0 ] || t_bail "files were wrong"
