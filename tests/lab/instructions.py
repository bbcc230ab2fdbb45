#!/usr/bin/env python3
"""Whether an append still takes as few instructions as are wanted before the transport has it.

    tests/lab/instructions.py build/release/apps/perdure/perdure

asks over tcp; the lab asks over its RNICs. They are counted, so the machine may be busy; but only
an optimised build without sanitizers means anything."""

import json
import re
import subprocess
import sys

QUESTION = "instructions"
AIR = 1.1                           # for compilers
ROUNDS_MAX = 5                      # until each question was answered by its method
SECONDS_MAX = 120                   # of one round
# By question, over tcp and rxe: the method that is judged, and what it may take. A connection
# chooses by what it measures, and another method may take the general path.
WANTED = {
    "instructions before the post": ("send-copy-ack", 300),
    "instructions before the post, one-sided": ("write-flush", 300),
    # Wanted are 300 as well. It was 356, and is 376 since messages may name nothing.
    "instructions before the post, write and message": ("write-send-flush-ack", 360),
    "instructions of an append that gathers": ("send-copy-ack", 150),
}


def method_of(finding):
    """By which the log appended, as its note says; nothing where it was not asked."""
    match = re.search(r" by (\S+) \(\w+\)$", finding["note"])
    return match.group(1) if match else None


def judged(findings, wanted):
    """What is wrong with the answers; and, by question, the methods that answered instead of the
    one that is judged."""
    wrong, others = [], {}
    by_name = {each["name"]: each for each in findings}
    for name, (method, most) in wanted.items():
        finding = by_name.get(name)
        if finding is None or finding["failure"] or finding["ours"] is None:
            why = finding["failure"] if finding else "it was not asked"
            wrong.append(f"{name}: no answer: {why}")
        elif method_of(finding) != method:
            others[name] = method_of(finding)
        elif finding["ours"] > most * AIR:
            wrong.append(
                f"{name}: {finding['ours']:.0f} by {method}, and {most} and a tenth is the most; "
                "either what was added between Log::append and the post comes out again, or a "
                "commit says why more are needed, and changes tests/lab/instructions.py and "
                "docs/benchmarks.md")
    return wrong, others


def judge_until_answered(ask, wanted):
    """Asks, and again for what a connection answered by another method. Returns what is wrong."""
    seen = {}
    for _ in range(ROUNDS_MAX):
        wrong, others = judged(ask(), wanted)
        if wrong:
            return wrong
        for name, method in others.items():
            seen.setdefault(name, set()).add(str(method))
        wanted = {name: wanted[name] for name in others}
        if not wanted:
            return []
    return [f"{name}: never by {wanted[name][0]} in {ROUNDS_MAX} connections, but by "
            f"{', '.join(sorted(seen[name]))}; whether that is planned again decides what "
            "tests/lab/instructions.py should judge" for name in wanted]


def main(program):
    def ask():
        # A target that is missed is status 1 as well; what is no answer stands in its place.
        found = subprocess.run(
            [program, "bench", "limits", "--fabric", "tcp", "--only", QUESTION, "--format", "json"],
            stdout=subprocess.PIPE, text=True, timeout=SECONDS_MAX, check=False)
        if found.returncode not in (0, 1) or not found.stdout:
            sys.exit(f"error: perdure bench limits ended with {found.returncode}")
        findings = json.loads(found.stdout)["findings"]
        for each in findings:
            print(f"{each['name']}: {each['ours']} ({each['failure'] or each['note']})")
        return findings

    wrong = judge_until_answered(ask, WANTED)
    for each in wrong:
        print(f"error: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tests/lab/instructions.py PERDURE")
    sys.exit(main(sys.argv[1]))
