"""All that a guest is made of, as stages of the cache."""

import kernel
import nvdimm
import simulator
import userland
from archive import PACKAGES, PINS, differences
from settings import KERNEL_SUITE, OLD_KERNEL_SUITE, say
from stages import Stage, only_builder

DOWNLOADS = ("archive.py", PINS)
GUEST_FILES = ("guest/init", "guest/lab-modules", "guest/lab-net", "guest/lab-pmem")


class Guest:
    """Where the built things are."""

    def __init__(self):
        self.kernel = Stage("kernel", kernel.make_kernel(KERNEL_SUITE), ["kernel.py", *DOWNLOADS])
        self.old_kernel = Stage("old_kernel", kernel.make_kernel(OLD_KERNEL_SUITE),
                                ["kernel.py", *DOWNLOADS])
        self.rnics = Stage("rnics", kernel.make_rnics(lambda: self.kernel.directory), [],
                           [self.kernel])
        self.userland = Stage("userland", userland.make_userland, ["userland.py", *DOWNLOADS])
        self.headers = Stage("headers", userland.make_headers, ["userland.py", *DOWNLOADS])
        self.image = Stage(
            "image", userland.make_image(self.kernel, self.rnics, self.userland),
            GUEST_FILES, [self.kernel, self.rnics, self.userland])
        self.old_image = Stage(
            "old_image", userland.make_image(self.old_kernel, None, self.userland),
            GUEST_FILES, [self.old_kernel, self.userland])
        self.qemu = Stage("qemu", simulator.make_qemu, ["simulator.py", *DOWNLOADS])
        self.plugin = Stage("plugin", simulator.make_plugin, ["simulator.py", "pmemcrash.c"])
        self.nvdimm = Stage("nvdimm", nvdimm.make_blank(self), ["nvdimm.py"], [self.image])

    def stages(self):
        return [self.kernel, self.old_kernel, self.rnics, self.userland, self.headers, self.image,
                self.old_image, self.qemu, self.plugin, self.nvdimm]

    def build(self):
        """Everything that is not there yet; well under a second when all is."""
        if all(stage.present() for stage in self.stages()):
            return
        with only_builder():
            for stage in self.stages():
                stage.build()

    def packages(self):
        """What it was made of, as (suite, name, version), sorted."""
        files = [stage.directory / PACKAGES for stage in self.stages()]
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        return sorted({tuple(line.split()) for line in lines})

    def no_rnics(self):
        """Why there is no siw and no repaired rxe in the guest; empty if there are."""
        reason = self.image.directory / "no_rnics"
        return reason.read_text().strip() if reason.exists() else ""


def tell_packages(guest):
    """Says which packages are not the pinned ones, and returns the sentences."""
    found = differences(guest.packages())
    for each in found:
        say(f"packages: {each}")
    return found
