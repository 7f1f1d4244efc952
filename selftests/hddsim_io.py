#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Direct I/O on simulated drives, for hddsim.sh.

  hddsim_io.py times DEV COUNT BYTES [FILE]  random reads, one at a time, that start at fixed parts
                                        of 20 ms: mean in us; all times in ns to the file
  hddsim_io.py same FILE FILE           whether two lists of times are equal, but for what looking at
                                        a simulated clock costs
  hddsim_io.py scan DEV BLOCKS [LIMIT]  reads the first blocks one by one: the numbers of those that
                                        fail with ENODATA; with a duration limit as hint
  hddsim_io.py rewrite DEV BLOCK...     writes blocks with what they hold, zeros
  hddsim_io.py together DEV BLOCK BEFORE COUNT [LIMIT]  writes the BEFORE blocks ahead of a block, then
                                        reads COUNT blocks from the first of them, all submitted at
                                        once, each by itself: how each of them ended
  hddsim_io.py prepare DEV LOG SEED DELAY_MS  writes that are flushed, durable ones, and others with
                                        this delay_ms
  hddsim_io.py check DEV LOG [kept]     compares with what was written, as after a loss of power,
                                        or as if nothing may be lost
"""

import ctypes
import errno
import json
import mmap
import os
import random
import sys
import time

BLOCK = 4096
SECTOR = 512
LIBC = ctypes.CDLL(None, use_errno=True)


def open_direct(dev, flags):
    return os.open(dev, flags | os.O_DIRECT)


def buffer(data):
    """Data in memory that direct I/O accepts."""
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


def sleep_until(ns):
    """Sleeps to a time of the monotonic clock, without slack."""
    pr_set_timerslack = 29
    LIBC.prctl(pr_set_timerslack, 1, 0, 0, 0)
    class Timespec(ctypes.Structure):
        _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]
    until = Timespec(ns // 10**9, ns % 10**9)
    timer_abstime = 1
    LIBC.clock_nanosleep(time.CLOCK_MONOTONIC, timer_abstime, ctypes.byref(until), None)


# What a look at the clock costs in UML with simulated time, in ns.
STEP = 256


def times(dev, count, length, log):
    # A multiple of the turn of a 3000 rpm drive.
    period = 20_000_000
    fd = open_direct(dev, os.O_RDONLY)
    size = os.lseek(fd, 0, os.SEEK_END)
    memory = buffer(bytes(length))
    rng = random.Random(4711)
    # Each read at a multiple of the period: then only the drive's own state makes a difference.
    all_times = []
    for _ in range(count):
        now = time.monotonic_ns()
        pause = rng.randrange(3, 5)
        sleep_until((now // period + pause) * period + rng.randrange(period))
        at = rng.randrange((size - length) // BLOCK) * BLOCK
        before = time.monotonic_ns()
        os.preadv(fd, [memory], at)
        all_times.append(time.monotonic_ns() - before)
    if log:
        with open(log, "w") as file:
            json.dump(all_times, file)
    print(sum(all_times) // count // 1000)


def same(first, second):
    with open(first) as a, open(second) as b:
        pairs = list(zip(json.load(a), json.load(b), strict=True))
    # Not all runs look equally often between two reads.
    off = [abs(one - other) for one, other in pairs if abs(one - other) > 2 * STEP]
    if off:
        sys.exit(f"{len(off)} of {len(pairs)} times differ, by up to {max(off)} ns")


def system_call(number, *arguments):
    result = LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def limit_duration(limit):
    """Gives all reads of this process a duration limit as hint; none for 0."""
    if limit:
        # IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_BE, 4, limit) for this process
        ioprio_set, who_process = 251, 1
        system_call(ioprio_set, who_process, 0, 2 << 13 | limit << 3 | 4)


def scan(dev, blocks, limit):
    limit_duration(limit)
    fd = open_direct(dev, os.O_RDONLY)
    memory = buffer(bytes(BLOCK))
    bad = []
    for block in range(blocks):
        try:
            os.preadv(fd, [memory], block * BLOCK)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
            bad.append(block)
    print(*bad)


def rewrite(dev, blocks):
    fd = open_direct(dev, os.O_RDWR)
    for block in blocks:
        os.pwritev(fd, [buffer(bytes(BLOCK))], block * BLOCK)


class Iocb(ctypes.Structure):
    """struct iocb of <linux/aio_abi.h> on little-endian machines, as far as reads need it."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("reqprio", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buf", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("unused", ctypes.c_uint64 * 2),
    ]


class IoEvent(ctypes.Structure):
    """struct io_event of <linux/aio_abi.h>."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("obj", ctypes.c_uint64),
        ("res", ctypes.c_int64),
        ("res2", ctypes.c_int64),
    ]


def read_together(fd, memory, first, count):
    """Reads blocks by a request each, of one io_submit() and so under one plug; their results."""
    io_setup, io_getevents, io_submit, pread = 206, 208, 209, 0
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    blocks = (Iocb * count)()
    pointers = (ctypes.c_void_p * count)()
    for index, block in enumerate(blocks):
        block.data, block.opcode, block.fd = index, pread, fd
        block.buf, block.nbytes = start + index * BLOCK, BLOCK
        block.offset = (first + index) * BLOCK
        pointers[index] = ctypes.addressof(block)
    context = ctypes.c_ulong()
    system_call(io_setup, count, ctypes.byref(context))
    if system_call(io_submit, context, count, pointers) != count:
        sys.exit("not all reads were taken")
    events = (IoEvent * count)()
    system_call(io_getevents, context, count, count, events, None)
    results = {event.data: event.res for event in events}
    return [results[index] for index in range(count)]


def together(dev, block, before, count, limit):
    limit_duration(limit)
    fd = open_direct(dev, os.O_RDWR)
    first = block - before
    written = content(block, before * BLOCK // SECTOR)
    os.pwritev(fd, [buffer(written)], first * BLOCK)
    memory = buffer(b"\xff" * (count * BLOCK))
    expected = written + bytes((count - before) * BLOCK)
    for index, result in enumerate(read_together(fd, memory, first, count)):
        part = slice(index * BLOCK, (index + 1) * BLOCK)
        if result < 0:
            print(errno.errorcode[-result], end=" ")
        else:
            print("good" if memory[part] == expected[part] else "wrong", end=" ")


def content(stamp, sectors):
    """What write number `stamp` puts into its sectors."""
    rng = random.Random(stamp)
    return b"".join(rng.randbytes(SECTOR) for _ in range(sectors))


def prepare(dev, log, seed, delay_ms):
    rng = random.Random(seed)
    fd = open_direct(dev, os.O_RDWR)
    size = os.lseek(fd, 0, os.SEEK_END) // SECTOR
    # A few places far from each other, so that writes meet.
    bases = [rng.randrange(size // 2048) * 2048 for _ in range(6)]
    writes = []

    def some(count, kind, flags=0):
        for _ in range(count):
            sectors = rng.randrange(1, 33)
            sector = rng.choice(bases) + rng.randrange(400)
            stamp = len(writes) + 1
            os.pwritev(fd, [buffer(content(stamp, sectors))], sector * SECTOR, flags)
            writes.append({"sector": sector, "sectors": sectors, "kind": kind})

    some(80, "flushed")
    os.fsync(fd)
    some(20, "durable", os.RWF_DSYNC)
    # With a long delay, nothing of what follows reaches the medium in time.
    with open(f"/sys/block/{os.path.basename(dev)}/hddsim/delay_ms", "w") as delay:
        delay.write(f"{delay_ms}\n")
    some(100, "cached")
    with open(log, "w") as file:
        json.dump(writes, file)


def check(dev, log, all_kept):
    with open(log) as file:
        writes = json.load(file)
    fd = open_direct(dev, os.O_RDONLY)
    # By sector: what it may hold. A durable write leaves no choice.
    allowed = {}
    for index, write in enumerate(writes):
        data = content(index + 1, write["sectors"])
        for number in range(write["sectors"]):
            piece = data[number * SECTOR:(number + 1) * SECTOR]
            options = allowed.setdefault(write["sector"] + number, [(0, bytes(SECTOR))])
            if write["kind"] != "cached" or all_kept:
                options.clear()
            options.append((index + 1, piece))
    kept = {}
    for sector, options in sorted(allowed.items()):
        memory = buffer(bytes(SECTOR))
        os.preadv(fd, [memory], sector * SECTOR)
        found = [stamp for stamp, piece in options if memory[:] == piece]
        if not found:
            sys.exit(f"sector {sector} holds none of the writes {[o[0] for o in options]}")
        # Only sectors where the last write had a choice say something about it.
        if len(options) > 1:
            kept.setdefault(options[-1][0], set()).add(found[0] == options[-1][0])
    fates = [kept[stamp] for stamp in sorted(kept)]
    print("kept", sum(fate == {True} for fate in fates), "lost", sum(fate == {False} for fate in fates),
          "torn", sum(len(fate) == 2 for fate in fates))


def main():
    what, dev, *rest = sys.argv[1:]
    if what == "times":
        times(dev, int(rest[0]), int(rest[1]), rest[2] if len(rest) > 2 else None)
    elif what == "same":
        same(dev, rest[0])
    elif what == "scan":
        scan(dev, int(rest[0]), int(rest[1]) if len(rest) > 1 else 0)
    elif what == "rewrite":
        rewrite(dev, [int(block) for block in rest])
    elif what == "together":
        together(dev, *map(int, rest[:3]), int(rest[3]) if len(rest) > 3 else 0)
    elif what == "prepare":
        prepare(dev, rest[0], int(rest[1]), int(rest[2]))
    elif what == "check":
        check(dev, rest[0], rest[1:] == ["kept"])
    else:
        sys.exit(__doc__)


main()
