# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# lab bench overhead: what md and eRAID cost the processors. Real time, one guest
# with two processors and a kernel that watches nothing; or, with CPUS=1, the
# kernel of simulated time on one processor, in real time.
#
# The other parts set what is used here.
# shellcheck disable=SC2154

# Wall time of one run of one load on one array, seconds, with what is around it.
readonly RUN_SECONDS=6

overhead_flavour() { if [ "$BENCH_CPUS" = 1 ]; then echo tt; else echo perf; fi; }

# bench_overhead RAW OUT LOAD...: the report is a report; only a run that did not
# end is a failure.
bench_overhead() {
	local raw=$1 out=$2 lines runs
	shift 2
	report "$raw" "$out" loads /lab/repo/scripts/bench/overhead.loads "$@" >"$raw/loads" ||
		die "bad loads" "see scripts/bench/overhead.loads"
	mapfile -t lines <"$raw/loads"
	runs=$((${#lines[@]} * (BENCH_ROUNDS + 1) * 3))
	note "${#lines[@]} loads, $BENCH_ROUNDS rounds; the machine should have nothing else to do" \
		"(load average $(cut -d ' ' -f 1 /proc/loadavg))"
	ERAID_REAL_TIME=1 ERAID_GUEST_MEM=${ERAID_GUEST_MEM:-2048} \
		bench_guest "$(overhead_flavour)" overhead.sh "$raw/runs" \
		$((runs * RUN_SECONDS)) "LOADS=$(IFS=';'; echo "${lines[*]}")" \
		"ROUNDS=$BENCH_ROUNDS" "SEED=$BENCH_SEED" || return 1
	report "$raw" "$out" overhead /lab/guest/loads /lab/guest/runs /lab/work --seed "$BENCH_SEED" >&3 ||
		return 1
	report_say "$out" overhead
}
