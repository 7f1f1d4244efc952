# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The Debian 13 root: made once, then only ever used read-only. Everything that
# compiles or boots runs in it, so the host's own distribution does not matter.
#
# shellcheck disable=SC2016,SC2153

# The packages of the root. Changing a list makes a new root.
# pahole: without it the kernel's configuration drops RUST silently.
readonly ROOT_BUILD_PACKAGES=(
	ca-certificates build-essential gcc-14 flex bison bc libelf-dev libssl-dev
	kmod cpio xz-utils zstd python3 rustc cargo rust-src bindgen rustfmt
	rust-clippy clang-19 lld-19 llvm-19 pahole make git rsync shellcheck
)
readonly ROOT_GUEST_PACKAGES=(
	busybox-static fio mdadm dmsetup lvm2 e2fsprogs xfsprogs util-linux procps
	qemu-system-x86 seabios strace gdisk jq
)

# Where the host's directories show up in the root. The paths are part of what
# the compilers record, so they are the same on every machine.
readonly LAB_DIRS=(src obj mod repo cargo work debs guest)

# One host Debian source that also carries trixie: "URI" on stdout.
# The host's own apt configuration is the only thing that knows the mirror.
host_mirror() {
	local uri
	uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)' \
		'Created-By: Packages' 2>/dev/null |
		awk '$2 == "Debian" && $3 == "Debian" && $4 == "main" { print $1; exit }')
	if [ -z "$uri" ]; then
		# No index was downloaded yet: read the source files instead.
		uri=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list \
			/etc/apt/sources.list.d/*.list 2>/dev/null |
			grep -oE '(https?|file|mirror\+https?|tor\+https?)[^ ]*/debian/?( |$)' |
			head -n 1 | tr -d ' ')
	fi
	printf '%s\n' "${uri%/}"
}

# The host's download settings (proxies, certificates, clock checks), without
# anything else of its apt configuration.
host_apt_options() {
	apt-config dump |
		awk '/^Acquire::(http|https|Check-|Retries|ForceIPv|Max-FutureTime)/'
}

# What the lab needs on the machine itself.
host_packages() {
	local missing=() pair
	for pair in mmdebstrap:mmdebstrap rsync:rsync git:git flock:util-linux \
		unshare:util-linux xz:xz-utils ps:procps; do
		command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null ||
		die "this machine lacks ${missing[*]} and has no apt" "use Debian 12 or 13"
	say "-- installing ${missing[*]} on this machine"
	{
		[ -n "$(apt-get indextargets 'Created-By: Packages' 2>/dev/null)" ] &&
			apt-cache show mmdebstrap >/dev/null 2>&1 || apt-get -q update
		DEBIAN_FRONTEND=noninteractive apt-get -q -y install \
			--no-install-recommends "${missing[@]}"
	} >"$LOG/host-packages.log" 2>&1 </dev/null ||
		die "apt could not install ${missing[*]}" "read $LOG/host-packages.log"
}

root_key() {
	key_of "${ROOT_BUILD_PACKAGES[@]}" "${ROOT_GUEST_PACKAGES[@]}" "${LAB_DIRS[@]}" 1
}

root_make() { # DIR
	local dir=$1 mirror opts=$TMP/apt.conf
	mirror=$(host_mirror)
	[ -n "$mirror" ] ||
		die "no Debian mirror found in this machine's apt configuration" \
			"add one to /etc/apt/sources.list, run apt-get update, try again"
	host_apt_options >"$opts"
	if [ -d /etc/apt/auth.conf.d ] || [ -f /etc/apt/auth.conf ]; then
		echo 'Dir::Etc::netrc "/etc/apt/auth.conf";' >>"$opts"
		echo 'Dir::Etc::netrcparts "/etc/apt/auth.conf.d";' >>"$opts"
	fi
	note "Debian 13 from the mirror of this machine's apt configuration"
	local all=("${ROOT_BUILD_PACKAGES[@]}" "${ROOT_GUEST_PACKAGES[@]}") list
	list=$(IFS=,; echo "${all[*]}")
	# mmdebstrap wants to write to a directory that "_apt" can reach.
	with_lab mmdebstrap --mode=root --variant=minbase --skip=check/empty \
		--aptopt="$opts" --include="$list" trixie "$dir" \
		"deb $mirror trixie main" "deb $mirror trixie-backports main"
	local d
	for d in "${LAB_DIRS[@]}"; do mkdir -p "$dir/lab/$d"; done
	mkdir -p "$dir/usr/lib/modules"
	# Places where the host's files are bound over, when it has them.
	touch "$dir/etc/resolv.conf" "$dir/etc/hosts" "$dir/etc/apt/auth.conf"
}

# with_lab CMD...: run CMD so that it, all that it started and all its mounts are
# gone when the lab is, even if that was by SIGKILL.
with_lab() {
	local pid rc=0
	unshare --mount --propagation private --pid --fork --kill-child=SIGKILL --mount-proc "$@" &
	pid=$!
	(
		while kill -0 "$pid" && [ -e "/proc/$$" ]; do sleep 2; done
		[ -e "/proc/$$" ] || kill -KILL "$pid"
	) >/dev/null 2>&1 &
	wait "$pid" || rc=$?
	return $rc
}

root_setup() {
	cached root "$(root_key)" root_make
	ROOT=$CACHED
}

# in_root [-b HOSTDIR:NAME]... -- CMD...: run CMD in the root, with HOSTDIR
# writable at /lab/NAME (-r: read-only), or at NAME if that is a path. The root itself stays read-only; /tmp,
# /run and /dev/shm are fresh. All in private mount and process namespaces, so
# that mounts and processes disappear with us however we end.
in_root() {
	local binds=()
	while [ $# -gt 0 ]; do
		case $1 in
		-b) binds+=("rw:$2"); shift 2 ;;
		-r) binds+=("ro:$2"); shift 2 ;;
		--) shift; break ;;
		*) die "in_root: bad option $1" ;;
		esac
	done
	unshare --mount --propagation private --pid --fork --kill-child=SIGKILL \
		bash "$LAB_DIR/lab.d/in-root" $$ "$ROOT" "${binds[@]}" -- "$@"
}
