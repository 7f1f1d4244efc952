# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Booting a guest: UML on the read-only root by hostfs, or Debian's own kernel
# in QEMU (software emulation) on the same root by 9p.
#
# The scripts in single quotes run in the root, with arguments of their own.
# shellcheck disable=SC2016

# What the guests' programs are built for.
readonly TOOLS_TARGET=x86_64-unknown-linux-gnu

initrd_make() { # DIR
	in_root -b "$1:work" -r "$PKG/usr/lib/modules:/usr/lib/modules" -r "$REPO:repo" -- \
		bash -euc '
		mkdir -p /tmp/i/bin /tmp/i/modules
		cp /usr/bin/busybox /tmp/i/bin/
		cp /lab/repo/scripts/guest/initrd-init /tmp/i/init
		for m in virtio_pci 9pnet_virtio 9p; do
			modprobe -S "$1" --show-depends "$m"
		done | while read -r what path rest; do
			[ "$what" = insmod ] || continue
			f=$(basename "$path" .xz)
			[ ! -e "/tmp/i/modules/$f" ] || continue
			case $path in
			*.xz) xz -dc "$path" >"/tmp/i/modules/$f" ;;
			*) cp "$path" "/tmp/i/modules/$f" ;;
			esac
			echo "$f" >>/tmp/i/modules/order
		done
		cd /tmp/i && find . | cpio -o -H newc --quiet >/lab/work/initrd
		' - "$KABI"
}

# A directory for one guest: job (read by the guest), mod (modules), kernel.log.
guest_dir() { # FLAVOUR
	local dir
	dir=$(mktemp -d "$TMP/guest-$1.XXXXXX")
	mkdir "$dir/job" "$dir/mod"
	printf '%s\n' "$dir"
}

guest_env() { # FLAVOUR [KEY=VALUE...]: the file that the guest's init reads
	local flavour=$1 tty=/dev/tty0 kv
	shift
	[ "$flavour" != stock ] || tty=/dev/ttyS1
	printf '%s=%q\n' LAB_TTY $tty ERAID_FLAVOUR "$flavour" \
		ERAID_MODDIR /lab/mod ERAID_KO /lab/mod/eraid.ko \
		ERAID_HDDSIM_KO /lab/mod/eraid_hddsim.ko ERAID_TOOLS "/lab/cargo/$TOOLS_TARGET/debug" \
		ERAID_TIMEOUT_SCALE "${ERAID_TIMEOUT_SCALE:-1}"
	for kv in "$@"; do printf '%s=%q\n' "${kv%%=*}" "${kv#*=}"; done
}

# guest_boot FLAVOUR DIR: boot, tests' output on stdout, the kernel's log in
# DIR/kernel.log. kernel_setup FLAVOUR ran before.
guest_boot() {
	local flavour=$1 dir=$2 args=() binds hung=60
	# A drive that hangs for simulated minutes is no news.
	[ "$flavour" != tt ] || hung=0
	# All that a suite makes the kernel say is looked at when the suite ends.
	local log=(quiet printk.devkmsg=on log_buf_len=1M "sysctl.kernel.hung_task_timeout_secs=$hung")
	binds=(-r "$MODULES:/usr/lib/modules" -r "$REPO:repo" -r "$dir/mod:mod"
		-r "$dir/job:guest")
	# Host programs, if they were built.
	[ ! -d "$(build_dir host)/target" ] || binds+=(-r "$(build_dir host)/target:cargo")
	if [ "$flavour" = stock ]; then
		# no_timer_check: on a busy machine the kernel thinks that its timer does
		# not work, and panics.
		# What costs much when it is emulated and says nothing of the driver is off:
		# string instructions that QEMU does byte by byte, a fifth level of page
		# tables, mitigations of speculation, zeroing all that is allocated.
		in_root "${binds[@]}" -b "$dir:work" -r "$INITRD:debs" -- \
			qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-erms,-fsrm,-la57 \
			-smp "${ERAID_GUEST_CPUS:-2}" -m "${ERAID_GUEST_MEM:-2048}" \
			-display none -monitor none -no-reboot -nodefaults \
			-kernel "/usr/lib/modules/$KABI/vmlinuz" -initrd /lab/debs/initrd \
			-append "console=ttyS0 panic=-1 no_timer_check mitigations=off init_on_alloc=0 ${log[*]}" \
			-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
			-device virtio-9p-pci,fsdev=root,mount_tag=root \
			-serial file:/lab/work/kernel.log -serial stdio
		return
	fi
	case $flavour in
	# Where nothing looks for leaks nothing need record what is allocated.
	kasan)
		if [ -e "$dir/job/suites" ] && ! grep -q '^kmemleak ' "$dir/job/suites"; then
			args=(kmemleak=off)
		fi
		;;
	# The default ptrace mode cannot do SMP.
	smp | perf) args=(seccomp=on ncpus="${ERAID_GUEST_CPUS:-2}") ;;
	# System calls cost a third of what they do in ptrace mode.
	tt)
		args=(seccomp=on)
		[ -n "${ERAID_REAL_TIME:-}" ] || args+=(time-travel=inf-cpu)
		;;
	esac
	in_root "${binds[@]}" -r "$OBJ:obj" -- \
		/lab/obj/linux mem="${ERAID_GUEST_MEM:-1024}M" root=/dev/root \
		rootfstype=hostfs rootflags=/ ro init=/lab/repo/scripts/guest/init \
		con=null con0=fd:0,fd:1 con1=null,fd:2 console=tty1 \
		panic=-1 "${log[@]}" "${args[@]}" 2>"$dir/kernel.log"
}

# Give the guest the modules of a finished build.
guest_modules() { # FLAVOUR DIR
	find "$(build_dir "$1")/tree" -name '*.ko' -exec cp -t "$2/mod" {} +
}

# lab shell FLAVOUR [KEY=VALUE...] [-- CMD...]
cmd_shell() {
	local flavour=${1:-} dir env=() status
	is_kernel "$flavour" || die "which guest? one of: ${KERNELS[*]}" \
		"scripts/lab shell kasan -- dmesg"
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		case $1 in
		*=*) env+=("$1") ;;
		*) die "not KEY=VALUE: $1" "put -- before the command" ;;
		esac
		shift
	done
	[ $# = 0 ] || shift
	base_setup
	kernel_setup "$flavour"
	module_build "$flavour"
	tools_build
	[ "$flavour" != stock ] || initrd_setup
	dir=$(guest_dir "$flavour")
	guest_modules "$flavour" "$dir"
	guest_env "$flavour" "${env[@]}" >"$dir/job/env"
	if [ $# = 0 ]; then
		local saved
		# The guest's terminal does echo and line editing.
		if saved=$(stty -g 2>/dev/null); then stty raw -echo; fi
		if ! guest_boot "$flavour" "$dir"; then note "the guest ended by itself"; fi
		[ -z "$saved" ] || stty "$saved"
		return 0
	fi
	if [ $# = 1 ]; then
		printf '%s\n' "$1" >"$dir/job/command"
	else
		printf '%q ' "$@" >"$dir/job/command"
	fi
	# Line by line, so that one can watch; a filter would buffer.
	local line
	status=
	while IFS= read -r line; do
		line=${line%$'\r'}
		case $line in
		'#LAB status '*) status=${line##* } ;;
		'#LAB down') break ;;
		'#LAB '*) ;;
		*) printf '%s\n' "$line" >&3 ;;
		esac
	done < <(guest_boot "$flavour" "$dir" </dev/null)
	cp "$dir/kernel.log" "$LOG/shell-$flavour.kernel.log"
	if [ -z "$status" ]; then
		tail -n 30 "$dir/kernel.log" >&2
		die "the guest went down before the command ended" \
			"its kernel log is $LOG/shell-$flavour.kernel.log"
	fi
	rm -rf "$dir"
	return "$status"
}

initrd_setup() {
	cached initrd "$(key_of "$KVERSION" "$(key_of_files "$LAB_DIR/guest/initrd-init")")" initrd_make
	INITRD=$CACHED
}
