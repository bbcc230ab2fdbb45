"""Local: perdured on one machine, and whoever uses its pools there, over tcp without a network."""

import json

from records import parse_records
from report import Failed
from settings import SHARE

WRITER_SECONDS_MAX = 120
STATE_TRIES = 100  # of 0.1 s and an answer
CONFIG = """[control]
listen = "127.0.0.1:{port}"
[data]
listen = "127.0.0.1:{data_port}"
transports = ["tcp"]
[pools]
directory = "{directory}"
[profile]
domain = "{domain}"
take_device = {take_device}
"""


class Local:
    """Several in one machine differ in their ports."""

    def __init__(self, machine, directory, port=7470, domain="auto", take_device="false"):
        self.machine = machine
        self.peer = f"127.0.0.1:{port}"
        self.files = f"/run/local-{port}"  # .toml, .log, .pid, .said: its own
        self.config = CONFIG.format(port=port, data_port=port + 1, directory=directory,
                                    domain=domain, take_device=take_device)

    # --- perdured

    def start(self, under=""):
        """under: a command that runs it as its child. Raises GuestError, with its log, when it ends
        at once."""
        files = self.files
        self.machine.run(f"cat >{files}.toml <<'END'\n{self.config}END\n"
                         f"rm -f {files}.ports\n"
                         f"{under} perdured --config {files}.toml --port-file {files}.ports "
                         f">{files}.log 2>&1 &\n"
                         f"echo $! >{files}.pid\n"
                         "tries=0\n"
                         f"while [ ! -e {files}.ports ]; do\n"
                         "  tries=$((tries + 1))\n"
                         f"  [ $tries -lt 300 ] && kill -0 $(cat {files}.pid) || "
                         f"{{ cat {files}.log; exit 1; }}\n"
                         "  sleep 0.1\n"
                         "done\n"
                         + (f"pid=$(cat {files}.pid)\n"
                            f"cat /proc/$pid/task/$pid/children >{files}.pid" if under else ""))

    def stop(self, signal="TERM"):
        self.machine.run(f"kill -{signal} $(cat {self.files}.pid)\n"
                         "tries=0\n"
                         f"while kill -0 $(cat {self.files}.pid) 2>/dev/null; do\n"
                         "  tries=$((tries + 1)); [ $tries -lt 200 ] || exit 1; sleep 0.1\n"
                         "done")

    def require_alive(self):
        status, _ = self.machine.try_run(f"kill -0 $(cat {self.files}.pid)")
        if status != 0:
            raise Failed(f"perdured has ended: {self.log()}")

    def log(self):
        return self.machine.try_run(f"tail -n 20 {self.files}.log", 10)[1]

    # --- its pools

    def pool(self, word, pool, more=""):
        """`perdure pool WORD`, as (status, output)."""
        return self.machine.try_run(f"perdure pool {word} --peers {self.peer} --pool {pool} {more} "
                                    "2>&1")

    def create(self, pool, mib):
        status, said = self.pool("create", pool, f"--bytes {mib}MiB")
        if status != 0:
            raise Failed(f"pool create: {said}\n{self.log()}")

    def describe(self, pool):
        status, said = self.pool("describe", pool, "--format json")
        if status != 0:
            raise Failed(f"pool describe: {said}\n{self.log()}")
        return described(said)

    def await_unavailable(self, pool, reasons):
        """Nobody asks for the pool meanwhile. Returns the reason, which one of `reasons` is part
        of."""
        said = self.machine.run(
            "tries=0\n"
            f"until perdure pool describe --peers {self.peer} --pool {pool} --format json "
            ">/run/described && grep -q '\"unavailable\"' /run/described; do\n"
            f"  tries=$((tries + 1)); [ $tries -lt {STATE_TRIES} ] || break; sleep 0.1\n"
            "done; cat /run/described", 150)
        found = described(said)
        reason = found.get("reason", "")
        if found["state"] != "unavailable" or not any(each in reason for each in reasons):
            raise Failed(f"{pool} is {found['state']}, '{reason}'; expected unavailable, "
                         f"{' or '.join(reasons)}\n{self.log()}")
        return reason

    def open(self, pool):
        status, said = self.pool("open", pool)
        state = self.describe(pool)["state"]
        if status != 0 or state != "open":
            raise Failed(f"{pool} is not open again but {state}: {said}\n{self.log()}")

    # --- a log in one of them

    def start_writer(self, pool, first, records=0):
        """Appends in the background; await_writer() ends it."""
        self.machine.run(
            f"rm -f {self.files}.said\n"
            f"{{ perdure_lab_writer --peer {self.peer} --pool {pool} --transport tcp "
            f"--first {first} --records {records} --seconds {WRITER_SECONDS_MAX} "
            f"; echo status $?; }} >{self.files}.said 2>&1 &\n"
            "tries=0\n"
            f"until grep -Eq '^(durable|ended|failed|status)' {self.files}.said; do\n"
            "  tries=$((tries + 1)); [ $tries -lt 300 ] || exit 1; sleep 0.1\n"
            "done")

    def await_writer(self):
        """(the last record that was acknowledged to it as durable, what it said at its end)."""
        said = self.machine.run(
            "tries=0\n"
            f"until grep -q '^status' {self.files}.said; do\n"
            "  tries=$((tries + 1)); [ $tries -lt 300 ] || break; sleep 0.1\n"
            f"done; cat {self.files}.said")
        if "\nstatus " not in said and not said.startswith("status "):
            raise Failed(f"the writer does not end: {said[-300:]}\n{self.log()}")
        durable = [line for line in said.splitlines() if line.startswith("durable ")]
        end = [line for line in said.splitlines() if line.startswith(("ended", "failed"))]
        return (int(durable[-1].split()[1]) if durable else 0), (end or [said[-300:]])[-1]

    def append(self, pool, first, records):
        """Raises Failed unless they all become durable."""
        self.start_writer(pool, first, records)
        durable, end = self.await_writer()
        if durable != first + records - 1 or end != "ended: all appended":
            raise Failed(f"{pool}: durable up to {durable}, expected {first + records - 1}: {end}\n"
                         f"{self.log()}")

    def read(self, pool):
        """See parse_records."""
        name = f"{self.machine.name}.records"
        self.machine.run(f"perdure log read --peers {self.peer} --pool {pool} --transport tcp "
                         f"--uncommitted --index >/mnt/share/{name}", 120)
        file = SHARE / name
        try:
            return parse_records(file.read_bytes())
        finally:
            file.unlink()

    def require_records(self, pool, last):
        """All from 1 to `last` are there, whole and in order; more may be. Returns the last."""
        found = self.read(pool)
        if found.faults or found.first != 1 or found.last < last:
            raise Failed(f"{pool}: acknowledged up to {last}, {found.first} to {found.last} are "
                         f"there; {'; '.join(found.faults)}")
        return found.last


def described(said):
    """The one pool of `perdure pool describe --format json`, with its domain beside the rest."""
    try:
        pool = json.loads(said)["peers"][0]["pools"][0]
    except (ValueError, KeyError) as error:
        raise Failed(f"not a description of a pool: {said}") from error
    return pool | {"domain": pool.get("profile", {}).get("domain", "")}
