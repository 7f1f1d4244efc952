#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Fails the n-th place of every control operation: fail_nth.py SEED EDGE.

Two kinds of places: allocations, and commands to members. The kernel counts
them in the task that writes to the control file (/proc/self/fail-nth), so an
operation is tried again and again with n = 1, 2, ... until it meets no n-th
place. An operation with many alike places (the pools of an array) is failed at
its EDGE first and last ones and at half as many random ones between; at all of
them if EDGE is 0.

Commands that work items send behind the operation are counted by their size
(fail_make_request/space): metadata is written a page at a time.

Prints a line for each: "ok NAME words" or "bad NAME words".
"""

import errno
import os
import random
import sys
import time

CONTROL = "/sys/class/eraid-control/"
DEBUG = "/sys/kernel/debug/"
ARRAY = CONTROL + "arrays/f/eraid/"
MEMBERS = "/dev/m0,/dev/m1,/dev/m2"
CREATE = (CONTROL + "create", f"name=f level=5 chunk=64K members={MEMBERS} force=1\n")

# What is tried, and what makes it ready.
OPERATIONS = {
    "create": (CREATE, []),
    "assemble": ((CONTROL + "assemble", f"members={MEMBERS}\n"), ["create", "stop"]),
    "assemble_last": (
        (CONTROL + "assemble", "members=/dev/m2\n"),
        ["create", "stop", "assemble_two"],
    ),
    "stop": ((CONTROL + "stop", "f\n"), ["create"]),
    "fail": ((ARRAY + "rd1/state", "faulty\n"), ["create"]),
    "remove": ((ARRAY + "rd1/state", "remove\n"), ["create", "fail"]),
    "sit_out": ((ARRAY + "rd1/sit_out", "1\n"), ["create"]),
    "assemble_two": ((CONTROL + "assemble", "members=/dev/m0,/dev/m1\n"), []),
}


class Bad(Exception):
    """The driver did something that it must not do."""


def put(path, text):
    """Writes to a file; the error number or 0."""
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError as error:
        return error.errno
    try:
        os.write(fd, text.encode())
        return 0
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)


def get(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def running():
    return os.path.islink(CONTROL + "arrays/f")


def wait_for(what, seconds, why):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise Bad(why())
        time.sleep(0.01)


def do(name):
    """An operation without faults: it must work."""
    (path, line), _ = OPERATIONS[name]
    error = 0

    def done():
        nonlocal error
        error = put(path, line)
        return error == 0

    # udev-like openers (there is none here) and work items take a moment.
    wait_for(done, 10, lambda: f"{name} without a fault: {errno.errorcode.get(error, error)}")
    if name == "remove":
        wait_for(lambda: not os.path.exists(ARRAY + "rd1"), 5, lambda: "removed, but still there")


def clear_up(uuid):
    if running():
        do("stop")
    # A set may still wait for members.
    if uuid:
        put(CONTROL + "abort", uuid)


def note_uuid(uuid):
    return get(ARRAY + "uuid") if os.path.exists(ARRAY) else uuid


def check_refusal(name, number):
    words = get(CONTROL + "last_error").splitlines()[-1].split()
    if len(words) < 3:
        raise Bad(f"{errno.errorcode.get(number, number)}, but last_error has no words: {words}")
    if name in ("create", "assemble", "assemble_last") and running():
        raise Bad(f"{errno.errorcode.get(number, number)}, but an array is there")


def works(name):
    """Whether the operation, which just succeeded, did what it says."""
    if name == "stop":
        return not running()
    if name == "fail":
        return "faulty" in get(ARRAY + "rd1/state")
    if name == "sit_out":
        return get(ARRAY + "rd1/sit_out").strip() == "1"
    if name == "remove":
        wait_for(lambda: not os.path.exists(ARRAY + "rd1"), 5, lambda: "removed, but still there")
        return True
    return running() and "[3/3]" in get(ARRAY + "status")


class InTask:
    """The n-th place in this task."""

    def __init__(self, allocations):
        skip = "N" if allocations else "Y"
        put(DEBUG + "failslab/ignore-gfp-wait", skip)
        put(DEBUG + "fail_page_alloc/ignore-gfp-wait", skip)
        put(DEBUG + "fail_page_alloc/ignore-gfp-highmem", skip)
        for disk in ("m0", "m1", "m2"):
            put(f"/sys/block/{disk}/make-it-fail", "0" if allocations else "1")
        self.fd = os.open("/proc/self/fail-nth", os.O_RDWR)

    def try_at(self, place, path, line):
        """(error number, whether it was hit, places that passed)."""
        fd = os.open(path, os.O_WRONLY)
        data, arm, off = line.encode(), b"%d" % place, b"0"
        error = 0
        os.pwrite(self.fd, arm, 0)
        try:
            os.write(fd, data)
        except OSError as caught:
            error = caught.errno
        left = int(os.pread(self.fd, 16, 0))
        os.pwrite(self.fd, off, 0)
        os.close(fd)
        return error, left == 0, place - max(left, 1)

    def end(self):
        os.close(self.fd)


class ByAnyone:
    """The command after so many pages, whoever sends it."""

    def __init__(self):
        for disk in ("m0", "m1", "m2"):
            put(f"/sys/block/{disk}/make-it-fail", "1")

    def try_at(self, place, path, line):
        attr = DEBUG + "fail_make_request/"
        put(attr + "space", str((place - 1) * 4096 + 1))
        put(attr + "times", "1")
        put(attr + "probability", "100")
        error = put(path, line)
        time.sleep(0.05)
        put(attr + "probability", "0")
        return error, int(get(attr + "times")) == 0, 0

    def end(self):
        put(DEBUG + "fail_make_request/times", "-1")
        for disk in ("m0", "m1", "m2"):
            put(f"/sys/block/{disk}/make-it-fail", "0")


def places(count, chance, edge):
    """Which of so many places to fail: a list, and how many of the last ones besides.

    The last ones are counted from the end, which is not at the same place each time.
    """
    if edge == 0 or count <= 2 * edge + edge // 2:
        return range(1, count + 1), 0
    inner = chance.sample(range(edge + 1, count - edge), edge // 2)
    return [*range(1, edge + 1), *sorted(inner)], edge


class Trial:
    """One operation, failed again and again."""

    def __init__(self, name, faults):
        self.name, self.faults = name, faults
        (self.path, self.line), self.before = OPERATIONS[name]
        self.uuid, self.refused, self.survived = None, 0, 0

    def once(self, place):
        """Fails one place. (whether there was such a place, how many passed)"""
        for step in self.before:
            do(step)
            self.uuid = note_uuid(self.uuid)
        error, hit, passed = self.faults.try_at(place, self.path, self.line)
        self.uuid = note_uuid(self.uuid)
        try:
            if running() and not os.path.exists(ARRAY):
                raise Bad("a link to an array is left, the array is gone")
            if error and not hit:
                raise Bad(f"{errno.errorcode[error]} without a fault")
            if error:
                self.refused += 1
                check_refusal(self.name, error)
            elif hit:
                self.survived += 1
            elif not works(self.name):
                raise Bad("it does not work without a fault")
        except Bad as bad:
            raise Bad(f"place {place}: {bad}") from bad
        clear_up(self.uuid)
        return hit, passed

    def all(self, chance, edge):
        """Fails them all, or the chosen ones; returns how many there were."""
        count = 0
        if isinstance(self.faults, InTask):
            # Twice, because the first time warms caches.
            for _ in range(2):
                _, count = self.once(1 << 24)
        chosen, last = places(count, chance, edge)
        for place in chosen:
            self.once(place)
        while last:
            hit, passed = self.once(max(count - last, 1))
            if hit:
                last -= 1
            else:
                count = passed
        # On to the very end.
        place = max(count, 1)
        while self.once(place)[0]:
            place += 1
        return place - 1


def fail_each(kind, name, faults, chance, edge):
    """All places of one operation."""
    trial = Trial(name, faults)
    count = trial.all(chance, edge)
    if trial.refused + trial.survived == 0:
        raise Bad("nothing was hit")
    print(
        f"ok {kind}_{name} {trial.refused + trial.survived} of {count} places hit,",
        f"{trial.refused} refused, {trial.survived} survived",
        flush=True,
    )


def each(kind, names, make, chance, edge):
    for name in names:
        faults = make()
        try:
            fail_each(kind, name, faults, chance, edge)
        except Bad as bad:
            print(f"bad {kind}_{name} {bad}", flush=True)
            if running():
                put(CONTROL + "stop", "f\n")
        finally:
            faults.end()


def main():
    chance, edge = random.Random(int(sys.argv[1])), int(sys.argv[2])
    every = ["create", "assemble", "assemble_last", "stop", "fail", "remove", "sit_out"]
    each("alloc", every, lambda: InTask(True), chance, edge)
    each("command", ["create", "assemble"], lambda: InTask(False), chance, edge)
    each("command_behind", ["stop", "fail"], ByAnyone, chance, edge)


main()
