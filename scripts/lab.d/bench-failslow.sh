# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# About: reads from drives that retry, are slow or hang, on md and eRAID in all their ways to read
#
# lab bench failslow: the benchmark of drives that fail slowly. eraid-report makes
# its cells and keeps their results; what runs in a guest is scripts/bench/cell.sh.
#
# The command is called by name; the other parts set what is used here.
# shellcheck disable=SC2317,SC2154

# bench_failslow RAW OUT CELL...: adds to OUT/failslow.csv. Fails when a boot has no
# result or a read failed on eRAID; what must be reached is marked, and fails nothing.
bench_failslow() {
	local raw=$1 out=$2 file added=() subset=() rc=0 boots start=$SECONDS
	shift 2
	[ -z "$BENCH_SUBSET" ] || subset=(--subset "$BENCH_SUBSET" --seed "$BENCH_SEED")
	report "$raw" "$out" failslow-boots "${subset[@]}" "$@" >"$raw/boots" ||
		die "no cells to run" "cells are e.g. grid-8k-8ms-5x2-all; with .auto behind it only that"
	boots=$(wc -l <"$raw/boots")
	note "$boots boots, seed $BENCH_SEED${BENCH_SUBSET:+; SEED=$BENCH_SEED draws these $BENCH_SUBSET cells again}"
	cells_run "$raw"
	cells_check "$raw" || rc=1
	note "$boots boots in $((SECONDS - start)) s"
	for file in "${BENCH_ADD[@]}"; do
		cp "$file" "$raw/add-${#added[@]}.csv"
		added+=(--add "/lab/guest/add-${#added[@]}.csv")
	done
	report "$raw" "$out" failslow /lab/guest/boots /lab/guest /lab/work \
		--commit "$(git -C "$REPO" describe --always --dirty --exclude '*')" "${added[@]}" >&3 || rc=1
	report_say "$out" failslow
	return $rc
}
