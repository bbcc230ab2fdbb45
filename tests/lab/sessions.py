"""Scenarios of sessions that end for a newer writer: their keys end with them."""

import functools
import re

from pair import PEER, POOL, STALL_MS
from report import Failed

SECOND_FIRST = 1_000_001  # number of the second writer's first record
SECOND_RECORDS = 300


def of_fabric(fabric, scenario):
    """Over tcp tests/peer does the same without a lab."""
    if not fabric.rdma:
        return []
    return [scenario(f"fenced_writer_{fabric.name}", "eadr", 180,
                     functools.partial(fenced_writer, fabric), fabric.why_not)]


def fenced_writer(fabric, context):
    """Keys end with their sessions; a second writer takes over from one at full speed."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    status, keys = pair.writer.try_run(f"perdure_lab_keys {PEER} {POOL} {fabric.transport}", 150)
    if status != 0:
        raise Failed(f"a key outlives its session:\n{keys}\nperdured: {pair.perdured_log()}")
    pair.start_writer(1)
    pair.await_traffic()
    second = pair.writer.run(
        f"perdure_lab_writer --peer {PEER} --pool {POOL} --transport {fabric.transport} "
        f"--first {SECOND_FIRST} --records {SECOND_RECORDS} --stall-ms {STALL_MS}", 100)
    end = pair.await_writer_end()
    if "took over with epoch" not in end:
        raise Failed(f"the writer that was fenced says: {end}")
    return {"summary": f"{end}; {check_taken_over(pair, second)}", "keys": keys.splitlines()}


def check_taken_over(pair, second):
    """The log has a beginning of the first writer's records, all that were acknowledged among
    them, then the second writer's and nothing else."""
    boundary = int(re.search(r"open epoch \d+ records (\d+)", second).group(1))
    last = SECOND_FIRST + SECOND_RECORDS - 1
    if f"durable {last}\nended: all" not in second:
        raise Failed(f"the second writer did not get through:\n{second[-1000:]}")
    before, after = pair.read(most=boundary), pair.read(boundary)
    if before.faults or (before.first, before.last) != (1, boundary):
        raise Failed(f"of the first writer {before.first} to {before.last} are there, expected 1 "
                     f"to {boundary}; {'; '.join(before.faults)}")
    if after.faults or (after.first, after.last) != (SECOND_FIRST, last):
        raise Failed(f"after the takeover {after.first} to {after.last} are there, expected "
                     f"{SECOND_FIRST} to {last}; {'; '.join(after.faults)}")
    acknowledged = pair.acknowledged()
    if acknowledged > boundary:
        raise Failed(f"{acknowledged - boundary} of the first writer's records are lost: told "
                     f"durable up to {acknowledged}, the second found {boundary}")
    verdict, text = pair.verify()
    if verdict != "equal":
        raise Failed(f"log verify says {verdict}: {text}")
    return f"{boundary} records before it ({acknowledged} acknowledged), {SECOND_RECORDS} after"
