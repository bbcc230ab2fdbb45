"""Runs other programs of this machine, and knows which ones the lab needs."""

import pathlib
import shutil
import subprocess

from settings import LabError

# Program, Debian package. tools/packages.txt lists the packages as the group `lab`.
NEEDED = (
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("strip", "binutils"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("bc", "bc"),
    ("cmake", "cmake"),
    ("ninja", "ninja-build"),
    ("ccache", "ccache"),
)
# The newer QEMU is only unpacked: what it links and its firmware come with the machine's own.
NEEDED_FILES = (
    ("/usr/share/seabios/bios-256k.bin", "qemu-system-x86"),
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def find(program):
    """Also finds what lies in sbin, which is not in everybody's PATH."""
    return shutil.which(program) or shutil.which(program, path=SYSTEM_PATH)


def missing():
    """What this machine lacks, as "program (package)"; empty when the lab can run."""
    lacks = [f"{program} ({package})" for program, package in NEEDED if not find(program)]
    lacks += [f"{file} ({package})" for file, package in NEEDED_FILES
              if not pathlib.Path(file).exists()]
    return lacks


def run(command, seconds=600, **options):
    """Runs a program to its end and returns its standard output as text.

    Raises LabError with the end of its output when it fails or takes longer than that.
    """
    command = [str(word) for word in command]
    command[0] = find(command[0]) or command[0]
    options.setdefault("stdin", subprocess.DEVNULL)
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False, **options)
    except FileNotFoundError as error:
        raise LabError(f"{command[0]}: not found; see `tests/lab/lab check`") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(command)}: not done within {seconds} s") from error
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        end = (output + done.stderr.decode(errors="replace")).strip().splitlines()[-15:]
        raise LabError(f"{' '.join(command)}: status {done.returncode}\n  " + "\n  ".join(end))
    return output
