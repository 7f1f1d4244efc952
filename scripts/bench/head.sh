# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What benchmarks take from the selftests, with the three functions in which
# they differ: a benchmark that cannot go on just says so and ends.
cd /lab/repo/selftests || exit 1
t_note() { printf '# %s\n' "$*"; }
t_bail() {
	echo "failed: $*"
	exit 1
}
need_block_dev() {
	local node
	for node in "$@"; do [ -b "$node" ] || t_bail "$node is not a block device"; done
}
# shellcheck source=/dev/null
. ./lib.sh
