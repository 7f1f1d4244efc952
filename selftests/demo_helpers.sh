# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the demo's acts share: how they talk. They use lib.sh as tests do.

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
tell() { printf '   %s\n' "$*"; }
show() { sed 's/^/   | /'; }
field() { sed -n "s/.*\b$1=\([0-9.]*\).*/\1/p" <<<"$2"; }

# As ktap_helpers.sh has them, for people.
t_note() { tell "$*"; }
t_bail() {
	echo "   demo stopped: $*"
	exit 1
}
need_block_dev() {
	local node
	for node in "$@"; do [ -b "$node" ] || t_bail "$node is not a block device"; done
}
