"""Scenarios of a responder that is lost and comes back, under one writer that stays."""

import functools
import json
import time

from jobs import input_text
from pair import PEER, POOL, REPLICA_TIMEOUT_MS, RESPONDER
from report import Failed
from settings import SHARE, LabError

RECORDS = 40000
CHUNKS = 40              # of the input; all at full speed would be over before the last kill
CHUNK_PAUSE_SECONDS = 0.2
KILLS = 3
KILL_SECONDS = (0.3, 1.2)  # between a new perdured and its end
LINK_DOWN_SECONDS = 8      # longer than the retries of an RNIC, see verbs_device.cc
# rxe may keep a process that was killed, and with it the lock of its pools: for each queue pair
# that is referred to it waits 50 s. The next perdured looks whether they are free until then.
BACK_SECONDS_MAX = 200
COMMIT_TIMEOUT_MS = 1000 * (BACK_SECONDS_MAX + 40)
APPEND_SECONDS_MAX = 800
END_SECONDS_MAX = 200
SECONDS_MAX = 900          # 60 s on an idle machine
RESETS = 3
RESET_SECONDS_MAX = 200    # as for a process that was killed
RESET_TRIES_MAX = 20
GRANTED = '"session"'      # in the answer to a request for one
KEEP_ADDRESSES = ("ip neigh show dev eth0 | while read address word lladdr state; do "
                  "[ \"$word\" != lladdr ] || "
                  "ip neigh replace $address lladdr $lladdr dev eth0 nud permanent; done")


def of_fabric(fabric, scenario):
    """Over tcp tests/cli and tests/crash do the same without a lab."""
    if not fabric.rdma:
        return []
    ways = {"peer_killed": ("adr", peer_killed), "link_down": ("eadr", link_down),
            "rnic_reset": ("eadr", rnic_reset)}
    return [scenario(f"{name}_{fabric.name}", kind, SECONDS_MAX,
                     functools.partial(way, fabric, kind), fabric.why_not)
            for name, (kind, way) in ways.items()]


def peer_killed(fabric, kind, context):
    """perdured is killed and started again, several times."""
    prng = context.prng("kills")

    def strike(pair):
        for number in range(KILLS):
            time.sleep(prng.uniform(*KILL_SECONDS))
            if ended(pair):
                raise Failed(f"the writer ended after {number} kills:\n{what_it_said(pair)}")
            pair.responder.run("kill -9 $(cat /run/perdured.pid)")
            pair.start_perdured()
            await_back(pair, number + 1)

    return outlived(fabric, context.pair(kind), strike)


def link_down(fabric, kind, context):
    """The writer's link is down for longer than its RNIC tries again."""
    # rxe's QP of the connection manager does not outlive a missing route (it stays in state ERR,
    # as `rdma res show qp` says, also with perftest alone), nor an address that ARP can not resolve
    # any more: there the cable loses everything, and addresses stay resolved.
    down, up = ("ip link set eth0 down", "ip link set eth0 up")
    if fabric.rdma == "rxe":
        down, up = ("tc qdisc add dev eth0 root netem loss 100%", "tc qdisc del dev eth0 root")

    def strike(pair):
        if fabric.rdma == "rxe":
            for machine in (pair.writer, pair.responder):
                machine.run(KEEP_ADDRESSES)
        time.sleep(KILL_SECONDS[0])
        pair.writer.run(down)
        time.sleep(LINK_DOWN_SECONDS)
        if ended(pair):
            raise Failed(f"the writer ended while its link was down:\n{what_it_said(pair)}")
        pair.writer.run(up)

    pair = context.pair(kind)
    try:
        return outlived(fabric, pair, strike)
    except Failed as failed:
        queue_pairs = [machine.try_run("rdma resource show qp")[1]
                       for machine in (pair.writer, pair.responder)]
        raise Failed(f"{failed}\nqueue pairs of the writer and of the responder:\n" +
                     "\n".join(queue_pairs)) from failed


def rnic_reset(fabric, kind, context):
    """The responder's RDMA device is removed and made anew, under a writer at full speed, under
    nobody, and under a session that was granted and did not connect: one perdured outlives it."""
    prng = context.prng("resets")
    pair = context.pair(kind)

    def strike(pair):
        for number in range(RESETS):
            time.sleep(prng.uniform(*KILL_SECONDS))
            if ended(pair):
                raise Failed(f"the writer ended after {number} resets:\n{what_it_said(pair)}")
            reset_rnic(fabric, pair)
            await_back(pair, number + 1)

    result = outlived(fabric, pair, strike)
    for number in range(RESETS):
        reset_rnic(fabric, pair)
        append_and_read(fabric, pair, f"no session {number}")
        granted = pair.writer.run("wget -q -O - --post-data '{\"write\":false}' "
                                  f"http://{PEER}/v1/pools/{POOL}/sessions")
        if GRANTED not in granted:
            raise Failed(f"no session was granted: {granted}")
        reset_rnic(fabric, pair)
        append_and_read(fabric, pair, f"granted {number}")
    result["summary"] += f"; {3 * RESETS} resets, one perdured"
    return result


def reset_rnic(fabric, pair):
    """Deletes the responder's device and adds it again, as a reset of an RNIC's function does."""
    pair.responder.run(f"rdma link delete {fabric.rdma}0 && "
                       f"lab-net {RESPONDER}/24 {fabric.rdma}", RESET_SECONDS_MAX)
    expect_perdured(pair, "a reset")


def expect_perdured(pair, what):
    if pair.responder.try_run("kill -0 $(cat /run/perdured.pid)")[0] != 0:
        raise Failed(f"perdured did not outlive {what}: {pair.perdured_log()}")


def append_and_read(fabric, pair, line):
    """One more writer gets through, as soon as perdured listens again, and a reader sees what it
    wrote."""
    where = f"--peers {PEER} --pool {POOL} --transport {fabric.transport}"
    status, said = pair.writer.try_run(
        "tries=0\n"
        f"until echo '{line}' | timeout 60 perdure log append {where} 2>&1; do\n"
        f"  tries=$((tries + 1)); [ $tries -lt {RESET_TRIES_MAX} ] || exit 1; sleep 1\n"
        "done", RESET_SECONDS_MAX)
    if status != 0:
        raise Failed(f"no writer gets through after a reset under '{line}': {said}\n"
                     f"perdured: {pair.perdured_log()}")
    last = pair.writer.run(f"perdure log read {where} | tail -n 1", 150).strip()
    if last != line:
        raise Failed(f"'{line}' was appended, '{last}' is read")
    expect_perdured(pair, f"a writer after '{line}'")


def outlived(fabric, pair, strike):
    """One `perdure log append` at full speed outlives what strikes: it says of every record that it
    is committed, and the log is the input, byte for byte."""
    pair.begin(fabric)
    text = input_text(RECORDS)
    name = f"{pair.responder.name}.input"
    (SHARE / name).write_bytes(text)
    # The last chunk comes only when everything has struck.
    feed = (f"i=0; while [ $i -lt {CHUNKS} ]; do "
            f"dd if=/run/input bs={-(-len(text) // CHUNKS)} count=1 skip=$i 2>/dev/null; "
            f"i=$((i + 1)); sleep {CHUNK_PAUSE_SECONDS}; "
            f"[ $i -lt {CHUNKS - 1} ] || until [ -e /run/struck ]; do sleep 0.1; done; done")
    where = f"--peers {PEER} --pool {POOL} --transport {fabric.transport}"
    pair.writer.run(
        f"rm -f /run/append.* /run/struck; cp /mnt/share/{name} /run/input\n"
        f"{{ {{ {feed}; }} | timeout {APPEND_SECONDS_MAX} "
        f"perdure log append {where} --auto-repair 0.5 "
        f"--replica-timeout-ms {REPLICA_TIMEOUT_MS} --commit-timeout-ms {COMMIT_TIMEOUT_MS} "
        "--window 256 --format json "
        ">/run/append.json 2>/run/append.said\n"
        "echo $? >/run/append.status; } &")
    pair.responder.run("tries=0\n"
                       f"until [ -n \"$(perdure log read {where} --max 1 2>/dev/null)\" ]; do "
                       "tries=$((tries + 1)); [ $tries -lt 60 ] || exit 1; sleep 0.2; done")
    strike(pair)
    pair.writer.run("touch /run/struck")
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


def await_back(pair, times):
    """Until the writer has said so often that its replica is back."""
    status, _ = pair.writer.try_run(
        f"until [ $(grep -c 'is back' /run/append.said) -ge {times} ]; do sleep 0.2; done",
        BACK_SECONDS_MAX)
    if status != 0:
        raise Failed(f"the writer did not get its replica back:\n{what_it_said(pair)}")


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
