"""All that a guest is made of, as stages of the cache."""

import kernel
import nvdimm
import simulator
import userland
from stages import Stage, only_builder


class Guest:
    """Where the built things are."""

    def __init__(self):
        self.kernel = Stage("kernel", kernel.make_kernel, ["kernel.py", "archive.py"])
        self.siw = Stage("siw", kernel.make_siw(lambda: self.kernel.directory), [], [self.kernel])
        self.userland = Stage("userland", userland.make_userland, ["userland.py", "archive.py"])
        self.headers = Stage("headers", userland.make_headers, ["userland.py", "archive.py"])
        self.image = Stage(
            "image", userland.make_image(self.kernel, self.siw, self.userland),
            ["guest/init", "guest/lab-net", "guest/lab-pmem"],
            [self.kernel, self.siw, self.userland])
        self.qemu = Stage("qemu", simulator.make_qemu, ["simulator.py", "archive.py"])
        self.plugin = Stage("plugin", simulator.make_plugin, ["simulator.py", "pmemcrash.c"])
        self.nvdimm = Stage("nvdimm", nvdimm.make_blank(self), ["nvdimm.py"], [self.image])

    def stages(self):
        return [self.kernel, self.siw, self.userland, self.headers, self.image, self.qemu,
                self.plugin, self.nvdimm]

    def build(self):
        """Everything that is not there yet; well under a second when all is."""
        if all(stage.present() for stage in self.stages()):
            return
        with only_builder():
            for stage in self.stages():
                stage.build()

    def no_siw(self):
        """Why there is no siw in the guest; empty if there is."""
        reason = self.image.directory / "no_siw"
        return reason.read_text().strip() if reason.exists() else ""
