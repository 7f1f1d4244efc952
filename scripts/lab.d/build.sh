# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Building the driver's modules. A copy of the tree is built, so that the
# checkout stays clean and every flavour can be built incrementally.

# One build directory for each checkout, flavour and kernel: make does not see that
# another kernel lies where the last one did.
build_dir() { # FLAVOUR|host
	local name=$1
	if is_kernel "$1"; then name+=-$(kernel_key "$1"); fi
	printf '%s\n' "$CACHE/build/$(key_of "$REPO")-$name"
}

# build_begin DIR: makes it and takes its lock; build_end gives that back. A new
# checkout begins with what another one has built, for copy_tree finds by content
# what differs.
build_begin() {
	local from seed
	mkdir -p "$CACHE/build"
	while IFS= read -r from; do
		[ ! -e "$1" ] || break
		exec {seed}>>"$from/lock"
		if flock -n "$seed"; then
			rm -rf "$TMP/seed-${1##*/}" && cp -a --reflink=auto "$from" "$TMP/seed-${1##*/}" && mv -T "$TMP/seed-${1##*/}" "$1"
		fi
		exec {seed}>&-
	done < <(find "$CACHE/build" -mindepth 1 -maxdepth 1 -printf '%T@ %p\n' | sort -rn |
		sed -nE "s|^[0-9.]+ (.*/[0-9a-f]+-${1#*/build/*-})\$|\1|p")
	mkdir -p "$1/tree" && exec {BUILD_LOCK}>>"$1/lock" && flock "$BUILD_LOCK" || die "cannot build in $1"
}
build_end() { exec {BUILD_LOCK}>&-; }

# make_begin DIR, make_end DIR STATUS: around make. What one leaves that was killed,
# or had no room, may be half an object file that is newer than its source, which
# the next make would take; so that begins with nothing. (cargo sees to this itself.)
make_begin() {
	if [ -e "$1/unfinished" ]; then
		note "${1##*/}: the last build did not end, from the beginning"
		rm -rf --one-file-system "$1/tree" "$1/tree.list"
	fi
	mkdir -p "$1/tree" && : >"$1/unfinished" || die "cannot build in $1"
}
make_end() {
	# Above 128 it was killed, with the lab or by somebody else.
	if [ "$2" = 0 ] || { [ "$2" -le 128 ] && ! room_is_gone; }; then rm "$1/unfinished"; fi
}

# The files of the checkout, tracked or new, not ignored; NUL-separated.
repo_files() {
	git -C "$REPO" ls-files -co --exclude-standard -z | sort -zu |
		while IFS= read -r -d '' f; do
			if [ -e "$REPO/$f" ] || [ -L "$REPO/$f" ]; then printf '%s\0' "$f"; fi
		done
}

# A copy in which something old was left must not be built, whether or not the
# caller has "set -e".
copy_tree() { # DIR
	local list=$1.list files
	mapfile -d '' files < <(repo_files)
	[ ${#files[@]} -gt 0 ] || die "git lists no files in $REPO"
	printf '%s\0' "${files[@]}" >"$list.new" &&
		tree_update "$1" "$list" && mv "$list.new" "$list" || die "cannot copy the tree to $1"
}

tree_update() { # DIR LIST
	# By checksum and without times: a file that changed gets today's date, so
	# that make sees it, whatever its own date says.
	(cd "$REPO" && rsync -rlpc --no-times --ignore-missing-args --from0 \
		--files-from="$2.new" ./ "$1/") || return 1
	# What is gone from the checkout must not stay in the copy.
	[ ! -e "$2" ] || comm -z -23 "$2" "$2.new" | (cd "$1" && xargs -0 -r rm -f --)
}

# module_build FLAVOUR [make arguments]; kernel_setup FLAVOUR ran before.
module_build() {
	local flavour=$1 dir log start=$SECONDS args rc=0
	shift
	[ -f "$REPO/Kbuild" ] || die "there is no Kbuild file at the top of the tree"
	dir=$(build_dir "$flavour")
	case " $* " in *" CLIPPY=1 "*) dir+=-clippy ;; esac
	log=$LOG/build-$(basename "$dir").log
	build_begin "$dir"
	make_begin "$dir"
	copy_tree "$dir/tree"
	read -ra args < <(kernel_make_args "$flavour")
	# What is not safe yet is tested, but not in the module that users get.
	[ "$flavour" = stock ] || args+=(CONFIG_BLK_DEV_ERAID_UNFINISHED=y)
	in_root -r "$SRC:src" -r "$OBJ:obj" -b "$dir/tree:mod" -- \
		make -C /lab/obj "${args[@]}" M=/lab/mod -j"$(nproc)" "$@" modules >"$log" 2>&1 || rc=$?
	# modpost only warns about much that cannot work when loaded.
	if [ $rc = 0 ] && grep -q 'WARNING: modpost' "$log"; then rc=1; fi
	make_end "$dir" $rc
	build_end
	if [ $rc != 0 ]; then
		awk '/^error|^warning|WARNING|rror:/ { n = 13 } n-- > 0 && shown++ < 80' "$log" >&2
		tail -n 5 "$log" >&2
		die "the $flavour module does not build ($((SECONDS - start)) s)" "read $log"
	fi
	if grep -qE '^warning|: warning:' "$log"; then
		note "$flavour module: warnings, see $log"
	fi
	say "-- $flavour module${*:+ ($*)}: built in $((SECONDS - start)) s"
}

# lab build [--clippy] [FLAVOUR...|all]
cmd_build() {
	local clippy=() flavours=() a
	for a in "$@"; do
		case $a in
		--clippy) clippy=(CLIPPY=1 W=e) ;;
		all) flavours=("${FLAVOURS[@]}") ;;
		*) is_kernel "$a" || die "unknown flavour: $a" "one of: ${KERNELS[*]} all"
			flavours+=("$a") ;;
		esac
	done
	[ ${#flavours[@]} -gt 0 ] || flavours=(stock)
	base_setup
	for a in "${flavours[@]}"; do
		kernel_setup "$a"
		module_build "$a" "${clippy[@]}"
		[ ${#clippy[@]} = 0 ] &&
			find "$(build_dir "$a")/tree" -name '*.ko' -printf '   %p\n' >&3
	done
	return 0
}
