# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Tests that need no guest: checks of the sources, clippy, cargo's tests.
#
# The scripts in single quotes run in the root, with arguments of their own; the
# checks are called by name.
# shellcheck disable=SC2016,SC2317

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

# In the root with a copy of the tree, cargo's cache and the host's own cargo
# settings (mirrors, proxies).
in_root_cargo() { # CMD...
	local dir rc=0
	dir=$(build_dir host)
	build_begin "$dir"
	mkdir -p "$dir/target"
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
		CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 \
		bash -euc 'cd /lab/mod; "$@"' - "$@" || rc=$?
	build_end
	return $rc
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
	# The same scripts need not be read twice.
	cached shellcheck "$(cd "$REPO" && key_of "$(sha256sum "${files[@]}")" \
		"$(grep -A 8 '^Package: shellcheck$' "$ROOT/var/lib/dpkg/status")")" shellcheck_make "${files[@]}"
}

shellcheck_make() { # DIR FILE...
	in_root -r "$REPO:repo" -- bash -euc 'cd /lab/repo; shellcheck -x -P SCRIPTDIR -S warning "$@"' - "${@:2}"
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
		check "host/$(basename "$f")" check_script "$(basename "$f")"
	done
	[ -f "$REPO/Cargo.toml" ] || return 0
	# The one lint that the kernel turns off as well for compilers before 1.86.
	check host/cargo-clippy in_root_cargo cargo clippy --workspace --all-targets -- \
		-D warnings -A clippy::precedence
	cargo_test
	lane_show
	if kernel_wait stock; then
		check stock/clippy module_build stock CLIPPY=1 W=e
	else
		result FAIL stock/clippy - "the stock kernel's tree did not build"
	fi
}

# One line for each host test, as for the guests'.
cargo_test() {
	local log=$LOG/test-host-cargo.log rc=0 line crate=cargo name before=$FAILED ran=$PASSED
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
		# As a skip in a guest that nobody allows.
		'test '*' ... ignored'*) name=${line#test }; result FAIL "host/$crate/$(one_word "${name%% ... ignored*}")" - ignored ;;
		'test '*' ... FAILED') name=${line#test }; result FAIL "host/$crate/$(one_word "${name% ... FAILED}")" - ;;
		esac
	done <"$log"
	if [ $rc != 0 ]; then
		# A crate that does not compile has no test lines.
		[ "$FAILED" != "$before" ] || result FAIL host/cargo-test "$SECS" "status $rc"
		awk '/^error|panicked at/ { n = 15 } n-- > 0 && shown++ < 60 { print "      | " $0 }' "$log" >&3
		say "      the whole log: $log"
	elif [ "$PASSED" = "$ran" ] && [ "$FAILED" = "$before" ]; then
		result FAIL host/cargo-test "$SECS" "there was no test; the whole log: $log"
	fi
}

one_word() { local w=${1// - /::}; printf '%s' "${w// /_}"; }

# Programs that run in guests: static, so that they run in any. The target is
# named so that the flags do not reach the compiler's own plug-ins.
tools_build() {
	[ -f "$REPO/Cargo.toml" ] || return 0
	in_root_cargo env RUSTFLAGS='-C target-feature=+crt-static' \
		cargo build -p eraid-tools --target "$TOOLS_TARGET" >"$LOG/tools.log" 2>&1 </dev/null || {
		tail -n 20 "$LOG/tools.log" >&2
		die "the guests' programs do not build" "read $LOG/tools.log"
	}
}
