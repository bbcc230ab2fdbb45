"""Scenarios of one machine whose medium fails under a pool that is served: a drive that does not
write, memory that is lost. What was acknowledged is there afterwards, and nothing more is until the
medium was put right."""

import re

from drive import Drive
from local import Local
from nvdimm import Nvdimm, zeros
from report import Failed

SCENARIO_SECONDS_MAX = 300  # 60 s where nothing else runs
POOL = "job"
OTHER_POOL = "other"
POOL_MIB = 8
SECTOR_BYTES = 512
PAGE_BYTES = 4096
LOST_OFFSET = 3 << 20  # of a pool: a page in the ring of its log
FIRST_RECORDS = 200


def of_machines(scenario):
    return [scenario("failed_write_back", "eadr", SCENARIO_SECONDS_MAX, failed_write_back),
            scenario("lost_memory", "eadr", SCENARIO_SECONDS_MAX, lost_memory)]


class MappedDrive:
    """The guest's drive under device mapper, with ext4 on it, mounted at /mnt/drive: parts of it
    can be made to fail."""

    def __init__(self, machine):
        self.machine = machine
        machine.run("lab-modules dm_mod")
        self.sectors = int(machine.run("cat /sys/block/vda/size"))
        self._dmsetup("create", self._whole())
        machine.run("[ -e /dev/dm-0 ] || mknod /dev/dm-0 b $(tr : ' ' </sys/block/dm-0/dev)\n"
                    "mke2fs -q -F -t ext4 -b 4096 /dev/dm-0 && mkdir -p /mnt/drive && "
                    "mount /dev/dm-0 /mnt/drive")

    def refuse_blocks_of(self, file):
        """From now on what is written to that file's blocks fails, or read from them, and nothing
        else does, flushes of the drive neither (dm-flakey fails these, and with them all files)."""
        table, at = [], 0
        for first, last in sorted(each[1:] for each in extents_of(self.machine, file)):
            if first > at:
                table.append(f"{at} {first - at} linear /dev/vda {at}")
            table.append(f"{first} {last + 1 - first} error")
            at = last + 1
        if at < self.sectors:
            table.append(f"{at} {self.sectors - at} linear /dev/vda {at}")
        self._load(table)

    def accept_all(self):
        self._load(self._whole())

    def mount_again(self):
        """What the page cache has and the drive has not is gone."""
        self.machine.run("umount /mnt/drive && mount /dev/dm-0 /mnt/drive")

    def _whole(self):
        return [f"0 {self.sectors} linear /dev/vda 0"]

    def _load(self, table):
        # Without freezing the file system, which would write what is dirty before.
        self.machine.run("dmsetup suspend --noflush --nolockfs --noudevsync drive")
        self._dmsetup("load", table)
        self.machine.run("dmsetup resume --noudevsync drive")

    def _dmsetup(self, word, table):
        lines = "\n".join(table)
        flags = "--noudevsync --noudevrules" if word == "create" else ""
        self.machine.run(f"dmsetup {word} {flags} drive <<'END'\n{lines}\nEND")


def extents_of(machine, file):
    """Where a file lies on its device: (sector of the file, the first and the last of the device).
    """
    said = machine.run(f"sync; filefrag -b{SECTOR_BYTES} -e {file}")
    rows = re.findall(r"^\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+)\.\.\s*(\d+):", said, re.MULTILINE)
    if not rows:
        raise Failed(f"filefrag: {said}")
    return [tuple(int(number) for number in row) for row in rows]


def failed_write_back(context):
    """The drive refuses to write a pool's blocks: nothing more of it is acknowledged, until it is
    opened again on a drive that writes. What was acknowledged before is there."""
    machine = context.lab.machine("failed-drive", drive=Drive(context.lab.directory / "fail.drive"))
    machine.boot()
    drive = MappedDrive(machine)
    local = serve_two_pools(machine, "/mnt/drive")
    if local.describe(POOL)["domain"] != "page":
        raise Failed(f"the pool is not behind a page cache: {local.describe(POOL)}")

    local.start_writer(POOL, FIRST_RECORDS + 1)
    drive.refuse_blocks_of(f"/mnt/drive/{POOL}.pool")
    acknowledged, end = local.await_writer()
    reason = local.await_unavailable(POOL, ("Input/output error; what was written since the last "
                                            "successful flush may be lost",))
    local.append(OTHER_POOL, FIRST_RECORDS + 1, FIRST_RECORDS)

    # The drive writes again, which says nothing of what it did not write.
    drive.accept_all()
    local.start_writer(POOL, acknowledged + 1, 1)
    refused = local.await_writer()
    if refused[0] != 0 or "unavailable" not in refused[1]:
        raise Failed(f"a pool that lost writes was served: {refused}")
    local.open(POOL)
    kept = local.require_records(POOL, acknowledged)
    local.append(POOL, kept + 1, FIRST_RECORDS)
    local.stop()
    drive.mount_again()
    local.start()
    local.require_records(POOL, kept + FIRST_RECORDS)
    local.require_records(OTHER_POOL, 2 * FIRST_RECORDS)
    context.lab.release(machine)
    return {"summary": f"{acknowledged} records acknowledged, all there; '{end[:60]}'",
            "acknowledged": acknowledged, "reason": reason}


def lost_memory(context):
    """The kernel gives up a page of a pool, as after an error that its memory could not correct:
    one in the page cache, of a DAX file, of a DAX device. That pool fails, perdured and the other
    pools do not."""
    blank = zeros(context.lab.directory / "lost.nvdimm")
    machine = context.lab.machine("lost-memory", drive=Drive(context.lab.directory / "lost.drive"),
                                  nvdimm=Nvdimm(context.lab.guest, "eadr", blank))
    machine.boot()
    ways = (("a page in the page cache", lost_in_the_page_cache),
            ("a page of a DAX file", lost_in_a_dax_file),
            ("a page of a DAX device", lost_in_a_dax_device))
    reasons = {words: way(machine) for words, way in ways}
    context.lab.release(machine)
    return {"summary": f"{len(ways)} kinds of memory; each time one pool failed alone",
            "reasons": reasons}


def lose_a_page(machine, local, file, note=""):
    """While a writer is at work. Returns (what was acknowledged to it, the reason of the pool)."""
    local.start_writer(POOL, FIRST_RECORDS + 1)
    machine.run(f"perdure_lab_lose_page {file} {LOST_OFFSET} {note}")
    acknowledged, _ = local.await_writer()
    reason = local.await_unavailable(POOL, ("a page of it can not be reached any more",
                                            "Input/output error; what was written since"))
    local.require_alive()
    local.append(OTHER_POOL, FIRST_RECORDS + 1, FIRST_RECORDS)
    return acknowledged, reason


def serve_two_pools(machine, directory, **options):
    local = Local(machine, directory, **options)
    local.start()
    for pool in (POOL, OTHER_POOL):
        local.create(pool, POOL_MIB)
        local.append(pool, 1, FIRST_RECORDS)
    return local


def lost_in_the_page_cache(machine):
    """The drive has what was acknowledged, so the pool is served again as soon as it is opened."""
    machine.run("mke2fs -q -F -t ext4 /dev/vda && mkdir -p /mnt/drive && mount /dev/vda /mnt/drive")
    local = serve_two_pools(machine, "/mnt/drive")
    acknowledged, reason = lose_a_page(machine, local, f"/mnt/drive/{POOL}.pool")
    local.open(POOL)
    kept = local.require_records(POOL, acknowledged)
    local.append(POOL, kept + 1, FIRST_RECORDS)
    local.stop()
    return reason


def lost_in_a_dax_file(machine):
    """The kernel's driver knows the place from then on, and the pool is not opened again."""
    machine.run("device=$(lab-pmem fsdax) && mke2fs -q -F -t ext4 -b 4096 $device && "
                "mount -o dax $device /mnt/pmem")
    file = f"/mnt/pmem/{POOL}.pool"
    local = serve_two_pools(machine, "/mnt/pmem", domain="mhp")
    # As the driver notes it when an NVDIMM reports an error.
    sector = sector_of(machine, file, LOST_OFFSET)
    _, reason = lose_a_page(machine, local, file, "$(ls -d /sys/block/pmem*)/badblocks "
                                                  f"'{sector} {PAGE_BYTES // SECTOR_BYTES}'")
    status, said = local.pool("open", POOL)
    if status == 0 or f"has lost {PAGE_BYTES} bytes at {LOST_OFFSET}" not in said:
        raise Failed(f"a pool with lost bytes is opened, or says something else: {said}")
    local.stop()
    machine.run("umount /mnt/pmem")
    return reason


def lost_in_a_dax_device(machine):
    """A mapping of a device is given up by units of 2 MiB."""
    machine.run("device=$(lab-pmem devdax clear) && mkdir /run/devices && "
                f"ln -s $device /run/devices/{POOL}.pool")
    local = serve_two_pools(machine, "/run/devices", domain="mhp", take_device="true")
    acknowledged, reason = lose_a_page(machine, local, f"/run/devices/{POOL}.pool")
    # Nothing was lost in truth.
    local.open(POOL)
    local.require_records(POOL, acknowledged)
    local.stop()
    return reason


def sector_of(machine, file, offset):
    """Where the byte at that offset of a file lies on its device."""
    wanted = offset // SECTOR_BYTES
    for logical, first, last in extents_of(machine, file):
        if logical <= wanted <= logical + last - first:
            return first + wanted - logical
    raise Failed(f"{file} has no block at {offset}")
