"""Pair: two machines on a cable: a responder with an NVDIMM, where perdured runs, and a writer."""

from cluster import RESPONDERS, REPLICA_TIMEOUT_MS, Cluster
from responder import POOL, POOL_MIB

__all__ = ["PEER", "POOL", "POOL_MIB", "RESPONDER", "REPLICA_TIMEOUT_MS", "Pair"]

RESPONDER = RESPONDERS[0]
PEER = f"{RESPONDER}:7470"


class Pair(Cluster):
    """A cluster with one responder."""

    def __init__(self, lab, kind):
        super().__init__(lab, kind, kind, 1)
        self.server = self.responders[0]
        self.responder = self.server.machine
        self.nvdimm = self.server.nvdimm

    def create_pool(self, name, mib):
        self.server.create_pool(name, mib)

    def start_perdured(self):
        self.server.start_perdured()

    def stop_perdured(self):
        self.server.stop_perdured()

    def cut_responder(self, seed, eviction):
        """Returns (lines that were dirty, lines of those that the medium got)."""
        return self.server.cut_power(seed, eviction)

    def restore_responder(self, serve=True):
        self.server.restore_power(serve)

    def perdured_log(self):
        return self.server.perdured_log()
