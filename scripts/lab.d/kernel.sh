# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Kernel packages, kernel source, and the kernels: Debian's own ("stock") and
# user-mode Linux ones, three for tests (tt, kasan, smp) and one for benchmarks
# (perf).
#
# The scripts in single quotes run in the root, with arguments of their own.
# shellcheck disable=SC2016
# What is set here is used by the other parts.
# shellcheck disable=SC2034

# The version everything was tried with. When the mirror no longer has it, the
# newest of the same series is taken.
readonly KERNEL_SERIES=7.3
readonly KERNEL_PIN=7.3.4-1~bpo13+1

readonly UML_FLAVOURS=(smp kasan tt)
readonly FLAVOURS=(stock "${UML_FLAVOURS[@]}")

# No test needs "perf"; it is made when a command asks for it.
readonly KERNELS=("${FLAVOURS[@]}" perf)

is_flavour() { case " ${FLAVOURS[*]} " in *" $1 "*) ;; *) return 1 ;; esac }
is_kernel() { case " ${KERNELS[*]} " in *" $1 "*) ;; *) return 1 ;; esac }

# --- packages ---------------------------------------------------------------

debs_make() { # DIR
	in_root -b "$1:debs" -- bash -euc '
		series=$1 pin=$2
		opts=(-o Dir::State::lists=/tmp/lists -o Dir::Cache=/tmp/apt
			-o APT::Sandbox::User=root -o Acquire::Languages=none)
		mkdir -p /tmp/lists/partial /tmp/apt/archives/partial
		cd /lab/debs
		apt-get "${opts[@]}" -o APT::Update::Error-Mode=any update
		have=$(apt-cache "${opts[@]}" madison "linux-source-$series" |
			cut -d "|" -f 2 | tr -d " " | grep "^$series\." | sort -rV)
		if [ -z "$have" ]; then
			echo "trixie-backports has no linux-source-$series any more."
			echo "Set KERNEL_SERIES and KERNEL_PIN in scripts/lab.d/kernel.sh to a"
			echo "series that it has, and see what of the driver needs an update."
			exit 1
		fi
		if printf "%s\n" $have | grep -qxF "$pin"; then
			version=$pin
		else
			version=$(printf "%s\n" $have | head -n 1)
			echo "NOTE: linux $pin is gone from the mirror, taking $version"
		fi
		abi=${version%%-*}+deb13-amd64
		for p in "linux-source-$series" "linux-config-$series" \
			linux-{headers,binary,modules,base}-"$abi"; do
			get+=("$p=$version")
		done
		apt-get "${opts[@]}" download "${get[@]}"
		echo "$version" >version
		echo "$abi" >abi
	' - "$KERNEL_SERIES" "$KERNEL_PIN"
	sed -n 's/^NOTE: /   /p' "$LOG/debs.log" >&3
}

debs_setup() {
	cached debs "$(key_of "$KERNEL_SERIES" "$KERNEL_PIN")" debs_make
	DEBS=$CACHED
	KVERSION=$(cat "$DEBS/version")
	KABI=$(cat "$DEBS/abi")
	# Crate hashes depend on the exact compiler: it belongs to every key.
	local versions
	versions=$(dpkg-query --admindir="$ROOT/var/lib/dpkg" -W -f '${Package} ${Version}\n' \
		rustc gcc-14 clang-19 bindgen pahole binutils)
	COMPILER=$(key_of "$versions")
}

src_make() { # DIR
	in_root -b "$1:src" -r "$DEBS:debs" -- bash -euo pipefail -c '
		cd /tmp
		dpkg-deb --fsys-tarfile /lab/debs/linux-source-*.deb |
			tar xO --wildcards "./usr/src/linux-source-*.tar.xz" |
			xz -dc | tar x -C /lab/src --strip-components=1'
}

# Debian's kernel image, modules, headers and configuration, unpacked.
pkg_make() { # DIR
	in_root -b "$1:work" -r "$DEBS:debs" -- bash -euc '
		for p in config headers binary modules base; do
			dpkg-deb -x /lab/debs/linux-$p-*.deb /lab/work
		done
		xz -d /lab/work/usr/src/linux-config-*/config.amd64_none_amd64.xz
		depmod -b /lab/work/usr "$1"' - "$KABI"
}

# --- kernels ----------------------------------------------------------------

# make's arguments for a flavour; the same for the kernel and for modules.
kernel_make_args() { # FLAVOUR
	case $1 in
	# Without LOCALVERSION the module's version string is not the kernel's.
	stock) echo "CC=x86_64-linux-gnu-gcc-14 LOCALVERSION=${KABI#"${KVERSION%%-*}"}" ;;
	kasan) echo "ARCH=um LLVM=-19" ;;
	*) echo "ARCH=um CC=x86_64-linux-gnu-gcc-14" ;;
	esac
}

# Debian's headers carry no Rust metadata: rebuild it from the same source,
# configuration and compiler, which gives the same crate hashes.
stock_make() { # DIR
	local args
	read -ra args < <(kernel_make_args stock)
	in_root -r "$SRC:src" -b "$1:obj" -r "$PKG:work" -- bash -euc '
		cp /lab/work/usr/src/linux-config-*/config.amd64_none_amd64 /lab/obj/.config
		cd /lab/src
		scripts/config --file /lab/obj/.config \
			--set-str SYSTEM_TRUSTED_KEYS "" --set-str MODULE_SIG_KEY ""
		make -s -j"$(nproc)" O=/lab/obj "$@" olddefconfig prepare modules_prepare
		grep -x CONFIG_RUST=y /lab/obj/.config
		# The real list of symbols, so that modpost checks against it.
		cp /lab/work/usr/src/linux-headers-*/Module.symvers /lab/obj/
		' - "${args[@]}"
}

# Both fragments of a flavour as one; what its own says of a symbol is what counts.
fragment_of() { # FLAVOUR
	awk '
		{ symbol = $0; sub(/^# /, "", symbol); sub(/[= ].*/, "", symbol) }
		symbol !~ /^CONFIG_/ { next }
		!(symbol in last) { order[++n] = symbol }
		{ last[symbol] = $0 }
		END { for (i = 1; i <= n; i++) print last[order[i]] }
	' "$LAB_DIR/kconfig/base.config" "$LAB_DIR/kconfig/$1.config"
}

# Every symbol that a fragment asks for must have taken: a missing dependency
# drops one silently (RUST first of all).
config_check() { # .config FRAGMENT
	local config=$1 line symbol bad=0
	while read -r line; do
		case $line in
		CONFIG_*=*)
			grep -qxF "$line" "$config" || { echo "config: did not take: $line"; bad=1; }
			;;
		'# CONFIG_'*' is not set')
			symbol=${line#\# }
			! grep -q "^${symbol%% *}=" "$config" || { echo "config: is set: $line"; bad=1; }
			;;
		esac
	done <"$2"
	return $bad
}

uml_make() { # DIR FLAVOUR
	local args
	read -ra args < <(kernel_make_args "$2")
	fragment_of "$2" >"$1/fragment"
	in_root -r "$SRC:src" -b "$1:obj" -- bash -euc '
		cd /lab/src
		make -s O=/lab/obj "$@" KCONFIG_ALLCONFIG=/lab/obj/fragment allnoconfig
		make -s O=/lab/obj "$@" olddefconfig' - "${args[@]}"
	config_check "$1/.config" "$1/fragment" ||
		{ echo "fix scripts/kconfig/: a dependency is missing"; return 1; }
	in_root -r "$SRC:src" -b "$1:obj" -- bash -euc '
		cd /lab/src
		make -s -j"$(nproc)" O=/lab/obj "$@" linux modules
		make -s O=/lab/obj "$@" INSTALL_MOD_PATH=/lab/obj/inst DEPMOD=true modules_install
		depmod -b /lab/obj/inst "$(cat include/config/kernel.release 2>/dev/null ||
			cat /lab/obj/include/config/kernel.release)"
		# Module builds need headers, metadata and tools, not the objects.
		rm -f vmlinux.o
		find /lab/obj -name "*.o" -not -path "/lab/obj/scripts/*" -not -path "/lab/obj/tools/*" -delete
		find /lab/obj -name "*.a" -not -path "/lab/obj/tools/*" -delete
		' - "${args[@]}"
}

kernel_key() { # FLAVOUR
	case $1 in
	stock) key_of "$KVERSION" "$COMPILER" "$(kernel_make_args stock)" 1 ;;
	*) key_of "$KVERSION" "$COMPILER" "$(kernel_make_args "$1")" \
		"$(key_of_files "$LAB_DIR/kconfig/base.config" "$LAB_DIR/kconfig/$1.config")" 1 ;;
	esac
}

# What every kernel needs before it can be built.
base_setup() {
	host_packages
	root_setup
	debs_setup
	cached src "$(key_of "$KVERSION")" src_make
	SRC=$CACHED
	cached pkg "$(key_of "$KVERSION" 1)" pkg_make
	PKG=$CACHED
}

# Sets OBJ (build tree) and MODULES (its usr/lib/modules) for a flavour.
kernel_setup() { # FLAVOUR
	if [ "$1" = stock ]; then
		cached stock "$(kernel_key stock)" stock_make
		OBJ=$CACHED MODULES=$PKG/usr/lib/modules
	else
		cached "$1" "$(kernel_key "$1")" uml_make "$1"
		OBJ=$CACHED MODULES=$CACHED/inst/lib/modules
	fi
}
