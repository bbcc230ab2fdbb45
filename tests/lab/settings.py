"""Where the lab keeps things, its knobs, and the line that tells what goes on."""

import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = TOP / "build" / "lab"       # of this clone: Perdure for the guest, logs, results
PERDURE_TREE = BUILD / "perdure"
SHARE = BUILD / "share"             # what the guests see of this machine
LOGS = BUILD / "logs"

# The kernel's suite is one whose kernel was compiled with about this machine's compiler (siw.ko is
# built here) and not older than 6.2 (rxe has FLUSH and ATOMIC WRITE from there on). rdma-core has
# flush from 45 on; Debian 12 has 44. Plugins of QEMU can read registers from 9.1 on.
KERNEL_SUITE = "bookworm-backports"
# Debian 12's own kernel, 6.1: one that still pins a file's pages for an RNIC (until Linux 6.5).
OLD_KERNEL_SUITE = "bookworm"
USER_SUITE = "trixie"
QEMU_SUITE = "bookworm-backports"
ARCHITECTURE = "amd64"

GUEST_MEMORY_MIB = 512
NVDIMM_MIB = 64
DRIVE_MIB = 128
BOOT_SECONDS_MAX = 120              # 4 s on an idle machine
COMMAND_SECONDS_MAX = 60            # of one command in a guest, where nothing else is said
LONG = os.environ.get("PERDURE_SOAK") == "1"
CUTS = 1200 if LONG else 20         # of power, shared by the scenarios that cut it

_begin = time.monotonic()


def cache_directory():
    """PERDURE_LAB_CACHE, else perdure/lab in the user's cache directory."""
    chosen = os.environ.get("PERDURE_LAB_CACHE")
    if chosen:
        return pathlib.Path(chosen).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "perdure" / "lab"


def say(text):
    """One line of progress on standard error, with the seconds since the start."""
    print(f"[lab {time.monotonic() - _begin:7.1f} s] {text}", file=sys.stderr, flush=True)


class LabError(Exception):
    """Something that the lab needs did not work; the text says what and what to do."""
