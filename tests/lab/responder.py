"""Responder: a machine with an NVDIMM, or with a drive and Debian's own kernel, where perdured
serves pools over one fabric."""

import dataclasses

from drive import Drive
from nvdimm import Nvdimm
from vm import GuestError

POOL = "job"
POOL_MIB = 16
CONFIG = """[control]
listen = "{address}:7470"
allow_remote = true
[data]
listen = "{address}:7471"
transports = ["{transport}"]
[pools]
directory = "/run/pools"
[profile]
domain = "{domain}"
ddio = "{ddio}"
dma_dirties = "{dma_dirties}"
receive_buffers = "{receive_buffers}"
take_device = true
"""


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What is declared of the machine, in the words of perdured's configuration; and a library that
    perdured is started with, which hides some of what is true."""

    domain: str = ""  # what its NVDIMM is
    ddio: str = "on"
    dma_dirties: str = "no"
    receive_buffers: str = "dram"
    preload: str = ""


class Responder:
    """kind: of the NVDIMM, `adr` or `eadr`; cable: see Machine."""

    def __init__(self, lab, name, kind, address, cable):
        self.address = address
        self.peer = f"{address}:7470"
        self.nvdimm = Nvdimm(lab.guest, kind, lab.directory / f"{name}.nvdimm",
                             lab.guest.nvdimm.directory / "ext4")
        self.machine = lab.machine(name, cables=[cable], nvdimm=self.nvdimm)
        self.fabric = None
        self.declared = Declaration()
        # A guest takes nobody's word for its NVDIMM: what it is has to be declared.
        self.domain = {"adr": "dmp", "eadr": "mhp"}[kind]
        self.pool = POOL               # the one on a device DAX device

    # --- what runs in it

    def set_up_network(self, fabric):
        self.fabric = fabric
        set_up_network(self.machine, self.address, fabric)

    def begin(self, receive_buffers="dram"):
        """perdured serves one empty pool."""
        self.declared = Declaration(receive_buffers=receive_buffers)
        if self.fabric.mode() == "fsdax":
            self.mount()
            self.serve_empty_directory()
        self.create_pool(POOL, POOL_MIB)

    def serve_empty_directory(self):
        self.machine.run("rm -f /run/pools/*.pool")
        self.start_perdured()

    def create_pool(self, name, mib):
        """One more pool on a file system; a device is cleared and holds only this one."""
        if self.fabric.mode() == "devdax":
            self.stop_perdured()
            self.machine.run("grep -q /mnt/pmem /proc/mounts && umount /mnt/pmem\n"
                             "lab-pmem devdax clear && rm -rf /run/pools")
            self.pool = name
            self.mount()
            self.start_perdured()
        self.create_in_directory(name, mib)

    def create_in_directory(self, name, mib):
        self.machine.run(f"perdure pool create --peers {self.peer} --pool {name} "
                         f"--bytes {mib}MiB")

    def mount(self):
        """/run/pools becomes the directory of the pools: a file system, or links to a device."""
        if self.fabric.mode() == "devdax":
            self.machine.run("device=$(lab-pmem devdax) && mkdir -p /run/pools && "
                             f"ln -sfn $device /run/pools/{self.pool}.pool")
        else:
            self.machine.run("grep -q /mnt/pmem /proc/mounts && exit\n"
                             "device=$(lab-pmem fsdax) || exit\n"
                             "mount -o dax $device /mnt/pmem || { mke2fs -q -F -t ext4 -b 4096 "
                             "$device && mount -o dax $device /mnt/pmem; } || exit\n"
                             "rm -rf /run/pools && ln -s /mnt/pmem /run/pools")

    def start_perdured(self):
        config = CONFIG.format(address=self.address, transport=self.fabric.transport,
                               domain=self.declared.domain or self.domain, ddio=self.declared.ddio,
                               dma_dirties=self.declared.dma_dirties,
                               receive_buffers=self.declared.receive_buffers)
        self.machine.run(f"cat >/run/perdured.toml <<'END'\n{config}END\n"
                         "rm -f /run/ports\n"
                         f"LD_PRELOAD={self.declared.preload} "
                         "perdured --config /run/perdured.toml --port-file /run/ports "
                         ">/run/perdured.log 2>&1 &\n"
                         "echo $! >/run/perdured.pid\n"
                         "tries=0\n"
                         "while [ ! -e /run/ports ]; do\n"
                         "  tries=$((tries + 1))\n"
                         "  [ $tries -lt 300 ] && kill -0 $(cat /run/perdured.pid) || "
                         "{ cat /run/perdured.log; exit 1; }\n"
                         "  sleep 0.1\n"
                         "done")

    def stop_perdured(self):
        self.machine.run("[ -e /run/perdured.pid ] || exit 0\n"
                         "kill $(cat /run/perdured.pid) 2>/dev/null\n"
                         "tries=0\n"
                         "while kill -0 $(cat /run/perdured.pid) 2>/dev/null; do\n"
                         "  tries=$((tries + 1)); [ $tries -lt 100 ] || exit 1; sleep 0.1\n"
                         "done; rm /run/perdured.pid")

    def declare(self, declaration):
        """perdured starts anew with it."""
        self.stop_perdured()
        self.declared = declaration
        self.start_perdured()

    # --- its power

    def cut_power(self, seed, eviction):
        """Returns (lines that were dirty, lines of those that the medium got)."""
        self.machine.cut_power()
        return self.nvdimm.settle(seed, eviction)

    def restore_power(self, serve=True):
        """Switches it on again, from what the medium holds."""
        self.machine.boot()
        self.set_up_network(self.fabric)
        self.mount()
        if serve:
            self.start_perdured()

    def perdured_log(self):
        try:
            return self.machine.try_run("tail -n 20 /run/perdured.log", 10)[1]
        except GuestError as error:
            return str(error).splitlines()[0]


class FileResponder(Responder):
    """kind `page`: the pools are files on ext4 on a drive, under a kernel that pins their pages for
    an RNIC."""

    def __init__(self, lab, name, kind, address, cable):
        assert kind == "page", kind
        self.address = address
        self.peer = f"{address}:7470"
        self.machine = lab.machine(name, cables=[cable], image=lab.guest.old_image,
                                   drive=Drive(lab.directory / f"{name}.drive"))
        self.nvdimm = None
        self.fabric = None
        self.declared = Declaration()
        self.domain = "auto"

    def begin(self, receive_buffers="dram"):
        self.declared = Declaration(receive_buffers=receive_buffers)
        self.mount()
        self.serve_empty_directory()
        self.create_pool(POOL, POOL_MIB)

    def create_pool(self, name, mib):
        self.create_in_directory(name, mib)

    def mount(self):
        self.machine.run("grep -q /mnt/drive /proc/mounts && exit\n"
                         "mkdir -p /mnt/drive\n"
                         "mount -t ext4 /dev/vda /mnt/drive || { mke2fs -q -F -t ext4 -b 4096 "
                         "/dev/vda && mount -t ext4 /dev/vda /mnt/drive; } || exit\n"
                         "rm -rf /run/pools && ln -s /mnt/drive /run/pools")

    def cut_power(self, seed, eviction):
        """The drive has what it was sent; there is no cache of lines to lose."""
        self.machine.cut_power()
        return 0, 0


def set_up_network(machine, address, fabric):
    machine.run("tc qdisc del dev eth0 root 2>/dev/null; ip addr flush dev eth0; "
                "for device in rxe0 siw0; do rdma link delete $device 2>/dev/null; done; "
                f"lab-net {address}/24 {fabric.rdma}")
