# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# lab test: checks of the sources, host tests, and the guest suites; one line
# for each test, and the count at the end.
#
# The scripts in single quotes run in the root, with arguments of their own; the
# checks are called by name.
# shellcheck disable=SC2016,SC2317,SC2034

PASSED=0 FAILED=0 SKIPPED=0 FAILURES=()

# result ok|FAIL|skip NAME SECONDS [WORDS]
result() {
	local words=${4:+  ($4)}
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

# check NAME CMD...: one test that is a command; shows the output if it fails.
check() {
	local name=$1 log rc=0
	log=$LOG/test-${1//\//-}.log
	shift
	lap
	(set -e; "$@") >"$log" 2>&1 </dev/null || rc=$?
	lap
	if [ $rc = 0 ]; then
		result ok "$name" "$SECS"
	else
		result FAIL "$name" "$SECS" "status $rc"
		tail -n 30 "$log" | sed 's/^/      | /' >&3
		say "      the whole log: $log"
	fi
}

# --- sources and host -------------------------------------------------------

# In the root with a copy of the tree, cargo's cache and the host's own cargo
# settings (mirrors, proxies).
in_root_cargo() { # CMD...
	local dir
	dir=$(build_dir host)
	mkdir -p "$dir/tree" "$dir/target"
	copy_tree "$dir/tree"
	rm -f "$CACHE/cargo/config.toml" "$CACHE/cargo/ca.pem"
	local f ca=()
	for f in "${CARGO_HOME:-$HOME/.cargo}"/config.toml "${CARGO_HOME:-$HOME/.cargo}"/config; do
		[ -f "$f" ] && cp "$f" "$CACHE/cargo/config.toml" && break
	done
	# A bundle of certificates may be anywhere on the host.
	f=${CARGO_HTTP_CAINFO:-${SSL_CERT_FILE:-}}
	if [ -f "$f" ]; then
		cp "$f" "$CACHE/cargo/ca.pem"
		ca=(CARGO_HTTP_CAINFO=/lab/cargo/ca.pem)
	fi
	in_root -r "$SRC:src" -b "$dir/tree:mod" -b "$dir/target:work" -b "$CACHE/cargo:cargo" -- \
		env -u RUSTUP_HOME -u RUSTUP_TOOLCHAIN CARGO_HOME=/lab/cargo \
		CARGO_TARGET_DIR=/lab/work CARGO_TERM_COLOR=never "${ca[@]}" \
		CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS=fallback \
		bash -euc 'cd /lab/mod; "$@"' - "$@"
}

check_shellcheck() {
	local files=()
	mapfile -t files < <(cd "$REPO" && repo_files |
		while IFS= read -r -d '' f; do
			case $f in
			*.sh) echo "$f" ;;
			*.rs | *.c | *.h | *.md | *.toml) ;;
			*) head -c 64 "$f" | head -n 1 | grep -aqE '^#!.*\b(ba)?sh$' && echo "$f" ;;
			esac
		done)
	in_root -r "$REPO:repo" -- bash -euc 'cd /lab/repo; shellcheck -x -P SCRIPTDIR -S warning "$@"' - "${files[@]}"
}

check_rustfmt() {
	local files=()
	mapfile -t files < <(repo_files | tr '\0' '\n' | grep '\.rs$')
	[ ${#files[@]} -gt 0 ] || return 0
	in_root -r "$SRC:src" -r "$REPO:repo" -- bash -euc 'cd /lab/repo
		rustfmt --check --color never --edition 2021 --config-path /lab/src/.rustfmt.toml "$@"' - "${files[@]}"
}

check_script() { # scripts/check-*, on the host's own tools only
	in_root -r "$REPO:repo" -- bash -euc 'cd /lab/repo; exec "$1"' - "scripts/$1"
}

host_tests() {
	check host/shellcheck check_shellcheck
	check host/rustfmt check_rustfmt
	local f
	for f in "$REPO"/scripts/check-*; do
		[ ! -x "$f" ] || check "host/$(basename "$f")" check_script "$(basename "$f")"
	done
	[ -f "$REPO/Cargo.toml" ] || return 0
	# The one lint that the kernel turns off as well for compilers before 1.86.
	check host/cargo-clippy in_root_cargo cargo clippy --workspace --all-targets -- \
		-D warnings -A clippy::precedence
	cargo_test
}

# One line for each host test, as for the guests'.
cargo_test() {
	local log=$LOG/test-host-cargo.log rc=0 line crate=cargo name before=$FAILED
	local soak=()
	[ -z "${ERAID_SOAK:-}" ] || soak=(PROPTEST_CASES=20000)
	lap
	in_root_cargo env "${soak[@]}" "${TEST_ENV[@]}" cargo test --workspace --no-fail-fast \
		>"$log" 2>&1 </dev/null || rc=$?
	lap
	say "      host tests took $SECS s in all"
	while IFS= read -r line; do
		case $line in
		*'Running '*) crate=${line##*/}; crate=${crate%-*} ;;
		*'Doc-tests '*) crate=doc-${line##* } ;;
		'test '*' ... ok') name=${line#test }; result ok "host/$crate/$(one_word "${name% ... ok}")" - ;;
		'test '*' ... FAILED') name=${line#test }; result FAIL "host/$crate/$(one_word "${name% ... FAILED}")" - ;;
		esac
	done <"$log"
	if [ $rc != 0 ]; then
		# A crate that does not compile has no test lines.
		[ "$FAILED" != "$before" ] || result FAIL host/cargo-test "$SECS" "status $rc"
		awk '/^error|panicked at/ { n = 15 } n-- > 0 && shown++ < 60 { print "      | " $0 }' "$log" >&3
		say "      the whole log: $log"
	fi
}

one_word() { local w=${1// - /::}; printf '%s' "${w// /_}"; }

# Programs that run in guests: static, so that they run in any. The target is
# named so that the flags do not reach the compiler's own plug-ins.
tools_build() {
	[ -f "$REPO/Cargo.toml" ] || return 0
	in_root_cargo env RUSTFLAGS='-C target-feature=+crt-static' \
		cargo build -p eraid-tools --target "$TOOLS_TARGET" >"$LOG/tools.log" 2>&1 </dev/null ||
		note "the guests' programs do not build, see $LOG/tools.log"
}

# --- guests -----------------------------------------------------------------

suites_of() { # FLAVOUR: "name seconds" lines in table order
	local script flavours quick seconds
	while read -r script flavours quick seconds; do
		case $script in '' | '#'*) continue ;; esac
		case ",$flavours," in *",$1,"*) ;; *) continue ;; esac
		[ "$QUICK" = 0 ] || [ "$quick" = yes ] || continue
		if [ ${#ONLY_SUITES[@]} -gt 0 ]; then
			case " ${ONLY_SUITES[*]} " in *" $script "*) ;; *) continue ;; esac
		fi
		[ -z "${ERAID_SOAK:-}" ] || seconds=$((seconds * 20))
		seconds=$((seconds * ${ERAID_TIMEOUT_SCALE:-1}))
		printf '%s %s\n' "$script" "$seconds"
	done <"$REPO/selftests/suites"
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

# Read a guest's output from descriptor 4 until it ends. Sets DONE_SUITES.
read_guest() { # FLAVOUR DIR GUEST-PID
	local flavour=$1 dir=$2 pid=$3 line suite='' name rest deadline=$((SECONDS + 120)) rc diag=()
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
			DONE_SUITES+=("$suite")
			suite=
			deadline=$((SECONDS + 120))
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

# End a guest for good: PID is the subshell that waits for it.
guest_kill() {
	while kill -0 "$1" 2>/dev/null; do
		pkill -KILL -P "$1" || sleep 0.1
	done
}

guest_tests() { # FLAVOUR
	local flavour=$1 dir pid todo line left count tt=1
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
		if [ "${#DONE_SUITES[@]}" = "$count" ]; then
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

# --- commands ---------------------------------------------------------------

cmd_test() {
	local a flavours=() host=0 f need=()
	QUICK=0 ONLY_SUITES=() TEST_ENV=()
	[ -z "${ERAID_SOAK:-}" ] || TEST_ENV=(ERAID_SOAK=1)
	for a in "$@"; do
		case $a in
		--quick) QUICK=1 ;;
		host) host=1 ;;
		*=*) TEST_ENV+=("$a") ;;
		*)
			if is_flavour "$a"; then
				flavours+=("$a")
			elif grep -qE "^${a}[[:space:]]" "$REPO/selftests/suites"; then
				ONLY_SUITES+=("$a")
			else
				die "no such flavour or suite: $a" "see selftests/suites"
			fi
			;;
		esac
	done
	if [ $host = 0 ] && [ ${#flavours[@]} = 0 ] && [ ${#ONLY_SUITES[@]} = 0 ]; then
		host=1
		flavours=("${FLAVOURS[@]}")
	fi
	[ ${#flavours[@]} -gt 0 ] || [ ${#ONLY_SUITES[@]} = 0 ] || flavours=("${FLAVOURS[@]}")

	UNFINISHED='the test run'
	base_setup
	for f in "${flavours[@]}"; do
		if [ -n "$(suites_of "$f")" ]; then need+=("$f"); fi
	done
	case " ${need[*]} " in *' stock '*) ;; *) [ $host = 0 ] || need=(stock "${need[@]}") ;; esac
	kernels_start "${need[@]}"
	if [ $host = 1 ]; then
		host_tests
		if kernel_wait stock; then
			check stock/clippy module_build stock CLIPPY=1 W=e
		else
			result FAIL stock/clippy - "the stock kernel's tree did not build"
		fi
	fi
	[ ${#flavours[@]} = 0 ] || tools_build
	for f in "${flavours[@]}"; do guest_tests "$f"; done
	[ $((PASSED + FAILED)) -gt 0 ] || die "no test was selected" "see selftests/suites"
	[ "$FAILED" = 0 ] || printf '   failed: %s\n' "${FAILURES[@]}" >&3
	say "$PASSED passed, $FAILED failed$([ $SKIPPED = 0 ] || echo ", $SKIPPED skipped")"
	LAST_LINE=1 UNFINISHED=
	[ "$FAILED" = 0 ] || exit 1
}

cmd_soak() {
	export ERAID_SOAK=1
	cmd_test "$@"
}

cmd_bench() {
	say "There are no benchmarks yet: runs against md in simulated time come later."
	exit 2
}

cmd_demo() {
	[ -f "$REPO/selftests/demo.sh" ] || die "there is no selftests/demo.sh yet"
	cmd_shell stock "$@" -- 'cd /lab/repo/selftests && exec bash ./demo.sh'
}
