#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One user of a file system, for fs.sh.

  fs_stress.py write DIR SEED ROUNDS FILE   writes, copies, renames, cuts and compares files
                                            in a new DIR, so many rounds and until FILE exists
  fs_stress.py check DIR...                 compares what the last round left with its checksums
"""

import hashlib
import os
import random
import shutil
import sys

SIZES = {f"f{i}": i * i * 61 * 1024 for i in (1, 2, 3, 4)}


def wrong(what):
    sys.exit(f"{os.getcwd()}: {what}")


def get(path):
    with open(path, "rb") as file:
        return file.read()


def one_round(chance, number):
    """Makes the files anew, and a copy that does not stay."""
    data = {name: chance.randbytes(size + number) for name, size in SIZES.items()}
    os.mkdir("copy")
    for name, content in data.items():
        with open(name, "wb") as file:
            file.write(content)
        shutil.copyfile(name, f"copy/{name}")
    with open("sums", "w", encoding="ascii") as file:
        for name, content in data.items():
            file.write(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
    os.rename("copy", "moved")
    os.sync()
    os.truncate("moved/f1", 1000)
    with open("moved/f4", "r+b") as file:
        file.seek(7 * 4096)
        file.write(bytes(3 * 4096))
        file.flush()
        os.fsync(file.fileno())
    for name, content in data.items():
        if get(name) != content:
            wrong(f"{name} is wrong in round {number}")
        if name == "f1":
            content = content[:1000]
        elif name == "f4":
            content = content[: 7 * 4096] + bytes(3 * 4096) + content[10 * 4096 :]
        if get(f"moved/{name}") != content:
            wrong(f"the copy of {name} is wrong in round {number}")
    shutil.rmtree("moved")


def write(directory, seed, rounds, until):
    os.mkdir(directory)
    os.chdir(directory)
    chance, number = random.Random(f"{seed} {directory}"), 0
    while number < int(rounds) or not os.path.exists(until):
        one_round(chance, number)
        number += 1


def check(*directories):
    if not directories:
        sys.exit("there is nothing to check")
    for directory in directories:
        os.chdir(directory)
        lines = get("sums").decode("ascii").splitlines()
        if len(lines) != len(SIZES):
            wrong("sums is not whole")
        for line in lines:
            digest, name = line.split()
            if hashlib.sha256(get(name)).hexdigest() != digest:
                wrong(f"{name} is wrong")


{"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
