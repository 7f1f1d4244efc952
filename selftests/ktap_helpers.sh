# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# KTAP for the eRAID guest tests. A test script is bash, sources this file,
# reports with the functions below and ends with t_end. The plan is printed at
# the end, so nobody has to count; a script that dies before it has no plan,
# which the runner takes as a failure.
#
#	. ./ktap_helpers.sh
#	t_is "$(cat "$sysfs/level")" 5 level
#	t_run fio_verify fio job.fio
#	t_end

T_COUNT=0
T_FAILED=0
T_LOG=${TMPDIR:-/tmp}/t_run.$$

echo "TAP version 13"

# Names are single words in KTAP, and a process each would cost more than the test.
t_ok() { # NAME
	T_COUNT=$((T_COUNT + 1))
	echo "ok $T_COUNT ${1// /_}"
}

t_fail() { # NAME WHY...
	local name=$1
	shift
	T_COUNT=$((T_COUNT + 1))
	T_FAILED=$((T_FAILED + 1))
	[ $# = 0 ] || printf '%s\n' "$*" | sed 's/^/# /'
	echo "not ok $T_COUNT ${name// /_}"
}

t_skip() { # NAME REASON...; the runner accepts only skips listed in selftests/skips
	local name=$1
	shift
	T_COUNT=$((T_COUNT + 1))
	echo "ok $T_COUNT ${name// /_} # SKIP $*"
}

t_is() { # GOT WANT NAME
	if [ "$1" = "$2" ]; then
		t_ok "$3"
	else
		t_fail "$3" "got '$1', want '$2'"
	fi
}

# t_run NAME CMD...: passes when CMD succeeds; its output is shown when it does
# not. CMD runs in this shell, so a function may set variables.
t_run() {
	local name=$1 rc=0
	shift
	"$@" >"$T_LOG" 2>&1 || rc=$?
	if [ "$rc" = 0 ]; then
		t_ok "$name"
	else
		tail -n 25 "$T_LOG" | sed 's/^/# /'
		t_fail "$name" "status $rc from: $*"
	fi
	return "$rc"
}

# t_run_fails NAME CMD...: passes when CMD fails.
t_run_fails() {
	local name=$1 rc=0
	shift
	"$@" >"$T_LOG" 2>&1 || rc=$?
	if [ "$rc" != 0 ]; then t_ok "$name"; else t_fail "$name" "succeeded: $*"; fi
}

# A remark for the log.
t_note() { printf '%s\n' "$*" | sed 's/^/# /'; }

# Give up on the whole script.
t_bail() {
	echo "Bail out! $*"
	exit 1
}

# Without udev dmsetup leaves no /dev/mapper node, and a write to that name
# makes a regular file in which everything compares equal. Use /dev/dm-N, and
# let this stop the script before anything is believed.
need_block_dev() { # NODE...
	local d
	for d in "$@"; do
		[ -b "$d" ] || t_bail "$d is not a block device"
	done
}

t_end() {
	rm -f "$T_LOG"
	echo "1..$T_COUNT"
	[ "$T_FAILED" = 0 ] && [ "$T_COUNT" -gt 0 ]
	exit $?
}
