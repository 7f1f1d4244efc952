#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Load, create each level, look at everything that can be seen, stop, unload.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64

start
t_run control_class test -d $CONTROL/arrays
for f in create assemble abort stop; do
	t_is "$(stat -c %a $CONTROL/$f)" 200 "control_$f"
done
for f in last_error zombies; do t_is "$(stat -c %a $CONTROL/$f)" 444 "control_$f"; done
t_is "$(cat $CONTROL/zombies)" "" no_zombies
t_run unloads_unused rmmod eraid
t_run class_is_gone test ! -e $CONTROL
t_run loads_again driver_load

# level members chunk_KiB data_columns tag
look_at() {
	local level=$1 n=$2 chunk=$3 columns=$4 id=r$1 i
	null_members "$n" $MB
	t_run "${id}_create" array_create "$id" level="$level" chunk="${chunk}K" || return 0
	t_is "$(<"$A/level")" "raid$level" "${id}_level"
	t_is "$(<"$A/name")" "$id" "${id}_name"
	t_is "$(<"$A/raid_disks")" "$n" "${id}_raid_disks"
	t_is "$(<"$A/degraded")" 0 "${id}_degraded"
	t_run "${id}_uuid" grep -qE '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' "$A/uuid"
	t_run "${id}_array_state" grep -qE '^(clean|active|active-idle)$' "$A/array_state"
	[ "$level" = 1 ] || t_is "$(<"$A/chunk_size")" $((chunk * 1024)) "${id}_chunk_size"
	[ "$level" -lt 5 ] || t_is "$(<"$A/layout")" 2 "${id}_layout"

	# At least 1 MiB of each member's tail is unused; the front is less than half.
	local component
	component=$(attr component_size)
	t_run "${id}_component" test "$component" -ge $((MB * 512)) -a "$component" -le $(((MB - 1) * 1024))
	t_is "$(sectors "$NODE")" $((component * 2 * columns)) "${id}_capacity"
	t_is "$(cat "/sys/block/$ARRAY/queue/logical_block_size")" 512 "${id}_logical_block_size"
	[ "$level" = 1 ] || t_is "$(cat "/sys/block/$ARRAY/queue/minimum_io_size")" $((chunk * 1024)) "${id}_io_min"
	[ "$level" = 1 ] || t_is "$(cat "/sys/block/$ARRAY/queue/optimal_io_size")" $((chunk * 1024 * columns)) "${id}_io_opt"

	local status up
	up=$(printf "%${n}s" | tr ' ' U)
	status=$(attr status)
	t_run "${id}_status_line" grep -qF "[$n/$n] [$up]" <<<"$status"
	for ((i = 0; i < n; i++)); do
		t_run "${id}_status_m$i" grep -qw "m$i" <<<"$status"
	done
	t_is "$(member_of 1)" /dev/m1 "${id}_rd1"
	local dir
	dir=$(member_dir 1)
	t_is "$(basename "$dir")" dev-m1 "${id}_member_dir"
	t_is "$(<"$dir/state")" in_sync "${id}_member_state"
	t_is "$(<"$dir/slot")" 1 "${id}_member_slot"
	t_is "$(<"$dir/errors")" 0 "${id}_member_errors"
	t_is "$(<"$dir/sit_out")" 0 "${id}_member_sit_out"
	t_is "$(readlink -f "$dir/block")" "$(readlink -f /sys/block/m1)" "${id}_member_block"
	t_run "${id}_member_offset" test $(($(<"$dir/offset") % 2048)) = 0 -a "$(<"$dir/offset")" -gt 0

	t_is "$(ls "/sys/block/$ARRAY/slaves" | sort | tr '\n' ' ')" \
		"$(for ((i = 0; i < n; i++)); do echo "m$i"; done | sort | tr '\n' ' ')" "${id}_slaves"
	t_run "${id}_holders" test -e "/sys/block/m0/holders/$ARRAY"
	t_run "${id}_lsblk" bash -c "lsblk -nro NAME /dev/m0 | grep -qx $ARRAY"
	claim /dev/m0
	t_is "$ANSWER" EBUSY "${id}_member_is_claimed"

	# Unload and stop are refused while in use.
	t_run_fails "${id}_rmmod_refused" rmmod eraid
	exec 5<"$NODE"
	control stop "$ARRAY"
	t_is "$ERRNO" EBUSY "${id}_stop_open"
	t_run "${id}_stop_says_why" test -n "$WHY"
	exec 5<&-
	t_run "${id}_stop_by_name" array_stop "$id"
	t_run "${id}_is_gone" test ! -e "$NODE" -a ! -e "/sys/block/$ARRAY" -a ! -e "$CONTROL/arrays/$id"
	t_run "${id}_members_are_free" claim /dev/m0
	drop_members
}

look_at 0 4 64 4
look_at 1 2 64 1
look_at 5 6 64 5
look_at 6 6 64 4

# The name of the device can be chosen, the block size follows the members.
null_members 3 $MB blocksize=4096
t_run create_dev array_create chosen level=5 chunk=128K dev=eraid77
t_is "$ARRAY" eraid77 chosen_device
t_is "$(cat "/sys/block/$ARRAY/queue/logical_block_size")" 4096 chosen_block_size
t_run chosen_stop array_stop eraid77

finish
