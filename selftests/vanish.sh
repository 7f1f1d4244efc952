#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A shelf goes: one member has failed already, another one's device vanishes, and
# whoever writes goes on trying. When all are back everything is there.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=64 N=4

# disk_of HOST: sets NODE_OF to its disk.
disk_of() {
	local found
	found=$(compgen -G "$1/host*/target*/*/block/*") || return 1
	NODE_OF=/dev/${found##*/}
	[ -b "$NODE_OF" ]
}

# scsi_disks: N disks in memory that can be taken away; sets MEMBERS, HOSTS.
scsi_disks() {
	modprobe -q sd_mod
	must modprobe scsi_debug add_host=$N per_host_store=1 dev_size_mb=$MB
	HOSTS=(/sys/bus/pseudo/devices/adapter*)
	t_is ${#HOSTS[@]} $N disks
	MEMBERS=()
	for host in "${HOSTS[@]}"; do
		wait_until 10 disk_of "$host" || t_bail "no disk below $host"
		MEMBERS+=("$NODE_OF")
	done
}

try_to_write() { dd if=/dev/urandom of="$NODE" bs=64K count=1 seek="$1" oflag=direct status=none; }

broken() { attr_is array_state broken; }

shelf_test() {
	local tries=0 i scan
	array_create shelf level=5 chunk=64K >/dev/null || t_bail "create: $WHY"
	t_run write writes --length 8M
	member_fail "${MEMBERS[1]}"
	t_run write_degraded writes --length 8M
	# Nothing is in doubt when it happens.
	t_run stop_degraded array_stop shelf
	t_run assemble_degraded array_assemble shelf members="$(with_commas "${MEMBERS[0]}" "${MEMBERS[@]:2}")"
	echo 1 >"/sys/block/$(kernel_name "${MEMBERS[2]}")/device/delete"
	t_run broken wait_until 10 broken
	for ((i = 160; i < 200; i++)); do try_to_write $i 2>/dev/null || tries=$((tries + 1)); done
	t_is $tries 40 no_write_succeeds
	t_run_fails no_flush_succeeds sync "$NODE"
	t_run stop array_stop shelf
	scan=$(compgen -G "${HOSTS[2]}/host*/scsi_host/host*/scan")
	echo "- - -" >"$scan"
	wait_until 10 disk_of "${HOSTS[2]}" || t_bail "the disk does not come back"
	MEMBERS[2]=$NODE_OF
	t_run assemble array_assemble shelf
	t_is "$(<"$A/degraded")" 0 all_are_back
	t_run verify_at_once verify --length 8M
	t_run caught_up wait_quiet
	member_fail "${MEMBERS[0]}"
	t_run verify_without_another verify --length 8M
	t_run end array_stop shelf
}

# It vanishes while the one that failed is being caught up from it, and from where
# that one is to be caught up nobody else has the data. When it is back somebody has
# to say that what it has is right, for it may have lost its cache; all is there.
source_test() {
	local scan disk=${MEMBERS[1]} id=source
	rm -f "$LOG"
	dm late "$(linear_table "$disk")"
	MEMBERS[1]=$DM
	array_create source level=5 chunk=64K force=1 >/dev/null || t_bail "create: $WHY"
	t_run ${id}_write writes --length 8M
	member_fail "${MEMBERS[1]}"
	t_run ${id}_write_degraded writes --length 8M
	t_run ${id}_stop_degraded array_stop source
	dm_change late "$(delay_table "$disk" 0 1000)"
	t_run ${id}_assemble array_assemble source
	# The last stripe of the region, which is not done soon, is marked.
	must dd if=/dev/zero of="$NODE" bs=64K seek=700 count=1 oflag=direct status=none
	echo 1 >"/sys/block/$(kernel_name "${MEMBERS[2]}")/device/delete"
	t_run ${id}_vanishes wait_until 10 attr_is degraded 1
	t_run_fails ${id}_no_write_there try_to_write 701 2>/dev/null
	dm_change late "$(linear_table "$disk")"
	t_run ${id}_stop array_stop source
	scan=$(compgen -G "${HOSTS[2]}/host*/scsi_host/host*/scan")
	echo "- - -" >"$scan"
	wait_until 10 disk_of "${HOSTS[2]}" || t_bail "the disk does not come back"
	MEMBERS[2]=$NODE_OF
	t_run_fails ${id}_in_doubt control assemble "members=$(with_commas "${MEMBERS[@]}")"
	t_is "$ERRNO" EUCLEAN ${id}_says_so
	t_run ${id}_forced array_assemble source force=1
	t_is "$(<"$A/degraded")" 0 ${id}_all_are_back
	t_run ${id}_verify_at_once verify --length 8M
	t_run ${id}_caught_up wait_quiet
	member_fail "${MEMBERS[0]}"
	t_run ${id}_verify_without_another verify --length 8M
	t_run ${id}_end array_stop source
	must dm_remove late
}

start
scsi_disks
shelf_test
source_test
t_run disks_go wait_until 10 rmmod scsi_debug
finish
