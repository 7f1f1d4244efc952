#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Is the guest what the other tests take for granted? Block devices, md and dm
# to compare with, traces, injected errors, and the checks of this flavour.
. ./ktap_helpers.sh

t_run tmp_is_writable touch /tmp/x
t_run root_is_read_only bash -c '! touch /lab/repo/x 2>/dev/null'
t_run sysfs test -d /sys/class/block
t_run tracefs test -d /sys/kernel/tracing/events/block
t_run debugfs test -d /sys/kernel/debug/block
# What the lab asks of the kernel when it boots.
[ "$ERAID_FLAVOUR" = tt ] && hung=0 || hung=60
t_is "$(</proc/sys/kernel/hung_task_timeout_secs)" $hung hung_tasks_are_told
t_is "$(python3 -S -E -c 'import ctypes; print(ctypes.CDLL(None).klogctl(10, None, 0))')" \
	$((1 << 20)) kernel_log_is_long

# The root has no udev: device nodes are devtmpfs's own.
modprobe null_blk nr_devices=0 2>/dev/null
t_run null_blk_configfs test -d /sys/kernel/config/nullb
d=/sys/kernel/config/nullb/smoke
mkdir $d && echo 64 >$d/size && echo 1 >$d/memory_backed && echo 1 >$d/power
node=
for n in /dev/nullb* /dev/smoke; do [ ! -b "$n" ] || node=$n; done
need_block_dev "$node"
t_ok null_blk_device

# A time that is slept is a time that is measured, simulated or not.
a=$(cut -d ' ' -f 1 /proc/uptime)
sleep 2
b=$(cut -d ' ' -f 1 /proc/uptime)
t_run clock awk -v a="$a" -v b="$b" 'BEGIN { exit !(b - a >= 1.9 && b - a < 10) }'

t_run dm_create dmsetup create smoke --table "0 65536 linear $node 0"
need_block_dev /dev/dm-0
t_run write_and_read bash -c '
	head -c 1M /dev/urandom >/tmp/a &&
	dd if=/tmp/a of=/dev/dm-0 bs=64K oflag=direct status=none &&
	dd if=/dev/dm-0 of=/tmp/b bs=64K count=16 iflag=direct status=none && cmp /tmp/a /tmp/b'
t_run dm_remove dmsetup remove smoke
t_run dm_raid bash -c 'modprobe -q dm-raid; dmsetup targets | grep -q "^raid "'
modprobe -q raid456
t_run md_raid5 grep -q raid5 /proc/mdstat

if [ "$ERAID_FLAVOUR" = stock ]; then
	t_skip error_injection "this kernel has no CONFIG_BLK_ERROR_INJECTION"
else
	t_run error_injection test -e "/sys/kernel/debug/block/$(basename "$node")/error_injection"
	t_run fail_make_request test -d /sys/kernel/debug/fail_make_request
fi
case $ERAID_FLAVOUR in
smp)
	t_run lockdep_is_on grep -q 'debug_locks: *1' /proc/lockdep_stats
	t_is "$(nproc)" "${ERAID_GUEST_CPUS:-2}" processors
	;;
kasan)
	t_run kasan_is_on grep -qw kasan_report /proc/kallsyms
	t_run kmemleak_is_on test -w /sys/kernel/debug/kmemleak
	;;
tt)
	# An hour of sleep costs nothing here.
	t_run time_travel sleep 3600
	;;
stock) t_run unpatched_kernel grep -q Debian /proc/version ;;
esac
echo 0 >$d/power
rmdir $d
t_run modules bash -c 'ls /lab/mod/*.ko'
t_end
