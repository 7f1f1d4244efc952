#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The demo's second act: the same driver on simulated hard drives in simulated
# time. Idle time costs nothing and takes exactly as long as it should, so each
# latency is exact, and another run gives the same digits.
set -u

SEED=1
# shellcheck source=/dev/null
. ./demo_helpers.sh
# shellcheck source=/dev/null
. ./lib.sh

readonly SIM=/sys/class/eraid-hddsim DRIVES=6 CHOSEN=2
readonly COUNT=20000
ROWS=()
SINCE=$SECONDS

# measure LABEL: a row of the table at the end; exact, from each single latency.
measure() {
	local load cells
	load=$("$ERAID_TOOLS/eraid-load" poisson "$NODE" --every 16ms --count $COUNT \
		--size 8K --seed $SEED --requests "$WORK/requests") || t_bail "reading failed"
	read -ra cells < <(tail -n +2 "$WORK/requests" | cut -d , -f 7 | sort -n | awk '
		{ ns[NR] = $1; sum += $1 }
		# The smallest latency that so large a part of all do not exceed.
		function at(part, rank) {
			rank = int(part * NR)
			return ns[rank < part * NR ? rank + 1 : rank] / 1e6
		}
		END {
			printf "%.3f %.3f %.3f %.3f %.3f\n",
				sum / NR / 1e6, at(0.5), at(0.99), at(0.999), at(1)
		}')
	[ ${#cells[@]} = 5 ] || t_bail "no latencies"
	tell "$(field requests "$load") reads in $(field seconds "$load") s, ms: mean ${cells[0]}," \
		"half ${cells[1]}, 99% ${cells[2]}, longest ${cells[4]}"
	ROWS+=("$1|$(printf '%s|' "${cells[@]}")")
}

table() {
	local line='+--------------------------------+-----------+-----------+-----------+-----------+-----------+'
	local row cells
	echo "$line"
	printf '| %-30s | %9s | %9s | %9s | %9s | %9s |\n' '8 KiB reads, ms' mean half 99% 99.9% longest
	echo "$line"
	for row in "${ROWS[@]}"; do
		IFS='|' read -ra cells <<<"$row"
		printf '| %-30s | %9s | %9s | %9s | %9s | %9s |\n' "${cells[@]}"
	done
	echo "$line"
}

# drive KEY VALUE: changes the chosen drive.
drive() {
	tell "echo $2 > /sys/block/h$CHOSEN/hddsim/$1"
	must store "/sys/block/h$CHOSEN/hddsim/$1" "$2"
}

trap clean_up EXIT
say "Second act: six simulated hard drives of 2 TB, simulated time"
tell "insmod eraid_hddsim.ko; insmod eraid.ko"
must insmod "$ERAID_HDDSIM_KO"
must insmod "$ERAID_KO"
MEMBERS=()
for ((i = 0; i < DRIVES; i++)); do
	must store $SIM/create "name=h$i seed=$i"
	MEMBERS+=("/dev/h$i")
done
need_block_dev "${MEMBERS[@]}"
tell "7200 turns a minute, seeks of 2 to 15 ms, each with a speed and an angle of its own"
must array_create exact level=5 chunk=8K assume_clean=1
show <"$A/status"
tell "The load: $COUNT reads of 8 KiB anywhere, one every 16 ms on average"

say "1. Healthy"
measure "healthy"

say "2. One drive turns ten times slower"
drive slow_percent 1000
measure "one drive ten times slower"
show <"$A/status"

say "3. It sits out"
tell "echo 1 > $(dir_of "${MEMBERS[CHOSEN]}")/sit_out"
must store "$(dir_of "${MEMBERS[CHOSEN]}")/sit_out" 1
measure "the slow drive sits out"

say "4. It is well again and back in"
drive slow_percent 100
must store "$(dir_of "${MEMBERS[CHOSEN]}")/sit_out" 0
measure "well again"

say "5. It takes commands and answers none"
drive hang 1
measure "one drive does not answer"
drive hang 0

must array_stop exact
for ((i = 0; i < DRIVES; i++)); do must wait_until 10 store $SIM/remove "h$i"; done
must driver_unload
trap - EXIT
say "What was measured"
table
echo
tell "Every digit is the same on each run. The guest's clock moves only while everybody waits:"
tell "$((SECONDS - SINCE)) simulated seconds have passed in this act."
