#!/usr/bin/env python3
"""check_readme.py README PROGRAM-DIRECTORY...: what the README shows is what happens.

Runs every ```console block, each in a shell of its own but all in one empty directory: lines that
begin with `$ ` are commands (continued on lines that begin with `> `), the lines below are what
they print. Ports of 127.0.0.1 become free ones. In the expected output `...` stands for anything
inside a line, and alone on a line for any number of lines. Commands of ```sh blocks are not run
(they install and build); those that start with ./ must exist.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

BLOCK_SECONDS_MAX = 100
MARK = "==check-readme=="


def blocks_of(text, language):
    """Yields (line number of the first line inside, lines) of each fenced block."""
    inside, start = None, 0
    for number, line in enumerate(text.split("\n"), 1):
        if inside is None and re.fullmatch(r"```" + language + r"\s*", line):
            inside, start = [], number + 1
        elif inside is not None and line.startswith("```"):
            yield start, inside
            inside = None
        elif inside is not None:
            inside.append(line)


def commands_of(start, lines):
    """[(line number, command, expected lines)] of a console block."""
    commands = []
    for number, line in enumerate(lines, start):
        if line.startswith("$ "):
            commands.append((number, line[2:], []))
        elif line.startswith("> ") and commands and not commands[-1][2]:
            number, command, expected = commands.pop()
            commands.append((number, command + "\n" + line[2:], expected))
        elif commands:
            commands[-1][2].append(line)
    return commands


def matches(expected, printed):
    """True if the printed lines are the expected ones, `...` standing for anything."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            parts = [re.escape(part.rstrip()) for part in line.rstrip().split("...")]
            pattern += r"[^\n]*".join(parts) + r"[ \t]*\n"
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in printed)) is not None


# What the shell itself says about a job of the block that was killed.
JOB_NOTICE = re.compile(r"bash: line \d+: +\d+ Killed .*")


def run_block(commands, directory, environment):
    """[(lines printed, exit code)] for each command; stops short if the shell ends before."""
    script = "".join(
        f"{{ {command}\n}} 2>&1 </dev/null\nprintf '\\n{MARK} %d\\n' $?\n"
        for _, command, _ in commands
    )
    # Into a file: a pipe would stay open for as long as a program in the background.
    with tempfile.TemporaryFile("w+") as output_file:
        shell = subprocess.Popen(["bash", "-c", script], cwd=directory, env=environment,
                                 stdout=output_file, stderr=output_file, start_new_session=True)
        try:
            shell.wait(BLOCK_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(shell.pid, signal.SIGKILL)  # and what the block left in the background
        except ProcessLookupError:
            pass
        shell.wait()
        output_file.seek(0)
        output = output_file.read()

    results, printed = [], []
    for line in output.split("\n"):
        mark = re.fullmatch(re.escape(MARK) + r" (\d+)", line)
        if mark:
            while printed and not printed[-1].strip():
                printed.pop()
            results.append((printed, int(mark.group(1))))
            printed = []
        elif not JOB_NOTICE.fullmatch(line):
            printed.append(line)
    return results


def check_block(readme, commands, directory, environment):
    """Prints each difference; returns how many there are."""
    results = run_block(commands, directory, environment)
    differences = 0
    for index, (number, command, expected) in enumerate(commands):
        while expected and not expected[-1].strip():
            expected.pop()
        if index >= len(results):
            print(f"{readme}:{number}: `{command}` did not end within {BLOCK_SECONDS_MAX} s")
            return differences + 1
        printed, code = results[index]
        if code != 0 or not matches(expected, printed):
            differences += 1
            print(f"{readme}:{number}: `{command}` exits with {code} and prints")
            print("\n".join(f"    {line}" for line in printed))
            print("  where the README says")
            print("\n".join(f"    {line}" for line in expected))
    return differences


def check_scripts(readme, text):
    """The ./scripts that the README names exist and can be run."""
    differences = 0
    for start, lines in blocks_of(text, "sh"):
        for number, line in enumerate(lines, start):
            script = re.match(r"\./\S+", line)
            if script and not os.access(readme.parent / script.group(0), os.X_OK):
                print(f"{readme}:{number}: {script.group(0)} is not there or not executable")
                differences += 1
    return differences


def with_free_ports(text):
    """The text with a free port of loopback in place of each that it names: behind the README's own
    ports may be daemons of the user's."""
    sockets = {}
    for port in dict.fromkeys(re.findall(r"\b127\.0\.0\.1:(\d+)", text)):
        sockets[port] = socket.socket()
        sockets[port].bind(("127.0.0.1", 0))
    free = {port: str(each.getsockname()[1]) for port, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return re.sub(r"\b(127\.0\.0\.1:)(\d+)", lambda at: at[1] + free[at[2]], text)


def main(readme_name, program_directories):
    readme = pathlib.Path(readme_name).resolve()
    text = with_free_ports(readme.read_text(encoding="utf-8"))
    path = os.pathsep.join([*program_directories, os.environ.get("PATH", "/usr/bin:/bin")])
    environment = {**os.environ, "PATH": path}
    blocks = [commands_of(start, lines) for start, lines in blocks_of(text, "console")]

    differences = check_scripts(readme, text)
    with tempfile.TemporaryDirectory() as directory:
        for commands in blocks:
            differences += check_block(readme, commands, directory, environment)
    count = sum(len(commands) for commands in blocks)
    print(f"{readme.name}: {count} commands, {differences} differences")
    return 1 if differences or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
