"""The emulated NVDIMM of a machine, and what it keeps when the power fails."""

import random
import shutil
import struct

from settings import NVDIMM_MIB
from vm import Lab

LINE_BYTES = 64
CHUNK_BYTES = 4096
ADDRESS = 1 << 32  # where QEMU's q35 puts the first NVDIMM when all RAM lies below 4 GiB
COUNTERS = ("clwb", "clflushopt", "clflush", "non_temporal", "fences", "lines", "outside",
            "unmapped")  # as in pmemcrash.c


def zeros(file):
    with open(file, "wb") as out:
        out.truncate(NVDIMM_MIB << 20)
    return file


def make_blank(guest):
    """Returns the maker of the nvdimm stage: `ext4`, an NVDIMM in mode fsdax with a file system."""

    def make(into):
        with Lab(guest) as lab:
            machine = lab.machine("blank", nvdimm=Nvdimm(guest, "eadr", zeros(into / "ext4")))
            machine.boot()
            # Nothing is left for later: the kernel would write it behind the scenarios' back.
            machine.run("device=$(lab-pmem fsdax) && mke2fs -q -t ext4 -b 4096 -J size=4 -m 0 "
                        "-E lazy_itable_init=0,lazy_journal_init=0 $device && "
                        "mount -o dax $device /mnt/pmem && umount /mnt/pmem && sync")

    return make


class Nvdimm:
    """kind `adr`: what was flushed to the memory controller survives, and by chance what the cache
    evicted; `eadr`: all that was stored does."""

    def __init__(self, guest, kind, file, blank=None):
        """blank: a file to begin with, else zeros."""
        assert kind in ("adr", "eadr"), kind
        self.guest = guest
        self.kind = kind
        self.file = file
        self.image = file.with_suffix(".persisted")
        if blank:
            shutil.copyfile(blank, file)

    def qemu_word(self):
        return "mem-ctrl" if self.kind == "adr" else "cpu"

    def arguments(self, memory_file):
        size = self.file.stat().st_size
        words = ["-object", f"memory-backend-file,id=pm0,share=on,mem-path={self.file},size={size}",
                 "-device", "nvdimm,id=nvdimm0,memdev=pm0"]
        if self.kind == "adr":
            self.image.unlink(missing_ok=True)
            words += ["-plugin", f"{self.guest.plugin.directory / 'pmemcrash.so'},"
                                 f"ram={memory_file},volatile={self.file},image={self.image},"
                                 f"base={ADDRESS:#x}"]
        return words

    def settle(self, seed, eviction):
        """After the power was cut: makes the file what the medium holds.

        Each line that was dirty in the cache got to the medium with probability `eviction`, by the
        prng of `seed`. Returns how many were dirty, and how many of them the medium has.
        """
        if self.kind == "eadr":
            return 0, 0
        prng = random.Random(seed)
        dirty = kept = 0
        with open(self.file, "r+b") as contents, open(self.image, "rb") as image:
            at = 0
            while stored := contents.read(CHUNK_BYTES):
                persisted = image.read(CHUNK_BYTES)
                if stored != persisted:
                    chunk = bytearray(persisted)
                    for begin in range(0, len(stored), LINE_BYTES):
                        line = slice(begin, begin + LINE_BYTES)
                        if stored[line] != persisted[line]:
                            dirty += 1
                            if prng.random() < eviction:
                                chunk[line] = stored[line]
                                kept += 1
                    contents.seek(at)
                    contents.write(chunk)
                    contents.seek(at + len(chunk))
                at += len(stored)
        return dirty, kept

    def counters(self):
        """What the plugin saw since the machine was started, by name; empty for eadr."""
        side = self.image.with_name(self.image.name + ".stat")
        if self.kind == "eadr" or not side.exists():
            return {}
        return dict(zip(COUNTERS, struct.unpack(f"<{len(COUNTERS)}Q", side.read_bytes())))
