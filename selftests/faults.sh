#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Every command to a member that a control operation sends fails once: the first,
# the second, ..., until the operation succeeds; and so do its allocations, of
# those for an array's pools some. Each time there is an error in words, nothing
# is left behind, and the same operation works right afterwards. fail_nth.py does
# it.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16 DEBUG=/sys/kernel/debug
# How many of an operation's allocations are tried at each end, and in which steps
# its commands; see fail_nth.py. An array takes a second in kasan, where half of the
# allocations are kmemleak's own: it has a reserve for those, and says so and fails
# the suite if it ever turns itself off.
EDGE=8 STEP=1
[ "$ERAID_FLAVOUR" != kasan ] || EDGE=3 STEP=4
EDGE=$(soak $EDGE 100) STEP=$(soak $STEP 1)

if [ ! -d $DEBUG/failslab ]; then
	t_skip fault_injection "this kernel has no CONFIG_FAULT_INJECTION"
	t_end
fi

start
for f in failslab fail_page_alloc fail_make_request; do
	for pair in verbose=0 probability=0 times=-1 interval=1; do
		null_set "$DEBUG/$f/${pair%%=*}" "${pair#*=}"
	done
done
null_set $DEBUG/fail_page_alloc/min-order 0
null_members 3 $MB
# What the disks themselves allocate is not what this is about: have it now.
for node in "${MEMBERS[@]}"; do must "$EXERCISE" pattern "$node" --seed 1 >/dev/null; done
while read -r verdict name rest; do
	case $verdict in
	ok) t_note "$name: $rest"; t_ok "$name" ;;
	bad) t_fail "$name" "$rest" ;;
	*) t_note "$verdict $name $rest" ;;
	esac
done < <(python3 ./fail_nth.py "$SEED" "$EDGE" "$STEP" 2>&1)
# Eight with allocations; and their commands, with those of two sent behind them.
t_is "$T_COUNT" 16 all_operations
finish
