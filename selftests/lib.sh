# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The scripts that source this use what is set here.
# shellcheck disable=SC2034
#
# What the driver's tests share: members to build arrays from, the control
# files with their errors, the oracle. Source ktap_helpers.sh first; call
# "start" before anything else and "finish" at the end. Everything that was
# made here is gone afterwards, also when the script dies.

readonly CONTROL=/sys/class/eraid-control
readonly NULLB=/sys/kernel/config/nullb
readonly EXERCISE=$ERAID_TOOLS/eraid-exercise
readonly STORE=$ERAID_TOOLS/eraid-store
readonly WORK=${TMPDIR:-/tmp}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM + 1))}
SOAK=${ERAID_SOAK:-}
# How much longer than usual everything may take; given as ERAID_TIMEOUT_SCALE.
readonly SCALE=${ERAID_TIMEOUT_SCALE:-1}

# --- start and end ------------------------------------------------------------

# Loads the driver and says the seed with which this run can be repeated.
start() {
	local tool
	for tool in "$EXERCISE" "$STORE"; do
		[ -x "$tool" ] || t_bail "$tool is missing"
	done
	t_note "seed $SEED (SEED=$SEED repeats this run)"
	trap clean_up EXIT
	hands_start
	driver_load || t_bail "the driver does not load: $(dmesg | tail -n 3)"
}

driver_load() { [ -d "$CONTROL" ] || insmod "$ERAID_KO"; }

# Everything goes, the driver last: it must unload.
finish() {
	clean_up
	trap - EXIT
	t_run driver_unloads driver_unload
	t_end
}

# A command that just closed the device may still hold a reference for a moment.
driver_unload() { wait_until 5 rmmod eraid; }

clean_up() {
	local name
	for name in $(mounts_under "$WORK"); do umount -l "$name"; done
	hands dm_resume_all
	for name in $(arrays); do store "$CONTROL/stop" "$name" || true; done
	hands clean_up || t_note "not all devices went: $ANSWER"
	return 0
}

mounts_under() { awk -v dir="$1/" 'index($2 "/", dir) == 1 && $2 "/" != dir { print $2 }' /proc/mounts; }

# must CMD...: for what the test itself needs; without it there is no test.
must() { "$@" || t_bail "failed: $*"; }

# wait_until SECONDS CMD...: CMD until it succeeds; SCALE times as long at most.
wait_until() {
	local end=$((SECONDS + $1 * SCALE))
	shift
	until "$@" 2>/dev/null; do
		[ $SECONDS -le $end ] || return 1
		nap 0.03
	done
}

# all_end PID...: waits for these jobs; whether all of them succeeded.
all_end() {
	local pid bad=0
	for pid in "$@"; do wait "$pid" || bad=1; done
	return $bad
}

# nap SECONDS: a sleep without a process; nothing ever comes from that pipe.
exec {NEVER}<> <(:)
nap() { ! read -r -t "$1" -u "$NEVER"; }

# gone PID...: these processes have ended.
gone() {
	local pid
	for pid in "$@"; do ! kill -0 "$pid" 2>/dev/null || return 1; done
}

# by_flavour STOCK UML: emulated guests are some ten times slower than UML ones.
by_flavour() { if [ "$ERAID_FLAVOUR" = stock ]; then echo "$1"; else echo "$2"; fi; }

# only_in FLAVOUR CMD...: for what does not depend on the kernel; in "lab soak" everywhere.
only_in() { [ "$ERAID_FLAVOUR" != "$1" ] && [ -z "$SOAK" ] || "${@:2}"; }

# soak NORMAL SOAK: a count for "lab test" and for "lab soak".
soak() { if [ -n "$SOAK" ]; then echo "$2"; else echo "$1"; fi; }

# Choices of the scripts themselves follow from the seed too.
random_below() { # BOUND; sets RANDOM_NUMBER
	RANDOM_STATE=$((${RANDOM_STATE:-$SEED} * 6364136223846793005 + 1442695040888963407))
	RANDOM_NUMBER=$((((RANDOM_STATE >> 33) & 0x7fffffff) % $1))
}

# --- small work ----------------------------------------------------------------

# hands.py does what would cost a process each time. A subshell that goes on by
# itself needs hands of its own.
hands_start() {
	coproc HANDS { exec python3 -S -E ./hands.py; }
	exec {TO_HANDS}>&"${HANDS[1]}" {FROM_HANDS}<&"${HANDS[0]}"
	# No job of this shell that anybody waits for.
	disown
}

# hands REQUEST FIELD...: sets ANSWER to "ok", "ok WORDS" or an error's name.
hands() {
	local IFS=$'\x1f'
	[ -n "${TO_HANDS:-}" ] || hands_start
	printf '%s\n' "$*" >&"$TO_HANDS"
	IFS= read -r -u "$FROM_HANDS" ANSWER || t_bail "hands.py ended"
	[ "${ANSWER%% *}" = ok ] || return 1
}

# --- devices ------------------------------------------------------------------

# null_member NAME MB [ATTRIBUTE=VALUE...]: a disk in memory, /dev/NAME, that
# says it rotates, as most members do, unless rotational=0. Attributes are
# null_blk's: blocksize=4096, cache_size=8 (MB of volatile cache),
# completion_nsec=8000000 with irqmode=2.
null_member() {
	hands null "$@" || t_bail "no null_blk disk $*: $ANSWER"
	need_block_dev "/dev/$1"
}

null_set() { echo "$2" >"$1"; }
null_remove() { must hands null_remove "$1"; }

# null_members COUNT MB [ATTRIBUTE=VALUE...]: m0, m1, ...; sets MEMBERS.
null_members() {
	local i
	MEMBERS=()
	for ((i = 0; i < $1; i++)); do
		null_member "m$i" "${@:2}"
		MEMBERS+=("/dev/m$i")
	done
}

# sim_members COUNT [KEY=VALUE...]: simulated drives of 1 GiB, h0, h1, ...; sets MEMBERS.
sim_members() {
	local i
	must insmod "$ERAID_HDDSIM_KO"
	MEMBERS=()
	for ((i = 0; i < $1; i++)); do
		must store /sys/class/eraid-hddsim/create "name=h$i size=1G seed=$((SEED + i))${2:+ ${*:2}}"
		MEMBERS+=("/dev/h$i")
	done
	need_block_dev "${MEMBERS[@]}"
}

# sim_remove: they go, and their driver.
sim_remove() {
	local member
	for member in "${MEMBERS[@]}"; do
		must wait_until 10 store /sys/class/eraid-hddsim/remove "${member##*/}"
	done
	must wait_until 10 rmmod eraid_hddsim
}

# dm NAME TABLE: a device-mapper device; sets DM to its node. There is no udev,
# so the name under /dev/mapper must not be used.
dm() {
	hands dm "$1" "${2//$'\n'/;}" || t_bail "no mapped device $1: $ANSWER: $2"
	DM=${ANSWER#ok }
	need_block_dev "$DM"
}

dm_remove() { hands dm_remove "$1"; }

# dm_change NAME TABLE: another table on the same device, nothing lost.
dm_change() { must hands dm_change "$1" "${2//$'\n'/;}"; }

# A stopped device answers nothing until it goes on.
dm_stop_answering() { must hands dm_stop "$1"; }
dm_answer_again() { must hands dm_resume "$1"; }

# Nodes here are devtmpfs's own, no links.
sectors() { echo "$(<"/sys/class/block/${1##*/}/size")"; }
block_size() { echo "$(<"/sys/class/block/${1##*/}/queue/logical_block_size")"; }
kernel_name() { echo "${1##*/}"; }

# linear_table DEVICE [OFFSET [LENGTH]] in sectors, and tables of one target
# over a whole device.
linear_table() {
	local all
	all=$(<"/sys/class/block/${1##*/}/size")
	echo "0 ${3:-$((all - ${2:-0}))} linear $1 ${2:-0}"
}
delay_table() { echo "0 $(sectors "$1") delay $1 0 $2 $1 0 ${3:-0}"; } # READ_MS [WRITE_MS]
error_table() { echo "0 $(sectors "$1") error"; }

# fail_table DEVICE error_reads|error_writes [START LENGTH]: such commands fail,
# in the given sectors or everywhere; error_writes fails flushes too.
fail_table() {
	local all start=${3:-0} len
	all=$(<"/sys/class/block/${1##*/}/size")
	len=${4:-$all}
	[ "$start" = 0 ] || echo "0 $start linear $1 0"
	echo "$start $len flakey $1 $start 0 1 1 $2"
	[ $((start + len)) = "$all" ] || echo "$((start + len)) $((all - start - len)) linear $1 $((start + len))"
}

# Members under dm-linear, so that their behaviour can be changed: d0, d1, ...
# over m0, m1, ...; MEMBERS becomes the nodes on top.
wrap_members() {
	local i wrapped=()
	for ((i = 0; i < ${#MEMBERS[@]}; i++)); do
		dm "d$i" "$(linear_table "${MEMBERS[i]}")"
		wrapped+=("$DM")
	done
	MEMBERS=("${wrapped[@]}")
}

# claim NODE: whether nobody else has it for himself.
claim() { hands claim "$1"; }

# What is below a wrapped member: under d2 lies m2.
below() { echo "/dev/m${1#d}"; }

# drop_members: no mapped device stays, and of the disks none called m*.
drop_members() { hands drop_members || t_bail "the members do not go: $ANSWER"; }

# copy_device FROM TO: all of it; what is zero costs no memory.
copy_device() {
	need_block_dev "$1" "$2"
	hands copy "$1" "$2"
}

# The n-th field of a device's statistics: 1 reads, 5 writes, 16 flushes.
device_stat() {
	local fields
	read -ra fields <"/sys/class/block/${1##*/}/stat"
	echo "${fields[$2 - 1]}"
}

# --- the driver's control files -----------------------------------------------

# store FILE LINE: writes the line; sets ERRNO to its name, "ok" when it was
# taken, and WHY to what last_error says.
store() {
	WHY=
	hands store "$1" "$2" && ERRNO=ok && return 0
	ERRNO=$ANSWER
	WHY=$(<"$CONTROL/last_error")
	WHY=${WHY##*$'\n'}
	return 1
}

control() { store "$CONTROL/$1" "$2"; }

arrays() {
	local link
	for link in "$CONTROL"/arrays/*; do
		[ "${link##*/}" != subsystem ] && [ -L "$link" ] || continue
		hands link "$link" && echo "${ANSWER##*/}"
	done
}

# with_commas ITEM...
with_commas() { local IFS=,; echo "$*"; }

# array_create NAME ARGUMENTS...: members=... unless given is MEMBERS. Sets
# ARRAY (eraidN), NODE (/dev/eraidN) and A (its sysfs directory).
array_create() {
	local line="name=$1 ${*:2}"
	case $line in *members=*) ;; *) line+=" members=$(with_commas "${MEMBERS[@]}")" ;; esac
	if ! control create "$line"; then
		t_note "create: $ERRNO: $WHY"
		return 1
	fi
	array_use "$1"
}

# array_assemble NAME ARGUMENTS...
array_assemble() {
	local line="${*:2}"
	case $line in *members=*) ;; *) line="members=$(with_commas "${MEMBERS[@]}") $line" ;; esac
	if ! control assemble "${line% }"; then
		t_note "assemble: $ERRNO: $WHY"
		return 1
	fi
	array_use "$1"
}

array_use() {
	[ -L "$CONTROL/arrays/$1" ] || return 1
	must hands link "$CONTROL/arrays/$1"
	ARRAY=${ANSWER##*/}
	NODE=/dev/$ARRAY
	A=/sys/block/$ARRAY/eraid
	need_block_dev "$NODE"
}

# Nobody may hold the device when it is stopped; a closing process takes a moment.
array_stop() { wait_until 10 control stop "$1"; }

attr() { echo "$(<"$A/$1")"; }
attr_is() { [ "$(<"$A/$1")" = "$2" ]; }

# member_dir SLOT: the member's sysfs directory; member_of SLOT: its node.
member_dir() { hands link "$A/rd$1" && echo "${ANSWER#ok }"; }
member_of() { hands link "$A/rd$1" && echo "/dev/${ANSWER##*/dev-}"; }

# dir_of NODE: the directory of the member on that node.
dir_of() { echo "$A/dev-${1##*/}"; }

member_fail() { must store "$A/dev-${1##*/}/state" faulty; }
member_remove() {
	local dir=$A/dev-${1##*/}
	must store "$dir/state" remove
	# Removal happens behind the write, which cannot remove its own file.
	wait_until 5 test ! -e "$dir" || t_bail "$1 is still a member"
}

# parity_slot STRIPE: where the left-symmetric layout has the parity, of RAID-6
# P, of O_DISKS members; Q is on the slot behind it, all around.
parity_slot() { echo $((O_DISKS - 1 - $1 % O_DISKS)); }

# quiet: nothing is left to be synchronised.
quiet() { attr_is sync_action idle && attr_is unsynced_regions 0; }
wait_quiet() { wait_until 60 quiet; }

# parities: how many parity chunks a stripe has.
parities() { case $(<"$A/level") in raid6) echo 2 ;; raid5) echo 1 ;; *) echo 0 ;; esac; }

# data_on SLOT [SKIP]: sets START and LENGTH in bytes to a chunk of a RAID-5 or
# RAID-6 that lies on that slot, behind the first SKIP such ones.
data_on() {
	local stripe column parities skip=${2:-0}
	parities=$(parities)
	O_DISKS=$(<"$A/raid_disks")
	LENGTH=$(<"$A/chunk_size")
	for ((stripe = 0; ; stripe++)); do
		# Column 0 stands behind the parity.
		column=$((($1 + O_DISKS - $(parity_slot $stripe)) % O_DISKS - parities))
		[ $column -ge 0 ] || continue
		START=$(((stripe * (O_DISKS - parities) + column) * LENGTH))
		[ $((skip--)) -gt 0 ] || return 0
	done
}

# reads_of COMMAND...: runs it; sets READS to how many reads each member got.
reads_of() {
	local i before=()
	for i in "${!MEMBERS[@]}"; do before[i]=$(device_stat "${MEMBERS[i]}" 1); done
	"$@" || return 1
	READS=()
	for i in "${!MEMBERS[@]}"; do READS[i]=$(($(device_stat "${MEMBERS[i]}" 1) - before[i])); done
}

# --- data ---------------------------------------------------------------------
# How much suites write that are not about the data alone, and where they note it.
COUNT=$(soak "$(by_flavour 60 150)" 3000)
LOG=$WORK/log

# writes [OPTIONS...]: seeded random writes to the array, noted in LOG; verify
# [OPTIONS...]: it reads as LOG says; verify_all: and all of it can be read.
writes() {
	"$EXERCISE" write "$NODE" --log "$LOG" --seed "$SEED" --count "$COUNT" --threads 4 --unit 64K "$@"
}
verify() { verify_all --written-only "$@"; }
verify_all() { "$EXERCISE" verify "$NODE" --log "$LOG" --threads 2 --max-size 256K "$@"; }

# --- the oracle ---------------------------------------------------------------
# dm-raid, dm-stripe, md and plain copies know the same layouts from elsewhere.

# oracle_copy: copies every member that is left to c0, c1, ... Sets COPIES, by
# slot; a missing member is "-". The array must be quiet.
oracle_copy() {
	local slot disks member
	disks=$(<"$A/raid_disks")
	COPIES=()
	for ((slot = 0; slot < disks; slot++)); do
		COPIES+=(-)
		[ -L "$A/rd$slot" ] || continue
		case $(<"$A/rd$slot/state") in *in_sync*) ;; *) continue ;; esac
		member=$(member_of "$slot")
		null_member "c$slot" $(($(sectors "$member") / 2048)) \
			blocksize="$(block_size "$member")"
		must copy_device "$member" "/dev/c$slot"
		COPIES[slot]=/dev/c$slot
	done
	oracle_note
}

# What the tables below need to know of the array, which may be gone by then.
oracle_note() {
	local slot
	O_LEVEL=$(<"$A/level")
	O_CHUNK=$(($(<"$A/chunk_size") / 512))
	O_SIZE=$(($(<"$A/component_size") * 2))
	for ((slot = 0; slot < ${#COPIES[@]}; slot++)); do
		[ "${COPIES[slot]}" = - ] || O_OFFSET=$(<"$A/rd$slot/offset")
	done
}

# oracle [SLOT...]: makes the device that the copies hold, without the members of
# these slots; sets ORACLE to its node.
oracle() {
	local slot n=${#COPIES[@]} args=() slices=()
	SLICES=()
	if [ "$O_LEVEL" = raid6 ]; then
		md_oracle "$@"
		return
	fi
	for ((slot = 0; slot < n; slot++)); do
		if [ "${COPIES[slot]}" = - ] || [[ " $* " == *" $slot "* ]]; then
			slices+=(-)
			continue
		fi
		dm "slice$slot" "0 $O_SIZE linear ${COPIES[slot]} $O_OFFSET"
		slices+=("$DM")
		SLICES+=("slice$slot")
	done
	case $O_LEVEL in
	raid0)
		for slot in "${slices[@]}"; do args+=("$slot" 0); done
		dm oracle "0 $((O_SIZE * n)) striped $n $O_CHUNK ${args[*]}"
		;;
	raid1) for slot in "${slices[@]}"; do [ "$slot" = - ] || DM=$slot; done ;;
	raid5)
		for slot in "${slices[@]}"; do args+=(- "$slot"); done
		dm oracle "0 $((O_SIZE * (n - 1))) raid raid5_ls 2 $O_CHUNK nosync $n ${args[*]}"
		;;
	*) t_bail "no oracle for $O_LEVEL" ;;
	esac
	ORACLE=$DM
}

# md_oracle [SLOT...]: the same by md itself, for RAID-6: dm-raid does not offer
# its default layout (2, left-symmetric). Without superblocks and read-only, so
# that nothing is looked for, resynced or repaired. The disk is used again.
md_oracle() {
	local slot copy md=/sys/block/md_oracle/md
	ORACLE=/dev/md_oracle
	if [ ! -d $md ]; then
		[ -d /sys/module/raid456 ] || must modprobe raid456
		must md_set /sys/module/md_mod/parameters/new_array md_oracle
	fi
	must md_set $md/level "$O_LEVEL"
	must md_set $md/raid_disks ${#COPIES[@]}
	must md_set $md/layout 2
	must md_set $md/chunk_size $((O_CHUNK * 512))
	for ((slot = 0; slot < ${#COPIES[@]}; slot++)); do
		copy=${COPIES[slot]##*/}
		[ "$copy" != - ] && [[ " $* " != *" $slot "* ]] || continue
		must md_set $md/new_dev "$(<"/sys/class/block/$copy/dev")"
		must md_set "$md/dev-$copy/offset" "$O_OFFSET"
		must md_set "$md/dev-$copy/size" $((O_SIZE / 2))
		must md_set "$md/dev-$copy/slot" $slot
	done
	must md_set $md/component_size $((O_SIZE / 2))
	must md_set $md/resync_start none
	must md_set $md/array_state readonly
	need_block_dev "$ORACLE"
}

md_set() { echo "$2" >"$1"; }

oracle_end() {
	if [ "$O_LEVEL" = raid6 ]; then
		# A closing process takes a moment.
		must wait_until 5 md_set /sys/block/md_oracle/md/array_state clear
		return
	fi
	[ "$O_LEVEL" = raid1 ] || must dm_remove oracle
	must hands dm_remove "${SLICES[@]}"
}

# oracle_drop: the copies go.
oracle_drop() {
	local copy
	for copy in "${COPIES[@]}"; do
		[ "$copy" = - ] || null_remove "${copy##*/}"
	done
}

# oracle_verify NAME LOG [VERIFY OPTIONS...]: the copies hold what the log says,
# all of them, and with each one absent, or each two, that the level can do
# without.
oracle_verify() {
	local name=$1 log=$2 slots without=()
	shift 2
	[ "$O_LEVEL" = raid1 ] || without=("")
	case $O_LEVEL in raid5 | raid6) oracle_absences ;; esac
	for slots in "${without[@]}"; do
		# shellcheck disable=SC2086 # one or two words
		oracle $slots
		slots=${slots// /_}
		t_run "${name}_oracle${slots:+_without_$slots}" \
			"$EXERCISE" verify "$ORACLE" --log "$log" --written-only "$@"
		oracle_end
	done
	[ "$O_LEVEL" = raid1 ] || return 0
	oracle_verify_halves "$name" "$log" "$@"
}

# oracle_absences: adds to "without" what may be absent on top of what is: each
# member, or each two, since a pair with Q in it asks of the rest what one absent
# member does. Unless ALL_ABSENT is set only some, which follow from the seed: one
# pair, or two members, since one of them is not the stripe's parity.
oracle_absences() {
	local a b spare=1 single=() pairs=()
	[ "$O_LEVEL" = raid5 ] || spare=2
	for a in "${COPIES[@]}"; do [ "$a" != - ] || spare=$((spare - 1)); done
	for a in "${!COPIES[@]}"; do
		[ "${COPIES[a]}" != - ] || continue
		single+=("$a")
		for ((b = a + 1; b < ${#COPIES[@]}; b++)); do pairs+=("$a $b"); done
	done
	random_below ${#pairs[@]}
	case $spare${ALL_ABSENT:-$SOAK} in
	2) without+=("${pairs[RANDOM_NUMBER]}") ;;
	2*) without+=("${pairs[@]}") ;;
	1) without+=("${pairs[RANDOM_NUMBER]% *}" "${pairs[RANDOM_NUMBER]#* }") ;;
	1*) without+=("${single[@]}") ;;
	esac
}

# Every half of a RAID-1 alone.
oracle_verify_halves() {
	local name=$1 log=$2 slot all=("${COPIES[@]}")
	shift 2
	for slot in "${!all[@]}"; do
		[ "${all[slot]}" != - ] || continue
		COPIES=("${all[slot]}")
		oracle
		t_run "${name}_oracle_only_$slot" "$EXERCISE" verify "$ORACLE" --log "$log" --written-only "$@"
		oracle_end
	done
	COPIES=("${all[@]}")
}
