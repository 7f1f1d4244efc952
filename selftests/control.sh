#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The control files while a member does not answer: the line that wants it
# waits, all others do not; who is killed goes; what the device still holds is
# said, and it can be used again once it has answered.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 LIMIT=$((5 * SCALE))

# in_time NAME CMD...: CMD succeeds, and does not wait for what hangs.
in_time() {
	local begun=$SECONDS name=$1
	shift
	t_run "$name" "$@"
	t_run "${name}_in_time" test $((SECONDS - begun)) -lt $LIMIT
}

# behind NAME FILE LINE: writes the line in the background; sets PID. What came
# of it is in $WORK/NAME.
behind() {
	"$STORE" "$CONTROL/$2" --text "$3" >"$WORK/$1" 2>&1 &
	PID=$!
}
answered() { [ -s "$WORK/$1" ]; }
answer() { local text; text=$(<"$WORK/$1"); echo "${text#result=}"; }
has_zombie() { grep -qw "$(kernel_name "$1")" $CONTROL/zombies; }
no_zombies() { [ -z "$(<$CONTROL/zombies)" ]; }

# others NAME: another array comes and goes, and the files without I/O answer.
others() {
	in_time "$1_other_created" array_create other level=1 members="${MEMBERS[4]},${MEMBERS[5]}" force=1
	in_time "$1_other_writes" dd if=/dev/urandom of="$NODE" bs=64K count=4 oflag=direct status=none
	in_time "$1_other_stopped" array_stop other
	in_time "$1_other_assembled" array_assemble other members="${MEMBERS[4]},${MEMBERS[5]}"
	in_time "$1_other_stopped_again" array_stop other
	in_time "$1_errors_read" cat $CONTROL/last_error
	in_time "$1_zombies_read" cat $CONTROL/zombies
}

first_four() { with_commas "${MEMBERS[@]:0:4}"; }

create_waits() {
	dm_stop_answering d2
	behind create create "name=slow level=5 chunk=64K assume_clean=1 members=$(first_four)"
	nap 1
	t_run_fails create_waits answered create
	others create
	# What it wants is taken, and by what is said.
	control create "name=slow level=1 members=${MEMBERS[4]},${MEMBERS[5]} force=1"
	t_is "$ERRNO" EEXIST create_name_taken
	t_run create_name_why grep -q "slow" <<<"$WHY"
	control create "name=more level=1 members=${MEMBERS[0]},${MEMBERS[5]} force=1"
	t_is "$ERRNO" EBUSY create_member_taken
	t_run create_member_why grep -q "another line, for array 'slow'" <<<"$WHY"
	t_run_fails create_rmmod_refused rmmod eraid
	t_run_fails create_waits_still answered create
	dm_answer_again d2
	t_run create_answered wait_until 20 answered create
	t_is "$(answer create)" ok create_succeeds
	t_run create_runs array_use slow
	t_is "$(<"$A/degraded")" 0 create_is_whole
	t_run create_stops array_stop slow
}

assemble_waits() {
	dm_stop_answering d1
	behind assemble assemble "members=$(first_four)"
	nap 1
	t_run_fails assemble_waits answered assemble
	others assemble
	dm_answer_again d1
	t_run assemble_answered wait_until 20 answered assemble
	t_is "$(answer assemble)" ok assemble_succeeds
	t_run assemble_runs array_use slow
	t_is "$(<"$A/degraded")" 0 assemble_is_whole
	t_run assemble_stops array_stop slow
}

# Lines for the same array are done one after the other, however many there are.
same_array() {
	local i
	# The superblocks are read, the writes hang.
	dm_change d3 "$(delay_table /dev/m3 0 1500)"
	for i in 0 1 2 3; do behind "same$i" assemble "members=${MEMBERS[i]}"; done
	for i in 0 1 2 3; do
		t_run "same_$i" wait_until 30 answered "same$i"
		t_is "$(answer "same$i")" ok "same_${i}_taken"
	done
	dm_change d3 "$(linear_table /dev/m3)"
	t_run same_runs array_use slow
	t_is "$(<"$A/degraded")" 0 same_is_whole
	t_run same_stops array_stop slow
}

# Who is killed goes at once and leaves nothing behind but what the device has.
killed() { # NAME FILE LINE
	local before
	dm_stop_answering d1
	before=$(sed -n 1p $CONTROL/last_error)
	behind "$1" "$2" "$3"
	nap 1
	t_run_fails "$1_waits" answered "$1"
	kill -KILL $PID
	t_run "$1_is_gone" wait_until 2 bash -c "! kill -0 $PID 2>/dev/null"
	wait $PID 2>/dev/null
	if [ "$2" = create ]; then
		# It was written before the second one hung, and is no member now.
		control assemble "members=${MEMBERS[0]}"
		t_is "$ERRNO" EINVAL "$1_first_is_no_member"
	fi
	t_run "$1_noted" test "$(sed -n 1p $CONTROL/last_error)" -gt "$before"
	t_run "$1_zombie_is_listed" has_zombie "${MEMBERS[1]}"
	t_run_fails "$1_rmmod_refused" rmmod eraid
	control create "name=more level=1 members=${MEMBERS[1]},${MEMBERS[4]} force=1"
	t_is "$ERRNO" EBUSY "$1_zombie_not_reused"
	t_run "$1_says_why" grep -q "writer was killed" <<<"$WHY"
	in_time "$1_others_free" array_create other level=1 members="${MEMBERS[0]},${MEMBERS[2]}" force=1
	in_time "$1_others_stop" array_stop other
	dm_answer_again d1
	t_run "$1_no_zombies" wait_until 5 no_zombies
	t_run "$1_device_is_free" wait_until 5 claim "${MEMBERS[1]}"
}

start
null_members 6 $MB
wrap_members
create_waits
assemble_waits
same_array
killed killed_assemble assemble "members=$(first_four)"
for i in 0 1 2 3; do must dd if=/dev/zero of="${MEMBERS[i]}" bs=1M count=2 oflag=direct status=none; done
killed killed_create create "name=gone level=5 chunk=64K members=$(first_four)"
must array_create after level=5 chunk=64K members="$(first_four)" force=1
t_run after_stops array_stop after
finish
