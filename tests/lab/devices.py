"""Scenarios of one machine's devices: RDMA devices under the conformance suite, pools on DAX, and
the link between two machines."""

import functools
import json
import re
import xml.etree.ElementTree as ElementTree

from drive import Drive
from local import Local
from nvdimm import Nvdimm, zeros
from pair import RESPONDER
from report import Failed, Skip
from settings import SHARE
from vm import GuestError

CONFORMANCE_SECONDS_MAX = 400
LINK_ROUNDS = 200
LINK_SECONDS_MAX = 40    # one run; 2 s on an idle machine
LINK_LISTEN_TRIES = 300  # of 0.1 s and more
LINK_TRIES_MAX = 3
LINK_SCENARIO_SECONDS_MAX = 400
MADE = "made"           # a pool
OWNED_RECORDS = 100
HELD = "the device is held by"


def of_fabric(fabric, scenario):
    name = fabric.rdma
    why_not = no_siw if name == "siw" else lambda guest: ""
    return [scenario(f"link_{name}", "eadr", LINK_SCENARIO_SECONDS_MAX,
                     functools.partial(link, fabric), why_not),
            scenario(f"conformance_{name}", "eadr", CONFORMANCE_SECONDS_MAX,
                     functools.partial(conformance, name), why_not)]


def no_siw(guest):
    return guest.no_rnics()


def run_gtest(machine, program, arguments, environment="", seconds=CONFORMANCE_SECONDS_MAX):
    """Runs a test program in a guest. Returns how many cases passed; raises Failed, or Skip when
    it has no such case."""
    result = SHARE / f"{machine.name}.xml"
    result.unlink(missing_ok=True)
    status, output = machine.try_run(
        f"{environment} GTEST_OUTPUT=xml:/mnt/share/{result.name} {program} {arguments}", seconds)
    if not result.exists():
        raise Failed(f"{program}: status {status}, no result\n{output[-3000:]}")
    root = ElementTree.parse(result).getroot()
    result.unlink()
    ran = [case for case in root.iter("testcase") if case.get("status") == "run"]
    failed = [f"{case.get('classname')}.{case.get('name')}" for case in ran
              if case.find("failure") is not None]
    skipped = [case for case in ran if case.get("result") == "skipped"]
    if failed or status != 0:
        raise Failed(f"{len(failed)} of {len(ran)} cases failed, status {status}: "
                     f"{', '.join(failed)}\n{output[-3000:]}")
    if len(ran) == len(skipped):
        raise Skip(f"{program} has no case that runs with {arguments}")
    return {"summary": f"{len(ran) - len(skipped)} cases, {len(skipped)} skipped",
            "cases": len(ran) - len(skipped), "skipped": len(skipped)}


def conformance(rdma, context):
    """The conformance suite of all providers, over a software RNIC."""
    machine = context.lab.machine(f"conformance-{rdma}", cpus=2)
    machine.boot()
    machine.run(f"lab-net 10.0.0.1/24 {rdma}")
    result = run_gtest(machine, "perdure_conformance_test", "--gtest_filter='*verbs*'",
                       f"PERDURE_TEST_RNIC={rdma}0")
    context.lab.release(machine)
    return result


def dax_pools(context):
    """A pool on a device DAX device, and one on a DAX file system."""
    blank = zeros(context.lab.directory / "dax.nvdimm")
    machine = context.lab.machine("dax", nvdimm=Nvdimm(context.lab.guest, "adr", blank))
    machine.boot()
    device = machine.run("lab-pmem devdax").split()[-1]
    run_gtest(machine, "perdure_pmem_test", "--gtest_filter='DaxDevice.*'",
              f"PERDURE_TEST_DAX_DEVICE={device}")
    machine.run("device=$(lab-pmem fsdax) && mke2fs -q -t ext4 -b 4096 $device && "
                "mount -o dax $device /mnt/pmem")
    run_gtest(machine, "perdure_pmem_test", "--gtest_filter='DaxDirectory.*'",
              "PERDURE_TEST_DAX_DIRECTORY=/mnt/pmem")
    context.lab.release(machine)
    return {"summary": "device DAX and ext4 -o dax"}


CONTAINER = "unshare -p -m -f --mount-proc"  # namespaces of processes and mounts of its own


def dax_owners(context):
    """Nodes of their own for one DAX device: file locks do not see each other, the pool knows its
    owner. Of several perdured one serves it; another one does as soon as that was killed."""
    machine = context.lab.machine("dax-owners", nvdimm=Nvdimm(
        context.lab.guest, "eadr", zeros(context.lab.directory / "owners.nvdimm")))
    machine.boot()
    machine.run("name=$(basename $(lab-pmem devdax clear)) && for owner in 1 2 3; do\n"
                "  mkdir /run/owner$owner && mknod /run/owner$owner/node c "
                "$(tr : ' ' </sys/bus/dax/devices/$name/dev) && "
                f"ln -s node /run/owner$owner/{MADE}.pool || exit\n"
                "done")
    first, second, third = (Local(machine, f"/run/owner{number}", 7470 + 10 * number, "mhp", "true")
                            for number in (1, 2, 3))
    first.start(CONTAINER)
    first.create(MADE, 8)
    first.append(MADE, 1, OWNED_RECORDS)
    second.start()
    third.start(CONTAINER)
    reasons = [each.await_unavailable(MADE, (HELD,)) for each in (second, third)]
    first.append(MADE, OWNED_RECORDS + 1, OWNED_RECORDS)
    first.stop("KILL")
    second.open(MADE)
    second.require_records(MADE, 2 * OWNED_RECORDS)
    status, said = third.pool("open", MADE)
    if status == 0 or HELD not in said:
        raise Failed(f"a second owner of one device: {said}")
    second.stop()
    third.open(MADE)
    third.require_records(MADE, 2 * OWNED_RECORDS)
    context.lab.release(machine)
    return {"summary": f"three perdured with nodes of their own, one owner: '{reasons[1][:80]}'",
            "reasons": reasons}


# What a pool could lie on, how a guest gets it as $PLACE, and what perdured may think it survives.
# Memory of which nobody says that it lasts is `none` until it is declared.
PLAIN_DRIVE = "ext4 on a drive"
MEDIA = (
    (PLAIN_DRIVE, "page", """
        mke2fs -q -F -t ext4 /dev/vda && mkdir -p /mnt/drive && mount /dev/vda /mnt/drive
        PLACE=/mnt/drive"""),
    ("ext4 without barriers on that drive", "none", """
        mount -o remount,nobarrier /mnt/drive
        PLACE=/mnt/drive"""),
    ("ext4 on a loop device on that drive", "page", """
        mount -o remount,barrier /mnt/drive
        dd if=/dev/zero of=/mnt/drive/image bs=1M count=16 2>/dev/null
        losetup /dev/loop0 /mnt/drive/image && mke2fs -q -F -t ext4 /dev/loop0
        mkdir -p /mnt/loop && mount /dev/loop0 /mnt/loop
        PLACE=/mnt/loop"""),
    ("btrfs on a loop device on that drive", "page", """
        lab-modules btrfs
        dd if=/dev/zero of=/mnt/drive/btrfs bs=1M count=48 2>/dev/null
        losetup /dev/loop2 /mnt/drive/btrfs && mkfs.btrfs -q -f --mixed /dev/loop2
        mkdir -p /mnt/btrfs && mount -t btrfs /dev/loop2 /mnt/btrfs
        PLACE=/mnt/btrfs"""),
    ("btrfs without barriers on the same", "none", """
        mount -o remount,nobarrier /mnt/btrfs
        PLACE=/mnt/btrfs"""),
    ("ext4 on a loop device on that drive without barriers", "none", """
        mount -o remount,nobarrier /mnt/drive
        PLACE=/mnt/loop"""),
    ("ext4 on a loop device on tmpfs", "none", """
        dd if=/dev/zero of=/dev/shm/image bs=1M count=16 2>/dev/null
        losetup /dev/loop1 /dev/shm/image && mke2fs -q -F -t ext4 /dev/loop1
        mkdir -p /mnt/memory && mount /dev/loop1 /mnt/memory
        PLACE=/mnt/memory"""),
    ("ext4 on a ram disk", "none", """
        lab-modules brd
        mke2fs -q -F -t ext4 /dev/ram0 && mkdir -p /mnt/ram && mount /dev/ram0 /mnt/ram
        PLACE=/mnt/ram"""),
    ("ext4 on zram", "none", """
        lab-modules zram
        echo 16M >/sys/block/zram0/disksize
        mke2fs -q -F -t ext4 /dev/zram0 && mkdir -p /mnt/zram && mount /dev/zram0 /mnt/zram
        PLACE=/mnt/zram"""),
    ("a directory of the host, by 9p", "none", """
        mkdir -p /mnt/share/pools
        PLACE=/mnt/share/pools"""),
    ("ext4 -o dax on DRAM that memmap= calls persistent", "none", """
        DEVICE=$(ls /dev/pmem* | head -n 1)
        mke2fs -q -F -t ext4 -b 4096 $DEVICE && mkdir -p /mnt/dax && mount -o dax $DEVICE /mnt/dax
        PLACE=/mnt/dax"""),
    ("device DAX on the same", "none", """
        umount /mnt/dax
        dd if=/dev/zero of=$(ls /dev/pmem* | head -n 1) bs=1M count=20 conv=fsync 2>/dev/null
        ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem >/dev/null
        tries=0
        while [ ! -e /dev/dax0.0 ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
        PLACE=/dev/dax0.0"""),
)


# On which of them pools are made as well, where, and what becomes of that without and with the
# operator's consent to take a device: the domain of the pool, or a part of the refusal.
POOLS = {
    "ext4 on a loop device on that drive": ("/mnt/loop", (("false", "page"),)),
    "ext4 on a loop device on that drive without barriers": ("/mnt/loop", (("false", "none"),)),
    "a directory of the host, by 9p": ("/mnt/share/pools",
                                       (("false", "do not reach other machines"),)),
    "device DAX on the same": ("/dev/dax0.0", (("false", "take_device = true"), ("true", "none"))),
}


def serve(machine, place, take_device="false"):
    """A perdured whose directory is that place, or has a link to it, and no pool called MADE."""
    directory = place
    if place.startswith("/dev/"):
        directory = "/run/devices"
        machine.run(f"rm -rf {directory}; mkdir {directory}; ln -s {place} {directory}/{MADE}.pool")
    else:
        machine.run(f"rm -f {place}/*.pool")
    local = Local(machine, directory, take_device=take_device)
    local.start()
    return local


def wrong_pools(machine, words):
    """What is not as expected of pools on that medium."""
    place, tries = POOLS.get(words, ("", ()))
    wrong = []
    for take_device, expected in tries:
        local = serve(machine, place, take_device)
        status, said = local.pool("create", MADE, "--bytes 1MiB")
        found = local.describe(MADE)["domain"] if status == 0 else said
        if found != expected if status == 0 else expected not in said:
            wrong.append(f"a pool on {words}, take_device = {take_device}: expected {expected}: "
                         f"{found}")
        local.stop()
    return wrong


# What happens to the file system under a pool that is served, what perdured says of the pool then,
# and what makes it good again.
UNDER_A_POOL = (
    ("mounted again without barriers", "mount -o remount,nobarrier /mnt/drive", "nobarrier",
     "mount -o remount,barrier /mnt/drive"),
    ("made read-only by the kernel after an error",
     "mount -o remount,errors=remount-ro /mnt/drive\n"
     "echo 1 >/sys/fs/ext4/vda/trigger_fs_error",
     # It says "rw" still, and is shut down.
     "Input/output error",
     "perdure pool close --peers 127.0.0.1:7470 --pool made\n"
     "umount /mnt/drive && mount /dev/vda /mnt/drive"),
)


def wrong_under_a_pool(machine):
    """A pool is not served any more when its file system promises less than at the opening, and is
    again when that is put right and it is opened again."""
    wrong = []
    for words, break_it, said_of_it, put_right in UNDER_A_POOL:
        local = serve(machine, "/mnt/drive")
        local.create(MADE, 1)
        machine.run(break_it)
        try:
            local.await_unavailable(MADE, (said_of_it,))
            machine.run(put_right)
            local.open(MADE)
        except (Failed, GuestError) as error:
            wrong.append(f"a drive {words} under a pool: {error}")
        local.stop()
    return wrong


def media(context):
    """What a pool lies on is seen for what it is: drives, memory behind them, and DRAM that
    something calls persistent. Pools that are made there are no more than that."""
    drive = Drive(context.lab.directory / "media.drive")
    machine = context.lab.machine("media", drive=drive, memory_map="48M!384M",
                                  looks_real=True)
    machine.boot()
    wrong = []
    for words, domain, script in MEDIA:
        said = json.loads(machine.run(f"{{ {script}\n}} >/run/media.log 2>&1 || "
                                      "{ cat /run/media.log; exit 1; }\n"
                                      "perdure probe $PLACE --format json"))
        found = {axis["axis"]: axis for axis in said["axes"]}["persistence domain"]
        if found["value"] != domain or "virtual machine" in found["evidence"]:
            wrong.append(f"{words}: {found['value']}, expected {domain}: {found['evidence']}")
        wrong += wrong_pools(machine, words)
        if words == PLAIN_DRIVE:
            wrong += wrong_under_a_pool(machine)
    context.lab.release(machine)
    if wrong:
        raise Failed("; ".join(wrong))
    return {"summary": f"{len(MEDIA)} media, each with the domain that is known of it"}


def link(fabric, context):
    """Two machines, without Perdure: what the RDMA devices themselves do over the cable."""
    pair = context.pair("eadr")
    pair.begin_bare(fabric)
    said = []
    for attempt in range(1, LINK_TRIES_MAX + 1):
        output = write_latency(pair, f"{fabric.rdma}0")
        line = re.search(r"^\s*64\s+\d+\s+(.*)$", output, re.MULTILINE)
        if line:
            median = float(line.group(1).split()[2])
            return {"summary": f"ib_write_lat 64 bytes: median {median:.0f} us (emulated)",
                    "write_latency_us_median": median, "attempts": attempt, "failed": said}
        said.append(output[-1500:])
    raise Failed(f"ib_write_lat did not get through {LINK_TRIES_MAX} times:\n" + "\n".join(said))


def write_latency(pair, device):
    """What both ends of one run of ib_write_lat say. A server serves one client and ends, also
    when that client failed, so each run has a server of its own."""
    program = f"timeout {LINK_SECONDS_MAX} ib_write_lat -R -d {device} -s 64 -n {LINK_ROUNDS}"
    pair.responder.run(f"({program}; echo status $?) >/run/link.log 2>&1 &\n"
                       "tries=0\n"
                       "until rdma resource show cm_id | grep -q 'LISTEN.*ib_write_lat'; do\n"
                       f"  tries=$((tries + 1)); [ $tries -lt {LINK_LISTEN_TRIES} ] || "
                       "{ cat /run/link.log; exit 1; }\n"
                       "  sleep 0.1\n"
                       "done", 2 * LINK_SECONDS_MAX)
    status, output = pair.writer.try_run(f"{program} {RESPONDER}", 2 * LINK_SECONDS_MAX)
    if status == 0:
        return output
    # Without a client the server would wait for its whole time.
    _, log = pair.responder.try_run("kill $(pidof ib_write_lat) 2>/dev/null; sleep 0.2; "
                                    "cat /run/link.log")
    return f"client, status {status}:\n{output}\nserver:\n{log}"
