#!/usr/bin/env python3
"""Makes the table of recorded programs in docs/simulator.md again: `perdure sim record` on
programs on Debian's libpmemobj, of one thread, of several, and of several processes.

  record_programs.py [--perdure build/release/apps/perdure/perdure] [--place /dev/shm]

Needs libpmemobj-dev, whose examples it compiles; they include a header that Debian leaves out, so
what they use of it is here. What the programs write goes to a directory that is removed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = pathlib.Path("/usr/share/doc/libpmemobj-dev/examples")
EX_COMMON = """
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#define CREATE_MODE_RW (S_IWUSR | S_IRUSR)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
static inline int file_exists(const char* path) { return access(path, F_OK); }
static inline int find_last_set_64(uint64_t value) { return 63 - __builtin_clzll(value); }
"""
MAPS = ("map", "tree_map", "hashmap", "list_map")
MAP_SOURCES = ("map/mapcli.c", "map/map.c", "map/map_*.c", "tree_map/*.c", "hashmap/*.c",
               "list_map/*.c")
# Program, sources below EXAMPLES, flags.
PROGRAMS = (("mapcli", MAP_SOURCES, [f"-I{EXAMPLES}", *(f"-I{EXAMPLES}/{each}" for each in MAPS)]),
            ("pi", ("pi.c",), []))
# Program, sources of the tree, flags.
OWN = (("objtx", "tests/compat/objtx.c", []),
       ("client", "tests/interpose/client.c", ["-lpmem", "-lpmem2"]))
# Name and shell command of each row, in the directory with the programs.
ROWS = (("mapcli, hashmap_tx", "echo 'n 200' | ./mapcli hashmap_tx pool 1"),
        ("mapcli, btree", "echo 'n 200' | ./mapcli btree pool 1"),
        ("mapcli, rbtree", "echo 'n 200' | ./mapcli rbtree pool 1"),
        ("objtx", "./objtx create set && ./objtx run set 200"),
        ("pi, 64 threads", "./pi pool calc 64 640000"),
        ("client, 8 threads", "./client obj pool 200 8"),
        ("mapcli, hashmap_tx, 4 processes with a pool each",
         "for i in 1 2 3 4; do echo 'n 200' | ./mapcli hashmap_tx pool$i $i & done; wait"))


def compile_all(place):
    (place / "ex_common.h").write_text(EX_COMMON, encoding="utf-8")
    (place / "set").write_text(f"PMEMPOOLSET\n10M {place}/pool\n", encoding="utf-8")
    compiler = ["cc", "-O2", "-w", f"-I{place}"]
    libraries = ["-lpmemobj", "-lpthread", "-lm"]
    for name, patterns, flags in PROGRAMS:
        sources = sorted({path for each in patterns for path in EXAMPLES.glob(each)})
        subprocess.run([*compiler, *flags, "-o", place / name, *sources, *libraries], check=True)
    for name, source, flags in OWN:
        subprocess.run([*compiler, "-o", place / name, TREE / source, *libraries, *flags],
                       check=True)


def record(perdure, place, command):
    for pool in place.glob("pool*"):
        pool.unlink()
    done = subprocess.run([perdure, "sim", "record", "--scratch", place, "--output",
                           place / "trace", "--format", "json", "--", "sh", "-c", command],
                          cwd=place, capture_output=True, text=True, check=False,
                          env={**os.environ, "PMEM_IS_PMEM_FORCE": "1"})
    if done.returncode != 0:
        sys.exit(f"'{command}' was not recorded: {done.stderr}")
    return json.loads(done.stdout)


def row(name, document):
    gains = document["gains"]
    first, faster = gains["devices"]
    orders = {each["order"]: each for each in first["orders"]}
    cells = [name, f"{document['all']['changed_lines']:,}", f"{document['all']['epochs']:,}",
             f"{document['unflushed_lines']}" if "unflushed_lines" in document else "",
             f"{orders['sync']['ns'] / 1e3:.0f}",
             *(f"{orders[each]['over_sync']:.2f} x" for each in ("epoch", "broi", "eadr")),
             f"{faster['over_first_device']:.2f} x",
             f"{gains['network']['bsp_over_sync']:.2f} x"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--perdure", default=TREE / "build/release/apps/perdure/perdure")
    parser.add_argument("--place", default="/dev/shm")
    options = parser.parse_args()
    perdure = pathlib.Path(options.perdure).resolve()
    with tempfile.TemporaryDirectory(dir=options.place) as directory:
        place = pathlib.Path(directory)
        compile_all(place)
        print("| program | changed lines | epochs | not as flushed | `sync`, us | `epoch` | `broi` "
              "| `eadr` | cells in half the time | BSP over sync, network |")
        for name, command in ROWS:
            print(row(name, record(perdure, place, command)), flush=True)


if __name__ == "__main__":
    main()
