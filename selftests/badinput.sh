#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Everything that must be refused: with the right error, a reason in words, and
# nothing changed.
. ./ktap_helpers.sh
. ./lib.sh

readonly MB=16

# Sets ARRAYS to the list of them.
arrays_now() {
	local links=("$CONTROL"/arrays/*)
	ARRAYS=${links[*]}
}

# refuse NAME FILE ERRNO LINE: exactly so.
refuse() {
	local listed=$LISTED
	store "$2" "$4"
	refused "$1" "$3" "$listed"
}

# refuse_raw NAME FILE ERRNO: the same with bytes from standard input.
refuse_raw() {
	local answer
	answer=$("$STORE" "$2")
	ERRNO=${answer#result=}
	refused "$1" "$3" "$LISTED"
}

refused() { # NAME ERRNO LISTED
	local last words
	last=$(<$CONTROL/last_error)
	read -ra words <<<"${last##*$'\n'}"
	arrays_now
	if [ "$ERRNO" != "$2" ]; then
		t_fail "$1" "got $ERRNO, want $2: $last"
	elif [ "$last" = "$LAST_ERROR" ]; then
		t_fail "$1" "last_error is still '$last'"
	elif [ ${#words[@]} -lt 3 ]; then
		t_fail "$1" "last_error has no words: $last"
	elif [ "$ARRAYS" != "$3" ]; then
		t_fail "$1" "arrays are now $ARRAYS"
	else
		t_ok "$1"
	fi
	LAST_ERROR=$last
}

# said NAME WORDS: the refusal before this says so.
said() { t_run "$1" grep -qF -- "$2" <<<"$LAST_ERROR"; }

create() { refuse "create_$1" $CONTROL/create "$2" "$3"; }
assemble() { refuse "assemble_$1" $CONTROL/assemble "$2" "$3"; }

sums() { local d; for d in "$@"; do sha256sum <"$d"; done; }

start
null_members 4 $MB
LAST_ERROR=$(<$CONTROL/last_error)
arrays_now && LISTED=$ARRAYS
BLANK=$(sums "${MEMBERS[@]}")
M3=/dev/m0,/dev/m1,/dev/m2

# --- lines to create ----------------------------------------------------------
create nothing EINVAL ""
create blank EINVAL "   "
create words EINVAL "make me an array"
create no_name EINVAL "level=5 members=$M3"
create no_level EINVAL "name=x members=$M3"
create no_members EINVAL "name=x level=5"
create unknown_key EINVAL "name=x level=5 members=$M3 colour=red"
create double_key EINVAL "name=x level=5 level=5 members=$M3"
create double_members EINVAL "name=x level=5 members=/dev/m0 members=$M3"
create empty_value EINVAL "name=x level= members=$M3"
create name_dots EINVAL "name=.. level=5 members=$M3"
create name_dots_inside EINVAL "name=a..b level=5 members=$M3"
create name_slash EINVAL "name=a/b level=5 members=$M3"
create name_up EINVAL "name=../x level=5 members=$M3"
create name_hidden EINVAL "name=.x level=5 members=$M3"
create name_long EINVAL "name=$(printf '%033d' 0) level=5 members=$M3"
create name_percent EINVAL "name=%s%n level=5 members=$M3"
create name_disk EINVAL "name=eraid5 level=5 members=$M3"
create level_4 EINVAL "name=x level=4 members=$M3"
create level_minus EINVAL "name=x level=-5 members=$M3"
create level_text EINVAL "name=x level=raid5 members=$M3"
create level_huge EINVAL "name=x level=100000000000000000000 members=$M3"
create local_parity EOPNOTSUPP "name=x level=5 m=16 k=1 members=$M3"
create ppl EOPNOTSUPP "name=x level=5 consistency_policy=ppl members=$M3"
create spares EINVAL "name=x level=5 spares=missing members=$M3"
create policy EINVAL "name=x level=5 consistency_policy=maybe members=$M3"
create chunk_0 EINVAL "name=x level=5 chunk=0 members=$M3"
create chunk_odd EINVAL "name=x level=5 chunk=65537 members=$M3"
create chunk_3 EINVAL "name=x level=5 chunk=48K members=$M3"
create chunk_small EINVAL "name=x level=5 chunk=4K members=$M3"
create chunk_large EINVAL "name=x level=5 chunk=2M members=$M3"
create chunk_unit EINVAL "name=x level=5 chunk=64X members=$M3"
create chunk_minus EINVAL "name=x level=5 chunk=-64K members=$M3"
create chunk_huge ERANGE "name=x level=5 chunk=100000000000000000000 members=$M3"
create chunk_overflow ERANGE "name=x level=5 chunk=18446744073709551615K members=$M3"
create flag EINVAL "name=x level=5 force=2 members=$M3"
create dev_other EINVAL "name=x level=5 dev=sda members=$M3"
create dev_huge ERANGE "name=x level=5 dev=eraid100000000000000000000 members=$M3"
create dev_padded EINVAL "name=x level=5 dev=eraid007 members=$M3"
create two_of_5 EINVAL "name=x level=5 members=/dev/m0,/dev/m1"
create three_of_6 EINVAL "name=x level=6 members=$M3"
create three_missing_of_6 EINVAL "name=x level=6 members=/dev/m0,missing,missing,missing"
create one_of_1 EINVAL "name=x level=1 members=/dev/m0"
create two_missing EINVAL "name=x level=5 members=/dev/m0,missing,missing"
create all_missing EINVAL "name=x level=1 members=missing,missing"
create missing_of_0 EINVAL "name=x level=0 members=/dev/m0,missing"
create same_twice EINVAL "name=x level=5 members=/dev/m0,/dev/m1,/dev/m0"
create empty_member EINVAL "name=x level=5 members=/dev/m0,,/dev/m1,/dev/m2"
create comma_end EINVAL "name=x level=5 members=$M3,"
create relative EINVAL "name=x level=5 members=m0,m1,m2"
create path_up EINVAL "name=x level=5 members=/dev/../dev/m0,/dev/m1,/dev/m2"
create not_ascii EINVAL "name=x level=5 members=/dev/mö,/dev/m1,/dev/m2"
create 65_members EINVAL "name=x level=5 members=$(seq -s, -f '/dev/z%.0f' 65)"
create not_there ENOENT "name=x level=5 members=/dev/m0,/dev/m1,/dev/nothing"
create not_a_device EINVAL "name=x level=5 members=/dev/m0,/dev/m1,/dev/null"
create a_file EINVAL "name=x level=5 members=/dev/m0,/dev/m1,/etc/passwd"
create a_directory EINVAL "name=x level=5 members=/dev/m0,/dev/m1,/dev"
refuse_raw create_4095_no_newline $CONTROL/create EINVAL < <(head -c 4095 /dev/zero | tr '\0' a)
refuse_raw create_4096 $CONTROL/create EINVAL < <(head -c 4096 /dev/zero | tr '\0' a)
refuse_raw create_100000 $CONTROL/create EINVAL < <(head -c 100000 /dev/zero | tr '\0' a)
refuse_raw create_blanks_4200 $CONTROL/create EINVAL < <(printf 'name=x level=5 members=%s%4200s\n' $M3 '')
refuse_raw create_no_newline $CONTROL/create EINVAL < <(printf 'name=x level=5 members=%s' $M3)
refuse_raw create_two_lines $CONTROL/create EINVAL < <(printf 'name=x level=5\nmembers=%s\n' $M3)
refuse_raw create_nul $CONTROL/create EINVAL < <(printf 'name=x\0 level=5 members=%s\n' $M3)
refuse_raw create_noise $CONTROL/create EINVAL < <(head -c 3000 /dev/urandom)

# --- devices ------------------------------------------------------------------
# The same device under another name.
ln -s /dev/m0 "$WORK/link"
create linked_twice EBUSY "name=x level=5 members=/dev/m0,/dev/m1,$WORK/link"
said linked_twice_said "$WORK/link is m0, which the line names twice"
null_member small 1
create too_small ENOSPC "name=x level=5 members=/dev/m0,/dev/m1,/dev/small"
null_member readonly $MB
must blockdev --setro /dev/readonly
create read_only EROFS "name=x level=5 members=/dev/m0,/dev/m1,/dev/readonly"
null_member parted 64
must sgdisk -n 1:2048:+20M -n 2:0:+20M /dev/parted >/dev/null
must blockdev --rereadpt /dev/parted
must wait_until 5 test -b /dev/parted2
create disk_and_partition EBUSY "name=x level=5 members=/dev/parted1,/dev/m1,/dev/parted"
create partition_table EEXIST "name=x level=5 members=/dev/m0,/dev/m1,/dev/parted"
ln -s /dev/parted1 "$WORK/part"
create partition_twice EBUSY "name=x level=5 members=/dev/parted1,/dev/m1,$WORK/part"
said partition_twice_said "$WORK/part is parted1, which the line names twice"
exec 7<>/dev/m3
must mkfs.ext4 -q -F /dev/m3 >/dev/null 2>&1
exec 7>&-
create ext4 EEXIST "name=x level=5 members=/dev/m0,/dev/m1,/dev/m3"
mkdir -p "$WORK/held"
must mount /dev/m3 "$WORK/held"
create mounted EBUSY "name=x level=5 members=/dev/m0,/dev/m1,/dev/m3 force=1"
must umount "$WORK/held"

# sign NAME SECTOR BYTES...: a device that carries a known signature there.
sign() {
	null_member "s_$1" $MB
	must hands poke "/dev/s_$1" "$2" "$3"
	create "foreign_$1" EEXIST "name=x level=5 members=/dev/m0,/dev/m1,/dev/s_$1"
	null_remove "s_$1"
}
end=$((MB << 20))
sign md_0 0 '\xfc\x4e\x2b\xa9\x01\x00\x00\x00'
sign md_4k 4096 '\xfc\x4e\x2b\xa9\x01\x00\x00\x00'
sign md_end $(((((end / 512) - 16) & ~7) * 512)) '\xfc\x4e\x2b\xa9\x01\x00\x00\x00'
sign md_090 $(((end / 65536 - 1) * 65536)) '\xfc\x4e\x2b\xa9\x00\x00\x00\x00'
sign gpt 512 'EFI PART'
sign gpt_end $((end - 512)) 'EFI PART'
sign lvm 512 'LABELONE\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00LVM2 001'
sign xfs 0 'XFSB'
sign btrfs $((65536 + 64)) '_BHRfS_M'
sign luks 0 'LUKS\xba\xbe'
sign swap 4086 'SWAPSPACE2'

# --- lines to assemble, stop, abort -------------------------------------------
assemble nothing EINVAL ""
assemble no_members EINVAL "force=1"
assemble unknown_key EINVAL "members=$M3 name=x"
assemble missing EINVAL "members=/dev/m0,missing,/dev/m2"
assemble blank_members EINVAL "members=$M3"
assemble not_there ENOENT "members=/dev/nothing"
assemble twice EINVAL "members=/dev/m0,/dev/m0"
for f in stop abort; do
	refuse "${f}_nothing" $CONTROL/$f EINVAL ""
	refuse "${f}_two_words" $CONTROL/$f EINVAL "a b"
	refuse "${f}_up" $CONTROL/$f EINVAL "../x"
done
refuse stop_unknown $CONTROL/stop ENOENT nosuch
refuse stop_unknown_disk $CONTROL/stop ENOENT eraid9
refuse stop_huge $CONTROL/stop ERANGE eraid100000000000000000000
refuse abort_no_uuid $CONTROL/abort EINVAL x
refuse abort_unknown $CONTROL/abort ENOENT 00000000-1111-2222-3333-444444444444

t_is "$(sums /dev/m0 /dev/m1 /dev/m2)" "$(head -n 3 <<<"$BLANK")" members_untouched

# --- against a running array --------------------------------------------------
t_run running_create array_create run level=5 chunk=64K members=$M3
arrays_now && LISTED=$ARRAYS
null_member n0 $MB
null_member n1 $MB
create name_taken EEXIST "name=run level=1 members=/dev/n0,/dev/n1"
create dev_taken EEXIST "name=x level=1 dev=$ARRAY members=/dev/n0,/dev/n1"
create member_taken EBUSY "name=x level=1 members=/dev/m0,/dev/n1"
said member_taken_said "/dev/m0 is a member of array 'run' ($ARRAY)"
create member_forced EBUSY "name=x level=1 members=/dev/m0,/dev/n1 force=1"
create on_itself EBUSY "name=x level=1 members=/dev/m1,$NODE"
assemble running EBUSY "members=$M3"
said running_said "/dev/m0 is a member of array 'run' ($ARRAY)"
member_fail /dev/m2
create failed_taken EBUSY "name=x level=1 members=/dev/m2,/dev/n1"
said failed_taken_said "/dev/m2 is a member of array 'run' ($ARRAY)"
member_remove /dev/m2
for bad in "" x inSync "faulty remove" -; do
	refuse "state_'$bad'" "$(member_dir 0)/state" EINVAL "$bad"
done
refuse state_want_replacement "$(member_dir 0)/state" EOPNOTSUPP want_replacement
refuse state_in_sync "$(member_dir 0)/state" EOPNOTSUPP in_sync
refuse new_dev_relative "$A/new_dev" EINVAL dev/n0
refuse new_dev_two "$A/new_dev" EINVAL "/dev/n0 /dev/n1"
refuse new_dev_missing "$A/new_dev" EINVAL missing
if [ "$ERAID_FLAVOUR" = stock ]; then
	# Not in the module that users get.
	refuse new_dev_unfinished "$A/new_dev" EOPNOTSUPP /dev/m0
else
	refuse new_dev_in_use "$A/new_dev" EBUSY /dev/m0
fi
t_is "$(<"$A/degraded")" 1 running_unharmed
t_run removed_is_free wait_until 5 claim /dev/m2
t_is "$(sums /dev/n0 /dev/n1 | uniq -c | awk '{ print $1 }')" 2 others_untouched
must array_stop run

arrays_now && LISTED=$ARRAYS
# What was a member carries a signature too.
create was_member EEXIST "name=x level=1 members=/dev/m0,/dev/n1"
t_run forced array_create x level=1 members=/dev/m0,/dev/n1 force=1

# One member of a set that waits: it is said which set that is.
must array_stop x
control assemble "members=/dev/m0"
t_is "$ERRNO" ok one_waits
create waiting_taken EBUSY "name=y level=1 members=/dev/m0,/dev/n0 force=1"
said waiting_taken_said "/dev/m0 waits in the set"
t_run waiting_aborted control abort "$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' <<<"$LAST_ERROR")"

# Many refusals in a row: all are counted, few are logged.
logged() { dmesg | grep -c 'eraid: EINVAL: '; }
lines=$(logged) number=$(sed -n 1p $CONTROL/last_error)
for ((i = 0; i < 60; i++)); do control stop "no such array"; done
t_is "$(sed -n 1p $CONTROL/last_error)" $((number + 60)) all_counted
t_run few_logged test $(($(logged) - lines)) -le 35

# Only the administrator writes: others can neither open nor store.
if command -v setpriv >/dev/null; then
	t_run_fails unprivileged setpriv --reuid 65534 --clear-groups bash -c "echo x >$CONTROL/stop"
	answer=$(setpriv --bounding-set=-sys_admin "$STORE" $CONTROL/stop --text x)
	t_is "$answer" result=EPERM without_CAP_SYS_ADMIN
fi
finish
