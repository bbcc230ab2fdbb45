"""Cluster: a writer, and one or more responders, each on a cable of its own to it.

Everything that is started in a guest in the background has a bound on its time of its own.
"""

import re
import time

from records import parse_records
from responder import POOL, FileResponder, Responder, set_up_network
from settings import SHARE, LabError

RESPONDERS = ("10.2.0.1", "10.2.0.11", "10.2.0.12")
WRITER = "10.2.0.2"
REPLICA_TIMEOUT_MS = 1500          # a silent responder is given up after this long
TRAFFIC_SECONDS_MAX = 60
WRITER_SECONDS_MAX = 120


class Cluster:
    """kind: of the NVDIMMs, `adr` or `eadr`; or `page`: files on a drive."""

    def __init__(self, lab, name, kind, count):
        self.lab = lab
        self.kind = kind
        cables = [(f"{name}.r{number}", f"{name}.w{number}") for number in range(count)]
        make = FileResponder if kind == "page" else Responder
        self.responders = [
            make(lab, f"{name}-responder{number or ''}", kind, RESPONDERS[number],
                      cables[number]) for number in range(count)]
        self.writer = lab.machine(f"{name}-writer", cables=[each[::-1] for each in cables])
        self.fabric = None
        self._output_read_from = 0

    def machines(self):
        return [each.machine for each in self.responders] + [self.writer]

    def peers(self):
        return ",".join(each.peer for each in self.responders)

    def where(self, peers=""):
        """The options by which `perdure log` finds the log, on all responders or on some."""
        return f"--peers {peers or self.peers()} --pool {POOL} --transport {self.fabric.transport}"

    def boot(self):
        """All machines, side by side, with nothing running in them."""
        for machine in self.machines():
            machine.start()
        for machine in self.machines():
            machine.await_ready()

    def begin(self, fabric, receive_buffers="dram"):
        """Boots if need be, and each responder serves one empty pool over the fabric."""
        self.begin_bare(fabric)
        for responder in self.responders:
            responder.begin(receive_buffers)

    def begin_bare(self, fabric):
        """Machines that reach each other over the fabric, with nothing running in them."""
        if not all(machine.running() for machine in self.machines()):
            for machine in self.machines():
                machine.cut_power()
            self.boot()
            self.fabric = None
        self.stop_writer()
        for responder in self.responders:
            responder.stop_perdured()
        if self.fabric != fabric:
            self.fabric = fabric
            for responder in self.responders:
                responder.set_up_network(fabric)
            set_up_network(self.writer, WRITER, fabric)

    def restore_writer(self):
        self.writer.start()
        self.await_writer_boot()

    def await_writer_boot(self):
        self.writer.await_ready()
        set_up_network(self.writer, WRITER, self.fabric)

    # --- the writer

    def start_writer(self, first, records=0, seconds=WRITER_SECONDS_MAX, options=""):
        """Starts appending; acknowledgements go to the output, which no power cut takes away."""
        peers = " ".join(f"--peer {each.peer}" for each in self.responders)
        command = (f"perdure_lab_writer {peers} --pool {POOL} --transport "
                   f"{self.fabric.transport} --first {first} --records {records} "
                   f"--seconds {seconds} --replica-timeout-ms {REPLICA_TIMEOUT_MS} {options}")
        self.start_program(command)

    def start_program(self, command):
        """In the writer's place; what it says goes to the same output."""
        self.await_writer_gone()
        self._output_read_from = self._output_size()
        # How it ended is asked for when it has not said so itself.
        self.writer.run("rm -f /run/writer.*\n"
                        f"{{ {command} >/run/output 2>&1 & echo $! >/run/writer.started; "
                        "mv /run/writer.started /run/writer.pid; "
                        "wait $!; echo $? >/run/writer.status; } >/dev/null 2>&1 &\n"
                        "tries=0\n"
                        "until [ -e /run/writer.pid ]; do\n"
                        "  tries=$((tries + 1)); [ $tries -lt 300 ] || exit 1; sleep 0.1\n"
                        "done")

    def await_writer_gone(self, seconds=30):
        """The last one closes its log after its last word; the output has one user at a time."""
        self.writer.run("[ -e /run/writer.pid ] || exit 0\n"
                        "tries=0\n"
                        "while kill -0 $(cat /run/writer.pid) 2>/dev/null; do\n"
                        f"  tries=$((tries + 1)); [ $tries -lt {10 * seconds} ] || exit 1; "
                        "sleep 0.1\n"
                        "done; rm /run/writer.pid", 2 * seconds)

    def _output_size(self):
        return self.writer.output.stat().st_size if self.writer.output.exists() else 0

    def output(self):
        """What the present writer has said, whole lines."""
        with open(self.writer.output, "rb") as file:
            file.seek(self._output_read_from)
            text = file.read().decode(errors="replace")
        return text[:text.rfind("\n") + 1]

    def acknowledged(self):
        """The number of the last record that was acknowledged to the writer as durable; or 0."""
        acknowledged = re.findall(r"^durable (\d+)$", self.output(), re.MULTILINE)
        return int(acknowledged[-1]) if acknowledged else 0

    def await_output(self, pattern, seconds=TRAFFIC_SECONDS_MAX):
        """Waits until the writer has said a line that matches, and returns the match."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(pattern, self.output(), re.MULTILINE)
            if found:
                return found
            time.sleep(0.05)
        raise LabError(f"the writer did not say '{pattern}' within {seconds} s:\n"
                       f"{self.output()[-2000:]}\n{self.writer_end()}\n"
                       f"perdured: {self.perdured_logs()}")

    def writer_end(self):
        """Whether the writer still runs, for errors."""
        return self.writer.try_run("[ -e /run/writer.status ] || { echo it runs; exit 0; }\n"
                                   "echo it ended with status $(cat /run/writer.status)\n"
                                   "dmesg | tail -n 3", 10)[1]

    def await_traffic(self):
        if self.await_output(r"^(durable \d+|ended.*|failed.*)$").group(1)[0] != "d":
            raise LabError(f"the writer ended at once: {self.output()[-2000:]}")

    def await_writer_end(self, seconds=TRAFFIC_SECONDS_MAX):
        return self.await_output(r"^(ended|failed to open): (.*)$", seconds).group(0)

    def end_writer(self):
        """Asks it to end in good order, and returns its last word."""
        self.writer.run("kill -TERM $(cat /run/writer.pid)")
        return self.await_writer_end()

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

    # --- what the responders have

    def read(self, from_index=0, responder=None, most=0):
        """The records from an index on (at most so many; 0: all), as the responder (the first)
        itself reads them. See parse_records. Also those that a reader does not know to be
        committed: it learns that from what the writer appends next, and the writer is dead."""
        return parse_records(self.read_bytes(from_index, responder, most))

    def read_bytes(self, from_index=0, responder=None, most=0):
        responder = responder or self.responders[0]
        name = f"{responder.machine.name}.records"
        responder.machine.run(f"perdure log read {self.where(responder.peer)} --uncommitted "
                              f"--index --from-index {from_index} "
                              f"{f'--max {most}' if most else ''} "
                              f">/mnt/share/{name}", 120)
        file = SHARE / name
        try:
            return file.read_bytes()
        finally:
            file.unlink()

    def verify(self):
        """What `perdure log verify` says of the first replica, as (equal, unclear (a torn tail),
        ..., all that it says)."""
        _, output = self.responders[0].machine.try_run(f"perdure log verify {self.where()}", 120)
        found = re.search(r"\b(equal|different|damaged|unclear|unreachable)\b", output)
        if not found:
            raise LabError(f"log verify: {output}")
        return found.group(1), output

    def perdured_logs(self):
        return "\n".join(each.perdured_log() for each in self.responders)
