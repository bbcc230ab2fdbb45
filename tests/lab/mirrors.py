"""Scenarios of a mirror of memory (include/perdure/mirror.h): the machine of its replica loses its
power under a writer at full speed, or either end is killed. Judged is the memory that comes back
from the replica, byte for byte."""

import functools
import re
import time

from losses import BACK_SECONDS_MAX
from objects import pairs_of
from pair import PEER, POOL, POOL_MIB
from power import CUT_SECONDS_MAX, EVICTIONS, MOMENT_SECONDS_MAX
from report import Failed
from responder import Declaration

# rxe may keep a process that was killed for a while (losses.py).
KILL_SECONDS_MAX = 120
HOME = "/run/mirror"
FILE = f"{HOME}/memory"
KEPT = f"{HOME}/kept"
PEER_TIMEOUT_MS = 3000
WRITER_SECONDS_MAX = 400
AFTER_A_LOSS = 20          # updates more, where the writer outlives it

# Memory that loses everything when the power fails, and is declared to have a battery.
BATTERY = Declaration(domain="wsp")


def of_fabric(fabric, scenario, cuts):
    """page: a drive behind a page cache, under the kernel that pins such pages for an RNIC."""
    each = pairs_of(cuts)
    kinds = ("adr", "eadr", "page") if fabric.name == "rxe" else ("adr", "eadr")
    found = [scenario(f"mirror_cut_{kind}_{fabric.name}", "adr" if kind == "adr" else "eadr",
                      CUT_SECONDS_MAX * (2 * each + 1),
                      functools.partial(cuts_in, fabric, kind, each), fabric.why_not)
             for kind in kinds]
    if fabric.rdma:
        kills = 2 * each  # a kill takes a fraction of the time
        found.append(scenario(f"mirror_killed_{fabric.name}", "eadr",
                              KILL_SECONDS_MAX * (2 * kills + 1),
                              functools.partial(kills_in, fabric, kills), fabric.why_not))
    return found


def cuts_in(fabric, kind, cuts, context):
    """Cut after cut on one mirror. Every other time its writer outlives it; else it ends, and only
    the replica is left."""
    pair = context.pair(kind)
    pair.begin(fabric)
    return rounds(pair, context, [restored, outlived] * cuts)


def kills_in(fabric, kills, context):
    """RDMA without persistent memory: the pool is in plain memory, which the kills leave."""
    pair = context.pair("eadr")
    begin_in_memory(pair, fabric)
    return rounds(pair, context, [perdured_killed, writer_killed] * kills)


def rounds(pair, context, ways):
    """One way after the other; after each what was acknowledged is there."""
    clear(pair)
    done, found = [], 0
    for number, way in enumerate(ways):
        try:
            result = way(pair, context.prng(number))
            acknowledged = pair.acknowledged() - found
            found = judge(pair, result.pop("compare"))
        except Failed as failed:
            raise Failed(f"round {number}, {way.__name__}: {failed}") from failed
        done.append({"way": way.__name__, **result, "acknowledged": acknowledged, "found": found})
    acknowledged = sum(each["acknowledged"] for each in done)
    return {"summary": f"{len(ways)} rounds, {acknowledged} updates acknowledged, 0 lost; "
                       f"{done[-1]['methods']}", "cuts": done}


def begin_in_memory(pair, fabric):
    """perdured serves a pool on tmpfs."""
    pair.begin_bare(fabric)
    pair.server.declared = BATTERY
    pair.responder.run("grep -q /mnt/pmem /proc/mounts && umount /mnt/pmem\n"
                       "rm -rf /run/pools && mkdir /run/pools")
    pair.server.start_perdured()
    pair.server.create_in_directory(POOL, POOL_MIB)


def clear(pair):
    pair.writer.run(f"rm -rf {HOME} && mkdir {HOME}")


def where(pair):
    return f"--pool {POOL} --transport {pair.fabric.transport}"


# --- the writer


def start(pair, prng, options=""):
    """A writer at full speed, up to a moment of the prng's. Returns what is known so far."""
    pair.start_program(f"perdure_lab_mirror write --peer {PEER} {where(pair)} --file {FILE} "
                       f"--peer-timeout-ms {PEER_TIMEOUT_MS} --seconds {WRITER_SECONDS_MAX} "
                       f"{options}")
    pair.await_traffic()
    methods = pair.await_output(r"^open epoch \d+ (.*)$").group(1)
    moment = prng.uniform(0, MOMENT_SECONDS_MAX)
    time.sleep(moment)
    return {"methods": methods, "moment_s": round(moment, 3)}


def cut_under_load(pair, prng):
    begun = start(pair, prng)
    dirty, kept = pair.cut_responder(prng.random(), prng.choice(EVICTIONS))
    return {**begun, "lines_dirty": dirty, "lines_evicted": kept}


def go_on_and_end(pair, before):
    """The writer has its replica back, makes more durable, and ends in good order."""
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while pair.acknowledged() < before + AFTER_A_LOSS:
        if time.monotonic() > deadline or re.search(r"^ended", pair.output(), re.MULTILINE):
            raise Failed(f"the writer does not go on after update {before}: "
                         f"{pair.output()[-500:]}\n{pair.writer_end()}\n{pair.perdured_log()}")
        time.sleep(0.1)
    end = pair.end_writer()
    if end != "ended: all durable":
        raise Failed(f"the writer says '{end}'")


# --- what happens to either end


def restored(pair, prng):
    """The writer ends without its replica's machine; its own memory is lost as well."""
    result = cut_under_load(pair, prng)
    pair.end_writer()
    pair.restore_responder()
    return {**result, "compare": False}


def outlived(pair, prng):
    """The writer waits until its replica is back, and goes on."""
    result = cut_under_load(pair, prng)
    before = pair.acknowledged()
    pair.restore_responder()
    go_on_and_end(pair, before)
    return {**result, "compare": True}


def perdured_killed(pair, prng):
    """The writer waits for the next perdured, and goes on."""
    result = start(pair, prng)
    pair.responder.run("kill -9 $(cat /run/perdured.pid)")
    before = pair.acknowledged()
    pair.start_perdured()
    go_on_and_end(pair, before)
    return {**result, "compare": True}


def writer_killed(pair, prng):
    """What it was just making durable may be there in part."""
    result = start(pair, prng)
    pair.stop_writer()
    return {**result, "compare": False}


# --- the judgement


def restore(pair):
    """The memory as the replica has it, in the place of the writer's, which is kept. Returns
    (status, what was said)."""
    pair.await_writer_gone(BACK_SECONDS_MAX)
    return pair.writer.try_run(
        f"rm -f {FILE}.mirror && mv {FILE} {KEPT} || exit\n"
        f"perdure mirror restore --peers {PEER} {where(pair)} --take-over --local {FILE} 2>&1 && "
        f"perdure_lab_mirror check {FILE} {pair.acknowledged()}", 150)


def judge(pair, compare):
    """The replica has all that was acknowledged; compare: and is what the writer's memory is.
    Returns the number of the last update that is there."""
    status, said = restore(pair)
    found = re.search(r"^found (\d+) lost \d+$", said, re.MULTILINE)
    if status != 0 or not found:
        raise Failed(f"update {pair.acknowledged()} was acknowledged: {said}\n"
                     f"{pair.perdured_log()}")
    if compare and pair.writer.try_run(f"cmp {KEPT} {FILE}")[0] != 0:
        raise Failed("the writer ended in good order, and its replica is not what it has: " +
                     pair.writer.try_run(f"cmp -l {KEPT} {FILE} | head -n 20")[1])
    return int(found.group(1))
