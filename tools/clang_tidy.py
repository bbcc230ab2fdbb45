#!/usr/bin/env python3
"""clang_tidy.py BUILD: clang-tidy over src, apps and bench, in bounded time.

BUILD holds the compile_commands.json of a configuration with clang and without unity sources.
Files of the last commits come first; those that the time did not suffice for are named. Exits
with 1 on a finding.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIRECTORIES = ("src/", "apps/", "bench/")
RECENT_COMMITS = 20
FILE_SECONDS_MAX = 300


def sources(build):
    """Compiled sources of the wanted directories without tests, recently changed ones first."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    files = {pathlib.Path(e["directory"], e["file"]).resolve() for e in entries}
    names = {str(f.relative_to(ROOT)) for f in files if f.is_relative_to(ROOT)}
    names = {n for n in names if n.startswith(DIRECTORIES) and not n.endswith("_test.cc")}
    log = subprocess.run(
        ["git", "-C", str(ROOT), "log", f"-{RECENT_COMMITS}", "--name-only", "--format="],
        capture_output=True, text=True, check=False,
    )
    recent = set(log.stdout.split())
    return sorted(names, key=lambda name: (name not in recent, name))


def check(tidy, build, name, deadline):
    """(name, findings or None if there was no time)."""
    seconds = min(FILE_SECONDS_MAX, deadline - time.monotonic())
    if seconds <= 0:
        return name, None
    try:
        result = subprocess.run([tidy, "-p", str(build), "--quiet", str(ROOT / name)],
                                capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return name, None
    return name, result.stdout if result.returncode != 0 else ""


def main(arguments):
    parser = argparse.ArgumentParser(description="clang-tidy in bounded time.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--clang-tidy", default="clang-tidy-14")
    parser.add_argument("--seconds", type=int, default=900, help="time for all files together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)

    build = options.build.resolve()
    names = sources(build)
    deadline = time.monotonic() + options.seconds
    found, unchecked = set(), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(check, options.clang_tidy, build, name, deadline) for name in names]
        for future in work:
            name, findings = future.result()
            if findings is None:
                unchecked.append(name)
            elif findings:
                found.add(name)
                print(findings, flush=True)

    for name in unchecked:
        print(f"not checked, the time was over: {name}")
    checked = len(names) - len(unchecked)
    print(f"clang-tidy: {checked} of {len(names)} files, {len(found)} with findings")
    return 1 if found or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
