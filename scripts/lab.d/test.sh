# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# lab test: checks of the sources, host tests, and the guest suites; one line
# for each test, and the count at the end.
#
# What is set here is used by the other parts.
# shellcheck disable=SC2034

PASSED=0 FAILED=0 SKIPPED=0 FAILURES=() TOOK=()

# result ok|FAIL|skip NAME SECONDS [WORDS]
result() {
	local words=${4:+  ($4)}
	# The lab may have been killed, and this be a lane that it left behind.
	[ -d /proc/$$ ] || exit 1
	printf '%-4s  %-52s %7s s%s\n' "$1" "$2" "$3" "$words" >&3
	case $1 in
	ok) PASSED=$((PASSED + 1)) ;;
	skip) SKIPPED=$((SKIPPED + 1)) ;;
	*)
		FAILED=$((FAILED + 1))
		FAILURES+=("$2")
		;;
	esac
}

# Seconds since the last call, as text; the clock of the result lines.
lap() {
	local now=${EPOCHREALTIME/[.,]/}
	local ms=$(((now - ${LAP:-$now}) / 1000))
	LAP=$now
	printf -v SECS '%d.%02d' $((ms / 1000)) $((ms % 1000 / 10))
}

# --- kernels in the background ----------------------------------------------

kernels_start() { # FLAVOUR...
	local f
	for f in "$@"; do
		if kernel_is_there "$f"; then echo 0 >"$TMP/kernel-$f"; fi
	done
	(
		set +e
		for f in "$@"; do
			[ ! -e "$TMP/kernel-$f" ] || continue
			(set -e; kernel_setup "$f")
			echo $? >"$TMP/kernel-$f.new"
			mv "$TMP/kernel-$f.new" "$TMP/kernel-$f"
		done
	) &
	KERNELS_PID=$!
}

kernel_is_there() {
	[ -e "$CACHE/$1-$(kernel_key "$1")/.lab-key" ]
}

# Wait until the background is done with a kernel; then it is ours to use.
kernel_wait() { # FLAVOUR
	local told=0
	while [ ! -e "$TMP/kernel-$1" ]; do
		kill -0 "$KERNELS_PID" 2>/dev/null || [ -e "$TMP/kernel-$1" ] || return 1
		[ $told = 1 ] || { note "waiting for the $1 kernel"; told=1; }
		sleep 1
	done
	[ "$(cat "$TMP/kernel-$1")" = 0 ] || return 1
	kernel_setup "$1"
}

# What takes longest begins first; but while kernels are being made, what needs none.
lane_order() { # FLAVOUR...
	local f
	for f in "$@"; do
		kernel_is_there "$f" || { echo host "${FLAVOURS[@]}"; return; }
	done
	echo smp kasan host stock tt
}

# --- commands ---------------------------------------------------------------

# Sets what cmd_test has declared: flavours, host, and QUICK, ONLY_SUITES, TEST_ENV,
# TURN, WATCH_ALL.
test_arguments() {
	local all=${ERAID_SOAK:+1} turn=''
	[ -z "${ERAID_SOAK:-}" ] || TEST_ENV=(ERAID_SOAK=1)
	while [ $# -gt 0 ]; do
		case $1 in
		--quick) QUICK=1 ;;
		--all) all=1 ;;
		--turn)
			turn=${2:-}
			[[ $turn =~ ^(0|[1-9][0-9]{0,8})$ ]] || die "--turn wants a number"
			shift
			;;
		-*) die "test knows no option $1" "--quick, --all or --turn N" ;;
		host) host=1 ;;
		*=*) TEST_ENV+=("$1") ;;
		*)
			if is_flavour "$1"; then
				flavours+=("$1")
			elif grep -qE "^${1}[[:space:]]" "$REPO/selftests/suites"; then
				ONLY_SUITES+=("$1")
			else
				die "no such flavour or suite: $1" "see selftests/suites"
			fi
			;;
		esac
		shift
	done
	if [ $host = 0 ] && [ ${#flavours[@]} = 0 ] && [ ${#ONLY_SUITES[@]} = 0 ]; then
		host=1
		flavours=("${FLAVOURS[@]}")
		[ "$all$QUICK" != 0 ] || TURN=${turn:-$(turn_of_commit)}
	fi
	[ "$TURN" = "${turn:-$TURN}" ] || die "--turn is for a run of everything by turns" "leave out what is beside it"
	[ ${#flavours[@]} -gt 0 ] || [ ${#ONLY_SUITES[@]} = 0 ] || flavours=("${FLAVOURS[@]}")
	[ -z "$all" ] && [ ${#ONLY_SUITES[@]} = 0 ] || WATCH_ALL=1
}

cmd_test() {
	local flavours=() host=0 f need=() start=$SECONDS
	QUICK=0 ONLY_SUITES=() TEST_ENV=() TURN='' WATCH_ALL=0
	test_arguments "$@"

	UNFINISHED='the test run'
	base_setup
	: >"$LOG/test-times"
	for f in "${flavours[@]}"; do
		if [ -n "$(suites_of "$f")" ]; then need+=("$f"); fi
	done
	case " ${need[*]} " in *' stock '*) ;; *) [ $host = 0 ] || need=(stock "${need[@]}") ;; esac
	kernels_start "${need[@]}"
	# Without them, or with those of yesterday, the guests' tests say nothing.
	if [ ${#flavours[@]} -gt 0 ] && ! (set -e; tools_build); then
		result FAIL "guests/(programs)" - "did not build"
		flavours=()
	fi
	for f in $(lane_order "${need[@]}"); do
		case $f in
		host) [ $host = 0 ] || lane host host_tests ;;
		*)
			case " ${flavours[*]} " in *" $f "*)
				[ -z "$(suites_of "$f")" ] || lane "$f" guest_tests "$f"
				;;
			esac
			;;
		esac
	done
	# One more than there are processors: every suite waits for something at times.
	lanes_run "${ERAID_JOBS:-$(($(nproc) + 1))}"
	[ $((PASSED + FAILED)) -gt 0 ] || die "no test was selected" "see selftests/suites"
	turn_say "${flavours[@]}"
	[ ${#TOOK[@]} = 0 ] || printf '   %s\n' "${TOOK[@]}" >&3
	[ "$FAILED" = 0 ] || printf '   failed: %s\n' "${FAILURES[@]}" >&3
	say "-- lab test: $((SECONDS - start)) s (each suite's time: $LOG/test-times)"
	say "$PASSED passed, $FAILED failed$([ $SKIPPED = 0 ] || echo ", $SKIPPED skipped")"
	LAST_LINE=1 UNFINISHED=
	[ "$FAILED" = 0 ] || STATUS=1
}

cmd_soak() {
	export ERAID_SOAK=1
	cmd_test "$@"
}

cmd_demo() {
	cmd_shell stock "$@" -- 'cd /lab/repo/selftests && exec bash ./demo.sh'
	cmd_shell tt "$@" -- 'cd /lab/repo/selftests && exec bash ./demo_exact.sh'
}
