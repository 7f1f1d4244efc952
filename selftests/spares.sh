#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Spares: they wait, take over when a member fails, and are told apart from
# members over stops and crashes.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64

state_is() { [ "$(<"$(dir_of "$1")/state")" = "$2" ]; }
new_dev() { store "$A/new_dev" "$1"; }
recovered() { quiet && attr_is degraded 0; }
is_gone() { [ ! -e "$(dir_of "$1")" ]; }

# disks COUNT: mapped disks d0, d1, ...; sets DISKS.
disks() {
	null_members "$1" $MB
	wrap_members
	DISKS=("${MEMBERS[@]}")
}

# takes_over LEVEL MEMBERS: one from the start, and one that is added later.
takes_over() {
	local id=r$1 n=$2
	rm -f "$LOG"
	disks $((n + 2))
	MEMBERS=("${DISKS[@]:0:n}")
	must array_create sp level="$1" chunk=64K spares="${DISKS[n]}"
	t_run "${id}_is_there" state_is "${DISKS[n]}" spare
	t_is "$(<"$(dir_of "${DISKS[n]}")/slot")" none "${id}_has_no_slot"
	t_run "${id}_in_status" grep -q -- "- ${DISKS[n]##*/} spare" "$A/status"
	t_is "$(attr raid_disks)" "$n" "${id}_is_no_member"
	t_run "${id}_write" writes
	member_fail "${DISKS[1]}"
	t_run "${id}_rebuilt" wait_until 60 recovered
	t_run "${id}_in_sync" wait_until 5 state_is "${DISKS[n]}" in_sync
	t_is "$(<"$(dir_of "${DISKS[n]}")/slot")" 1 "${id}_has_the_slot"
	t_run "${id}_failed_one_left" wait_until 5 is_gone "${DISKS[1]}"
	t_run "${id}_verify" verify
	t_run "${id}_write_again" writes

	# With nobody missing a new device is a spare, too; it stays one over a stop.
	t_run "${id}_add" new_dev "${DISKS[n + 1]}"
	t_run "${id}_added" wait_until 5 state_is "${DISKS[n + 1]}" spare
	t_is "$(attr degraded)" 0 "${id}_complete"
	t_run "${id}_stop" array_stop sp
	MEMBERS=("${DISKS[0]}" "${DISKS[@]:2}")
	t_run "${id}_assemble" array_assemble sp
	t_run "${id}_still_a_spare" wait_until 5 state_is "${DISKS[n + 1]}" spare
	t_is "$(attr degraded)" 0 "${id}_still_complete"
	member_fail "${DISKS[0]}"
	t_run "${id}_second_rebuilt" wait_until 60 recovered
	t_run "${id}_second_in_sync" wait_until 5 state_is "${DISKS[n + 1]}" in_sync
	member_fail "${DISKS[2]}"
	t_run "${id}_verify_without" verify
	t_run "${id}_end" array_stop sp
	drop_members
}

# The power fails while a spare is being rebuilt: it is a member by then.
crash() {
	local id=crash i copies=()
	rm -f "$LOG"
	disks 5
	MEMBERS=("${DISKS[@]:0:4}")
	must array_create sp level=5 chunk=64K spares="${DISKS[4]}"
	t_run ${id}_write writes
	t_run ${id}_stop array_stop sp
	MEMBERS=("${DISKS[@]}")
	t_run ${id}_assemble array_assemble sp
	dm_change d4 "$(delay_table /dev/m4 0 100)"
	member_fail "${DISKS[1]}"
	t_run ${id}_begins wait_until 20 attr_is sync_action recover
	for i in 0 2 3 4; do
		null_member "c$i" $MB
		must copy_device "${DISKS[i]}" "/dev/c$i"
		copies+=("/dev/c$i")
	done
	t_run ${id}_stop_again array_stop sp
	drop_members
	MEMBERS=("${copies[@]}")
	t_run ${id}_assemble_copies array_assemble sp
	t_is "$(attr degraded)" 1 ${id}_goes_on
	t_run ${id}_verify_at_once verify
	t_run ${id}_rebuilt wait_until 60 recovered
	member_fail /dev/c2
	t_run ${id}_verify verify
	t_run ${id}_end array_stop sp
	for i in 0 2 3 4; do null_remove "c$i"; done
}

# A spare can be taken out, and is free then.
leaves() {
	local id=leaves
	disks 5
	MEMBERS=("${DISKS[@]:0:4}")
	must array_create sp level=5 chunk=64K spares="${DISKS[4]}"
	t_run_fails ${id}_cannot_fail store "$(dir_of "${DISKS[4]}")/state" faulty
	t_is "$ERRNO" EINVAL ${id}_cannot_fail_errno
	t_run ${id}_remove store "$(dir_of "${DISKS[4]}")/state" remove
	t_run ${id}_gone wait_until 5 is_gone "${DISKS[4]}"
	t_run ${id}_is_free wait_until 5 claim "${DISKS[4]}"
	member_fail "${DISKS[1]}"
	nap 2
	t_is "$(attr degraded)" 1 ${id}_nobody_takes_over
	# Alone it is nothing.
	t_run ${id}_end array_stop sp
	MEMBERS=("${DISKS[0]}" "${DISKS[@]:2:2}")
	t_run ${id}_assemble array_assemble sp
	t_run ${id}_end_again array_stop sp
	drop_members
}

start
takes_over 5 4
takes_over 1 3
crash
leaves
finish
