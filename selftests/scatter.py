#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Direct reads into memory in many pieces: scatter.py NODE FILE SEED

FILE is what the device holds from its start on. Each read fills pieces of a
size that lie apart in memory, so that they are segments of their own; what lies
between them must stay as it is."""

import mmap
import os
import random
import sys

IOV_MAX = 1024
MARK = 0xA5


def read_scattered(fd, offset, piece, count, start):
    """The bytes read, and whether all others kept their mark."""
    step = piece + 512
    memory = mmap.mmap(-1, -(-(start + step * count) // 4096) * 4096)
    memory[:] = bytes([MARK]) * len(memory)
    view = memoryview(memory)
    places = [start + step * i for i in range(count)]
    got = os.preadv(fd, [view[at : at + piece] for at in places], offset)
    data = b"".join(bytes(view[at : at + piece]) for at in places)
    between = b"".join(bytes(view[at + piece : at + step]) for at in places)
    return got, data, between.count(MARK) == len(between)


def main():
    node, path, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    with open(path, "rb") as file:
        content = file.read()
    fd = os.open(node, os.O_RDONLY | os.O_DIRECT)
    reads = 0
    # 512: far more pieces than a command has segments; 65536: one is a chunk.
    for piece in (512, 1024, 1536, 4096, 6144, 65536):
        for _ in range(4):
            most = min(IOV_MAX, len(content) // piece)
            count = rng.randint(max(1, most // 2), most)
            offset = rng.randrange(0, len(content) - piece * count + 1, 512)
            start = rng.randrange(0, 4096, 512)
            got, data, untouched = read_scattered(fd, offset, piece, count, start)
            if got != len(data):
                sys.exit(f"{count} x {piece} at {offset}: read {got} bytes")
            if data != content[offset : offset + len(data)]:
                sys.exit(f"{count} x {piece} at {offset}: other data")
            if not untouched:
                sys.exit(f"{count} x {piece} at {offset}: wrote between the pieces")
            reads += 1
    print(reads, "reads")


main()
