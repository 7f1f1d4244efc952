#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the driver tells: trace events with their fields, uevents, and files that
# can be waited on.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 N=4
TRACE=/sys/kernel/tracing
EVENTS="eraid_ereport eraid_read eraid_write eraid_subreq_issue eraid_subreq_done eraid_reconstruct"

traced() { grep -qE "$1" "$WORK/trace"; }
snapshot() { cp $TRACE/trace "$WORK/trace"; echo >$TRACE/trace; }

# wait_for FILE COMMAND...: does poll() on FILE return once COMMAND has run?
wait_for() {
	local file=$1
	shift
	python3 - "$file" "$@" <<-'EOF'
	import os, select, subprocess, sys
	fd = os.open(sys.argv[1], os.O_RDONLY)
	os.read(fd, 4096)
	poll = select.poll()
	poll.register(fd, select.POLLPRI | select.POLLERR)
	if poll.poll(200):
	    sys.exit("ready before anything has changed")
	subprocess.run(sys.argv[2:], check=True)
	if not poll.poll(5000):
	    sys.exit("nothing within 5 s")
	EOF
}

# listen: records the uevents of our disks until told to end.
listen() {
	python3 - >"$WORK/uevents" <<-'EOF' &
	import socket
	s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
	s.bind((0, 1))
	print("listening", flush=True)
	while True:
	    print(s.recv(16384).replace(b"\0", b" ").decode(errors="replace"), flush=True)
	EOF
	LISTENER=$!
	must wait_until 5 grep -q listening "$WORK/uevents"
}

heard() { wait_until 5 grep -qE "change@.*/$ARRAY .*$1" "$WORK/uevents"; }

start
for event in $EVENTS; do
	t_run "there_is_$event" test -d "$TRACE/events/eraid/$event"
	echo 1 >"$TRACE/events/eraid/$event/enable"
done
echo >$TRACE/trace
listen
null_members $N $MB
must array_create ev level=5 chunk=64K assume_clean=1
t_run uevent_when_started heard ERAID_EVENT=

"$EXERCISE" write "$NODE" --log "$WORK/log" --seed 1 --count 1 --min-size 4K --max-size 4K --length 4K >/dev/null
"$EXERCISE" read-load "$NODE" --count 1 --length 4K >/dev/null
snapshot
t_run write_event traced 'eraid_write: array=ev kind=[a-z-]+ stripe=0 sectors=8 latency_us=[0-9]+'
t_run read_event traced 'eraid_read: array=ev mode=[a-z-]+ stripe=0 sectors=8 latency_us=[0-9]+'
t_run issue_event traced 'eraid_subreq_issue: array=ev slot=0 op=read sector=[0-9]+ sectors=8 class=ordinary status=0'
t_run done_event traced 'eraid_subreq_done: array=ev slot=0 op=read sector=[0-9]+ sectors=8 class=ordinary status=0'
t_run write_reaches_parity traced "eraid_subreq_issue: array=ev slot=$((N - 1)) op=write sector=[0-9]+ sectors=8 "
t_is "$(grep -c 'eraid_subreq_issue' "$WORK/trace")" "$(grep -c 'eraid_subreq_done' "$WORK/trace")" as_many_done_as_issued
t_run_fails no_reconstruction_when_healthy traced eraid_reconstruct

# Filters go by the names that are printed.
t_run filter_by_mode null_set $TRACE/events/eraid/eraid_read/filter 'mode == "avoid"'
t_run filter_by_kind null_set $TRACE/events/eraid/eraid_write/filter 'kind == "full"'
"$EXERCISE" write "$NODE" --log "$WORK/log" --seed 2 --count 1 --min-size 4K --max-size 4K --length 4K >/dev/null
"$EXERCISE" read-load "$NODE" --count 1 --length 4K >/dev/null
must store "$(dir_of /dev/m0)/sit_out" 1
"$EXERCISE" read-load "$NODE" --count 1 --length 4K >/dev/null
must store "$(dir_of /dev/m0)/sit_out" 0
snapshot
t_run_fails others_are_filtered traced 'eraid_(read|write): .*(mode=normal|kind=)'
for event in eraid_read eraid_write; do echo 0 >$TRACE/events/eraid/$event/filter; done
t_run delay_event traced 'eraid_ereport: class=ereport.block.eraid.delay array=ev member=m0 slot=0 reason=.+ value='
t_run sitout_end_event traced 'eraid_ereport: class=ereport.block.eraid.sitout_end array=ev member=m0 slot=0 '
t_run reconstruct_event traced 'eraid_reconstruct: array=ev stripe=0 lo=[0-9]+ hi=[0-9]+ missing=0x1'
t_run uevent_sit_out heard ERAID_EVENT=sit_out_begin
t_run uevent_sit_out_end heard ERAID_EVENT=sit_out_end

t_run poll_sit_out wait_for "$(dir_of /dev/m2)/sit_out" "$STORE" "$(dir_of /dev/m2)/sit_out" --text 1
must store "$(dir_of /dev/m2)/sit_out" 0
t_run poll_state wait_for "$(dir_of /dev/m1)/state" "$STORE" "$(dir_of /dev/m1)/state" --text faulty
snapshot
t_run member_event traced 'eraid_ereport: class=ereport.block.eraid.member array=ev member=m1 slot=1 reason=.*fail'
t_run uevent_failed heard ERAID_EVENT=member_failed
t_run uevent_degraded heard ERAID_EVENT=degraded
t_run log_line bash -c 'dmesg | grep -q "eraid.*m1"'
must member_remove /dev/m1
snapshot
t_run removed_event traced 'eraid_ereport: class=ereport.block.eraid.member array=ev member=m1 slot=1 reason=.*remove'
kill $LISTENER
for event in $EVENTS; do echo 0 >"$TRACE/events/eraid/$event/enable"; done
t_run stop array_stop ev
drop_members

# poll() on the array's own files.
null_members $N $MB
must array_create ev level=5 chunk=64K
must cp $STORE "$WORK/store"
t_run poll_degraded wait_for "$A/degraded" "$STORE" "$(dir_of /dev/m3)/state" --text faulty
t_run poll_stop array_stop ev
finish
