"""Scenarios of sessions: their keys end with them, and idle ones cost little memory."""

import functools
import json
import re

from pair import PEER, POOL, REPLICA_TIMEOUT_MS
from report import Failed
from responder import Declaration

SECOND_FIRST = 1_000_001  # number of the second writer's first record
SECOND_RECORDS = 300
# What a session's rights are, and what perdured says when they stay. siw has no memory windows.
RIGHTS = {"rxe": {"qp": "destroy the queue pair", "mw": "deallocate a memory window"},
          "siw": {"qp": "destroy the queue pair", "mr": "deregister"}}
FENCED_MIB = (2, 32)      # pools that are compared
READERS = 40              # of the 48 sessions that perdured by default leaves to readers
READER_KIB_MAX = 700      # of perdured's memory, for each that is idle


def of_fabric(fabric, scenario):
    """Over tcp tests/server does the same without a lab."""
    if not fabric.rdma:
        return []
    ways = (("fenced_writer", fenced_writer), ("rights_stay", rights_stay),
            ("idle_readers", idle_readers), ("certify", certify),
            ("fencing_size", fencing_size))
    return [scenario(f"{name}_{fabric.name}", "eadr", 180, functools.partial(way, fabric),
                     fabric.why_not)
            for name, way in ways]


def fenced_writer(fabric, context):
    """Keys end with their sessions; a second writer takes over from one at full speed."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    status, keys = pair.writer.try_run(f"perdure_lab_keys {PEER} {POOL} {fabric.transport}", 150)
    if status != 0:
        raise Failed(f"a key outlives its session:\n{keys}\nperdured: {pair.perdured_log()}")
    pair.start_writer(1)
    pair.await_traffic()
    _, second = run_second_writer(pair)
    end = pair.await_writer_end()
    if "took over with epoch" not in end:
        raise Failed(f"the writer that was fenced says: {end}")
    return {"summary": f"{end}; {check_taken_over(pair, second)}", "keys": keys.splitlines()}


def run_second_writer(pair):
    """(status, what it said)"""
    return pair.writer.try_run(
        f"perdure_lab_writer --peer {PEER} --pool {POOL} --transport {pair.fabric.transport} "
        f"--first {SECOND_FIRST} --records {SECOND_RECORDS} "
        f"--replica-timeout-ms {REPLICA_TIMEOUT_MS}", 100)


def rights_stay(fabric, context):
    """The RNIC does not take a fenced writer's rights away: nobody else gets the pool, and the
    error says why, until the RNIC does."""
    pair = context.pair("eadr")
    reasons = {}
    for kind, said_of_it in RIGHTS[fabric.rdma].items():
        pair.begin(fabric)
        pair.server.declare(Declaration(preload="/run/perdure/lib/rights_stay.so"))
        pair.start_writer(1)
        pair.await_traffic()
        pair.responder.run(f"echo {kind} >/run/rights_stay")
        for _ in range(2):  # each request asks the RNIC again
            status, said = run_second_writer(pair)
            if status == 0 or "failed to open" not in said or \
                    not re.search(f"can not be taken away: RNIC {fabric.rdma}0 does not "
                                  f"{said_of_it}.*: Device or resource busy", said):
                raise Failed(f"{kind} was not taken away, and the next writer says: {said}\n"
                             f"{pair.perdured_log()}")
        reasons[kind] = said.strip()
        described = pair.responder.run(f"perdure pool describe --peers {PEER} --pool {POOL} "
                                       "--format json")
        if "can not be taken away" not in described:
            raise Failed(f"the pool does not say why nobody gets it: {described}")
        pair.responder.run("rm /run/rights_stay")
        _, second = run_second_writer(pair)
        pair.await_writer_end()
        summary = check_taken_over(pair, second)
    pair.server.declare(Declaration())
    return {"summary": f"{', '.join(RIGHTS[fabric.rdma])} kept: nobody was granted the pool; "
                       f"then {summary}", "reasons": reasons}


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
        raise Failed(f"{acknowledged - boundary} of the first writer's records are lost: "
                     f"acknowledged up to {acknowledged}, the second found {boundary}")
    verdict, text = pair.verify()
    if verdict != "equal":
        raise Failed(f"log verify says {verdict}: {text}")
    return f"{boundary} records before it ({acknowledged} acknowledged), {SECOND_RECORDS} after"


def certify(fabric, context):
    """What docs/hardware.md asks of an RNIC first, between two machines: nothing is broken."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    report, checks = run_certify(pair)
    broken = [f"{name}: {check['finding']}" for name, check in checks.items()
              if check["proof"] == "broken"]
    if broken:
        raise Failed(f"{'; '.join(broken)}\n{report}")
    rounds = checks["bytes-after-a-grant"]["numbers"]["rounds"]
    if rounds < 2 or "driver" not in report["peer_device"]:
        raise Failed(f"the list was not gone through, or does not say with what:\n{report}")
    proofs = ", ".join(f"{name} {check['proof']}" for name, check in checks.items()
                       if check["proof"] != "not-here")
    return {"summary": f"{rounds:.0f} grants; {proofs}", "report": report}


def run_certify(pair):
    """Its report, and the checks in it by name."""
    said = pair.writer.run(
        f"perdure probe --certify {PEER} --pool {POOL} --overwrite "
        f"--transport {pair.fabric.transport} --format json || [ $? = 1 ]", 150)
    report = json.loads(said)
    return report, {check["name"]: check for check in report["checks"]}


def fencing_size(fabric, context):
    """Fencing registers no pool anew, of whatever size, where there are memory windows (rxe); where
    there are none (siw), each session does. Counted; the times are only printed."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    pair.server.declare(Declaration(preload="/run/perdure/lib/count_registrations.so"))
    words, counts = [], []
    for mib in FENCED_MIB:
        pair.responder.run("rm -f /run/registered")
        pair.create_pool(POOL, mib)
        _, checks = run_certify(pair)
        grants = int(checks["bytes-after-a-grant"]["numbers"]["rounds"])
        time_ns = checks["fencing-time"]["numbers"]["fencing_ns"]
        registered = [int(each) for each in pair.responder.run("cat /run/registered").split()]
        counts.append(sum(each > mib << 19 for each in registered))  # no buffers are that large
        expected = counts[-1] == 1 if fabric.rdma == "rxe" else counts[-1] > grants
        if grants < 2 or not expected:
            raise Failed(f"a pool of {mib} MiB was registered {counts[-1]} times in {grants} "
                         f"grants; all registrations: {registered}")
        words.append(f"{mib} MiB: {counts[-1]} registrations in {grants} grants, "
                     f"{time_ns / 1e6:.1f} ms each (emulated)")
    pair.server.declare(Declaration())
    return {"summary": "; ".join(words), "registrations": counts}


def idle_readers(fabric, context):
    """Many readers that send no message: what perdured keeps for them."""
    pair = context.pair("eadr")
    pair.begin(fabric)
    before = memory_kib(pair)
    pair.writer.run(
        "mkfifo /run/readers.end 2>/dev/null\n"
        f"timeout 120 perdure_lab_readers {PEER} {POOL} {fabric.transport} {READERS} "
        "<>/run/readers.end >/run/readers.said 2>&1 &\n"
        "echo $! >/run/readers.pid\n"
        "tries=0\n"
        "until grep -q . /run/readers.said; do\n"
        "  tries=$((tries + 1)); [ $tries -lt 900 ] || exit 1; sleep 0.1\n"
        "done", 100)
    said = pair.writer.run("cat /run/readers.said")
    each = (memory_kib(pair) - before) / READERS
    if f"open {READERS}" not in said:
        raise Failed(f"the readers did not get through: {said}\nperdured: {pair.perdured_log()}")
    pair.writer.run("kill $(cat /run/readers.pid)")
    if each > READER_KIB_MAX:
        raise Failed(f"perdured takes {each:.0f} KiB for an idle reader, at most "
                     f"{READER_KIB_MAX} are expected")
    return {"summary": f"{READERS} idle readers, {each:.0f} KiB of perdured for each",
            "kib_each": each}


def memory_kib(pair):
    """What of perdured is in the responder's memory."""
    status = pair.responder.run("cat /proc/$(cat /run/perdured.pid)/status")
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE).group(1))
