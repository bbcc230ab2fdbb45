#!/usr/bin/env python3
"""test_summary.py, on the files that ctest and gtest write."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import test_summary

CTEST = '<testsuite name="x">{}</testsuite>'
RAN = '<testcase name="{}" classname="{}" status="run"><system-out>fine</system-out></testcase>'
FAILED = ('<testcase name="{}" classname="{}" status="fail"><failure message=""/>'
          "<system-out>boom\n==1==ERROR: LeakSanitizer</system-out></testcase>")
GTEST = '<testsuites><testsuite name="Log">{}</testsuite></testsuites>'
PASSED_CASE = '<testcase name="A" status="run" result="completed" classname="Log" />'
FAILED_CASE = ('<testcase name="B" status="run" result="completed" classname="Log">'
               '<failure message="x" type=""><![CDATA[expected 1]]></failure></testcase>')
SKIPPED_CASE = ('<testcase name="C" status="run" result="skipped" classname="Log">'
                '<skipped message="no device" /></testcase>')
UNSELECTED_CASE = '<testcase name="D" status="notrun" result="suppressed" classname="Log" />'


def run(ctest, **programs):
    """The exit code and the lines for one tree with these files."""
    with tempfile.TemporaryDirectory() as tree:
        results = pathlib.Path(tree, "results")
        results.mkdir()
        if ctest is not None:
            (results / "ctest.xml").write_text(CTEST.format(ctest))
        for name, text in programs.items():
            (results / f"{name}.xml").write_text(text)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = test_summary.main([tree])
        return code, output.getvalue().splitlines()


class Summary(unittest.TestCase):
    def test_cases_are_counted_where_there_are_any(self):
        cases = GTEST.format(PASSED_CASE * 3 + UNSELECTED_CASE)
        code, lines = run(RAN.format("log", "log") + RAN.format("tidy", "tidy"), log=cases)
        self.assertEqual((code, lines[-1]), (0, "4 passed, 0 failed"))

    def test_a_failed_case_is_named_with_its_message(self):
        cases = GTEST.format(PASSED_CASE + FAILED_CASE)
        code, lines = run(FAILED.format("log", "log"), log=cases)
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertTrue(lines[-2].endswith(": log: Log.B"))
        self.assertIn("    expected 1", lines)

    def test_a_leak_after_good_cases_is_a_failure(self):
        code, lines = run(FAILED.format("log", "log"), log=GTEST.format(PASSED_CASE))
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("    ==1==ERROR: LeakSanitizer", lines)

    def test_a_crash_leaves_no_or_half_a_file(self):
        for files in ({}, {"log": "<testsuites><testsu"}):
            code, lines = run(FAILED.format("log", "log"), **files)
            self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed"))

    def test_skipped_is_said(self):
        code, lines = run(RAN.format("log", "log"), log=GTEST.format(PASSED_CASE + SKIPPED_CASE))
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertTrue(any(line.endswith(": log: Log.C: no device") for line in lines))

    def test_what_never_ran_is_skipped_with_its_reason(self):
        test = ('<testcase name="link_siw" classname="lab" status="notrun">'
                '<skipped message="no siw.ko"/></testcase>')
        code, lines = run(RAN.format("tidy", "tidy") + test)
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertTrue(any(line.endswith(": link_siw: no siw.ko") for line in lines))

    def test_nothing_that_ran_is_no_success(self):
        self.assertEqual(run("")[0], 1)
        code, lines = run(None)
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main()
