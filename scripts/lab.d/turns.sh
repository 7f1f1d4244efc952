# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Turns: which suites a run of everything has in which flavours. All in all of
# them take too long for each commit, so most take turns; a suite or a flavour
# that is named always runs, and so does everything with --all and in a soak.
#
# The other parts set and use what is here.
# shellcheck disable=SC2034

# The turn of this run, a number; empty when all run everywhere.
TURN=

# The turn follows from the commit alone, so that it can be repeated, and so that
# commits one after the other have all of them. A shallow clone does not know its
# number; the name of the commit has them all sooner or later.
turn_of_commit() {
	case $(git -C "$REPO" rev-parse --is-shallow-repository 2>/dev/null) in
	true) echo $((16#$(git -C "$REPO" rev-parse HEAD | cut -c 1-6))) ;;
	*) git -C "$REPO" rev-list --count HEAD 2>/dev/null || echo 0 ;;
	esac
}

# turn_has TURN PLACE FLAVOURS FLAVOUR: whether the suite in that place of the table
# runs in FLAVOUR, one of its FLAVOURS. It runs on one of the two kernels that watch
# what the driver does, kasan and smp, the next turn on the other; every third turn,
# or if it runs nowhere else, on Debian's; and always in simulated time, which is quick.
turn_has() {
	local number=$(($1 + $2)) kernel both=()
	for kernel in kasan smp; do
		case ",$3," in *",$kernel,"*) both+=("$kernel") ;; esac
	done
	case $4 in
	stock) [ "$3" = stock ] || [ $((number % 3)) = 0 ] ;;
	kasan | smp) [ "$4" = "${both[number % ${#both[@]}]}" ] ;;
	*) true ;;
	esac
}

# What this turn leaves out, in words; these are no skips, for another turn has them.
turn_say() { # FLAVOUR...
	local flavour left
	[ -n "$TURN" ] || return 0
	say "   turn $TURN (the number of commits; --turn $TURN repeats it, --all runs everything everywhere)" \
		"had not:"
	for flavour in "$@"; do
		left=$(comm -23 <(TURN='' suites_of "$flavour" | cut -d ' ' -f 1 | sort) \
			<(suites_of "$flavour" | cut -d ' ' -f 1 | sort))
		[ -z "$left" ] || say "      $flavour: ${left//$'\n'/ }"
	done
}
