# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Messages, times, the cache and its locks.

# Where a message goes must not depend on what a step does with its output.
exec 3>&1

say() { printf '%s\n' "$*" >&3; }
note() { say "   $*"; }

# die WHAT [WHAT-TO-DO]
die() {
	# What went wrong only because the lab itself was killed is no news.
	[ -d /proc/$$ ] || exit 1
	printf 'lab: %s\n' "$1" >&2
	[ $# -lt 2 ] || printf 'lab: what to do: %s\n' "$2" >&2
	exit 1
}

# step TITLE CMD...: run CMD, say what it does and how long it took.
step() {
	local title=$1 start=$SECONDS
	shift
	say "-- $title"
	"$@"
	say "-- $title: done in $((SECONDS - start)) s"
}

key_of() { printf '%s\n' "$@" | sha256sum | cut -c 1-12; }

# Files whose content matters to a key.
key_of_files() { cat "$@" | sha256sum | cut -c 1-12; }

# What says that a directory is a cache of the lab, which may delete in it.
readonly CACHE_MARK=.eraid-lab-cache

cache_is_marked() { [ -f "$CACHE/$CACHE_MARK" ]; }

# The caches of earlier labs, which left no mark.
cache_is_old() {
	[ -e "$CACHE/lock/use" ] && [ -d "$CACHE/tmp" ] && [ -d "$CACHE/cargo" ] && [ -d "$CACHE/build" ] ||
		compgen -G "$CACHE/root-*/.lab-key" >/dev/null
}

# Only a new or empty directory becomes a cache; a file system of its own has
# lost+found.
cache_mark() {
	mkdir -p "$CACHE"
	! cache_is_marked || return 0
	if ! cache_is_old && [ -n "$(find "$CACHE" -mindepth 1 -maxdepth 1 ! -name lost+found -print -quit)" ]; then
		die "$CACHE has other things in it and is no cache of the lab" \
			"let ERAID_CACHE name a new or an empty directory"
	fi
	# Without room for the words the file alone will do.
	echo "The lab of eRAID deletes what it likes here." >"$CACHE/$CACHE_MARK" || cache_is_marked
}

# --- room -------------------------------------------------------------------

# What an entry takes while it is being made, MB; some is gone when it is done.
readonly -A ROOM=([root]=3600 [debs]=400 [src]=1900 [pkg]=200 [stock]=500
	[smp]=1000 [kasan]=1200 [tt]=1000 [perf]=1000)
# What a run takes besides: builds, logs, MB.
readonly ROOM_TO_RUN=300
# With less the disk counts as full, MB.
readonly NO_ROOM=16

room_free() { df --output=avail -B 1M "$CACHE" | tail -n 1 | tr -d ' '; }

# room_check WHAT MB
room_check() {
	local free
	free=$(room_free)
	[ "$free" -ge "$2" ] ||
		die "$free MB are free under $CACHE; $1 takes up to $2" \
			"make room, or let ERAID_CACHE name a place that has more; nothing was begun"
}

# Whether the disk is full, or was by what a log says.
room_is_gone() { # [LOG]
	[ "$(room_free)" -lt $NO_ROOM ] || grep -qs 'No space left on device' "$@" /dev/null
}

# Without room all sorts of things fail in all sorts of words; these say why.
room_say() { # [LOG]
	! room_is_gone "$@" || printf 'lab: %s\n' "the disk under $CACHE is full ($(room_free) MB are free)" \
		"what to do: make room, or let ERAID_CACHE name a place that has more, and run this again" >&2
}

# --- the cache's life -------------------------------------------------------

# Whoever made a directory in tmp/ is gone: its name has the process's number.
cache_sweep() {
	local dir name pid lock
	for dir in "$CACHE"/tmp/*.*; do
		name=${dir##*/}
		case $name in
		lab.*) pid=${name#lab.} pid=${pid%%.*} ;;
		*) pid=${name##*.} ;;
		esac
		[ -d "$dir" ] && ! kill -0 "$pid" 2>/dev/null || continue
		# What it started may still be at it, for a moment.
		exec {lock}>"$CACHE/lock/${name%%.*}" || continue
		if flock -n "$lock"; then rm -rf --one-file-system "$dir"; fi
		exec {lock}>&-
	done
}

cache_init() { # COMMAND
	CACHE=${ERAID_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/eraid}
	cache_mark
	CACHE=$(realpath "$CACHE")
	# Who has no room can always clean.
	[ "$1" = clean ] || room_check "a run" $ROOM_TO_RUN
	# Each checkout has logs of its own.
	LOG=$CACHE/log/$(key_of "$REPO")
	mkdir -p "$CACHE/lock" "$CACHE/tmp" "$CACHE/cargo" "$CACHE/build" "$LOG" || [ "$1" = clean ]
	# Everybody who uses the cache holds this shared; cleaning wants it alone.
	exec 8>"$CACHE/lock/use"
	flock -s 8
	# What labs that were killed left behind. All mounts are in namespaces of
	# their own, so a removal can never reach anything else.
	cache_sweep
	TMP=$(mktemp -d "$CACHE/tmp/lab.$$.XXXXXX") || [ "$1" = clean ]
	trap cleanup EXIT
	trap 'echo "lab: interrupted" >&2; exit 130' INT
	trap 'echo "lab: told to end by a signal" >&2; exit 143' TERM HUP
}

cleanup() {
	local rc=$?
	[ -z "${UNFINISHED:-}" ] ||
		printf 'lab: ended before %s was done, status %s\n' "$UNFINISHED" "$rc" >&2
	# Lanes, and kernels in the making; only what runs: the numbers of processes
	# that have ended may be others' by now.
	local running
	mapfile -t running < <(jobs -rp)
	[ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null || :
	[ $rc = 0 ] || room_say
	rm -rf --one-file-system "$TMP"
}

# cached NAME KEY MAKER [ARGS...]: set CACHED to the directory that MAKER fills
# ("MAKER DIR ARGS..."). It is made in a temporary directory and renamed when
# complete: being killed anywhere leaves nothing that looks finished.
cached() {
	local name=$1 key=$2 start tmp rc=0
	shift 2
	CACHED=$CACHE/$name-$key
	WANTED+=("$name-$key")
	if [ ! -e "$CACHED/.lab-key" ]; then
		exec {lock}>"$CACHE/lock/$name"
		if ! flock -n "$lock"; then
			note "$name: another lab is making it, waiting"
			flock "$lock"
		fi
		if [ ! -e "$CACHED/.lab-key" ]; then
			rm -rf --one-file-system "$CACHE/tmp/$name".* "$CACHED"
			room_check "making $name" "${ROOM[$name]:-$NO_ROOM}"
			tmp=$CACHE/tmp/$name.$$
			mkdir -p "$tmp" || die "cannot make $tmp"
			start=$SECONDS
			say "-- $name: making it (log: $LOG/$name.log)"
			# A subshell of its own, or "set -e" would be off inside "||".
			set +e
			(set -e; "$1" "$tmp" "${@:2}") >"$LOG/$name.log" 2>&1
			rc=$?
			set -e
			[ $rc != 0 ] || cached_done "$tmp" "$key" "$CACHED" 2>>"$LOG/$name.log" || rc=$?
			if [ $rc != 0 ]; then
				tail -n 25 "$LOG/$name.log" >&2
				if room_is_gone "$LOG/$name.log"; then
					room_say "$LOG/$name.log"
					# What cannot be finished is not in others' way.
					rm -rf --one-file-system "$tmp"
				fi
				die "making $name failed after $((SECONDS - start)) s" \
					"read $LOG/$name.log; the next run starts this step afresh"
			fi
			say "-- $name: made in $((SECONDS - start)) s"
		fi
		exec {lock}>&-
	fi
	touch "$CACHED/.lab-key"
}

cached_done() { # DIR KEY NAME: complete from now on
	printf '%s\n' "$2" >"$1/.lab-key" && chmod 755 "$1" && mv -T "$1" "$3"
}

# Everything that no current key asks for, the longest unused first; other
# checkouts' builds are among it.
stale_entries() {
	local wanted=" ${WANTED[*]} " f name
	for f in "${KERNELS[@]}"; do wanted+="$f-$(kernel_key "$f") "; done
	{
		find "$CACHE" -mindepth 2 -maxdepth 2 -name .lab-key -printf '%T@ %h\n'
		find "$CACHE/build" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n'
	} | sort -n | while IFS=' ' read -r _ f; do
		name=${f##*/}
		case $wanted in *" $name "*) continue ;; esac
		case $name in
		"$(key_of "$REPO")"-* | initrd-*) ;;
		*) printf '%s\n' "$f" ;;
		esac
	done
}

cache_size_mb() { du -sm "$CACHE" 2>/dev/null | cut -f 1; }

# Keep the cache under its maximum: only when nobody else uses it, and only
# when this run got as far as knowing the current keys.
cache_prune() {
	local max=$((${ERAID_CACHE_MAX_GB:-20} * 1024)) d
	[ -n "${COMPILER:-}" ] && cache_is_marked || return 0
	if flock -n -x 8; then
		while IFS= read -r d; do
			[ "$(cache_size_mb)" -gt "$max" ] || break
			note "cache over ${ERAID_CACHE_MAX_GB:-20} GB: removing stale $(basename "$d")"
			rm -rf --one-file-system "$d"
		done < <(stale_entries)
	fi
	flock -s 8
}
