#!/usr/bin/env python3
"""test_summary.py TREE...: what ctest and gtest left in TREE/results, told to a person.

Names every skipped test with its reason, and every failed one with the end of its output. The last
line is `N passed, N failed`, with `, N skipped` when some were; programs that wrote gtest's XML
count by their cases, others as one.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_LINES_MAX = 40


class Outcome:
    """The count of what passed, the failures as (name, output), the skipped as (name, reason)."""

    def __init__(self):
        self.passed = 0
        self.skips = []
        self.failures = []

    def add(self, other, prefix=""):
        self.passed += other.passed
        self.skips += [(prefix + name, reason) for name, reason in other.skips]
        self.failures += [(prefix + name, output) for name, output in other.failures]


def parse(path):
    """The root element, or None: a program that died leaves no file or half of one."""
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None


def reason_of(element):
    """Why a test or a case was skipped, in one line; empty when nobody says."""
    skipped = element.find("skipped")
    text = skipped.get("message") if skipped is not None else ""
    return ((text or "").strip().splitlines() or [""])[-1]


def outcome_of_cases(program, root):
    """The cases of one gtest program."""
    outcome = Outcome()
    for case in root.iter("testcase"):
        name = f"{program}: {case.get('classname')}.{case.get('name')}"
        failures = case.findall("failure")
        if failures:
            outcome.failures.append((name, "\n".join(f.text or "" for f in failures)))
        elif case.get("status") == "notrun":
            continue  # not selected by the filter
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            outcome.skips.append((name, reason_of(case)))
        else:
            outcome.passed += 1
    return outcome


def outcome_of_test(test, results):
    """One test of ctest: its cases where there are any, else itself."""
    name = test.get("name")
    status = test.get("status")
    output = test.findtext("system-out") or ""
    cases = parse(results / f"{name}.xml")
    outcome = Outcome()

    if cases is not None:
        outcome = outcome_of_cases(name, cases)
        if status == "fail" and not outcome.failures:
            beyond = f"{name}: outside its cases (leak, crash at exit, timeout)"
            outcome.failures.append((beyond, output))
    elif status == "fail":
        outcome.failures.append((name, output or (test.get("message") or "no output")))
    elif status in ("notrun", "disabled"):
        outcome.skips.append((name, reason_of(test)))
    else:
        outcome.passed = 1
    return outcome


def outcome_of_tree(tree):
    """All tests of one build directory."""
    results = pathlib.Path(tree) / "results"
    outcome = Outcome()
    root = parse(results / "ctest.xml")
    if root is None:
        outcome.failures.append((f"{tree}: ctest", f"left no result in {results}"))
        return outcome
    for test in root.iter("testcase"):
        outcome.add(outcome_of_test(test, results), f"{tree}: ")
    return outcome


def summary_line(outcome):
    line = f"{outcome.passed} passed, {len(outcome.failures)} failed"
    return f"{line}, {len(outcome.skips)} skipped" if outcome.skips else line


def main(trees):
    total = Outcome()
    for tree in trees:
        outcome = outcome_of_tree(tree)
        total.add(outcome)
        print(f"  {tree:<34} {summary_line(outcome)}")

    if total.skips:
        print("\nSkipped:")
    for name, reason in total.skips:
        print(f"  {name}: {reason}" if reason else f"  {name}")
    for name, output in total.failures:
        lines = output.strip().splitlines()
        print(f"\nFAILED {name}")
        if len(lines) > OUTPUT_LINES_MAX:
            print(f"    ... {len(lines) - OUTPUT_LINES_MAX} lines before")
        for line in lines[-OUTPUT_LINES_MAX:]:
            print(f"    {line}")
    if total.failures:
        print("\nFailed:")
        for name, _ in total.failures:
            print(f"  {name}")
    nothing_ran = not total.failures and total.passed + len(total.skips) == 0
    if nothing_ran:
        print("no test matched")
    print(summary_line(total))
    return 1 if total.failures or nothing_ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
