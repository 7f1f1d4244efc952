#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Fails the n-th place of every control operation: fail_nth.py SEED EDGE STEP.

Two kinds of places: allocations, and commands to members. The kernel counts
them in the task that writes to the control file (/proc/self/fail-nth), so an
operation is tried again and again with n = 1, 2, ... until it meets no n-th
place. Of allocations an operation may have tens of thousands, nearly all of
them for the pools of an array: then it is failed at its EDGE first and last
ones and at half as many random ones between. Commands are tried in steps of STEP.

Commands that work items send behind the operation are counted by their size
(fail_make_request/space): metadata is written a page at a time.

After each refusal the same operation has to work at once. Devices are made
anew only after a command failed, which may have left anything on them.

Prints a line for each: "ok NAME words" or "bad NAME words".
"""

import errno
import os
import random
import sys
import time
from collections import namedtuple

CONTROL = "/sys/class/eraid-control/"
DEBUG = "/sys/kernel/debug/"
ARRAY = CONTROL + "arrays/f/eraid/"
DISKS = ("m0", "m1", "m2")
MEMBERS = ",".join("/dev/" + disk for disk in DISKS)

# More places than any operation has; who gets there goes round in circles.
MANY = 2000

# A file, the line for it, and what makes it ready: "first" once, "each" before
# every try; "undo" goes back to where "each" can begin.
Operation = namedtuple("Operation", "path line first each undo", defaults=([], [], []))

SET = ["create", "stop"]
OPERATIONS = {
    "create": Operation(
        CONTROL + "create", f"name=f level=5 chunk=64K members={MEMBERS} force=1", undo=["stop"]
    ),
    "assemble": Operation(CONTROL + "assemble", f"members={MEMBERS}", SET, [], ["stop"]),
    "assemble_last": Operation(
        CONTROL + "assemble", "members=/dev/m2", SET, ["assemble_two"], ["stop"]
    ),
    "stop": Operation(CONTROL + "stop", "f", SET, ["assemble"]),
    "fail": Operation(ARRAY + "rd1/state", "faulty", SET, ["assemble"], ["stop"]),
    "remove": Operation(ARRAY + "rd1/state", "remove", SET, ["assemble", "fail"], ["stop"]),
    "sit_out": Operation(ARRAY + "rd1/sit_out", "1", ["create"], [], ["sit_in"]),
    "abort": Operation(CONTROL + "abort", "UUID", SET, ["assemble_two"]),
    # Only steps of the others.
    "assemble_two": Operation(CONTROL + "assemble", "members=/dev/m0,/dev/m1"),
    "sit_in": Operation(ARRAY + "rd1/sit_out", "0"),
}

# What sends no commands in the task that asks for it, or none at all.
SILENT = ("remove", "sit_out", "abort")


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


def name_of(error):
    return errno.errorcode.get(error, str(error))


def wait_for(what, seconds, why):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise Bad(why())
        time.sleep(0.01)


def refusals():
    """How many last_error has counted; each of them has words."""
    number, *words = get(CONTROL + "last_error").splitlines()
    if words and len(words[-1].split()) < 3:
        raise Bad(f"last_error has no words: {words}")
    return int(number)


def running():
    return os.path.islink(CONTROL + "arrays/f")


def whole():
    return running() and "[3/3]" in get(ARRAY + "status") and "idle" in get(ARRAY + "sync_action")


def removed():
    return not os.path.exists(ARRAY + "rd1")


def unclaimed():
    """Nobody has a member for himself."""
    try:
        for disk in DISKS:
            os.close(os.open("/dev/" + disk, os.O_RDWR | os.O_EXCL))
        return True
    except OSError:
        return False


# Whether an operation that succeeded did what it says; some of it happens behind.
DONE = {
    "create": whole,
    "assemble": whole,
    "assemble_last": whole,
    "stop": lambda: not running() and unclaimed(),
    "fail": lambda: "faulty" in get(ARRAY + "rd1/state"),
    "remove": removed,
    "sit_out": lambda: get(ARRAY + "rd1/sit_out").strip() == "1",
    "sit_in": lambda: get(ARRAY + "rd1/sit_out").strip() == "0",
    "abort": unclaimed,
    "assemble_two": lambda: True,
}


class Bench:
    """The array that all of this is about."""

    uuid = None

    def line(self, name):
        text = OPERATIONS[name].line
        return (self.uuid or "") + "\n" if text == "UUID" else text + "\n"

    def note(self):
        if os.path.exists(ARRAY):
            self.uuid = get(ARRAY + "uuid").strip()

    def do(self, name, seconds=10, exactly=True):
        """An operation without faults: it must work, with 0 seconds at once, and come to
        exactly what it should."""
        error = 0

        def accepted():
            nonlocal error
            error = put(OPERATIONS[name].path, self.line(name))
            return error == 0

        # Who had the device open, and work items, take a moment.
        wait_for(accepted, seconds, lambda: f"{name} without a fault: {name_of(error)}")
        self.note()
        if exactly:
            self.done(name)

    def done(self, name):
        wait_for(DONE[name], 10, lambda: f"{name} was taken, but did not do it")

    def clear(self):
        if running():
            self.do("stop")
        # A set may still wait for members.
        if self.uuid:
            put(CONTROL + "abort", self.line("abort"))


BENCH = Bench()


class InTask:
    """The n-th place in this task: of allocations, or of commands and nothing else."""

    def __init__(self, allocations):
        # Whether a fault may leave anything on the members.
        self.spoils = not allocations
        for knob, value in (
            ("failslab/ignore-gfp-wait", "N"),
            ("failslab/cache-filter", "N" if allocations else "Y"),
            ("fail_page_alloc/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-highmem", "N"),
            ("fail_page_alloc/min-order", "0" if allocations else "20"),
        ):
            put(DEBUG + knob, value)
        for disk in DISKS:
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
        put(DEBUG + "failslab/cache-filter", "N")
        put(DEBUG + "fail_page_alloc/min-order", "0")
        for disk in DISKS:
            put(f"/sys/block/{disk}/make-it-fail", "0")


class ByAnyone:
    """The command after so many pages, whoever sends it."""

    spoils = True

    def __init__(self):
        for disk in DISKS:
            put(f"/sys/block/{disk}/make-it-fail", "1")

    def try_at(self, place, path, line):
        attr = DEBUG + "fail_make_request/"
        put(attr + "space", str((place - 1) * 4096 + 1))
        put(attr + "times", "1")
        put(attr + "probability", "100")
        error = put(path, line)
        time.sleep(0.05)
        put(attr + "probability", "0")
        return error, int(get(attr + "times")) == 0, place - 1

    def end(self):
        put(DEBUG + "fail_make_request/times", "-1")
        for disk in DISKS:
            put(f"/sys/block/{disk}/make-it-fail", "0")


class Trial:
    """One operation, failed again and again."""

    def __init__(self, name, faults):
        self.name, self.faults = name, faults
        self.operation = OPERATIONS[name]
        self.refused, self.survived = 0, 0

    def begin(self):
        BENCH.clear()
        for step in self.operation.first:
            BENCH.do(step)

    def once(self, place):
        """Fails one place. (whether there was such a place, how many passed)"""
        try:
            return self.fail_at(place)
        except Bad as bad:
            raise Bad(f"place {place}: {bad}") from bad

    def fail_at(self, place):
        name, operation = self.name, self.operation
        for step in operation.each:
            BENCH.do(step)
        noted = refusals()
        error, hit, passed = self.faults.try_at(place, operation.path, BENCH.line(name))
        BENCH.note()
        if running() and not os.path.exists(ARRAY):
            raise Bad("a link to an array is left, the array is gone")
        if error and not hit:
            raise Bad(f"{name_of(error)} without a fault")
        if error:
            self.refused += 1
            # The first allocation is sysfs's own, for the line; the driver never sees that.
            if refusals() == noted and (self.faults.spoils or place > 1):
                raise Bad(f"{name_of(error)}, of which last_error knows nothing")
            if name in ("create", "assemble", "assemble_last") and running():
                raise Bad(f"{name_of(error)}, but an array is there")
        elif hit:
            self.survived += 1
        if error:
            # Of a set that waits the last member may be all that is missing, or it
            # was let go of: its members, all of them, are what works.
            again = "assemble" if name == "assemble_last" else name
            BENCH.do(again, 0, exactly=not self.faults.spoils)
        if hit and self.faults.spoils:
            self.begin()
            return hit, passed
        BENCH.done(name)
        for step in operation.undo:
            BENCH.do(step)
        return hit, passed

    def all(self, chance, edge, step):
        """Fails them all, or the chosen ones; returns how many there were."""
        self.begin()
        if self.faults.spoils:
            return self.walk(chance.randint(1, step), MANY, step)
        # Twice, because the first time warms caches.
        for _ in range(2):
            _, count = self.once(1 << 24)
        if count <= 2 * edge + edge // 2:
            return self.walk(1, MANY)
        for place in range(1, edge + 1):
            self.once(place)
        for place in sorted(chance.sample(range(edge + 1, count - edge), edge // 2)):
            self.once(place)
        # The end is not at the same place each time: no longer than this it is looked for.
        for _ in range(3):
            hit, passed = self.once(count - edge + 1)
            if hit:
                return self.walk(count - edge + 2, 3 * edge)
            count = passed
        return count

    def walk(self, place, most, step=1):
        """From one place on to the last one; how many there are."""
        for _ in range(most):
            hit, passed = self.once(place)
            if not hit:
                return passed
            place += step
        if most == MANY:
            raise Bad(f"no end after {MANY} places")
        return place - step


def fail_each(kind, name, faults, *how):
    """All places of one operation."""
    trial = Trial(name, faults)
    count = trial.all(*how)
    hit = trial.refused + trial.survived
    if hit == 0 and not (faults.spoils and name in SILENT):
        raise Bad("nothing was hit")
    BENCH.clear()
    print(
        f"ok {kind}_{name} {hit} of {count} places hit,",
        f"{trial.refused} refused, {trial.survived} survived",
        flush=True,
    )


def each(kind, names, make, *how):
    for name in names:
        faults = make()
        try:
            fail_each(kind, name, faults, *how)
        except Bad as bad:
            print(f"bad {kind}_{name} {bad}", flush=True)
            put(CONTROL + "stop", "f\n")
        finally:
            faults.end()


def main():
    seed, edge, step = map(int, sys.argv[1:])
    how = random.Random(seed), edge, step
    every = ["create", "assemble", "assemble_last", "stop", "fail", "remove", "sit_out", "abort"]
    behind = ["stop", "fail"]
    each("alloc", every, lambda: InTask(True), *how)
    each("command", [name for name in every if name not in behind], lambda: InTask(False), *how)
    each("command_behind", behind, ByAnyone, *how[:2], 1)


main()
