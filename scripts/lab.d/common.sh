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
	echo "The lab of eRAID deletes what it likes here." >"$CACHE/$CACHE_MARK"
}

cache_init() {
	CACHE=${ERAID_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/eraid}
	cache_mark
	CACHE=$(realpath "$CACHE")
	mkdir -p "$CACHE/lock" "$CACHE/tmp" "$CACHE/cargo" "$CACHE/build"
	# Each checkout has logs of its own.
	LOG=$CACHE/log/$(key_of "$REPO")
	mkdir -p "$LOG"
	# Everybody who uses the cache holds this shared; cleaning wants it alone.
	exec 8>"$CACHE/lock/use"
	flock -s 8
	# What labs that were killed left behind. All mounts are in namespaces of
	# their own, so a removal can never reach anything else.
	local dir pid
	for dir in "$CACHE"/tmp/lab.*; do
		pid=${dir##*/lab.} pid=${pid%%.*}
		if [ -d "$dir" ] && ! kill -0 "$pid" 2>/dev/null; then
			rm -rf --one-file-system "$dir"
		fi
	done
	TMP=$(mktemp -d "$CACHE/tmp/lab.$$.XXXXXX")
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
			tmp=$CACHE/tmp/$name.$$
			mkdir -p "$tmp"
			start=$SECONDS
			say "-- $name: making it (log: $LOG/$name.log)"
			# A subshell of its own, or "set -e" would be off inside "||".
			set +e
			(set -e; "$1" "$tmp" "${@:2}") >"$LOG/$name.log" 2>&1
			rc=$?
			set -e
			if [ $rc != 0 ]; then
				tail -n 25 "$LOG/$name.log" >&2
				die "making $name failed after $((SECONDS - start)) s" \
					"read $LOG/$name.log; the next run starts this step afresh"
			fi
			printf '%s\n' "$key" >"$tmp/.lab-key"
			chmod 755 "$tmp"
			mv -T "$tmp" "$CACHED"
			say "-- $name: made in $((SECONDS - start)) s"
		fi
		exec {lock}>&-
	fi
	touch "$CACHED/.lab-key"
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
