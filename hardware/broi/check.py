#!/usr/bin/env python3
"""The BROI controller's logic (broi_schedule.sv) against the simulator, and what it costs.

  check.py lockstep    verilator's model beside memsys::broi_priority: every case of small
                       controllers, a million random ones of the paper's size, with and without
                       registers; and a mutant, which must be caught
  check.py synthesis   yosys: NAND2 equivalents and depth in gates, whole and pipelined

Exit status 1: something differs, or is larger than docs/broi-hardware.md says.
"""

import argparse
import os
import pathlib
import shutil
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
SOURCES = ("broi_schedule.sv", "broi_stage.sv")
TIME_LIMIT_S = 240

# entries, banks, size bits, stages, cases
SMALL = ((2, 2, 2, 0, "all"), (3, 1, 2, 0, "all"))
PAPER = ((8, 8, 4, 0, "random"), (8, 8, 4, 7, "random"))
RANDOM_CASES = 1_000_000
SEED = 1

# Of a latch of one bit, in NAND2 gates: an edge-triggered D flip-flop without reset.
NAND2_OF_REGISTER = 6
# What docs/broi-hardware.md says of the paper's size; yosys of another version may differ a little.
NAND2_MAX = {0: 4800, 7: 6200}
DEPTH_MAX = {0: 65, 7: 45}


def run(command, directory):
    cache = {"OBJCACHE": "ccache"} if shutil.which("ccache") else {}
    return subprocess.run(command, cwd=directory, capture_output=True, text=True,
                          timeout=TIME_LIMIT_S, check=False, env={**os.environ, **cache})


def build(directory, shape, mutate=None):
    """Compiles lockstep.cc with verilator's model of a controller; returns the program."""
    entries, banks, size_bits, stages, _ = shape
    directory.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        text = (HERE / name).read_text(encoding="utf-8")
        if mutate and mutate[0] in text:
            text = text.replace(*mutate)
        (directory / name).write_text(text, encoding="utf-8")
    values = {"ENTRIES": entries, "BANKS": banks, "SIZE_BITS": size_bits, "SIGMA_SHIFT": 2,
              "LATENCY": bin(stages).count("1")}
    lines = [f"inline constexpr unsigned {name} = {value};\n" for name, value in values.items()]
    (directory / "parameters.h").write_text("#pragma once\n" + "".join(lines), encoding="utf-8")
    flags = f"-std=c++20 -O1 -I{TREE}/src -I{directory}"
    parameters = [f"-G{name}={values[name]}" for name in ("ENTRIES", "BANKS", "SIZE_BITS")]
    done = run(["verilator", "-Wall", "--cc", "--exe", "--build", "-O3", "--x-assign", "fast",
                *parameters, f"-GSTAGES={stages}", "-CFLAGS", flags, "--top-module",
                "broi_schedule", "-o", "lockstep", *SOURCES, str(HERE / "lockstep.cc")], directory)
    if done.returncode != 0:
        sys.exit(f"verilator: {done.stdout}{done.stderr}")
    return directory / "obj_dir" / "lockstep"


def compare(program, cases):
    arguments = ["all"] if cases == "all" else ["random", str(RANDOM_CASES), str(SEED)]
    return run([program, *arguments], program.parent)


def lockstep(top):
    good = True
    for shape in SMALL + PAPER:
        entries, banks, _, stages, cases = shape
        name = f"{entries}x{banks}-{stages}"
        done = compare(build(top / name, shape), cases)
        print(f"{entries} entries, {banks} banks, {bin(stages).count('1')} registers: "
              f"{done.stdout.strip()}")
        good = good and done.returncode == 0
    # A tie that goes to the wrong entry.
    mutant = build(top / "mutant", SMALL[0], (">=", ">"))
    caught = compare(mutant, "all").returncode == 1
    print("the mutant was", "caught" if caught else "NOT caught")
    return good and caught


def synthesize(stages):
    """NAND2 gates, inverters, registers, and the longest path in gates."""
    script = (f"read_verilog -sv {' '.join(SOURCES)}; chparam -set STAGES {stages} broi_schedule; "
              "synth -flatten -top broi_schedule; abc -g NAND; opt_clean; stat; ltp -noff")
    done = run(["yosys", "-p", script], HERE)
    if done.returncode != 0:
        sys.exit(f"yosys: {done.stdout[-2000:]}{done.stderr}")
    last = done.stdout[done.stdout.rindex("Number of cells"):]
    cells = {name: int(count) for name, count in re.findall(r"\$_(\w+)_ +(\d+)", last)}
    depth = int(re.search(r"Longest topological path .*length=(\d+)", last).group(1))
    return cells.get("NAND", 0), cells.get("NOT", 0), cells.get("DFF_P", 0), depth


def synthesis():
    good = True
    print("registers  NAND2  inverters  flip-flops  NAND2 equivalents  depth in gates")
    for stages in (0, 1, 3, 7):
        nand, inverters, registers, depth = synthesize(stages)
        # An inverter as half a NAND2, which is its transistors.
        equivalents = nand + inverters // 2 + NAND2_OF_REGISTER * registers
        print(f"{bin(stages).count('1'):9}  {nand:5}  {inverters:9}  {registers:10}  "
              f"{equivalents:17}  {depth:14}")
        if stages in NAND2_MAX:
            good = good and 0 < equivalents <= NAND2_MAX[stages] and 0 < depth <= DEPTH_MAX[stages]
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=("lockstep", "synthesis"))
    parser.add_argument("--build", default="build/broi", help="where verilator builds")
    options = parser.parse_args()
    good = (lockstep(pathlib.Path(options.build).resolve()) if options.what == "lockstep"
            else synthesis())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
