"""Scenarios of a program on libpmemobj, unmodified, whose pool has a replica on another machine:
rpmemd and librpmem.so.1 of Perdure, and the power of that machine fails while transactions run."""

import functools
import math
import re
import time

from cluster import RESPONDERS
from power import CUT_SECONDS_MAX, EVICTIONS, MOMENT_SECONDS_MAX
from programs import find
from report import Failed

CUTS_MIN = 2
CUTS_PART = 12            # of all cuts, one in so many
SHELL_PORT = 7473
HOME = "/run/objects"
BACK_SECONDS_MAX = 60     # for which the program waits for its replica
AFTER_THE_CUT = 40        # transactions more, where the program outlives it
ENVIRONMENT = (f"export HOME={HOME} RPMEM_SSH={HOME}/ssh PMEM_IS_PMEM_FORCE=1 "
               "PERDURE_RPMEM_TRANSPORT=tcp PERDURE_RPMEM_RECONNECT_MS={patience_ms}")
SSH = f"#!/bin/dash\\nexec perdure-rpmem-connect -p {SHELL_PORT} \"$@\"\\n"


def of_fabric(fabric, scenario, cuts):
    if fabric.name != "tcp":
        return []
    each = max(CUTS_MIN, math.ceil(cuts / CUTS_PART))
    return [scenario(f"objects_cut_{kind}_{fabric.name}", kind, CUT_SECONDS_MAX * (each + 1),
                     functools.partial(series, fabric, kind, each), why_not)
            for kind in ("adr", "eadr")]


def why_not(_guest):
    return "" if find("pmempool") else "this machine lacks pmempool (pmdk-tools)"


def series(fabric, kind, cuts, context):
    """Cut after cut on one pool. Every other time the program outlives it; else it ends, and only
    the replica is left."""
    pair = context.pair(kind)
    pair.begin_bare(fabric)
    pair.server.mount()
    pair.responder.run("rm -rf /run/pools/*.pool /run/pools/*.set*")
    serve(pair)
    make(pair)
    done, committed = [], 0
    for number in range(cuts):
        prng = context.prng(number)
        way = outlived if number % 2 else restored
        result = way(pair, committed, prng)
        committed = result["found"]
        done.append(result)
    acknowledged = sum(each["acknowledged"] for each in done)
    pair.responder.run("rm -rf /run/pools/*.set*")
    return {"summary": f"{cuts} cuts, {acknowledged} transactions acknowledged, 0 lost, the last "
                       f"one was {committed}", "cuts": done}


def serve(pair):
    """What stands in for sshd, and what rpmemd reads."""
    server = pair.server
    pair.responder.run(
        f"mkdir -p {HOME}\n"
        f"printf 'poolset-dir = /run/pools\\nuse-syslog = no\\nlog-file = {HOME}/log\\n"
        f"declare-domain = {server.domain}\\n' >{HOME}/.rpmemd.conf\n"
        "[ -e /run/pools/r.set ] || printf 'PMEMPOOLSET\\n10M /run/pools/r.set.0\\n' "
        ">/run/pools/r.set\n"
        f"HOME={HOME} perdure_lab_remote_shell {RESPONDERS[0]} {SHELL_PORT} >{HOME}/shell 2>&1 &\n"
        "tries=0\n"
        f"until grep -q listening {HOME}/shell; do\n"
        "  tries=$((tries + 1)); [ $tries -lt 100 ] || exit 1; sleep 0.1\n"
        "done")


def make(pair):
    client(pair, f"rm -rf {HOME}; mkdir -p {HOME}\nprintf '{SSH}' >{HOME}/ssh; "
                 f"chmod +x {HOME}/ssh\n"
                 f"printf 'PMEMPOOLSET\\n10M {HOME}/l.set.0\\nREPLICA {RESPONDERS[0]} r.set\\n' "
                 f">{HOME}/l.set\n"
                 f"objtx create {HOME}/l.set")


def client(pair, commands, patience_ms=0):
    return pair.writer.run(f"{ENVIRONMENT.format(patience_ms=patience_ms)}\n{commands}", 60)


def cut_under_load(pair, prng, patience_ms):
    """Returns the moment, and what became of the lines."""
    environment = ENVIRONMENT.format(patience_ms=patience_ms)
    pair.start_program(f"{environment}; objtx run {HOME}/l.set 100000000 loud")
    pair.await_output(r"^(\d+)$")
    moment = prng.uniform(0, MOMENT_SECONDS_MAX)
    time.sleep(moment)
    dirty, kept = pair.cut_responder(prng.random(), prng.choice(EVICTIONS))
    pair.restore_responder(serve=False)
    return {"moment_s": round(moment, 3), "lines_dirty": dirty, "lines_evicted": kept}


def last_number(pair):
    numbers = re.findall(r"^(\d+)$", pair.output(), re.MULTILINE)
    return int(numbers[-1])


def restored(pair, before, prng):
    """The program ends with its replica's machine; its own pool is lost as well."""
    result = cut_under_load(pair, prng, 0)
    pair.stop_writer()
    pair.await_writer_gone()
    acknowledged = last_number(pair)
    serve(pair)
    return judge(pair, before, acknowledged, result, "restored")


def outlived(pair, before, prng):
    """The program waits until its replica is back, and goes on."""
    result = cut_under_load(pair, prng, 1000 * BACK_SECONDS_MAX)
    at_the_cut = last_number(pair)
    serve(pair)
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while last_number(pair) < at_the_cut + AFTER_THE_CUT:
        if time.monotonic() > deadline:
            raise Failed(f"the program does not go on after transaction {at_the_cut}: "
                         f"{pair.output()[-500:]}\n{pair.writer_end()}")
        time.sleep(0.1)
    pair.stop_writer()
    pair.await_writer_gone()
    return judge(pair, before, last_number(pair), result, "outlived")


def judge(pair, before, acknowledged, result, way):
    """From the replica alone: the pool is made anew from it. The one transaction behind the last
    that the program said may be there, too."""
    said = client(pair, f"rm {HOME}/l.set.0 && pmempool sync {HOME}/l.set && "
                        f"objtx check {HOME}/l.set")
    found = int(re.search(r"^(\d+)$", said, re.MULTILINE).group(1))
    if not acknowledged <= found <= acknowledged + 1:
        raise Failed(f"{way}: transaction {acknowledged} was committed, the replica has {found}")
    return {**result, "way": way, "acknowledged": acknowledged - before, "found": found}
