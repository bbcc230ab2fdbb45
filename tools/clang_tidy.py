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


def prepare(build, directory):
    """Writes a compilation database into `directory`; {source: the sources it stands for}."""
    directory.mkdir(parents=True, exist_ok=True)
    alike = {}  # command: entry, sources
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"])
        stands_for = [p for p in parts(path) if wanted(p)]
        if stands_for:
            alike.setdefault(compiled_alike(entry), (entry, []))[1].extend(stands_for)
    entries, sources = [], {}
    for entry, all_sources in alike.values():
        for at in range(0, len(all_sources), SOURCES_TOGETHER_MAX):
            stands_for = all_sources[at:at + SOURCES_TOGETHER_MAX]
            # The analyzer looks at functions of included files only below a name like this.
            name = directory / f"UnifiedSource_{len(entries)}.cc"
            name.write_text("".join(f'#include "{p}"\n' for p in stands_for), encoding="utf-8")
            command = entry["command"].replace(entry["file"], str(name))
            entries.append({"directory": entry["directory"], "file": str(name),
                            "command": command})
            sources[name] = stands_for
    (directory / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
    return sources


def check(options, directory, source):
    """What clang-tidy says of `source` where it finds something, else nothing."""
    without = "-bugprone-suspicious-include" + ("" if options.analyze else ",-clang-analyzer-*")
    command = [options.clang_tidy, "-p", str(directory), "--quiet", f"--checks={without}",
               f"--header-filter=/({'|'.join(DIRECTORIES)}|include)/[^ ]*[.](h|cc)$", str(source)]
    try:
        result = subprocess.run(command, capture_output=True, text=True,
                                timeout=SOURCE_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return f"{source}: not done in {SOURCE_SECONDS_MAX} s"
    return (result.stdout or result.stderr) if result.returncode != 0 else ""


def main(arguments):
    parser = argparse.ArgumentParser(description="clang-tidy over whole unity sources.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--clang-tidy", default="clang-tidy-14")
    parser.add_argument("--analyze", action="store_true", help="with the static analyzer")
    parser.add_argument("--only", default="", help="only sources with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)

    # Beside the sources, so that .clang-tidy is found.
    directory = options.build.resolve() / "tidy"
    sources = prepare(options.build.resolve(), directory)
    chosen = {s: p for s, p in sources.items() if any(options.only in str(f) for f in p)}
    found = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for findings in pool.map(lambda source: check(options, directory, source), chosen):
            if findings:
                found += 1
                print(findings, flush=True)

    files = sum(len(p) for p in chosen.values())
    print(f"clang-tidy: {files} files in {len(chosen)} sources, {found} with findings")
    return 1 if found or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
