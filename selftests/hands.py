#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes and changes test devices, and writes to control files, for lib.sh.

One process for a whole suite: in some guests starting one costs more than all
that it does. Reads requests from standard input, a line each, whose fields are
separated by the byte 0x1f; answers each with a line: "ok", "ok WORDS", or the
name of the error that a system call gave.
"""

import errno
import fcntl
import mmap
import os
import struct
import sys
import time

NULLB = "/sys/kernel/config/nullb/"

# <linux/dm-ioctl.h>
DM_VERSION = (4, 0, 0)
DM_SIZE = 16384
DM_HEADER = "=3I3IiII4xQ128s129s7x"
DM_TARGET = "=QQiI16s"
DM_SUSPEND, DM_NOFLUSH, DM_SKIP_LOCKFS = 1 << 1, 1 << 11, 1 << 10
LIST_DEVICES, DEV_CREATE, DEV_REMOVE, DEV_SUSPEND, TABLE_LOAD = 2, 3, 4, 6, 9

BLKFLSBUF = 0x1261


def put(path, text):
    """Writes a text to a file as a shell would: what one call leaves goes into the next."""
    fd = os.open(path, os.O_WRONLY)
    try:
        data = text.encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def until(seconds, what):
    """Tries until it does not fail any more."""
    end = time.monotonic() + seconds
    while True:
        try:
            return what()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOENT) or time.monotonic() > end:
                raise
        time.sleep(0.01)


# --- null_blk -------------------------------------------------------------------


def null(name, megabytes, *attributes):
    """null NAME MB [ATTRIBUTE=VALUE...]"""
    os.mkdir(NULLB + name)
    for pair in (f"size={megabytes}", "memory_backed=1", "rotational=1", *attributes, "power=1"):
        key, value = pair.split("=", 1)
        put(f"{NULLB}{name}/{key}", value)
    until(5, lambda: os.stat("/dev/" + name))


def null_remove(*names):
    """null_remove NAME..."""
    for name in names:
        put(f"{NULLB}{name}/power", "0")
        os.rmdir(NULLB + name)


# --- device mapper --------------------------------------------------------------


class Mapper:
    """The control device."""

    def __init__(self):
        self.fd = -1

    def call(self, command, name, flags=0, targets=0, payload=b""):
        """One ioctl; the header's device number, and what follows the header."""
        if self.fd < 0:
            self.fd = os.open("/dev/mapper/control", os.O_RDWR)
        start = struct.calcsize(DM_HEADER)
        size = max(DM_SIZE, start + len(payload))
        header = struct.pack(
            DM_HEADER, *DM_VERSION, size, start, targets, 0, flags, 0, 0, name.encode(), b""
        )
        buffer = bytearray((header + payload).ljust(size, b"\0"))
        fcntl.ioctl(self.fd, 0xC138FD00 | command, buffer)
        fields = struct.unpack_from(DM_HEADER, buffer)
        return fields[9], bytes(buffer[fields[4] : fields[3]])

    def load(self, name, table):
        """Loads a table, whose lines ";" separates, into the inactive slot."""
        payload, lines = b"", table.split(";")
        for line in lines:
            start, length, kind, *words = line.split(None, 3)
            parameters = "".join(words).encode() + b"\0"
            room = struct.calcsize(DM_TARGET) + len(parameters)
            room += -room % 8
            target = struct.pack(DM_TARGET, int(start), int(length), 0, room, kind.encode())
            payload += (target + parameters).ljust(room, b"\0")
        self.call(TABLE_LOAD, name, targets=len(lines), payload=payload)


MAPPER = Mapper()


def dm(name, table):
    """dm NAME TABLE: says the node"""
    device, _ = MAPPER.call(DEV_CREATE, name)
    try:
        MAPPER.load(name, table)
        MAPPER.call(DEV_SUSPEND, name)
    except OSError:
        MAPPER.call(DEV_REMOVE, name)
        raise
    node = f"/dev/dm-{os.minor(device)}"
    until(5, lambda: os.stat(node))
    return node


def dm_change(name, table):
    """dm_change NAME TABLE"""
    MAPPER.load(name, table)
    MAPPER.call(DEV_SUSPEND, name, DM_SUSPEND | DM_SKIP_LOCKFS)
    MAPPER.call(DEV_SUSPEND, name)


def dm_stop(name):
    """dm_stop NAME: it answers nothing any more"""
    MAPPER.call(DEV_SUSPEND, name, DM_SUSPEND | DM_SKIP_LOCKFS | DM_NOFLUSH)


def dm_resume(*names):
    """dm_resume NAME..."""
    for name in names:
        MAPPER.call(DEV_SUSPEND, name)


def dm_remove(*names):
    """dm_remove NAME..."""
    for name in names:
        until(5, lambda name=name: MAPPER.call(DEV_REMOVE, name))


def dm_list():
    """All of them, the youngest first."""
    _, data = MAPPER.call(LIST_DEVICES, "")
    found, at = [], 0
    while len(data) >= at + 12:
        device, step = struct.unpack_from("=QI", data, at)
        if device:
            name = data[at + 12 :].split(b"\0", 1)[0].decode()
            found.append((os.minor(device), name))
        if not step:
            break
        at += step
    return [name for _, name in sorted(found, reverse=True)]


# --- everything else ------------------------------------------------------------


def store(path, text):
    """store FILE LINE"""
    put(path, text + "\n")


def link(path):
    """link PATH: where it leads in the end"""
    return os.path.realpath(path)


def claim(node):
    """claim NODE: for nobody else's use, for a moment"""
    os.close(os.open(node, os.O_RDWR | os.O_EXCL))


def poke(node, offset, text):
    """poke NODE OFFSET BYTES: with escapes such as \\xfc; nothing stays in the page cache"""
    with open(node, "r+b") as file:
        file.seek(int(offset))
        file.write(text.encode().decode("unicode_escape").encode("latin-1"))
        file.flush()
        fcntl.ioctl(file, BLKFLSBUF)


def copy(source, target):
    """copy FROM TO: all of a device, past the page cache; what is zero costs no memory"""
    # Aligned, as direct I/O wants it.
    buffer, zeros = mmap.mmap(-1, 1 << 20), bytes(1 << 20)
    old = os.open(source, os.O_RDONLY | os.O_DIRECT)
    new = os.open(target, os.O_WRONLY | os.O_DIRECT)
    try:
        at = 0
        while got := os.preadv(old, [buffer], at):
            if buffer[:got] != zeros[:got] and os.pwrite(new, memoryview(buffer)[:got], at) != got:
                raise OSError(errno.EIO, "a short write")
            at += got
    finally:
        os.close(old)
        os.close(new)


def disks():
    return [name for name in os.listdir(NULLB) if os.path.isdir(NULLB + name)]


def dm_remove_all():
    # Stacked devices go from the top down.
    for name in dm_list() * 3:
        try:
            MAPPER.call(DEV_REMOVE, name)
        except OSError:
            pass
    # Whoever still has one of these gets errors from now on.
    for name in dm_list():
        os.system(f"dmsetup remove --force --noudevsync '{name}' >/dev/null 2>&1")


def drop_members():
    """drop_members: all mapped devices go, and the disks that are called m*"""
    dm_remove_all()
    null_remove(*(name for name in disks() if name.startswith("m")))


def clean_up():
    """clean_up: all mapped devices and null_blk disks go"""
    dm_remove_all()
    null_remove(*disks())


REQUESTS = {
    request.__name__: request
    for request in (
        null,
        null_remove,
        dm,
        dm_change,
        dm_stop,
        dm_resume,
        dm_remove,
        store,
        link,
        claim,
        poke,
        copy,
        drop_members,
        clean_up,
    )
}
REQUESTS["dm_resume_all"] = lambda: dm_resume(*dm_list())


# Of two names for one number, the one that the kernel knows.
NAMES = errno.errorcode | {errno.EOPNOTSUPP: "EOPNOTSUPP"}


def main():
    for line in sys.stdin.buffer:
        name, *fields = line.rstrip(b"\n").decode("utf-8", "surrogateescape").split("\x1f")
        try:
            words = REQUESTS[name](*fields)
            answer = f"ok {words}" if words else "ok"
        except OSError as error:
            answer = NAMES.get(error.errno, str(error.errno))
        print(answer, flush=True)


main()
