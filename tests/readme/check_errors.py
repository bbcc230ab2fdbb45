#!/usr/bin/env python3
"""check_errors.py SOURCE: docs/errors.md says of each error and call what the public headers say.

Every ErrorCode is there with its meaning of result.h, every public call that returns a Result has a
row, no row is of a call that is not there, and whatever a call's own comment names is in its row or
in one that the row refers to.
"""
import pathlib
import re
import sys

HEADERS = ["log", "log_writer", "region", "mirror", "rpc", "replicated_rpc", "kv", "pool"]
# What handlers are given: the page says it in a sentence.
NOT_CALLED_BY_USERS = {"RpcData", "RpcTransaction"}
ROW = re.compile(r"^\| `([\w:]+)` \| (.*) \|$")


def codes_of(header):
    """{code: meaning} of result.h."""
    body = re.search(r"enum class ErrorCode \{(.*?)\n\};", header, re.S).group(1)
    return dict(re.findall(r"(\w+), +// (.*)", body))


def calls_of(header, codes):
    """{call: codes that its comment names} of one header. A declaration without a comment of its
    own has none."""
    calls, scope, comment, statement = {}, "", [], ""
    for line in header.splitlines():
        stripped = line.strip()
        if stripped.startswith("///"):
            comment.append(stripped)
            continue
        if opened := re.match(r"(?:class|struct) (\w+)[^;]*\{$", stripped):
            if line.startswith(("class", "struct")):
                scope = opened.group(1)
        if line.startswith("}"):
            scope = ""
        statement += " " + stripped
        if stripped.startswith("private:"):
            scope = "private"
        if not stripped.endswith((";", "{", "}", ":")) and stripped:
            continue
        statement = re.sub(r"Result<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>>?", "Result<x>", statement)
        found = re.match(r"\s*(?:static |virtual )*(?:std::future<)?Result<x> (\w+)\(", statement)
        if found and scope not in NOT_CALLED_BY_USERS | {"private"}:
            name = f"{scope}::{found.group(1)}" if scope else found.group(1)
            words = re.sub(r"\bnot (?:/// )?\w+", "", " ".join(comment))  # "is not Busy"
            said = set(re.findall(r"\b([A-Z]\w+)\b(?!::)", words)) & codes
            calls.setdefault(name, set()).update(said)
        statement, comment = "", []
    return calls


def rows_of(page):
    return dict(match.groups() for match in map(ROW.match, page.splitlines()) if match)


def covered(rows, call, seen=()):
    """The codes of a row and of those that it refers to."""
    words = re.findall(r"`([\w:]+)`", rows[call])
    found = {word for word in words if word not in rows}
    for word in words:
        if word in rows and word not in seen:
            found |= covered(rows, word, (*seen, call))
    return found


def check(headers, result, page):
    """What is wrong, a sentence each."""
    meanings = codes_of(result)
    codes = set(meanings)
    sections = page.split("## The calls")
    listed, rows = rows_of(sections[0]), rows_of(sections[1])
    wrong = [f"{code}: '{listed.get(code)}', and result.h says '{meaning}'"
             for code, meaning in meanings.items() if listed.get(code) != meaning]
    wrong += [f"{code} is no error" for code in listed if code not in codes]
    calls = {}
    for header in headers:
        calls.update(calls_of(header, codes))
    wrong += [f"{call} has no row" for call in calls if call not in rows]
    wrong += [f"{call} is no call that can fail" for call in rows if call not in calls]
    for call, said in calls.items():
        if call not in rows:
            continue
        have = covered(rows, call)
        wrong += [f"{call}: {code} is not in its row" for code in sorted(said - have)]
        wrong += [f"{call}: '{word}' is no error" for word in sorted(have)
                  if word[0].isupper() and word not in codes]
    return wrong


def main():
    source = pathlib.Path(sys.argv[1])
    public = source / "include" / "perdure"
    headers = [(public / f"{name}.h").read_text() for name in HEADERS]
    result = (public / "result.h").read_text()
    page = (source / "docs" / "errors.md").read_text()
    wrong = check(headers, result, page)
    # It would notice: without a row, without a code, with another meaning.
    for change in (("| `Region::wait` |", "| `Region::weight` |"),
                   ("`TimedOut`, `OutcomeUnknown` (also when fenced: `write`",
                    "`TimedOut` (also when fenced: `write`"),
                   ("the ring has no room", "the ring has room")):
        if page.count(change[0]) != 1:
            wrong.append(f"'{change[0]}' is not there once")
        elif not check(headers, result, page.replace(*change)):
            wrong.append(f"'{change[1]}' was not noticed")
    for each in wrong:
        print(f"docs/errors.md: {each}")
    if not wrong:
        print("docs/errors.md agrees with the headers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
