"""What carries Perdure's bytes between two machines of the lab, and whether it can here."""

import dataclasses
import subprocess
import tempfile

from binaries import TARGETS
from settings import PERDURE_TREE


@dataclasses.dataclass(frozen=True)
class Fabric:
    name: str       # in the names of scenarios
    transport: str  # Perdure's word for it
    rdma: str       # the RDMA device of the guests; empty: none

    def mode(self):
        """Of the NVDIMM. Files on DAX can be registered only by RNICs that page on demand."""
        return "devdax" if self.rdma else "fsdax"

    def why_not(self, guest):
        """Why scenarios over it can not run; empty if they can."""
        if self.rdma == "siw" and guest.no_rnics():
            return guest.no_rnics()
        return why_not_served(self.transport)


FABRICS = (Fabric("tcp", "tcp", ""), Fabric("rxe", "roce", "rxe"), Fabric("siw", "iwarp", "siw"))
_answers = {}


def why_not_served(transport):
    """Asks the freshly built perdured, which runs on this machine as well."""
    program = PERDURE_TREE / TARGETS["perdured"]
    if transport not in _answers:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(f'[control]\nallow_remote = true\n[data]\ntransports = ["{transport}"]\n')
            file.flush()
            done = subprocess.run([program, "--config", file.name, "--check-config"],
                                  capture_output=True, text=True, check=False, timeout=60,
                                  stdin=subprocess.DEVNULL)
            words = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            words = words.replace(file.name, "configuration")
        _answers[transport] = "" if done.returncode == 0 else f"{transport}: {words}"
    return _answers[transport]
