"""Perdure, built on this machine for the guests, with the shared libraries that they lack."""

import os
import pathlib
import re
import shutil

from programs import find, run
from settings import HERE, PERDURE_TREE, SHARE, TOP, say

BUILD_SECONDS_MAX = 3600
# Target, and where the tree leaves its program.
TARGETS = {
    "perdure_command": "apps/perdure/perdure",
    "perdured": "apps/perdured/perdured",
    "perdure_lab_writer": "tests/lab/perdure_lab_writer",
    "perdure_lab_keys": "tests/lab/perdure_lab_keys",
    "perdure_lab_readers": "tests/lab/perdure_lab_readers",
    "perdure_lab_mirror": "tests/lab/perdure_lab_mirror",
    "perdure_lab_lose_page": "tests/lab/perdure_lab_lose_page",
    "perdure_lab_rpma_lat": "tests/lab/perdure_lab_rpma_lat",
    "perdure_lab_remote_shell": "tests/lab/perdure_lab_remote_shell",
    "rpmemd": "apps/rpmemd/rpmemd",
    "perdure-rpmem-connect": "apps/perdure-rpmem-connect/perdure-rpmem-connect",
    "objtx": "tests/compat/objtx",
    "perdure_conformance_test": "tests/conformance/perdure_conformance_test",
    "perdure_pmem_test": "src/pmem/perdure_pmem_test",
}
# Loaded by programs of PMDK: target, and where the tree leaves it.
LIBRARY_TARGETS = {"rpmem": "src/librpmem/librpmem.so.1"}
# Loaded into programs by the command beside which it lies.
INTERPOSER = ("perdure_interpose", "src/interpose/libperdure-interpose.so")
# Of this machine's, where it has them.
MACHINES_OWN = ("pmempool",)
# They run on this machine.
HOST_TARGETS = ("perdure_lab_emulated_methods",)
# Not linked, but loaded by perdured and perdure when a device over tcp is opened.
LOADED = ("libfabric.so.1",)
# Libraries in front of perdured or rpmemd, each of one source.
PRELOADED = ("on_demand_in_name", "rights_stay", "count_registrations",
             "part_on_device")
# These belong to the guest's libc, compiler run time and rdma-core, never to this machine's.
GUESTS_OWN = re.compile(r"(ld-linux|libc\.|libm\.|libpthread|libdl|librt|libstdc\+\+|libgcc_s|"
                        r"libibverbs|librdmacm|libnl-)")


def build(guest, targets=tuple(TARGETS)):
    """Configures once, builds what changed, and fills the share that the guests copy from."""
    headers = guest.headers.directory / "root/usr/include"
    environment = dict(os.environ, CCACHE_BASEDIR=str(TOP), CCACHE_NOHASHDIR="1")
    say("Perdure for the guest: building")
    run(["cmake", "-S", TOP, "-B", PERDURE_TREE, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DPERDURE_TESTS=ON", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_C_COMPILER_LAUNCHER=ccache",
         "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", f"-DPERDURE_RDMA_CORE_INCLUDE={headers}"],
        env=environment)
    run(["cmake", "--build", PERDURE_TREE, "--target", *targets, *LIBRARY_TARGETS, INTERPOSER[0],
         *HOST_TARGETS], BUILD_SECONDS_MAX, env=environment)
    present = (guest.image.directory / "libraries").read_text().split()
    share([PERDURE_TREE / TARGETS[name] for name in targets], present)
    say("Perdure for the guest: built")


def share(programs, present):
    """SHARE/perdure/{bin,lib}: the programs, those of their libraries the guest lacks, and those
    that are preloaded."""
    unfinished = SHARE / "perdure.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    for name in ("bin", "lib"):
        (unfinished / name).mkdir(parents=True)
    for program in programs:
        run(["strip", program, "-o", unfinished / "bin" / program.name])
    shutil.copy(PERDURE_TREE / INTERPOSER[1], unfinished / "bin")
    own = [pathlib.Path(find(name)) for name in MACHINES_OWN if find(name)]
    for program in own:
        shutil.copy(program, unfinished / "bin")
    ours = [PERDURE_TREE / library for library in LIBRARY_TARGETS.values()]
    for each in [*programs, *own, *ours, *loaded_libraries()]:
        for name, path in libraries(each).items():
            if name not in present and not GUESTS_OWN.match(name):
                shutil.copy(path, unfinished / "lib" / name)
    for name in PRELOADED:
        run([os.environ.get("CC", "gcc"), "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
             HERE / f"{name}.c", "-o", unfinished / f"lib/{name}.so"])
    shutil.rmtree(SHARE / "perdure", ignore_errors=True)
    unfinished.rename(SHARE / "perdure")


def loaded_libraries():
    """Those that the programs load when they need them, as files of this machine."""
    listing = run(["ldconfig", "-p"])
    return [re.search(rf"{re.escape(name)} .*=> (\S+)", listing).group(1) for name in LOADED]


def libraries(file):
    """A shared library and its closure, or that of a program, as name -> file of this machine."""
    found = {}
    if ".so" in pathlib.Path(file).name:
        found[pathlib.Path(file).name] = pathlib.Path(file)
    for line in run(["ldd", file]).splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "=>":
            found[words[0]] = pathlib.Path(words[2])
    return found
