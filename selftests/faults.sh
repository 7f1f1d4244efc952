#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Every allocation and every command to a member that a control operation makes
# fails once: the first, the second, ..., until the operation succeeds. Each
# time there is an error in words, nothing is left behind, and the same
# operation works right afterwards.
#
# An operation that makes thousands of alike allocations (the pools of an array)
# is failed at its first and last ones and at random ones between; at all of
# them with ERAID_SOAK.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=24 DEBUG=/sys/kernel/debug
FIRST=$(soak 40 1000000) LAST=$(soak 80 0) BETWEEN=$(soak 30 0)
readonly FIRST LAST BETWEEN

if [ ! -d $DEBUG/failslab ]; then
	t_skip fault_injection "this kernel has no CONFIG_FAULT_INJECTION"
	t_end
fi

# The allocations that may sleep count too.
set_up_faults() {
	local f
	for f in failslab fail_page_alloc; do
		echo N >$DEBUG/$f/ignore-gfp-wait
		echo 0 >$DEBUG/$f/verbose
		echo 0 >$DEBUG/$f/probability
		echo -1 >$DEBUG/$f/times
	done
	echo 0 >$DEBUG/fail_page_alloc/min-order
	echo 0 >$DEBUG/fail_make_request/verbose
}

# bio_fault N: the N-th command to a member fails, whoever sends it.
bio_fault() {
	local d=$DEBUG/fail_make_request
	echo 0 >$d/probability
	[ "$1" != 0 ] || return 0
	# Metadata is written a page at a time: so many bytes pass first.
	echo $((($1 - 1) * 4096 + 1)) >$d/space
	echo 1 >$d/interval
	echo 1 >$d/times
	echo 100 >$d/probability
}

bio_fault_hit() { [ "$(cat $DEBUG/fail_make_request/times)" = 0 ]; }
members_may_fail() { local d; for d in /sys/block/m[0-9]*/make-it-fail; do echo "$1" >"$d"; done; }

# --- operations: each is made ready, tried, and undone --------------------------

op_file_line() { # OPERATION; sets FILE and LINE
	case $1 in
	create) FILE=$CONTROL/create LINE="name=f level=5 chunk=64K members=/dev/m0,/dev/m1,/dev/m2 force=1" ;;
	assemble) FILE=$CONTROL/assemble LINE="members=/dev/m0,/dev/m1,/dev/m2" ;;
	assemble_one) FILE=$CONTROL/assemble LINE="members=/dev/m2" ;;
	stop) FILE=$CONTROL/stop LINE=f ;;
	fail) FILE=$CONTROL/arrays/f/eraid/rd1/state LINE=faulty ;;
	remove) FILE=$CONTROL/arrays/f/eraid/rd1/state LINE=remove ;;
	sit_out) FILE=$CONTROL/arrays/f/eraid/rd1/sit_out LINE=1 ;;
	esac
}

running() { [ -L $CONTROL/arrays/f ]; }
stop_it() { ! running || wait_until 10 control stop f; }
create_it() { op_file_line create; store "$FILE" "$LINE"; }

make_ready() {
	case $1 in
	create) stop_it ;;
	assemble) stop_it && create_it && stop_it ;;
	assemble_one) stop_it && create_it && stop_it && control assemble members=/dev/m0,/dev/m1 ;;
	remove) stop_it && create_it && store $CONTROL/arrays/f/eraid/rd1/state faulty ;;
	*) stop_it && create_it ;;
	esac
}

clear_up() {
	local uuid
	stop_it
	# A set may still wait: let go of its members.
	uuid=$(uuid_of /dev/m0)
	[ -z "$uuid" ] || control abort "$uuid" || true
}

# The uuid of the array that a member was last in comes from the array itself.
uuid_of() { cat "$WORK/uuid" 2>/dev/null; }
note_uuid() { ! running || cat $CONTROL/arrays/f/eraid/uuid >"$WORK/uuid"; }

works_now() {
	case $1 in
	fail) attr_of_f rd1/state | grep -q faulty ;;
	sit_out) [ "$(attr_of_f rd1/sit_out)" = 1 ] ;;
	remove) wait_until 5 test ! -e $CONTROL/arrays/f/eraid/rd1 ;;
	stop) ! running ;;
	*) running && "$EXERCISE" read-load "/dev/$(basename "$(readlink -f $CONTROL/arrays/f)")" --count 3 >/dev/null ;;
	esac
}

attr_of_f() { cat "$CONTROL/arrays/f/eraid/$1"; }

# try KIND OPERATION N: sets HIT, PASSED and ERRNO.
try() {
	local answer
	op_file_line "$2"
	if [ "$1" = alloc ]; then
		answer=$("$STORE" "$FILE" --text "$LINE" --fail-nth "$3")
		HIT=${answer##*hit=}
		HIT=${HIT%% *}
		PASSED=${answer##*passed=}
	else
		bio_fault "$3"
		answer=$("$STORE" "$FILE" --text "$LINE")
		# Commands sent behind the operation count as well.
		sleep 0.05
		if bio_fault_hit; then HIT=1; else HIT=0; fi
		bio_fault 0
	fi
	ERRNO=${answer#result=}
	ERRNO=${ERRNO%% *}
}

# next_fault N PLACES: sets NEXT to the one to fail after the N-th.
next_fault() {
	local tail=$(($2 - LAST))
	NEXT=$(($1 + 1))
	[ "$NEXT" -gt $FIRST ] && [ "$NEXT" -lt $tail ] || return 0
	random_below $((2 * (tail - FIRST) / BETWEEN + 1))
	NEXT=$((NEXT + RANDOM_NUMBER))
	[ $NEXT -le $tail ] || NEXT=$tail
}

# one_fault KIND OPERATION N: fails and says why when it goes wrong. Sets HIT.
one_fault() {
	make_ready "$2" || { PROBLEM="cannot be made ready: $ERRNO $WHY"; return 1; }
	note_uuid
	try "$1" "$2" "$3"
	if [ "$HIT" = 0 ]; then
		PROBLEM="$ERRNO without a fault"
		[ "$ERRNO" = ok ]
		return
	fi
	if [ "$ERRNO" = ok ]; then
		SURVIVED=$((SURVIVED + 1))
	else
		REFUSED=$((REFUSED + 1))
		case $2 in
		create | assemble | assemble_one)
			PROBLEM="$ERRNO, but an array is there"
			! running || return 1
			;;
		esac
		PROBLEM="$ERRNO, and last_error is $(cat $CONTROL/last_error)"
		tail -n 1 $CONTROL/last_error | grep -qE '[a-z]+ [a-z]+' || return 1
	fi
	note_uuid
	clear_up
}

# each_fault KIND OPERATION
each_fault() {
	local id=$1_$2 n places=0
	REFUSED=0 SURVIVED=0 HIT=1
	if [ "$1" = alloc ]; then
		# How many places are there?
		make_ready "$2" && try alloc "$2" 1000000 && places=$PASSED
		clear_up
	fi
	NEXT=0
	while [ $HIT = 1 ]; do
		next_fault $NEXT $places
		n=$NEXT
		one_fault "$1" "$2" "$n" || { t_fail "$id" "n=$n of $places: $PROBLEM"; clear_up; return; }
	done
	if [ $((REFUSED + SURVIVED)) = 0 ]; then
		t_fail "$id" "nothing was hit"
	elif works_now "$2"; then
		t_note "$id: $((REFUSED + SURVIVED)) of $((n - 1)) places hit, $REFUSED refused, $SURVIVED survived"
		t_ok "$id"
	else
		t_fail "$id" "does not work after the last fault"
	fi
	clear_up
}

start
set_up_faults
null_members 3 $MB
for op in create assemble assemble_one stop fail remove sit_out; do each_fault alloc $op; done
members_may_fail 1
for op in create assemble stop fail; do each_fault bio $op; done
members_may_fail 0
finish
