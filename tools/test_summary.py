#!/usr/bin/env python3
"""test_summary.py TREE...: what ctest and gtest left in TREE/results, told to a person.

Names every failed test with the end of its output. The last line is `N passed, N failed`, with
`, N skipped` when some were; programs that wrote gtest's XML count by their cases, others as one.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_LINES_MAX = 40


class Outcome:
    """Counts, and the failures as (name, output)."""

    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []

    def add(self, other):
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures += other.failures


def parse(path):
    """The root element, or None: a program that died leaves no file or half of one."""
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None


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
            outcome.skipped += 1
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
        outcome.skipped = 1
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
        before = len(outcome.failures)
        outcome.add(outcome_of_test(test, results))
        for index in range(before, len(outcome.failures)):
            name, output = outcome.failures[index]
            outcome.failures[index] = (f"{tree}: {name}", output)
    return outcome


def summary_line(outcome):
    line = f"{outcome.passed} passed, {len(outcome.failures)} failed"
    return f"{line}, {outcome.skipped} skipped" if outcome.skipped else line


def main(trees):
    total = Outcome()
    for tree in trees:
        outcome = outcome_of_tree(tree)
        total.add(outcome)
        print(f"  {tree:<34} {summary_line(outcome)}")

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
    nothing_ran = not total.failures and total.passed + total.skipped == 0
    if nothing_ran:
        print("no test matched")
    print(summary_line(total))
    return 1 if total.failures or nothing_ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
