#!/usr/bin/env python3
"""Shows for each law that some test fails when it is broken: applies one mutant at a time.

Works in a scratch copy of the tree, with a build directory of its own that is kept between mutants
and runs. First the tests must pass without any mutant. Prints a line for each mutant; fails when
one survives, does not build, or changes a line that is no longer there.

  tools/mutants/run.py --scratch ../mutants
  tools/mutants/run.py --scratch ../mutants --only longest-history
  tools/mutants/run.py --check    only whether every line and every test of the list is there
"""

import argparse
import fnmatch
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import tomllib

# Of the tests without a mutant. With one they have so many times what they took without, for the
# machine may be busy, and a minute beside it.
RUN_SECONDS_MAX = 3600
RUN_TIMES_MAX = 5
BUILD_SECONDS_MAX = 3600
COMMAND = "apps/perdure/perdure"  # has no gtest names
CHANGE = {"file", "from", "to"}
FIELDS = {"name", "law", "build", "run"}


TEST_OF = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)


def read_mutants(path):
    return mutants_of(path.read_text(encoding="utf-8"), path)


def mutants_of(text, path):
    """Each with its `changes`, of which most have one, as fields of their own."""
    mutants = tomllib.loads(text)["mutant"]
    for mutant in mutants:
        if "changes" not in mutant:
            mutant["changes"] = [{field: mutant.pop(field, None) for field in CHANGE}]
        whole = all(change.keys() == CHANGE and None not in change.values()
                    for change in mutant["changes"])
        if not whole or mutant.keys() != FIELDS | {"changes"}:
            raise SystemExit(f"{path}: mutant {mutant.get('name')}: fields are {sorted(FIELDS)}, "
                             f"and {sorted(CHANGE)} or `changes` with several of those")
    return mutants


def tests_below(directory):
    """The names that gtest gives to the tests of the sources there."""
    names = []
    for source in sorted(directory.rglob("*_test.cc")):
        for suite, name in TEST_OF.findall(source.read_text(encoding="utf-8")):
            names += [f"{suite}.{name}", f"Any/{suite}.{name}/0"]
    return names


def wrong_with(root, mutant):
    """What is wrong with an entry of the list, as far as the sources tell."""
    for change in mutant["changes"]:
        path = root / change["file"]
        if not path.is_file():
            yield f"there is no {change['file']}"
        elif (times := path.read_text(encoding="utf-8").count(change["from"])) != 1:
            yield f"{change['file']} has its line {times} times"
        if change["from"] == change["to"]:
            yield "it changes nothing"
    program, *arguments = shlex.split(mutant["run"])
    if pathlib.PurePath(program).name not in map(lambda each: pathlib.PurePath(each).name,
                                                 mutant["build"]):
        yield f"{program} is not what it builds"
    if program == COMMAND:
        return
    names = tests_below(root / pathlib.PurePath(program).parent)
    option = "--gtest_filter="
    filters = [words[len(option):] for words in arguments if words.startswith(option)]
    for pattern in ":".join(filters or ["*"]).split(":"):
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            yield f"no test of {program} is called {pattern}"


def check_list(root, mutants):
    """Prints what is wrong with the list. How many entries are."""
    names = [mutant["name"] for mutant in mutants]
    bad = 0
    for mutant in mutants:
        problems = list(wrong_with(root, mutant))
        if names.count(mutant["name"]) != 1:
            problems.append("another one has its name")
        for problem in problems:
            print(f"{mutant['name']}: {problem}")
        bad += bool(problems)
    print(f"{len(mutants)} mutants, {bad} of them wrong")
    return bad


def copy_tree(root, scratch):
    """Brings the copy to what is tracked, leaving files that are the same with their times."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = {name for name in names if (root / name).is_file()}
    for name in wanted:
        target = scratch / name
        content = (root / name).read_bytes()
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod((root / name).stat().st_mode)
    for path in scratch.rglob("*"):
        name = path.relative_to(scratch)
        if path.is_file() and name.parts[0] != "build" and str(name) not in wanted:
            path.unlink()


def build(options, targets):
    command = shlex.split(options.build_command) + ["-C", str(options.build), *targets]
    # What ccache keeps of another tree may name that tree's files as what an object depends on:
    # then the changed one is not compiled again, and its mutant seems to survive.
    environment = dict(os.environ, CCACHE_DISABLE="1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX,
                          env=environment)
    return done.returncode == 0, done.stdout + done.stderr


def run(options, words, seconds_max):
    """True if the test passes. One that takes too long has failed."""
    command = shlex.split(words)
    command[0] = str(options.build / command[0])
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=options.build,
                              timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return False, "it never ended"
    return done.returncode == 0, done.stdout + done.stderr


def try_mutant(options, mutant, usual_seconds):
    """What became of it: a word, and what to show when that is not `killed`."""
    originals = {}
    try:
        for change in mutant["changes"]:
            path = options.scratch / change["file"]
            text = path.read_text(encoding="utf-8")
            originals.setdefault(path, text)
            if text.count(change["from"]) != 1:
                return "gone", f"{change['file']} has this line {text.count(change['from'])} times"
            path.write_text(text.replace(change["from"], change["to"]), encoding="utf-8")
        built, output = build(options, mutant["build"])
        if not built:
            return "does not build", output[-2000:]
        passed, output = run(options, mutant["run"], 60 + RUN_TIMES_MAX * usual_seconds)
        return ("SURVIVED", output[-500:]) if passed else ("killed", "")
    finally:
        for path, text in originals.items():
            path.write_text(text, encoding="utf-8")


def check_unchanged(options, mutants):
    """Without a mutant all tests pass; else their failing says nothing. How long each takes."""
    targets = sorted({target for mutant in mutants for target in mutant["build"]})
    built, output = build(options, targets)
    if not built:
        raise SystemExit("the unchanged tree does not build:\n" + output[-3000:])
    seconds = {}
    for words in sorted({mutant["run"] for mutant in mutants}):
        begun = time.monotonic()
        passed, output = run(options, words, RUN_SECONDS_MAX)
        seconds[words] = time.monotonic() - begun
        if not passed:
            raise SystemExit(f"without any mutant this fails: {words}\n{output[-3000:]}")
    return seconds


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=here.parent.parent)
    parser.add_argument("--list", type=pathlib.Path, default=here / "mutants.toml")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--scratch", type=pathlib.Path, help="kept between runs")
    what.add_argument("--check", action="store_true", help="run nothing, look at the list")
    parser.add_argument("--only", action="append", help="the mutant of this name")
    parser.add_argument("--preset", default="mutants")
    parser.add_argument("--build-command", default="ninja", help="what builds (ninja)")
    options = parser.parse_args(arguments)

    mutants = read_mutants(options.list)
    if options.only:
        mutants = [mutant for mutant in mutants if mutant["name"] in options.only]
    if options.check:
        return 1 if check_list(options.root.resolve(), mutants) or not mutants else 0
    options.scratch = options.scratch.resolve()
    options.scratch.mkdir(parents=True, exist_ok=True)
    options.build = options.scratch / "build" / "mutants"
    copy_tree(options.root.resolve(), options.scratch)
    subprocess.run(["cmake", "--preset", options.preset, "-B", str(options.build)], check=True,
                   cwd=options.scratch, stdout=subprocess.DEVNULL)
    seconds = check_unchanged(options, mutants)

    bad = 0
    for mutant in mutants:
        begun = time.monotonic()
        outcome, output = try_mutant(options, mutant, seconds[mutant["run"]])
        bad += outcome != "killed"
        took = time.monotonic() - begun
        print(f"{outcome:<16}{mutant['name']:<32}{took:6.0f} s  {mutant['law']}", flush=True)
        if output:
            print(output, flush=True)
    print(f"{len(mutants) - bad} of {len(mutants)} mutants were killed")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
