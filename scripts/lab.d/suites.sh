# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The suites of a flavour: which ones, what a guest says about them, and what
# counts as failed.
#
# shellcheck disable=SC2034

suites_of() { # FLAVOUR: "name seconds" lines in the order in which they run
	local script flavours quick seconds leaks place=0 watched=() rest=()
	while read -r script flavours quick seconds leaks; do
		case $script in '' | '#'*) continue ;; esac
		place=$((place + 1))
		case ",$flavours," in *",$1,"*) ;; *) continue ;; esac
		[ "$QUICK" = 0 ] || [ "$quick" = yes ] || continue
		if [ ${#ONLY_SUITES[@]} -gt 0 ]; then
			case " ${ONLY_SUITES[*]} " in *" $script "*) ;; *) continue ;; esac
		fi
		[ -z "$TURN" ] || [ "$quick" = yes ] || turn_has "$TURN" $place "$flavours" "$1" || continue
		[ -z "${ERAID_SOAK:-}" ] || seconds=$((seconds * 20))
		seconds=$((seconds * ${ERAID_TIMEOUT_SCALE:-1}))
		if [ "$1$WATCH_ALL$leaks" = kasan0 ]; then
			rest+=("$script $seconds")
		else
			watched+=("$script $seconds")
		fi
	done <"$REPO/selftests/suites"
	# Recording all that is allocated costs as much as the rest of the work: the
	# guest looks for leaks behind those that are about lifetimes, and then stops.
	[ "$1" != kasan ] || [ ${#watched[@]} = 0 ] || watched+=("kmemleak $((60 * ${ERAID_TIMEOUT_SCALE:-1}))")
	[ ${#watched[@]}${#rest[@]} = 00 ] || printf '%s\n' "${watched[@]}" "${rest[@]}"
}

# A skip is fine where it is listed and the kernel really lacks the symbol.
skip_allowed() { # FLAVOUR/SUITE/TEST
	local pattern symbol _
	while read -r pattern symbol _; do
		case $pattern in '' | '#'*) continue ;; esac
		# shellcheck disable=SC2053 # a pattern on purpose
		if [[ $1 = $pattern ]]; then
			if grep -qE "^$symbol=[ym]" "$OBJ/.config"; then return 1; fi
			return 0
		fi
	done <"$REPO/selftests/skips"
	return 1
}

# Processor time so far of these processes and all below them: adds to TICKS (1/100 s).
ticks_of() { # PID...
	local pid line fields children
	for pid in "$@"; do
		read -r line 2>/dev/null <"/proc/$pid/stat" || continue
		# Behind the name, which may have anything in it.
		read -ra fields <<<"${line##*) }"
		TICKS=$((TICKS + fields[11] + fields[12] + fields[13] + fields[14]))
		children=$(cat "/proc/$pid/task"/*/children 2>/dev/null) || :
		# shellcheck disable=SC2086 # numbers
		ticks_of $children
	done
}

# The end of a suite: everything that is wrong with it beyond its own lines.
suite_end() { # FLAVOUR SUITE RC
	local id=$1/$2 why=
	if [ -n "$S_KERNEL" ]; then why="kernel log: $S_KERNEL"
	elif [ -n "$S_TIMEOUT" ]; then why="timed out"
	elif [ -n "$S_BAIL" ]; then why="gave up: $S_BAIL"
	elif [ "$S_SEEN" = 0 ] && [ -z "$S_PLAN" ]; then why="reported nothing, status $3"
	elif [ -z "$S_PLAN" ]; then why="ended without a plan after $S_SEEN tests, status $3"
	elif [ "$S_SEEN" != "$S_PLAN" ]; then why="planned $S_PLAN tests, ran $S_SEEN"
	elif [ "$3" != 0 ] && [ "$S_BAD" = 0 ]; then why="status $3"
	fi
	if [ -n "$why" ]; then
		result FAIL "$id/(suite)" "$SECS" "$why"
		S_BAD=1
		tail -n 15 "$S_LOG" | sed 's/^/      | /' >&3
	fi
	if [ "$S_BAD" != 0 ]; then
		say "      the whole log: $S_LOG"
		say "      the kernel's:  ${S_LOG%.log}.kernel.log"
		say "      again:         scripts/lab test $1 $2"
	fi
}

# Seconds that a guest may take to boot, or between two suites.
BETWEEN=$((180 * ${ERAID_TIMEOUT_SCALE:-1}))

# Read a guest's output from descriptor 4 until it ends. Sets DONE_SUITES.
read_guest() { # FLAVOUR DIR GUEST-PID
	local flavour=$1 dir=$2 pid=$3 line suite='' name rest deadline=$((SECONDS + BETWEEN)) rc diag=()
	local begun ticks
	lap
	while :; do
		rc=0
		IFS= read -r -t $((deadline > SECONDS ? deadline - SECONDS : 1)) -u 4 line || rc=$?
		if [ $rc -gt 128 ]; then
			# Not even its own time-out works: end it from outside.
			echo "# lab: no end in time, killing the guest" >>"${S_LOG:-/dev/null}"
			S_TIMEOUT=1
			guest_kill "$pid"
			deadline=$((SECONDS + 30))
			continue
		fi
		[ $rc = 0 ] || break
		line=${line%$'\r'}
		case $line in
		'#LAB begin '*)
			suite=${line#\#LAB begin }
			S_LOG=$LOG/test-$flavour-$suite.log S_SEEN=0 S_PLAN='' S_BAD=0
			S_KERNEL='' S_TIMEOUT='' S_BAIL=''
			: >"$S_LOG"
			diag=()
			TICKS=0 begun=$SECONDS
			ticks_of "$pid"
			ticks=$TICKS
			deadline=$((SECONDS + ${SUITE_SECONDS[$suite]:-60} + 60))
			lap
			continue
			;;
		esac
		[ -n "$suite" ] || continue
		printf '%s\n' "$line" >>"$S_LOG"
		case $line in
		'ok '* | 'not ok '*)
			rest=${line#*ok } rest=${rest#* } rest=${rest#- }
			name=$flavour/$suite/${rest%%[ #]*}
			S_SEEN=$((S_SEEN + 1))
			lap
			case $line in
			'not ok '*)
				result FAIL "$name" "$SECS"
				S_BAD=1
				[ ${#diag[@]} = 0 ] || printf '      | %s\n' "${diag[@]}" | tail -n 20 >&3
				;;
			*'# SKIP'* | *'# skip'*)
				if skip_allowed "$name"; then
					result skip "$name" "$SECS" "${line##*# SKIP }"
				else
					result FAIL "$name" "$SECS" "skip not in selftests/skips: ${line##*# SKIP }"
					S_BAD=1
				fi
				;;
			*) result ok "$name" "$SECS" ;;
			esac
			diag=()
			;;
		'1..'[0-9]*) S_PLAN=${line#1..} S_PLAN=${S_PLAN%% *} ;;
		'Bail out!'*) S_BAIL=${line#Bail out!} ;;
		'#LAB kernel '*) S_KERNEL=${S_KERNEL:-${line#\#LAB kernel }} ;;
		'#LAB timeout '*) S_TIMEOUT=1 ;;
		'#LAB end '*)
			cp "$dir/kernel.log" "${S_LOG%.log}.kernel.log"
			lap
			suite_end "$flavour" "$suite" "${line##* }"
			TICKS=0
			ticks_of "$pid"
			# The guest may be gone by now, with its numbers.
			[ $TICKS -lt "$ticks" ] || printf '%-8s %-12s %5d s, %4d s of processor time\n' \
				"$flavour" "$suite" $((SECONDS - begun)) $(((TICKS - ticks + 50) / 100)) >>"$LOG/test-times"
			lane_show
			DONE_SUITES+=("$suite")
			suite=
			deadline=$((SECONDS + BETWEEN))
			;;
		'#LAB '*) ;;
		'# '*) diag+=("$line") ;;
		*) diag+=("$line") ;;
		esac
	done
	if [ -n "$suite" ]; then
		lap
		cp "$dir/kernel.log" "${S_LOG%.log}.kernel.log"
		S_KERNEL=${S_KERNEL:-$([ -n "$S_TIMEOUT" ] || echo "the guest went down: $(
			grep -aE 'Kernel panic|BUG:|Oops|WARNING:|KASAN:' "$dir/kernel.log" | head -n 1)")}
		suite_end "$flavour" "$suite" 255
		tail -n 25 "$dir/kernel.log" | tr -d '\r' | sed 's/^/      k /' >&3
		DONE_SUITES+=("$suite")
	fi
}

# End a guest for good: PID is the subshell that waits for it. Its number says
# nothing once it has ended, another process may have it.
guest_kill() {
	while jobs -rp | grep -qx "$1"; do
		pkill -KILL -P "$1" || sleep 0.1
	done
}

guest_tests() { # FLAVOUR
	local flavour=$1 dir pid todo line left count tt=1 boots=2
	declare -gA SUITE_SECONDS=()
	DONE_SUITES=()
	todo=$(suites_of "$flavour")
	[ -n "$todo" ] || return 0
	if ! kernel_wait "$flavour"; then
		result FAIL "$flavour/(kernel)" - "did not build"
		return 0
	fi
	# "die" ends only the subshell: the other flavours still run.
	if ! (set -e; module_build "$flavour"); then
		result FAIL "$flavour/(module)" - "did not build"
		return 0
	fi
	[ "$flavour" != stock ] || initrd_setup
	# Time-outs inside count simulated seconds there, and those are free.
	[ "$flavour" != tt ] || tt=10000
	while :; do
		left=
		while read -r line; do
			case " ${DONE_SUITES[*]} " in *" ${line% *} "*) continue ;; esac
			SUITE_SECONDS[${line% *}]=${line#* }
			left+="${line% *} $((${line#* } * tt))"$'\n'
		done <<<"$todo"
		[ -n "$left" ] || break
		count=${#DONE_SUITES[@]}
		dir=$(guest_dir "$flavour")
		guest_modules "$flavour" "$dir"
		guest_env "$flavour" "${TEST_ENV[@]}" >"$dir/job/env"
		printf '%s' "$left" >"$dir/job/suites"
		mkfifo "$dir/out"
		guest_boot "$flavour" "$dir" </dev/null >"$dir/out" 2>&1 &
		pid=$!
		exec 4<"$dir/out"
		read_guest "$flavour" "$dir" "$pid"
		exec 4<&-
		guest_kill "$pid"
		if [ "${#DONE_SUITES[@]}" = "$count" ] && [ $((--boots)) -gt 0 ]; then
			# UML with two CPUs hangs now and then before init, without any module.
			cp "$dir/kernel.log" "$LOG/test-$flavour-boot-1.kernel.log"
			note "the $flavour guest did not come up; once more"
		elif [ "${#DONE_SUITES[@]}" = "$count" ]; then
			# It never came up: that fails the run, once for each suite.
			cp "$dir/kernel.log" "$LOG/test-$flavour-boot.kernel.log"
			tail -n 25 "$dir/kernel.log" | tr -d '\r' | sed 's/^/      k /' >&3
			while read -r line; do
				result FAIL "$flavour/${line% *}/(suite)" - "the guest did not start"
			done <<<"${left%$'\n'}"
			break
		fi
		rm -rf "$dir"
	done
}
