#!/usr/bin/env python3
"""check_rpmem.py RPMEM.MD OBJTX LIBRARY-DIRECTORY SANITIZER PROGRAM-DIRECTORY...: what
docs/rpmem.md says to do is enough for whoever comes from librpmem.

Runs the ```console blocks of the page as check_readme.py does, in four stories: by ssh, with an
rpmemd that listens, with a perdured, and with one that asks for a credential. Each makes the pool
of the page's set, runs a program on it, loses the local part, brings it back, and finds all of it.

A directory stands for both machines: paths of the page are in it, and pools are small. A script
stands for ssh: it has the target's login, and runs what it is given. `your-program` is OBJTX, a
program of libpmemobj. SANITIZER is what librpmem.so.1 has to be loaded behind, or empty.
Without pmempool (package pmdk-tools) the test is skipped.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import check_readme

SKIPPED = 77
ANYTHING = ["..."]
TRANSACTIONS = "20"
TARGET = "db@storage1"

SSH = """#!/bin/sh
unset LD_PRELOAD
while [ "${1#-}" != "$1" ]; do shift; done
[ "$1" = @TARGET@ ] || { echo "ssh: no such target: $1" >&2; exit 255; }
shift
export SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22'
eval "$*"
"""
# The ports of the page's own daemons may be somebody else's here.
PERDURED = """#!/bin/sh
exec '@PROGRAM@' --listen 127.0.0.1:0 --data-listen 127.0.0.1:0 --rpmem-listen 127.0.0.1:@PORT@ \\
  $PERDURED_MORE "$@" >>perdured.log 2>&1
"""
CLIENT = """#!/bin/sh
export LD_LIBRARY_PATH='@LIBRARY@' LD_PRELOAD='@SANITIZER@' ASAN_OPTIONS=detect_leaks=0
exec @COMMAND@
"""


def replaced(text, replacements):
    """All at once: what one puts in is none of the others' business."""
    return re.sub("|".join(map(re.escape, replacements)), lambda at: replacements[at[0]], text)


def write_program(path, text, replacements):
    path.write_text(replaced(text, replacements), encoding="utf-8")
    path.chmod(0o755)


def is_in_memory(directory):
    """What keeps it there only an operator knows."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True,
                          check=True).stdout.strip()
    return kind in ("tmpfs", "ramfs")


def only(found, what):
    if len(found) != 1:
        sys.exit(f"docs/rpmem.md has {len(found)} of what is one: {what}")
    return found[0]


class Page:
    """What the page says, with this machine's paths and ports."""

    def __init__(self, path, place):
        text = path.read_text(encoding="utf-8")
        for known in ("/mnt/pmem0", "/home/db", "/srv/perdure", "/srv/sets", "16G", TARGET):
            if known not in text:
                sys.exit(f"docs/rpmem.md has no '{known}' any more: this test replaces it")
        self.name = path.name
        self.text = replaced(check_readme.with_free_ports(text), {
            "/mnt/pmem0": f"{place}/pmem0",
            "/home/db": f"{place}/home",
            "/srv/perdure": f"{place}/pools",
            "/srv/sets": f"{place}/sets",
            "16G": "16M",
        })
        self.blocks = [check_readme.commands_of(start, lines)
                       for start, lines in check_readme.blocks_of(self.text, "console")]
        self.set = only(re.findall(r"^```\n(PMEMPOOLSET\n[^`]*REPLICA [^`]*)^```", self.text, re.M),
                        "a set of the client")
        self.ssh = only(re.findall(r"`(ssh -oBatchMode=yes [^`]*)`", self.text), "a try of ssh")
        self.listening = only(re.findall(r"`(REPLICA 127\.0\.0\.1:\d+ [^`]*)`", self.text),
                              "a replica where an rpmemd listens")
        self.port = re.search(r":(\d+)", self.listening)[1]
        self.target_set = self.block("cat ~/mirrors/db.set")
        self.client = self.block("pmempool create")
        self.rpmemd = self.block("rpmemd --listen")
        self.perdured = self.block("perdured --pools")
        self.credential = self.block("rpmem.credential")
        if len(self.blocks) != 5:
            sys.exit(f"docs/rpmem.md has {len(self.blocks)} blocks of commands: this test runs 5")

    def block(self, word):
        found = [block for block in self.blocks if any(word in each[1] for each in block)]
        # What a command prints is of interest only where the page shows it.
        return [(number, command, expected if any(map(str.strip, expected)) else ANYTHING)
                for number, command, expected in only(found, f"a block with '{word}'")]


def own(command):
    """One of the test's own, in the form of the page's."""
    return (0, command, ANYTHING)


class Place:
    """Both machines, anew for each story."""

    def __init__(self, directory, page, arguments):
        objtx, library, sanitizer, *program_directories = arguments
        self.directory, self.page = directory, page
        programs = os.pathsep.join([*program_directories, os.environ.get("PATH", "/usr/bin:/bin")])
        for name in ("bin", "client", "home/mirrors", "pmem0", "pools", "sets/mirrors"):
            (directory / name).mkdir(parents=True)
        declares = "declare-domain = dmp\n" if is_in_memory(directory) else ""
        (directory / "home/.rpmemd.conf").write_text(f"use-syslog = no\n{declares}")
        stands_in = directory / "bin"
        write_program(stands_in / "ssh", SSH, {"@TARGET@": TARGET})
        write_program(stands_in / "perdured", PERDURED,
                      {"@PROGRAM@": shutil.which("perdured", path=programs), "@PORT@": page.port})
        for path, command in (
                (stands_in / "pmempool", f"'{shutil.which('pmempool')}' \"$@\""),
                (stands_in / "check-pool", f"'{objtx}' check \"$@\""),
                (directory / "client/your-program", f"'{objtx}' run \"$1\" {TRANSACTIONS}")):
            write_program(path, CLIENT,
                          {"@LIBRARY@": library, "@SANITIZER@": sanitizer, "@COMMAND@": command})
        foreign = ("RPMEM_", "PERDURE_RPMEM_", "LD_PRELOAD")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "HOME": str(directory / "home"),
            "PATH": os.pathsep.join([str(stands_in), programs]),
        }

    def run(self, commands, client_set, sets="home"):
        """Returns how many differences there are. `sets` is where the target has its own."""
        for part in self.directory.glob("*/**/db.part0"):
            part.unlink()
        (self.directory / "client/db.set").write_text(client_set)
        at_target = "\n".join(self.page.target_set[0][2]) + "\n"
        (self.directory / sets / "mirrors/db.set").write_text(
            at_target.replace(f"{self.directory}/home/", f"{self.directory}/{sets}/"))
        whole = own(f'[ "$(check-pool db.set)" = {TRANSACTIONS} ]')
        there = own(f"[ -s '{self.directory}/{sets}/mirrors/db.part0' ]")
        return check_readme.check_block(self.page.name, [*commands, there, whole],
                                        self.directory / "client", self.environment)


def stories(place, page):
    """Runs all; returns how many differences there are."""
    differences = place.run(
        [*page.target_set, own(f"{page.ssh} | grep ."), *page.client], page.set)

    listening = re.sub(r"^REPLICA .*$", page.listening, page.set, flags=re.M)
    # A moment after it was started it may not listen yet.
    wait = own(f"for i in $(seq 600); do (: </dev/tcp/127.0.0.1/{page.port}) 2>/dev/null && break; "
               "sleep 0.1; done")
    differences += place.run([*page.rpmemd, wait, *page.client], listening)

    by_connect = [each for each in page.rpmemd if each[1].startswith("export RPMEM_SSH=")]
    differences += place.run([*page.perdured, wait, *by_connect, *page.client], listening, "sets")

    config = place.directory / "perdured.toml"
    config.write_text(
        f'[rpmem]\ncredential_file = "{place.directory}/client/rpmem.credential"\n')
    nobody_else = own("! env -u PERDURE_RPMEM_CREDENTIAL_FILE check-pool db.set")
    differences += place.run(
        [*page.credential, own(f"export PERDURED_MORE='--config {config}'"), *page.perdured, wait,
         *by_connect, *page.client, nobody_else], listening, "sets")
    return differences


def main(page_name, arguments):
    if shutil.which("pmempool") is None:
        print("skipped: pmempool is not there (package pmdk-tools)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory).resolve()
        page = Page(pathlib.Path(page_name).resolve(), directory)
        place = Place(directory, page, arguments)
        differences = stories(place, page)
        log = directory / "client/perdured.log"
        if differences and log.exists():
            print(log.read_text(errors="replace"))
    print(f"{page.name}: {sum(map(len, page.blocks))} commands, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
