#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Direct writes from memory that changes all the time: scribble.py NODE SIZE COUNT"""

import mmap
import os
import sys
import threading


def main():
    node, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    memory = mmap.mmap(-1, size)
    patterns = [bytes([n]) * size for n in range(4)]
    done = threading.Event()

    def scribble():
        turn = 0
        while not done.is_set():
            memory[:] = patterns[turn % len(patterns)]
            turn += 1

    thread = threading.Thread(target=scribble)
    thread.start()
    fd = os.open(node, os.O_RDWR | os.O_DIRECT)
    places = (8 << 20) // size
    try:
        for n in range(count):
            if os.pwritev(fd, [memory], n % places * size) != size:
                sys.exit("short write")
    finally:
        done.set()
        thread.join()


main()
