#!/usr/bin/env python3
"""run.py --check, on a tree of two files."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import run

SOURCE = "int one() { return 1; }\nint two() { return 2; }\nint again() { return 2; }\n"
TEST = ("TEST(Numbers, OneIsOne) {}\nTEST_P(EachNumber, IsItself) {}\n")
RIGHT = {"name": "a", "law": "one is one", "file": "src/x/x.cc", "from": "return 1;",
         "to": "return 3;", "build": ["x_test"], "run": "src/x/x_test --gtest_filter=Numbers.One*"}


def written(mutant):
    """An entry as it stands in the list. TOML and JSON write strings and lists of them alike."""
    plain = {key: value for key, value in mutant.items() if key != "changes"}
    lines = ["[[mutant]]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
    for change in mutant.get("changes", []):
        lines += ["[[mutant.changes]]",
                  *(f"{key} = {json.dumps(value)}" for key, value in change.items())]
    return "\n".join(lines) + "\n"


def check(*changes):
    """What is said of the list of RIGHT with each of these changes."""
    return check_list(*(RIGHT | change for change in changes))


def check_list(*mutants):
    with tempfile.TemporaryDirectory() as tree:
        directory = pathlib.Path(tree, "src", "x")
        directory.mkdir(parents=True)
        (directory / "x.cc").write_text(SOURCE)
        (directory / "x_test.cc").write_text(TEST)
        listed = run.mutants_of("".join(map(written, mutants)), "list")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            bad = run.check_list(pathlib.Path(tree), listed)
        return bad, output.getvalue()


class List(unittest.TestCase):
    def test_what_is_right_passes(self):
        for change in ({}, {"run": "src/x/x_test"},
                       {"run": "src/x/x_test --gtest_filter=*/EachNumber.*:Numbers.OneIsOne"}):
            bad, said = check(change)
            self.assertEqual(bad, 0, said)

    def test_what_is_gone_or_not_one_place_is_refused(self):
        for change, words in (({"file": "src/y.cc"}, "no src/y.cc"),
                              ({"from": "return 4;"}, "0 times"),
                              ({"from": "return 2;"}, "2 times"),
                              ({"to": "return 1;"}, "changes nothing"),
                              ({"build": ["y_test"]}, "not what it builds"),
                              ({"run": "src/x/x_test --gtest_filter=Numbers.Two*"}, "Numbers.Two"),
                              ({"run": "src/x/x_test --gtest_filter=Numbers.*:No.*"}, "No.*")):
            bad, said = check(change)
            self.assertEqual(bad, 1, change)
            self.assertIn(words, said)

    def test_each_of_several_changes_is_looked_at(self):
        changes = [{key: RIGHT[key] for key in run.CHANGE},
                   {"file": "src/x/x.cc", "from": "int two", "to": "int too"}]
        several = {key: RIGHT[key] for key in run.FIELDS} | {"changes": changes}
        bad, said = check_list(several)
        self.assertEqual(bad, 0, said)
        changes[1]["from"] = "int three"
        bad, said = check_list(several)
        self.assertEqual(bad, 1)
        self.assertIn("0 times", said)

    def test_an_entry_without_what_it_changes_is_refused(self):
        for mutant in ({key: value for key, value in RIGHT.items() if key != "to"},
                       RIGHT | {"changes": [{"file": "src/x/x.cc"}]}):
            with self.assertRaisesRegex(SystemExit, "fields are"):
                check_list(mutant)

    def test_names_are_different(self):
        bad, said = check({}, {"from": "int two"})
        self.assertEqual(bad, 2, said)


if __name__ == "__main__":
    unittest.main()
