#!/usr/bin/env python3
"""clang_tidy.py BUILD: clang-tidy over all of src, apps, bench, demo and testing.

BUILD is configured with clang and unity sources. Reading the headers is what takes time, so several
unity sources of a target are read as one, by the checks of .clang-tidy without the analyzer, which
takes four times as long (--analyze: with it). What the compiler warns of, its thread-safety
analysis included, is a finding too: nothing else compiles the programs with clang. Exits with 1 on
a finding.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIRECTORIES = ("src", "apps", "bench", "demo", "testing")
SOURCE_SECONDS_MAX = 900
SOURCES_TOGETHER_MAX = 24


def parts(path):
    """The sources that a compiled file stands for: those a unity source includes, or itself."""
    text = path.read_text(encoding="utf-8")
    included = re.findall(r'^#include "(.*\.cc)"$', text, re.MULTILINE)
    return [pathlib.Path(p) for p in included] if path.suffix == ".cxx" else [path]


def wanted(path):
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in DIRECTORIES


def compiled_alike(entry):
    """What two unity sources have in common when one command would do for both."""
    if not entry["file"].endswith(".cxx"):
        return entry["file"]  # it has names that others have too
    return re.sub(r" -(MT|MF|o|c) \S+", "", entry["command"].replace(entry["file"], ""))


def groups(build):
    """What is read as one: (how to compile it, its sources)."""
    alike = {}  # command: entry, sources
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"])
        stands_for = [p for p in parts(path) if wanted(p)]
        if stands_for:
            alike.setdefault(compiled_alike(entry), (entry, []))[1].extend(stands_for)
    return [(entry, sources[at:at + SOURCES_TOGETHER_MAX]) for entry, sources in alike.values()
            for at in range(0, len(sources), SOURCES_TOGETHER_MAX)]


def read_as_one(options, directory, entry, sources):
    """What clang-tidy says of the sources read as one where it finds something, else nothing."""
    # Beside the sources, so that .clang-tidy is found; `entry` is how to compile it. The analyzer
    # looks at functions of included files only below a name like this.
    digest = hashlib.sha256("".join(map(str, sources)).encode()).hexdigest()[:16]
    own = directory / digest
    own.mkdir(parents=True, exist_ok=True)
    name = own / "UnifiedSource_0.cc"
    name.write_text("".join(f'#include "{p}"\n' for p in sources), encoding="utf-8")
    command = entry["command"].replace(entry["file"], str(name))
    (own / "compile_commands.json").write_text(json.dumps(
        [{"directory": entry["directory"], "file": str(name), "command": command}]),
        encoding="utf-8")
    without = "-bugprone-suspicious-include" + ("" if options.analyze else ",-clang-analyzer-*")
    command = [options.clang_tidy, "-p", str(own), "--quiet", f"--checks={without}",
               f"--header-filter=/({'|'.join(DIRECTORIES)}|include)/[^ ]*[.](h|cc)$", str(name)]
    try:
        result = subprocess.run(command, capture_output=True, text=True,
                                timeout=SOURCE_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return f"{name}: not done in {SOURCE_SECONDS_MAX} s"
    return (result.stdout or result.stderr) if result.returncode != 0 else ""


def check(options, directory, entry, sources):
    """As read_as_one(); by halves where sources of different units have a name in common."""
    findings = read_as_one(options, directory, entry, sources)
    if len(sources) == 1 or not re.search(r"error: (redefinition of|call to '\w+' is ambiguous|"
                                          r"reference to '\w+' is ambiguous)", findings):
        return findings
    half = len(sources) // 2
    return (check(options, directory, entry, sources[:half]) +
            check(options, directory, entry, sources[half:]))


def main(arguments):
    parser = argparse.ArgumentParser(description="clang-tidy over whole unity sources.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--clang-tidy", default="clang-tidy-14")
    parser.add_argument("--analyze", action="store_true", help="with the static analyzer")
    parser.add_argument("--only", default="", help="only sources with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)

    directory = options.build.resolve() / "tidy"
    chosen = [(entry, sources) for entry, sources in groups(options.build.resolve())
              if any(options.only in str(source) for source in sources)]
    found = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for findings in pool.map(lambda group: check(options, directory, *group), chosen):
            if findings:
                found += 1
                print(findings, flush=True)

    files = sum(len(sources) for _, sources in chosen)
    print(f"clang-tidy: {files} files in {len(chosen)} sources, {found} with findings")
    return 1 if found or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
