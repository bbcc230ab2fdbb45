"""A virtual drive, with a file system on it whose files go through the page cache."""

from settings import DRIVE_MIB


class Drive:
    """What the guest has written to it survives a power cut; what is in its page cache alone does
    not. So a missing msync is seen, and a missing flush of the drive's own cache is not."""

    def __init__(self, file):
        self.file = file
        with open(file, "wb") as out:
            out.truncate(DRIVE_MIB << 20)

    def arguments(self):
        return ["-drive", f"if=none,id=drive0,format=raw,cache=writeback,file={self.file}",
                "-device", "virtio-blk-pci,drive=drive0"]
