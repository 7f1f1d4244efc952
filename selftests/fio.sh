#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# fio, which shares nothing with our own programs, writes and verifies: any size at
# any block, over each other, several jobs in one stripe, through io_uring,
# libaio and plain calls; on a whole array, while members fail, and then what is
# there is verified again, degraded and while the members are caught up.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16
export NODE SEED BLOCK SIZES EACH
EACH=$(soak 4m 200m)

# run_jobs FILE [OPTION]...: what the jobs wrote they read back when they are through.
run_jobs() {
	READ=$(device_stat "$NODE" 3) WRITTEN=$(device_stat "$NODE" 7)
	fio --minimal "$@"
}

# bytes_read, bytes_written: since the jobs began.
bytes_read() { echo $((($(device_stat "$NODE" 3) - READ) * 512)); }
bytes_written() { echo $((($(device_stat "$NODE" 7) - WRITTEN) * 512)); }
written_more() { [ "$(bytes_written)" -gt "$1" ]; } # BYTES

# verify_again NAME: nothing is written; the random jobs repeat their choices and
# read what must be there since the last run.
verify_again() {
	{
		# Not in the order in which the data was made.
		printf '[global]\nverify_only\nverify_header_seed=0\n'
		cat fio.jobs
	} >"$WORK/again.jobs"
	t_run "$1" run_jobs --section=uring --section=aio --section=sync "$WORK/again.jobs"
	t_is "$(bytes_written)" 0 "${1}_wrote_nothing"
	t_run "${1}_read_enough" test "$(bytes_read)" -gt $((WHOLE / 8))
}

# failing NAME VICTIM...: the jobs, and these fail meanwhile, one after the other.
failing() {
	local id=$1 pid slot part=0
	shift
	READ=0 WRITTEN=$(device_stat "$NODE" 7)
	fio --minimal fio.jobs >"$WORK/failing" 2>&1 &
	pid=$!
	for slot in "$@"; do
		part=$((part + WHOLE / 4))
		must wait_until 60 written_more $part
		member_fail "/dev/m$slot"
	done
	t_run "${id}_failed_under_writes" test "$(bytes_written)" -lt $((WHOLE * 7 / 8))
	t_run "${id}_writes_failing" wait $pid || t_note "$(tail -n 20 "$WORK/failing")"
	t_is "$(<"$A/degraded")" $# "${id}_degraded"
}

in_sync() { quiet && attr_is unsynced_regions 0; }

# fio_test LEVEL MEMBERS BLOCK_SIZE SIZES VICTIM...
fio_test() {
	local id=r$1n$2b$3 all slot
	BLOCK=$3 SIZES=$4
	null_members "$2" $MB blocksize="$3"
	all=("${MEMBERS[@]}")
	must array_create fio level="$1" chunk=64K
	SEED=$((SEED + 1))
	t_run "${id}_writes" run_jobs fio.jobs
	WHOLE=$(bytes_written)
	t_note "$WHOLE bytes written, $(bytes_read) read"
	t_run "${id}_enough" test "$WHOLE" -gt $((8 << 20))
	SEED=$((SEED + 1))
	failing "$id" "${@:5}"
	t_run "${id}_stop" array_stop fio
	# Only those that were there all the time.
	for slot in "${@:5}"; do unset "MEMBERS[$slot]"; done
	t_run "${id}_assemble_degraded" array_assemble fio
	verify_again "${id}_degraded_again"
	t_run "${id}_stop_degraded" array_stop fio
	MEMBERS=("${all[@]}")
	t_run "${id}_assemble" array_assemble fio
	t_is "$(<"$A/degraded")" 0 "${id}_complete"
	verify_again "${id}_complete_again"
	t_run "${id}_caught_up" wait_until 60 in_sync
	# It would notice.
	must dd if=/dev/zero of="$NODE" bs=1M seek=7 count=1 oflag=direct status=none
	t_run_fails "${id}_wrong_data_is_noticed" run_jobs --section=aio "$WORK/again.jobs"
	t_run "${id}_end" array_stop fio
	drop_members
}

start
fio_test 5 5 512 512/15:1536/15:4k/25:12k/15:36k/12:64k/10:200k/6:1m/2 2
fio_test 6 6 4096 4k/40:12k/25:36k/15:64k/10:200k/8:1m/2 4 1
finish
