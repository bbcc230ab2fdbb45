#!/usr/bin/env python3
"""check_readme.py notices what it should."""

import contextlib
import io
import pathlib
import re
import socket
import tempfile
import unittest

import check_readme


def run(text):
    with tempfile.TemporaryDirectory() as directory:
        readme = pathlib.Path(directory, "README.md")
        readme.write_text(text)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = check_readme.main(str(readme), [])
        return code, output.getvalue()


def console(*lines):
    return "# Title\n```console\n" + "\n".join(lines) + "\n```\n"


class Readme(unittest.TestCase):
    def test_what_is_printed_must_be_what_is_shown(self):
        self.assertEqual(run(console("$ echo one", "one", "$ echo two", "two"))[0], 0)
        code, output = run(console("$ echo one", "two"))
        self.assertEqual(code, 1)
        self.assertIn("README.md:3: `echo one`", output)

    def test_dots_stand_for_anything(self):
        self.assertEqual(run(console("$ echo 12 us", "... us"))[0], 0)
        self.assertEqual(run(console("$ seq 9", "1", "...", "9"))[0], 0)
        self.assertEqual(run(console("$ seq 9", "1", "...", "10"))[0], 1)

    def test_a_failing_command_is_a_difference_even_when_it_is_silent(self):
        self.assertEqual(run(console("$ false"))[0], 1)
        self.assertEqual(run(console("$ exit 3"))[0], 1)

    def test_blocks_share_a_directory_and_commands_a_shell(self):
        text = console("$ a=1; echo $a >file", "$ echo $a", "1") + console("$ cat file", "1")
        self.assertEqual(run(text)[0], 0)

    def test_continued_commands(self):
        self.assertEqual(run(console("$ echo a \\", "> b", "a b"))[0], 0)

    def test_programs_left_in_the_background_are_ended(self):
        self.assertEqual(run(console("$ sleep 1000 &", "$ echo on", "on"))[0], 0)

    def test_a_port_becomes_a_free_one_wherever_it_stands(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            text = console(f"$ echo 127.0.0.1:{port} 127.0.0.1:{port}", "127.0.0.1:1 127.0.0.1:1")
            code, output = run(text)
        self.assertEqual(code, 1)
        used = re.findall(r"127\.0\.0\.1:(\d+)", output.split("prints")[1].split("where")[0])
        self.assertEqual(len(used), 2)
        self.assertEqual(len(set(used)), 1)
        self.assertNotEqual(int(used[0]), port)

    def test_scripts_must_be_there(self):
        self.assertEqual(run("```sh\n./missing\n```\n" + console("$ true"))[0], 1)

    def test_a_readme_that_shows_nothing_is_a_failure(self):
        self.assertEqual(run("# Title\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
