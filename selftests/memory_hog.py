#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""memory_hog.py FILE MEGABYTES SECONDS SEED: more memory than there is.

Writes MEGABYTES of anonymous memory and as much to FILE, changes pages of both
at random for SECONDS, checking each against what it must hold, and reads all of
it at the end. Meant to run in a cgroup with less memory than a third of that.
Says how many pages it changed; fails at the first page that is wrong.
"""

import mmap
import os
import random
import struct
import sys
import time

PAGE = 4096


def content(where, page, version):
    """What a page holds: no two are the same, nor a page twice."""
    return struct.pack("=IIQ", where, page, version) * (PAGE // 16)


def main():
    path, megabytes, seconds, seed = sys.argv[1], *map(int, sys.argv[2:5])
    choose = random.Random(seed)
    pages = megabytes * 256
    memory = mmap.mmap(-1, pages * PAGE)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def put(where, page, version):
        data = content(where, page, version)
        if where == 0:
            memory[page * PAGE : (page + 1) * PAGE] = data
        else:
            os.pwrite(file, data, page * PAGE)

    def check(where, page, version):
        got = memory[page * PAGE : (page + 1) * PAGE] if where == 0 else os.pread(file, PAGE, page * PAGE)
        if got != content(where, page, version):
            sys.exit(f"page {page} of {('memory', 'the file')[where]} is wrong (seed {seed})")

    versions = [bytearray(pages), bytearray(pages)]
    for page in range(pages):
        put(0, page, 0)
        put(1, page, 0)
    print("filled", flush=True)
    end, changed = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        where, page = choose.randrange(2), choose.randrange(pages)
        version = versions[where][page]
        check(where, page, version)
        versions[where][page] = version = (version + 1) % 256
        put(where, page, version)
        changed += 1
        if changed % 4096 == 0:
            os.fsync(file)
    for where in (0, 1):
        for page in range(pages):
            check(where, page, versions[where][page])
    os.fsync(file)
    print(f"changed {changed} pages")


main()
