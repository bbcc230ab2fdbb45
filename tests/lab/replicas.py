"""Scenarios of a log with three replicas on machines of their own, of which two must answer."""

import functools
import time
import zlib

import records
from cluster import Cluster
from power import EVICTIONS
from report import Failed

REPLICAS = 3
KIND = "adr"
SECONDS_MAX = 300        # 40 s on an idle machine
MOMENT_SECONDS_MAX = 1.5  # after the first record, a responder's power fails within this
REPAIR_SECONDS_MAX = 60


def of_fabric(fabric, scenario):
    return [scenario(f"replicas_{fabric.name}", KIND, SECONDS_MAX,
                     functools.partial(lose_one, fabric), fabric.why_not)]


def lose_one(fabric, context):
    """One of three responders loses its power at full speed: the writer goes on with the others,
    repairs it when it is back, and in the end all three replicas hold the same records."""
    cluster = context.shared("replicas", lambda: Cluster(context.lab, "three", KIND, REPLICAS))
    cluster.begin(fabric)
    prng = context.prng("cut")
    victim = prng.choice(cluster.responders)
    cluster.start_writer(1, options="--repair 1")
    cluster.await_traffic()
    time.sleep(prng.uniform(0, MOMENT_SECONDS_MAX))
    dirty, kept = victim.cut_power(prng.random(), prng.choice(EVICTIONS))
    before = cluster.acknowledged()
    cluster.await_output(rf"^not repaired {victim.peer}: .*$", REPAIR_SECONDS_MAX)
    if not cluster.await_output_beyond(before):
        raise Failed(f"nothing became durable without {victim.peer}: {cluster.output()[-1000:]}")
    without = cluster.acknowledged()
    victim.restore_power()
    repaired = cluster.await_output(rf"^repaired {victim.peer}: (\d+) bytes copied.*$",
                                    REPAIR_SECONDS_MAX)
    if not cluster.await_output_beyond(cluster.acknowledged()):
        raise Failed(f"nothing became durable after the repair: {cluster.output()[-1000:]}")
    end = cluster.end_writer()
    if end != "ended: all appended":
        raise Failed(f"the writer ended with '{end}'")
    result = compare(cluster)
    return {"summary": f"{result['acknowledged']} records, {without - before} of them without the "
                       f"replica that lost power; {repaired.group(1)} bytes copied, 3 are equal",
            "lines_dirty": dirty, "lines_evicted": kept, "repair": repaired.group(0), **result}


def compare(cluster):
    """Every replica has all that was acknowledged, and the same as the others."""
    acknowledged = cluster.acknowledged()
    sums = []
    for responder in cluster.responders:
        data = cluster.read_bytes(responder=responder)
        found = records.parse_records(data)
        missing = records.lost(found, 1, acknowledged)
        if missing or found.faults:
            raise Failed(f"{responder.peer}: {missing} records are lost of {acknowledged}; found "
                         f"{found.first} to {found.last}; {'; '.join(found.faults)}")
        sums.append(zlib.crc32(data))
    if len(set(sums)) != 1:
        raise Failed(f"the replicas hold different records: CRC-32 {sums}")
    verdict, text = cluster.verify()
    if verdict != "equal" or "different" in text:
        raise Failed(f"log verify: {text}")
    return {"acknowledged": acknowledged, "lost": 0, "verify": text}
