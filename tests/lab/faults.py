"""Scenarios of a bad network between two healthy machines: loss, delay, partition (tc netem)."""

import functools
import time

from power import Ledger
from report import Failed

LOSSY_RECORDS = 500
LOSSY_OPENS = 3         # each recovers the log, and appends so many
LOSSY_REPLICA_TIMEOUT_MS = 5000  # the library's own: longer than the 4 s of an RNIC's repeats
LOSSY = "delay 2ms 1ms loss 2% reorder 5% duplicate 1%"
PATIENT_MS = 30000      # a writer that waits for this long outlives losses and the short partition
PARTITION_SECONDS = 1.0


def of_fabric(fabric, scenario):
    return [scenario(f"{name}_{fabric.name}", "eadr", 180, functools.partial(way, fabric), why_not)
            for name, way, why_not in (
                ("netem_loss", loss, functools.partial(no_repeats, fabric)),
                ("netem_pause", pause, fabric.why_not),
                ("netem_partition", partition, fabric.why_not))]


def no_repeats(fabric, guest):
    """Debian's rxe repeats a FLUSH with a wrong address: see kernel.py."""
    return fabric.why_not(guest) or (guest.no_rnics() if fabric.rdma else "")


def shape(pair, words):
    """Both directions; empty: a good network again."""
    for machine in (pair.responder, pair.writer):
        machine.run("tc qdisc del dev eth0 root 2>/dev/null; "
                    + (f"tc qdisc add dev eth0 root netem limit 10000 {words}" if words else ":"))


def loss(fabric, context):
    """A network that drops, delays, reorders and duplicates: slower, and nothing else. A log opens
    there, too."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    shape(pair, LOSSY)
    for number in range(LOSSY_OPENS):
        pair.start_writer(1 + number * LOSSY_RECORDS, records=LOSSY_RECORDS,
                          options=f"--window 64 --replica-timeout-ms {LOSSY_REPLICA_TIMEOUT_MS}")
        end = pair.await_writer_end(120)
        acknowledged = pair.acknowledged()
        if not end.startswith("ended: all") or acknowledged != (number + 1) * LOSSY_RECORDS:
            raise Failed(f"writer {number + 1} ended with {acknowledged} records durable: {end}")
    shape(pair, "")
    result = Ledger().check(pair, acknowledged)
    return {"summary": f"{LOSSY_OPENS} writers, {acknowledged} records over '{LOSSY}'", **result}


def pause(fabric, context):
    """A partition and a writer with long time-outs: it goes on by itself, or says why not."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    pair.start_writer(1, options=f"--replica-timeout-ms {PATIENT_MS}")
    pair.await_traffic()
    shape(pair, "loss 100%")
    before = pair.acknowledged()
    time.sleep(PARTITION_SECONDS)
    shape(pair, "")
    # RDMA devices give a connection up after some retries (RETRY_EXC); TCP does not.
    goes_on = pair.await_output_beyond(before)
    if not goes_on and not fabric.rdma:
        raise Failed(f"nothing became durable after the partition: {pair.output()[-500:]}")
    pair.stop_writer()
    acknowledged = pair.acknowledged()
    result = Ledger().check(pair, acknowledged)
    return {"summary": f"durable {before} before, {acknowledged} after", "goes_on": goes_on,
            **result}


def partition(fabric, context):
    """A partition that lasts: the writer gives up in time, and the next one goes on."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    ledger = Ledger()
    pair.start_writer(1)
    pair.await_traffic()
    shape(pair, "loss 100%")
    end = pair.await_writer_end()
    shape(pair, "")
    first = ledger.check(pair, pair.acknowledged())
    pair.start_writer(ledger.next_number, records=LOSSY_RECORDS)
    again = pair.await_writer_end()
    second = ledger.check(pair, pair.acknowledged())
    if not again.startswith("ended: all"):
        raise Failed(f"the next writer did not get through: {again}")
    return {"summary": f"the writer said '{end[:60]}', the next one went on", "first": first,
            "second": second}
