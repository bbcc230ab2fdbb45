"""The guest's user land, the headers that belong to it, and the initramfs of all."""

import os
import pathlib
import shutil
import subprocess

import kernel
from archive import Suite, write_packages
from programs import SYSTEM_PATH, find, run
from settings import HERE, USER_SUITE, LabError

PACKAGES = ("busybox-static", "dash", "libstdc++6", "libnuma1", "iproute2", "ibverbs-providers",
            "ibverbs-utils", "rdmacm-utils", "perftest", "ndctl", "e2fsprogs", "btrfs-progs",
            "dmsetup")
HEADER_PACKAGES = ("libibverbs-dev", "librdmacm-dev")
PROGRAMS = ("dash", "ip", "tc", "rdma", "ndctl", "mke2fs", "e2fsck", "filefrag", "mkfs.btrfs",
            "dmsetup",
            "ibv_devinfo", "ibv_devices", "ibv_rc_pingpong", "rping", "ucmatose",
            "ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat", "ib_write_bw")
# What Perdure links and nothing above does.
LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libnuma.so.1", "libpthread.so.0",
             "libdl.so.2", "librt.so.1", "libibverbs.so.1", "librdmacm.so.1")
LIBRARY_DIRECTORY = "usr/lib/x86_64-linux-gnu"
VERBS_PROVIDERS = ("rxe", "siw")
MODULES = ("virtio_pci", "virtio_console", "virtio_net", "virtio_blk", "loop", "9p", "9pnet_virtio",
           "virtio_rng",
           "crc32c_generic", "crc32c_intel", "crc32_generic", "crc32_pclmul",
           "ib_uverbs", "rdma_ucm", "rdma_rxe", "siw", "nfit", "nd_pmem", "dax_pmem", "device_dax",
           "nd_e820", "ext4", "dummy", "sch_netem", "sch_prio", "cls_u32")
# `lab-modules NAME` loads them: most machines need none, and raid6_pq (of btrfs) times itself.
MODULES_ON_DEMAND = ("dm_mod", "brd", "zram", "btrfs")
# dash is sh; these come from the real packages.
NOT_FROM_BUSYBOX = ("busybox", "sh", "ash", "ip", "tc", "mke2fs", "mkfs.ext2")


def make_userland(into):
    """root: the packages, unpacked."""
    root = into / "root"
    for name in ("bin", "sbin", "lib", "lib64"):  # one /usr, whatever a package says
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    suite = Suite(USER_SUITE)
    write_packages(into, suite, suite.unpack(PACKAGES, root, with_dependencies=True))


def make_headers(into):
    """root/usr/include of the guest's rdma-core, for building Perdure against it."""
    suite = Suite(USER_SUITE)
    write_packages(into, suite, suite.unpack(HEADER_PACKAGES, into / "root"))


def make_image(kernel_stage, rnics_stage, userland_stage):
    """Returns the maker of an image's stage: vmlinux, initrd, libraries (names, one a line).
    rnics_stage: None for the software RNICs that the kernel's own package has."""

    def make(into):
        image = Image(into / "root", userland_stage.directory / "root")
        image.add_programs()
        image.add_verbs_providers()
        image.add_files()
        image.add_modules(kernel_stage.directory, rnics_stage)
        image.pack(into / "initrd")
        shutil.copy(kernel_stage.directory / "vmlinux", into / "vmlinux")
        names = sorted(path.name for path in (image.root / LIBRARY_DIRECTORY).glob("*.so*"))
        (into / "libraries").write_text("\n".join(names) + "\n")
        if rnics_stage and (rnics_stage.directory / "reason").exists():
            shutil.copy(rnics_stage.directory / "reason", into / "no_rnics")
        shutil.rmtree(image.root)

    return make


class Image:
    """The tree of the initramfs, `root`, filled from the unpacked packages, `source`."""

    def __init__(self, root, source):
        self.root = root
        self.source = source
        for name in ("bin", "usr/bin", LIBRARY_DIRECTORY, "lib", "lib64", "etc", "modules", "dev"):
            (root / name).mkdir(parents=True)
        (root / "lib/x86_64-linux-gnu").symlink_to("../" + LIBRARY_DIRECTORY)

    def add_programs(self):
        loader = "lib64/ld-linux-x86-64.so.2"
        shutil.copy(self.source / loader, self.root / loader)
        shutil.copy(self._program("busybox"), self.root / "bin/busybox")
        for applet in run([self.root / "bin/busybox", "--list"]).split():
            if applet not in NOT_FROM_BUSYBOX:
                (self.root / "bin" / applet).symlink_to("busybox")
        (self.root / "bin/sh").symlink_to("dash")
        for name in PROGRAMS:
            program = self._program(name)
            target = self.root / "bin" / name
            target.unlink(missing_ok=True)
            shutil.copy(program, target)
            self._add_closure(program)
        for name in LIBRARIES:
            self._add_library(self.source / LIBRARY_DIRECTORY / name)

    def _program(self, name):
        for directory in ("usr/bin", "usr/sbin"):
            path = self.source / directory / name
            if path.exists():
                return path
        raise LabError(f"{name} is in none of the guest's packages")

    def _add_library(self, path):
        target = self.root / LIBRARY_DIRECTORY / path.name
        if not target.exists():
            shutil.copy(path, target)
            self._add_closure(path)

    def _add_closure(self, file):
        """The shared objects that an ELF file needs, resolved among the packages alone."""
        libraries = self.source / LIBRARY_DIRECTORY
        loader = self.source / "lib64/ld-linux-x86-64.so.2"
        listing = subprocess.run(
            [loader, "--inhibit-cache", "--library-path", f"{libraries}:{libraries}/ndctl",
             "--list", file], capture_output=True, text=True, check=False, timeout=60).stdout
        for line in listing.splitlines():
            words = line.split()
            if len(words) > 2 and words[2].startswith(str(self.source)):
                target = self.root / LIBRARY_DIRECTORY / words[0]
                if not target.exists():
                    shutil.copy(words[2], target)

    def add_verbs_providers(self):
        (self.root / "etc/libibverbs.d").mkdir()
        plugins = self.root / LIBRARY_DIRECTORY / "libibverbs"
        plugins.mkdir()
        for name in VERBS_PROVIDERS:
            shutil.copy(self.source / f"etc/libibverbs.d/{name}.driver",
                        self.root / "etc/libibverbs.d")
            for plugin in (self.source / LIBRARY_DIRECTORY / "libibverbs").glob(f"lib{name}-*.so"):
                shutil.copy(plugin, plugins)

    def add_files(self):
        etc = self.root / "etc"
        (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (etc / "group").write_text("root:x:0:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n")
        (etc / "mtab").symlink_to("/proc/mounts")
        shutil.copy(self.source / "etc/mke2fs.conf", etc)
        for file in sorted((HERE / "guest").iterdir()):
            target = self.root / ("init" if file.name == "init" else f"bin/{file.name}")
            shutil.copy(file, target)
            target.chmod(0o755)

    def add_modules(self, kernel_directory, rnics_stage):
        """The modules and what they need, decompressed, and their order."""
        version = kernel.version(kernel_directory)
        updates = kernel_directory / "lib/modules" / version / "updates"
        updates.mkdir(exist_ok=True)
        for module in rnics_stage.directory.glob("*.ko") if rnics_stage else ():
            shutil.copy(module, updates)
        run(["depmod", "-b", kernel_directory, version])
        self._add_modules(kernel_directory, version, MODULES, "order")
        for module in MODULES_ON_DEMAND:
            self._add_modules(kernel_directory, version, (module,), f"{module}.order")

    def _add_modules(self, kernel_directory, version, modules, order_file):
        order = []
        for module in modules:
            for path in self._with_needs(kernel_directory, version, module):
                name = path.name.removesuffix(".xz")
                if name not in order:
                    order.append(name)
                    if not (self.root / "modules" / name).exists():
                        self._add_module(path, self.root / "modules" / name)
        (self.root / "modules" / order_file).write_text("\n".join(order) + "\n")

    @staticmethod
    def _with_needs(kernel_directory, version, module):
        """A module's file after those it needs; nothing if it is built in or does not exist."""
        listing = subprocess.run(
            [find("modprobe"), "-d", kernel_directory, "-S", version, "--show-depends", module],
            capture_output=True, text=True, check=False, timeout=60).stdout
        words = [line.split() for line in listing.splitlines()]
        return [pathlib.Path(each[1]) for each in words if each[0] == "insmod"]

    @staticmethod
    def _add_module(path, target):
        if path.suffix == ".xz":
            with open(target, "wb") as out:
                subprocess.run([find("xz"), "-dc", path], stdout=out, check=True, timeout=60)
        else:
            shutil.copy(path, target)
        run(["strip", "-g", target])

    def pack(self, file):
        names = [os.path.relpath(os.path.join(top, name), self.root)
                 for top, directories, files in os.walk(self.root) for name in directories + files]
        with open(file, "wb") as out:
            subprocess.run([find("cpio"), "--null", "-o", "-H", "newc", "-R", "0:0", "--quiet"],
                           input="\0".join(sorted(names)).encode() + b"\0", stdout=out,
                           cwd=self.root, check=True, timeout=120,
                           env={"PATH": SYSTEM_PATH})
