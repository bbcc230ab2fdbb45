#!/usr/bin/env python3
"""The BROI controller's logic against the simulator, and what it costs.

  check.py lockstep    verilator's models. broi_schedule.sv beside memsys::broi_priority: every case
                       of small controllers, and a million random ones of the paper's size,
                       without registers and with. broi_controller.sv beside
                       memsys::OrderingController on its PersistBuffers: a million choices of the
                       paper's size. And mutants, which must be caught
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
CONTROLLER = ("broi_controller.sv", *SOURCES)
# Of the simulator, what its controller is made of.
SIMULATOR = tuple(TREE / "src" / name for name in (
    "memsys/server/ordering.cc", "memsys/server/persist_buffers.cc"))
TIME_LIMIT_S = 240

# entries, banks, size bits, stages, cases
SMALL = ((2, 2, 2, 0, "all"), (3, 1, 2, 0, "all"))
PAPER = ((8, 8, 4, 0, "random"), (8, 8, 4, 7, "random"))
RANDOM_CASES = 1_000_000
SEED = 1

# Of a latch of one bit, in NAND2 gates: an edge-triggered D flip-flop without reset.
NAND2_OF_REGISTER = 6
# What docs/broi-hardware.md says of the paper's size; yosys of another version may differ a little.
NAND2_MAX = {("broi_schedule", 0): 4800, ("broi_schedule", 7): 6200}
DEPTH_MAX = {("broi_schedule", 0): 65, ("broi_schedule", 7): 45}


def run(command, directory):
    cache = {"OBJCACHE": "ccache"} if shutil.which("ccache") else {}
    return subprocess.run(command, cwd=directory, capture_output=True, text=True,
                          timeout=TIME_LIMIT_S, check=False, env={**os.environ, **cache})


def build(directory, shape, mutate=None):
    """Compiles lockstep.cc with verilator's model of a controller; returns the program."""
    entries, banks, size_bits, stages, _ = shape
    values = {"ENTRIES": entries, "BANKS": banks, "SIZE_BITS": size_bits, "SIGMA_SHIFT": 2,
              "LATENCY": bin(stages).count("1")}
    parameters = [f"-G{name}={values[name]}" for name in ("ENTRIES", "BANKS", "SIZE_BITS")]
    return compile_with(directory, SOURCES, (HERE / "lockstep.cc",),
                        (values, [*parameters, f"-GSTAGES={stages}"]), mutate)


def build_controller(directory, mutate=None):
    """The same for controller_lockstep.cc and the simulator's own controller."""
    values = {"ENTRIES": 8, "BANKS": 8, "SIGMA_SHIFT": 2}
    return compile_with(directory, CONTROLLER, (HERE / "controller_lockstep.cc", *SIMULATOR),
                        (values, []), mutate)


def compile_with(directory, modules, programs, values, mutate):
    directory.mkdir(parents=True, exist_ok=True)
    for name in modules:
        text = (HERE / name).read_text(encoding="utf-8")
        if mutate and mutate[0] in text:
            text = text.replace(*mutate)
        (directory / name).write_text(text, encoding="utf-8")
    constants, parameters = values
    lines = [f"inline constexpr unsigned {name} = {value};\n" for name, value in constants.items()]
    (directory / "parameters.h").write_text("#pragma once\n" + "".join(lines), encoding="utf-8")
    flags = f"-std=c++20 -O1 -I{TREE}/src -I{TREE}/include -I{directory}"
    top = pathlib.Path(modules[0]).stem
    done = run(["verilator", "-Wall", "--cc", "--exe", "--build", "-O3", "--x-assign", "fast",
                *parameters, "-CFLAGS", flags, "-LDFLAGS", "-lfmt", "--top-module", top, "-o",
                "lockstep", *modules, *map(str, programs)], directory)
    if done.returncode != 0:
        sys.exit(f"verilator: {done.stdout}{done.stderr}")
    return directory / "obj_dir" / "lockstep"


def compare(program, cases):
    arguments = ["all"] if cases == "all" else ["random", str(RANDOM_CASES), str(SEED)]
    return run([program, *arguments], program.parent)


def is_caught(name, done):
    caught = done.returncode == 1
    print(f"the mutant {name} was", "caught" if caught else "NOT caught")
    return caught


def lockstep(top):
    good = True
    for shape in SMALL + PAPER:
        entries, banks, _, stages, cases = shape
        name = f"{entries}x{banks}-{stages}"
        done = compare(build(top / name, shape), cases)
        print(f"{entries} entries, {banks} banks, {bin(stages).count('1')} registers: "
              f"{done.stdout.strip()}")
        good = good and done.returncode == 0
    program = build_controller(top / "controller")
    done = run([program, str(RANDOM_CASES), str(SEED)], program.parent)
    print(f"beside the simulator's controller: {done.stdout.strip()}")
    good = good and done.returncode == 0
    # A tie that goes to the wrong entry; a barrier that lets the write behind it through.
    mutant = build(top / "mutant", SMALL[0], (">=", ">"))
    good = is_caught("with ties the other way", compare(mutant, "all")) and good
    mutant = build_controller(top / "mutant-barrier", ("(u) < first", "(u) <= first"))
    done = run([mutant, str(RANDOM_CASES), str(SEED)], mutant.parent)
    return is_caught("with barriers one unit late", done) and good


def synthesize(top, stages):
    """NAND2 gates, inverters, registers, and the longest path in gates."""
    script = (f"read_verilog -sv {' '.join(CONTROLLER)}; chparam -set STAGES {stages} {top}; "
              f"synth -flatten -top {top}; abc -g NAND; opt_clean; stat; ltp -noff")
    done = run(["yosys", "-p", script], HERE)
    if done.returncode != 0:
        sys.exit(f"yosys: {done.stdout[-2000:]}{done.stderr}")
    last = done.stdout[done.stdout.rindex("Number of cells"):]
    cells = {name: int(count) for name, count in re.findall(r"\$_(\w+)_ +(\d+)", last)}
    depth = int(re.search(r"Longest topological path .*length=(\d+)", last).group(1))
    return cells.get("NAND", 0), cells.get("NOT", 0), cells.get("DFF_P", 0), depth


def synthesis():
    good = True
    print("module           registers  NAND2  inverters  flip-flops  NAND2 equivalents  depth")
    for top, stages in (("broi_schedule", 0), ("broi_schedule", 1), ("broi_schedule", 3),
                        ("broi_schedule", 7), ("broi_controller", 0)):
        nand, inverters, registers, depth = synthesize(top, stages)
        # An inverter as half a NAND2, which is its transistors.
        equivalents = nand + inverters // 2 + NAND2_OF_REGISTER * registers
        print(f"{top:15}  {bin(stages).count('1'):9}  {nand:5}  {inverters:9}  {registers:10}  "
              f"{equivalents:17}  {depth:5}")
        if (top, stages) in NAND2_MAX:
            good = good and 0 < equivalents <= NAND2_MAX[top, stages]
            good = good and 0 < depth <= DEPTH_MAX[top, stages]
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
