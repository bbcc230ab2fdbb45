"""QEMU with plugins, unpacked beside the machine's own, and our plugin pmemcrash."""

import os

from archive import Suite, write_packages
from programs import run
from settings import HERE, QEMU_SUITE

PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data")
RUN = """#!/bin/sh
# QEMU out of its unpacked packages; the BIOS is that of the machine's own package.
here=$(dirname "$(readlink -f "$0")")/unpacked/usr
export QEMU_MODULE_DIR="$here/lib/x86_64-linux-gnu/qemu"
exec "$here/bin/qemu-system-x86_64" -L "$here/share/qemu" -L /usr/share/seabios "$@"
"""


def make_qemu(into):
    """run: starts it."""
    suite = Suite(QEMU_SUITE)
    write_packages(into, suite, suite.unpack(PACKAGES, into / "unpacked"))
    script = into / "run"
    script.write_text(RUN)
    script.chmod(0o755)
    run([script, "--version"])


def make_plugin(into):
    compiler = os.environ.get("CC", "gcc")
    run([compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
         "-fvisibility=hidden", HERE / "pmemcrash.c", "-o", into / "pmemcrash.so"])
