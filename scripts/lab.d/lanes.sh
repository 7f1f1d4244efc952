# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Parts of a test run that go on at the same time, each in a lane: a subshell
# that counts for itself and whose lines come out a whole suite at a time.
#
# What is set here is used by the other parts.
# shellcheck disable=SC2034

# Lanes that wait ("NAME COMMAND..." each), lanes that run, by process.
LANES=()
declare -A LANE_OF=()

lane() { LANES+=("$*"); } # NAME COMMAND...

# lanes_run COUNT: run all of them, so many at a time, in their order.
lanes_run() {
	local line words pid many=$((${#LANES[@]} > 1))
	for line in "${LANES[@]}"; do
		while [ ${#LANE_OF[@]} -ge "$1" ]; do lane_wait; done
		read -ra words <<<"$line"
		lane_start $many "${words[@]}"
		LANE_OF[$pid]=${words[0]}
	done
	while [ ${#LANE_OF[@]} -gt 0 ]; do lane_wait; done
	LANES=()
}

# Sets pid.
lane_start() { # BUFFERED NAME COMMAND...
	(
		LANE=$TMP/lane-$2
		if [ "$1" = 1 ]; then
			exec 5>&3 3>>"$LANE.lines"
			trap lane_show EXIT
		else
			trap - EXIT
		fi
		PASSED=0 FAILED=0 SKIPPED=0 FAILURES=() start=$SECONDS
		"${@:3}"
		lane_result "$2" $((SECONDS - start))
	) &
	pid=$!
}

# What one lane has to tell the whole run.
lane_result() { # NAME SECONDS
	times >"$LANE.times"
	local cpu
	cpu=$(awk -F '[ms ]' 'NR == 2 { printf "%.0f", ($1 + $4) * 60 + $2 + $5 }' "$LANE.times")
	{
		echo "$PASSED $FAILED $SKIPPED $2 $cpu"
		[ "$FAILED" = 0 ] || printf '%s\n' "${FAILURES[@]}"
	} >"$LANE"
}

# The lines so far, in one piece; the other lanes' come before or after.
lane_show() {
	[ -n "${LANE:-}" ] && [ -s "$LANE.lines" ] || return 0
	cat "$LANE.lines" >&5 2>/dev/null
	: >"$LANE.lines"
}

# One lane ends: add up.
lane_wait() {
	local pid name passed failed skipped seconds cpu more
	wait -n -p pid "${!LANE_OF[@]}" || :
	name=${LANE_OF[$pid]}
	unset "LANE_OF[$pid]"
	if [ ! -e "$TMP/lane-$name" ]; then
		result FAIL "$name/(all)" - "ended before it was done"
		return
	fi
	{
		read -r passed failed skipped seconds cpu
		mapfile -t more
	} <"$TMP/lane-$name"
	PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed)) SKIPPED=$((SKIPPED + skipped))
	FAILURES+=("${more[@]}")
	TOOK+=("$(printf '%-8s %5d s, %d s of processor time' "$name" "$seconds" "$cpu")")
}
