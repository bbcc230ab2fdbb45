#!/usr/bin/env python3
"""The BROI controller's logic against the simulator, and what it costs.

  check.py lockstep    verilator's models. broi_schedule.sv beside memsys::broi_priority: every case
                       of small controllers, and a million random ones of the paper's size,
                       without registers and with. broi_controller.sv beside
                       memsys::OrderingController on its PersistBuffers: a million choices of the
                       paper's size. And mutants, which must be caught
  check.py synthesis   yosys: NAND2 equivalents and depth in gates, whole and pipelined
  check.py delay --liberty FILE
                       yosys and abc with the cells of a library: area, delay, and delay in FO4

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
RESIZING_LIMIT_S = 1800  # abc's upsize takes minutes

# entries, banks, size bits, stages, cases
SMALL = ((2, 2, 2, 0, "all"), (3, 1, 2, 0, "all"))
PAPER = ((8, 8, 4, 0, "random"), (8, 8, 4, 7, "random"))
RANDOM_CASES = 1_000_000
SEED = 1

# Of a latch of one bit, in NAND2 gates: an edge-triggered D flip-flop without reset.
NAND2_OF_REGISTER = 6
# Of the library that `delay` is given, as Debian's qflow-tech-osu018 names them.
INVERTER = "INVX1"
NAND2 = "NAND2X1"
# For delay: restructured with choices, mapped, buffered, and cells resized.
ABC_SCRIPT = ("+strash;ifraig;scorr;dc2;dch,-f;map,-B,0.9;topo;buffer,-c;"
              "upsize,-D,1000;dnsize,-D,1000;stime,-p")
# Top module and where it has rows of registers.
VARIANTS = (("broi_schedule", 0), ("broi_schedule", 1), ("broi_schedule", 3),
            ("broi_schedule", 7), ("broi_controller", 0))
# What docs/broi-hardware.md says of the paper's size; yosys of another version may differ a little.
NAND2_MAX = {("broi_schedule", 0): 4800, ("broi_schedule", 7): 6200}
DEPTH_MAX = {("broi_schedule", 0): 65, ("broi_schedule", 7): 45}


def run(command, directory, limit_s=TIME_LIMIT_S):
    cache = {"OBJCACHE": "ccache"} if shutil.which("ccache") else {}
    return subprocess.run(command, cwd=directory, capture_output=True, text=True,
                          timeout=limit_s, check=False, env={**os.environ, **cache})


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
    for top, stages in VARIANTS:
        nand, inverters, registers, depth = synthesize(top, stages)
        # An inverter as half a NAND2, which is its transistors.
        equivalents = nand + inverters // 2 + NAND2_OF_REGISTER * registers
        print(f"{top:15}  {bin(stages).count('1'):9}  {nand:5}  {inverters:9}  {registers:10}  "
              f"{equivalents:17}  {depth:5}")
        if (top, stages) in NAND2_MAX:
            good = good and 0 < equivalents <= NAND2_MAX[top, stages]
            good = good and 0 < depth <= DEPTH_MAX[top, stages]
    return good


def block(text, head):
    """What the braces behind `head` hold."""
    at = text.find(head)
    if at < 0:
        sys.exit(f"the library has no '{head}': it needs {INVERTER} and {NAND2}, with tables")
    start = text.index("{", at) + 1
    depth, end = 1, start
    while depth > 0:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[start:end - 1]


def numbers(text):
    return [float(each) for each in re.findall(r"[-+.\de]+", text)]


def value_of(text, name):
    return numbers(re.search(rf"\b{name}\s*:\s*([^;]+);", text).group(1))[0]


def table(cell, name):
    """A function of load and slew, linear between the table's points."""
    text = block(cell, f"{name}(")
    loads, slews = (numbers(re.search(rf"index_{i}\s*\(([^)]*)\)", text).group(1))
                    for i in (1, 2))
    values = numbers(re.search(r"values\s*\(([^)]*)\)", text).group(1))

    def place(axis, at):
        i = max(k for k in range(len(axis) - 1) if k == 0 or axis[k] <= at)
        return i, (at - axis[i]) / (axis[i + 1] - axis[i])

    def at(load, slew):
        i, u = place(loads, load)
        j, v = place(slews, slew)
        row = [values[k * len(slews) + j] * (1 - v) + values[k * len(slews) + j + 1] * v
               for k in (i, i + 1)]
        return row[0] * (1 - u) + row[1] * u

    return at


def fo4_ps(library):
    """An inverter with four of its own inputs, at the slew that a chain of them settles at."""
    cell = block(library, f"cell ({INVERTER})")
    load = 4 * value_of(cell, "capacitance")
    names = ("cell_fall", "fall_transition", "cell_rise", "rise_transition")
    fall, fall_slew, rise, rise_slew = (table(cell, name) for name in names)
    slew = 0.1
    for _ in range(100):
        slew = rise_slew(load, fall_slew(load, slew))  # of a rising output
    falling = fall_slew(load, slew)
    return 1000 * (fall(load, slew) + rise(load, falling)) / 2


def synthesize_cells(top, stages, liberty):
    """Area of the cells, and the longest path in ps: no wires, no setup."""
    script = (f"read_verilog -sv {' '.join(CONTROLLER)}; chparam -set STAGES {stages} {top}; "
              f"synth -flatten -top {top}; dfflibmap -liberty {liberty}; "
              f"abc -liberty {liberty} -script {ABC_SCRIPT}; opt_clean; stat -liberty {liberty}")
    done = run(["yosys", "-p", script], HERE, RESIZING_LIMIT_S)
    if done.returncode != 0:
        sys.exit(f"yosys: {done.stdout[-2000:]}{done.stderr}")
    area = float(re.findall(r"Chip area for .*: ([\d.]+)", done.stdout)[-1])
    return area, float(re.findall(r"Delay = +([\d.]+) ps", done.stdout)[-1])


def delay(liberty):
    library = liberty.read_text(encoding="utf-8")
    fo4 = fo4_ps(library)
    nand2 = value_of(block(library, f"cell ({NAND2})"), "area")
    print(f"FO4: {fo4:.1f} ps; {NAND2}: {nand2:.0f} um2")
    print("module           registers  cells, um2  in NAND2  delay, ps   FO4")
    for top, stages in VARIANTS:
        area, picoseconds = synthesize_cells(top, stages, liberty)
        print(f"{top:15}  {bin(stages).count('1'):9}  {area:10.0f}  {area / nand2:8.0f}  "
              f"{picoseconds:9.0f}  {picoseconds / fo4:4.0f}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=("lockstep", "synthesis", "delay"))
    parser.add_argument("--build", default="build/broi", help="where verilator builds")
    parser.add_argument("--liberty", type=pathlib.Path, metavar="FILE",
                        help="the cells of a process, for delay")
    options = parser.parse_args()
    if (options.what == "delay") != (options.liberty is not None):
        parser.error("delay needs --liberty, and nothing else takes it")
    if options.what == "delay":
        good = delay(options.liberty.resolve())
    elif options.what == "lockstep":
        good = lockstep(pathlib.Path(options.build).resolve())
    else:
        good = synthesis()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
