"""Pair: two machines on one cable: a responder with an NVDIMM, where perdured runs, and a writer.

Everything that is started in a guest in the background has a bound on its time of its own.
"""

import re
import time

from nvdimm import Nvdimm
from records import parse_records
from settings import SHARE, LabError
from vm import GuestError

RESPONDER = "10.2.0.1"
WRITER = "10.2.0.2"
PEER = f"{RESPONDER}:7470"
POOL = "job"
POOL_MIB = 16
STALL_MS = 1500          # a silent responder is given up after so long
TRAFFIC_SECONDS_MAX = 60
WRITER_SECONDS_MAX = 120
CONFIG = """[control]
listen = "{responder}:7470"
allow_remote = true
[data]
listen = "{responder}:7471"
transports = ["{transport}"]
[pools]
directory = "/run/pools"
[profile]
domain = "{domain}"
receive_buffers = "{receive_buffers}"
"""


class Pair:
    """kind: of the NVDIMM, `adr` or `eadr`."""

    def __init__(self, lab, kind):
        self.lab = lab
        self.kind = kind
        self.nvdimm = Nvdimm(lab.guest, kind, lab.directory / f"{kind}.nvdimm",
                             lab.guest.nvdimm.directory / "ext4")
        ends = (f"{kind}.r", f"{kind}.w")
        self.responder = lab.machine(f"{kind}-responder", link=ends, nvdimm=self.nvdimm)
        self.writer = lab.machine(f"{kind}-writer", link=ends[::-1])
        self.fabric = None
        self.domain = "auto"
        self.receive_buffers = "dram"
        self.pool = POOL  # the one on a device DAX device
        self._output_read_from = 0

    def boot(self):
        """Both machines, side by side, with nothing running in them."""
        self.responder.start()
        self.writer.start()
        self.responder.await_ready()
        self.writer.await_ready()

    # --- what runs in them

    def begin(self, fabric, domain="auto", receive_buffers="dram"):
        """Boots if need be, and serves one empty pool over the fabric.

        domain: what is declared; the pool itself is made by what is true.
        """
        self.begin_bare(fabric)
        self.domain = "auto"
        self.receive_buffers = receive_buffers
        if fabric.mode() == "fsdax":
            self.mount()
            self.responder.run("rm -f /run/pools/*.pool")
            self.start_perdured()
        self.create_pool(POOL, POOL_MIB)
        if domain != "auto":
            self.declare(domain)

    def create_pool(self, name, mib):
        """One more pool on a file system; a device is cleared and holds only this one."""
        if self.fabric.mode() == "devdax":
            self.stop_perdured()
            self.responder.run("grep -q /mnt/pmem /proc/mounts && umount /mnt/pmem\n"
                               "lab-pmem devdax clear && rm -rf /run/pools")
            self.pool = name
            self.mount()
            self.start_perdured()
        self.responder.run(f"perdure pool create --peers {PEER} --pool {name} --bytes {mib}MiB")

    def begin_bare(self, fabric):
        """Two machines that reach each other over the fabric, with nothing running in them."""
        if not self.responder.running() or not self.writer.running():
            self.responder.cut_power()
            self.writer.cut_power()
            self.boot()
            self.fabric = None
        self.stop_writer()
        self.stop_perdured()
        if self.fabric != fabric:
            self.fabric = fabric
            self.set_up_network(self.responder, RESPONDER)
            self.set_up_network(self.writer, WRITER)

    def set_up_network(self, machine, address):
        machine.run("tc qdisc del dev eth0 root 2>/dev/null; ip addr flush dev eth0; "
                    "for device in rxe0 siw0; do rdma link delete $device 2>/dev/null; done; "
                    f"lab-net {address}/24 {self.fabric.rdma}")

    def mount(self):
        """/run/pools becomes the directory of the pools: a file system, or links to a device."""
        if self.fabric.mode() == "devdax":
            self.responder.run("device=$(lab-pmem devdax) && mkdir -p /run/pools && "
                               f"ln -sfn $device /run/pools/{self.pool}.pool")
        else:
            self.responder.run("grep -q /mnt/pmem /proc/mounts && exit\n"
                               "device=$(lab-pmem fsdax) || exit\n"
                               "mount -o dax $device /mnt/pmem || { mke2fs -q -F -t ext4 -b 4096 "
                               "$device && mount -o dax $device /mnt/pmem; } || exit\n"
                               "rm -rf /run/pools && ln -s /mnt/pmem /run/pools")

    def start_perdured(self):
        config = CONFIG.format(responder=RESPONDER, transport=self.fabric.transport,
                               domain=self.domain, receive_buffers=self.receive_buffers)
        self.responder.run(f"cat >/run/perdured.toml <<'END'\n{config}END\n"
                           "rm -f /run/ports\n"
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
        self.responder.run("[ -e /run/perdured.pid ] || exit 0\n"
                           "kill $(cat /run/perdured.pid) 2>/dev/null\n"
                           "tries=0\n"
                           "while kill -0 $(cat /run/perdured.pid) 2>/dev/null; do\n"
                           "  tries=$((tries + 1)); [ $tries -lt 100 ] || exit 1; sleep 0.1\n"
                           "done; rm /run/perdured.pid")

    def declare(self, domain):
        """perdured starts anew with this declaration of what survives."""
        self.stop_perdured()
        self.domain = domain
        self.start_perdured()

    # --- the power of the responder

    def cut_responder(self, seed, eviction):
        """Returns (lines that were dirty, lines of those that the medium got)."""
        self.responder.cut_power()
        return self.nvdimm.settle(seed, eviction)

    def restore_responder(self, serve=True):
        """Switches it on again, from what the medium holds."""
        self.responder.boot()
        self.set_up_network(self.responder, RESPONDER)
        self.mount()
        if serve:
            self.start_perdured()

    def restore_writer(self):
        self.writer.start()
        self.await_writer_boot()

    def await_writer_boot(self):
        self.writer.await_ready()
        self.set_up_network(self.writer, WRITER)

    # --- the writer

    def start_writer(self, first, records=0, seconds=WRITER_SECONDS_MAX, options=""):
        """Starts appending; what it is told goes to the output, which no power cut takes away."""
        self._output_read_from = self._output_size()
        self.writer.run(
            f"perdure_lab_writer --peer {PEER} --pool {POOL} --transport {self.fabric.transport} "
            f"--first {first} --records {records} --seconds {seconds} --stall-ms {STALL_MS} "
            f"{options} >/run/output 2>&1 &\necho $! >/run/writer.pid")

    def _output_size(self):
        return self.writer.output.stat().st_size if self.writer.output.exists() else 0

    def output(self):
        """What the present writer has said, whole lines."""
        with open(self.writer.output, "rb") as file:
            file.seek(self._output_read_from)
            text = file.read().decode(errors="replace")
        return text[:text.rfind("\n") + 1]

    def acknowledged(self):
        """The number of the last record of which the writer was told that it is durable; or 0."""
        told = re.findall(r"^durable (\d+)$", self.output(), re.MULTILINE)
        return int(told[-1]) if told else 0

    def await_output(self, pattern, seconds=TRAFFIC_SECONDS_MAX):
        """Waits until the writer has said a line that matches, and returns the match."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(pattern, self.output(), re.MULTILINE)
            if found:
                return found
            time.sleep(0.05)
        raise LabError(f"the writer did not say '{pattern}' within {seconds} s:\n"
                       f"{self.output()[-2000:]}\nperdured: {self.perdured_log()}")

    def await_traffic(self):
        if self.await_output(r"^(durable \d+|ended.*|failed.*)$").group(1)[0] != "d":
            raise LabError(f"the writer ended at once: {self.output()[-2000:]}")

    def await_writer_end(self, seconds=TRAFFIC_SECONDS_MAX):
        return self.await_output(r"^(ended|failed to open): (.*)$", seconds).group(0)

    def await_output_beyond(self, number):
        """Waits until records beyond that number are durable; False: the writer ended before."""
        deadline = time.monotonic() + TRAFFIC_SECONDS_MAX
        while time.monotonic() < deadline and self.acknowledged() <= number:
            if re.search(r"^(ended|failed)", self.output(), re.MULTILINE):
                return False
            time.sleep(0.05)
        return self.acknowledged() > number

    def stop_writer(self):
        self.writer.try_run("[ -e /run/writer.pid ] && kill -9 $(cat /run/writer.pid) 2>/dev/null")

    # --- what the responder has

    def read(self, from_index=0, most=0):
        """The records from an index on (at most so many; 0: all), as the responder itself reads
        them. See parse_records."""
        name = f"{self.responder.name}.records"
        self.responder.run(
            f"perdure log read --peers {PEER} --pool {POOL} --transport {self.fabric.transport} "
            f"--index --from-index {from_index} {f'--max {most}' if most else ''} "
            f">/mnt/share/{name}", 120)
        file = SHARE / name
        try:
            return parse_records(file.read_bytes())
        finally:
            file.unlink()

    def verify(self):
        """What `perdure log verify` says of the replica, as (equal, unclear (a torn tail), ..., all
        that it says)."""
        _, output = self.responder.try_run(f"perdure log verify --peers {PEER} --pool {POOL} "
                                         f"--transport {self.fabric.transport}", 120)
        found = re.search(r"\b(equal|different|damaged|unclear|unreachable)\b", output)
        if not found:
            raise LabError(f"log verify: {output}")
        return found.group(1), output

    def perdured_log(self):
        try:
            return self.responder.try_run("tail -n 20 /run/perdured.log", 10)[1]
        except GuestError as error:
            return str(error).splitlines()[0]
