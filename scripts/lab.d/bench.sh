# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# lab bench: the benchmarks. What those in simulated time have in common is here,
# each cell in a guest of its own; bench-failslow.sh has what is special about
# drives that fail slowly, bench-overhead.sh the one in real time.
#
# The command is called by name; the other parts set what is used here.
# shellcheck disable=SC2317,SC2154,SC2034

readonly BENCHES=(baseline writes failslow overhead)

# Wall time in which a cell must be done, seconds.
readonly CELL_SECONDS=300
# The same where that it is not done is a result.
readonly MAY_FAIL_SECONDS=120

bench_about() { # NAME
	cat "$REPO/scripts/bench/$1".*s "$LAB_DIR/lab.d/bench-$1.sh" 2>/dev/null | sed -n 's/^# About: //p'
}

report_build() {
	in_root_cargo cargo build -p eraid-report >"$LOG/report-build.log" 2>&1 </dev/null ||
		die "eraid-report does not build" "read $LOG/report-build.log"
}

# report RAW OUT ARGUMENTS...: eraid-report, with these directories as
# /lab/guest and /lab/work.
report() {
	local raw=$1 out=$2
	shift 2
	in_root -r "$(build_dir host)/target:cargo" -r "$REPO:repo" -r "$raw:guest" -b "$out:work" -- \
		/lab/cargo/debug/eraid-report "$@"
}

report_say() { say "   report: $1/$2.md, all numbers: $1/$2.csv"; } # OUT NAME

# bench_guest FLAVOUR SCRIPT FILE SECONDS KEY=VALUE...: a guest runs
# scripts/bench/SCRIPT; its output becomes FILE.
bench_guest() {
	local flavour=$1 script=$2 file=$3 dir pid text status='' start=$SECONDS
	local deadline=$((SECONDS + $4 * ${ERAID_TIMEOUT_SCALE:-1}))
	shift 4
	dir=$(guest_dir "$flavour")
	guest_modules "$flavour" "$dir"
	guest_env "$flavour" "$@" >"$dir/job/env"
	echo "exec bash /lab/repo/scripts/bench/$script" >"$dir/job/command"
	mkfifo "$dir/out"
	guest_boot "$flavour" "$dir" </dev/null >"$dir/out" 2>&1 &
	pid=$!
	exec 4<"$dir/out"
	while IFS= read -r -t $((deadline > SECONDS ? deadline - SECONDS : 1)) -u 4 text; do
		case $text in
		'#LAB status '*) status=${text##* } ;;
		'#LAB down') break ;;
		'#LAB '*) ;;
		*) printf '%s\n' "$text" ;;
		esac
	done >"$file.new"
	exec 4<&-
	guest_kill "$pid"
	if [ "$status" != 0 ]; then
		mv "$file.new" "$file.failed"
		cp "$dir/kernel.log" "$file.kernel.log"
		guest_failed "$file" "${status:-no end in $((SECONDS - start)) s}"
		return 1
	fi
	rm -rf "$dir"
	mv "$file.new" "$file"
}

# cell_run LINE ARRAY FILE: one boot; its output becomes FILE.
cell_run() {
	local start=$SECONDS most=$CELL_SECONDS
	! may_fail "$1" || most=$MAY_FAIL_SECONDS
	ERAID_GUEST_MEM=$(cell_memory "$1") bench_guest tt cell.sh "$3" "$most" \
		"CELL=$1" "STACK=$2" "SEED=$BENCH_SEED" || return 1
	cell_say "$3" $((SECONDS - start))
}

may_fail() { # LINE
	case " $1 " in *' may_fail=1 '*) return 0 ;; esac
	return 1
}

# What the guest gets, MiB: what is written stays in its memory.
cell_memory() { # LINE
	local word
	for word in $1; do
		case $word in memory=*) echo "${word#*=}"; return ;; esac
	done
	echo "${ERAID_GUEST_MEM:-1024}"
}

guest_failed() { # FILE STATUS
	note "$(basename "$1"): FAILED, status $2: $(tail -n 1 "$1.failed")"
	note "  its output: $1.failed"
	note "  the guest's kernel log: $1.kernel.log"
}

cell_say() { # FILE SECONDS
	awk -v name="$(basename "$1")" -v took="$2" '
		/^mode=/ {
			for (i = 1; i <= NF; i++) { split($i, pair, "="); v[pair[1]] = pair[2] }
			printf "   %-26s mean %10.1f ms, 99%% %10.1f ms, %8.1f /s, %7.1f MB/s %6d s\n",
				name, v["mean_us"] / 1e3, v["p99_us"] / 1e3, v["rate"], v["MBps"], took
		}' "$1" >&3
}

# What there is to do, a boot each: "FILE ARRAY LINE", which RAW/boots then holds;
# the cells' lines on standard input.
cell_boots() {
	local line name array
	while IFS= read -r line; do
		name=${line%% *}
		for array in md eraid; do
			case "$line " in *' only=md '*) [ $array = md ] || continue ;; esac
			echo "$name.$array $array $line"
			case "$line " in *' repeat=1 '*) echo "$name.$array.again $array $line" ;; esac
		done
	done
}

# How many guests at a time: as there are processors, and as fit into the memory
# that is free if all of them are as large as the largest.
cell_slots() { # RAW
	local line mb most=1 free slots
	while IFS= read -r line; do
		mb=$(cell_memory "$line")
		[ "$mb" -le $most ] || most=$mb
	done <"$1/boots"
	free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
	slots=${ERAID_JOBS:-$(nproc)}
	if [ $((free / most)) -lt "$slots" ]; then
		slots=$((free / most > 0 ? free / most : 1))
		note "$free MiB are free: $slots guests of up to $most MiB at a time"
	fi
	echo "$slots"
}

# All boots.
cells_run() { # RAW
	local raw=$1 file array line slots
	slots=$(cell_slots "$raw")
	while read -r file array line; do
		cell_slot "$slots"
		cell_run "$line" "$array" "$raw/$file" &
	done <"$raw/boots"
	wait
}

cell_slot() { while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n || :; done; }

# Whether all boots ended, and everything that ran twice gave the same digits.
cells_check() { # RAW
	local raw=$1 file line bad=0 same=0
	while read -r file _ line; do
		if [ ! -s "$raw/$file" ]; then
			note "NO RESULT: $file"
			may_fail "$line" || bad=1
			continue
		fi
		case $file in *.again)
			if cmp -s "$raw/$file" "$raw/${file%.again}"; then
				same=$((same + 1))
			else
				note "NOT REPEATABLE: $raw/$file differs from ${file%.again}"
				bad=1
			fi
			;;
		esac
	done <"$raw/boots"
	[ $same = 0 ] || note "$same cells ran twice with the same digits"
	return $bad
}

# Whether no request failed where there were writes.
writes_check() { # RAW
	local raw=$1 file line bad=0
	while read -r file _ line; do
		case " $line" in *' write_percent='*)
			if [ -s "$raw/$file" ] && ! grep -qE '^mode=.* errors=0 ' "$raw/$file"; then
				note "FAILED REQUESTS: $file: $(grep -oE ' errors=[0-9]+' "$raw/$file")"
				bad=1
			fi
			;;
		esac
	done <"$raw/boots"
	return $bad
}

# bench_cells NAME RAW OUT CELL...: fails when md is not what the cells want of
# it, or as the checks above say.
bench_cells() {
	local name=$1 raw=$2 out=$3 table=scripts/bench/$1.cells rc=0
	shift 3
	report "$raw" "$out" cells "/lab/repo/$table" "$@" >"$raw/cells" ||
		die "bad cells" "see $table"
	note "$(wc -l <"$raw/cells") cells on md and on eRAID, seed $BENCH_SEED; each is one boot"
	cell_boots <"$raw/cells" >"$raw/boots"
	cells_run "$raw"
	cells_check "$raw" || rc=1
	writes_check "$raw" || rc=1
	report "$raw" "$out" write /lab/guest/cells /lab/guest /lab/work --name "$name" >&3 || rc=1
	report_say "$out" "$name"
	if [ $rc = 0 ]; then
		say "   what $table wants of md is met"
	else
		say "   NOT all that $table wants is met, see above"
	fi
	return $rc
}

# lab bench NAME [--out DIR] [--subset N] [--add CSV] [SEED=N] [ROUNDS=N] [CPUS=N] [CELL...]
cmd_bench() {
	local name=${1:-} some=() out='' raw flavour=tt rc=0
	local known="scripts/lab bench NAME, one of: ${BENCHES[*]}"
	[ $# -gt 0 ] || die "which benchmark?" "$known"
	case " ${BENCHES[*]} " in
	*" $name "*) shift ;;
	*) die "there is no benchmark '$name'" "$known" ;;
	esac
	BENCH_SEED=1 BENCH_ROUNDS=15 BENCH_CPUS=2 BENCH_SUBSET='' BENCH_ADD=()
	while [ $# -gt 0 ]; do
		case $1 in
		--out) out=${2:-}; [ -d "$out" ] || die "--out wants a directory that exists"; shift ;;
		--subset) BENCH_SUBSET=${2:-}; shift ;;
		--add) [ -f "${2:-}" ] || die "--add wants a CSV file"; BENCH_ADD+=("$2"); shift ;;
		SEED=*) BENCH_SEED=${1#*=} ;;
		ROUNDS=*) BENCH_ROUNDS=${1#*=} ;;
		CPUS=*) BENCH_CPUS=${1#*=} ;;
		-*) die "bench knows no option $1" ;;
		*) some+=("$1") ;;
		esac
		shift
	done
	[[ $BENCH_SEED =~ ^[0-9]{1,9}$ ]] || die "SEED=$BENCH_SEED is no seed" "SEED=1, SEED=2, ..."
	[[ $BENCH_ROUNDS =~ ^[1-9][0-9]{0,2}$ ]] || die "ROUNDS=$BENCH_ROUNDS is no number of rounds"
	[[ $BENCH_CPUS =~ ^[12]$ ]] || die "CPUS=$BENCH_CPUS is neither 1 nor 2"
	[ "$name" = failslow ] || [ -z "$out" ] || [ ${#some[@]} = 0 ] ||
		die "--out is for a whole report, not for: ${some[*]}" "leave one of them out"
	[ "$name" = failslow ] || [ -z "$BENCH_SUBSET${BENCH_ADD[*]}" ] ||
		die "--subset and --add are for failslow"
	[[ $BENCH_SUBSET =~ ^([1-9][0-9]{0,3})?$ ]] || die "--subset $BENCH_SUBSET is no number of cells"
	raw=$LOG/bench-$name
	# Trying some cells does not cost the results of all.
	[ ${#some[@]} = 0 ] || raw+=-some
	[ -z "$BENCH_SUBSET" ] || raw+=-subset
	exec {running}>"$raw.lock"
	flock -n "$running" || die "this benchmark is running already" "wait for it"
	out=$(realpath "${out:-$raw}")
	rm -rf "$raw"
	mkdir -p "$raw"
	say "-- bench $name: $(bench_about "$name")"
	[ "$name" != overhead ] || flavour=$(overhead_flavour)
	base_setup
	kernel_setup $flavour
	module_build $flavour
	tools_build
	report_build
	case $name in
	overhead) bench_overhead "$raw" "$out" "${some[@]}" || rc=1 ;;
	failslow) bench_failslow "$raw" "$out" "${some[@]}" || rc=1 ;;
	*) bench_cells "$name" "$raw" "$out" "${some[@]}" || rc=1 ;;
	esac
	STATUS=$rc
}
