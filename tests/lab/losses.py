"""Scenarios of a responder that is lost and comes back, under one writer that stays."""

import functools
import json
import time

from jobs import input_text
from pair import PEER, POOL, STALL_MS
from report import Failed
from settings import SHARE, LabError

RECORDS = 40000
KILLS = 3
KILL_SECONDS = (0.3, 1.2)  # between a new perdured and its end
LINK_DOWN_SECONDS = 8      # longer than the retries of an RNIC, see verbs_device.cc
COMMIT_TIMEOUT_MS = 90000
END_SECONDS_MAX = 200


def of_fabric(fabric, scenario):
    """Over tcp tests/cli and tests/crash do the same without a lab."""
    if not fabric.rdma:
        return []
    ways = {"peer_killed": ("adr", peer_killed), "link_down": ("eadr", link_down)}
    return [scenario(f"{name}_{fabric.name}", kind, 400, functools.partial(way, fabric, kind),
                     fabric.why_not)
            for name, (kind, way) in ways.items()]


def peer_killed(fabric, kind, context):
    """perdured is killed and started again, several times."""
    dice = context.dice("kills")

    def strike(pair):
        for number in range(KILLS):
            time.sleep(dice.uniform(*KILL_SECONDS))
            if ended(pair):
                raise Failed(f"the writer ended after {number} kills:\n{what_it_said(pair)}")
            pair.responder.run("kill -9 $(cat /run/perdured.pid)")
            pair.start_perdured()

    return outlived(fabric, context.pair(kind), strike)


def link_down(fabric, kind, context):
    """The writer's link is down for longer than its RNIC tries again."""
    # rxe's QP of the connection manager does not outlive a missing route (it stays in state ERR,
    # as `rdma res show qp` says, also with perftest alone): there the cable loses everything.
    down, up = ("ip link set eth0 down", "ip link set eth0 up")
    if fabric.rdma == "rxe":
        down, up = ("tc qdisc add dev eth0 root netem loss 100%", "tc qdisc del dev eth0 root")

    def strike(pair):
        time.sleep(KILL_SECONDS[0])
        pair.writer.run(down)
        time.sleep(LINK_DOWN_SECONDS)
        if ended(pair):
            raise Failed(f"the writer ended while its link was down:\n{what_it_said(pair)}")
        pair.writer.run(up)

    return outlived(fabric, context.pair(kind), strike)


def outlived(fabric, pair, strike):
    """One `perdure log append` at full speed outlives what strikes: it says of every record that it
    is committed, and the log is the input, byte for byte."""
    pair.begin(fabric)
    text = input_text(RECORDS)
    name = f"{pair.responder.name}.input"
    (SHARE / name).write_bytes(text)
    where = f"--peers {PEER} --pool {POOL} --transport {fabric.transport}"
    pair.writer.run(
        "rm -f /run/append.*\n"
        f"{{ timeout 300 perdure log append {where} --auto-repair 0.5 --stall-ms {STALL_MS} "
        f"--commit-timeout-ms {COMMIT_TIMEOUT_MS} --window 256 --format json "
        f"/mnt/share/{name} >/run/append.json 2>/run/append.said\n"
        "echo $? >/run/append.status; } &")
    pair.responder.run("tries=0\n"
                       f"until [ -n \"$(perdure log read {where} --max 1 2>/dev/null)\" ]; do "
                       "tries=$((tries + 1)); [ $tries -lt 60 ] || exit 1; sleep 0.2; done")
    strike(pair)
    summary = await_summary(pair)
    pair.responder.run(f"perdure log read {where} >/mnt/share/{name}.read", 150)
    read = (SHARE / f"{name}.read").read_bytes()
    for file in (name, f"{name}.read"):
        (SHARE / file).unlink()
    if read != text:
        raise Failed(f"{len(text)} bytes were appended, {len(read)} others read back")
    if not summary["repairs"]:
        raise Failed("the writer lost nothing, so nothing was tested")
    return {"summary": f"{summary['committed']} of {RECORDS} records committed; back after "
                       f"{len(summary['repairs'])} losses", "repairs": summary["repairs"]}


def ended(pair):
    return pair.writer.try_run("[ -e /run/append.status ]")[0] == 0


def what_it_said(pair):
    return pair.writer.try_run("cat /run/append.json /run/append.said")[1][-3000:]


def await_summary(pair):
    """Of a writer that committed everything."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while not ended(pair):
        if time.monotonic() > deadline:
            raise LabError(f"the writer did not end: {what_it_said(pair)}\n"
                           f"perdured: {pair.perdured_log()}")
        time.sleep(0.5)
    status, text = pair.writer.try_run("cat /run/append.json; exit $(cat /run/append.status)")
    if status != 0:
        raise Failed(f"status {status}: {what_it_said(pair)}\nperdured: {pair.perdured_log()}")
    return json.loads(text)
