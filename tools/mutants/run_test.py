#!/usr/bin/env python3
"""run.py --check, on a tree of two files."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import run

SOURCE = "int one() { return 1; }\nint two() { return 2; }\nint again() { return 2; }\n"
TEST = ("TEST(Numbers, OneIsOne) {}\nTEST_P(EachNumber, IsItself) {}\n")
RIGHT = {"name": "a", "law": "one is one", "file": "src/x/x.cc", "from": "return 1;",
         "to": "return 3;", "build": ["x_test"], "run": "src/x/x_test --gtest_filter=Numbers.One*"}


def check(*changes):
    """What is said of the list of RIGHT with each of these changes."""
    with tempfile.TemporaryDirectory() as tree:
        directory = pathlib.Path(tree, "src", "x")
        directory.mkdir(parents=True)
        (directory / "x.cc").write_text(SOURCE)
        (directory / "x_test.cc").write_text(TEST)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            bad = run.check_list(pathlib.Path(tree), [RIGHT | change for change in changes])
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

    def test_names_are_different(self):
        bad, said = check({}, {"from": "int two"})
        self.assertEqual(bad, 2, said)


if __name__ == "__main__":
    unittest.main()
