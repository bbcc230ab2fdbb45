"""Scenarios of a program on libpmemobj, unmodified, that `perdure mirror run` mirrors over RDMA to
persistent memory: the power of that machine fails while transactions run."""

import functools
import re
import time

from losses import BACK_SECONDS_MAX
from objects import (AFTER_A_LOSS, HEADER_BYTES, go_on, last_number, pairs_of, rounds,
                     why_not_over)
from pair import PEER, POOL
from power import CUT_SECONDS_MAX, EVICTIONS, MOMENT_SECONDS_MAX
from report import Failed

HOME = "/run/mirrored"
FILE = f"{HOME}/pool"
FILE_MIB = 10
COPY = f"{HOME}/copy"
TIMEOUT_MS = 3000
# Some words of libpmemobj's allocator are in the pool and never persisted: each side has its own.
NEVER_PERSISTED_MAX = 64


def of_fabric(fabric, scenario, cuts):
    if not fabric.rdma:
        return []
    each = pairs_of(cuts)
    return [scenario(f"objects_mirrored_cut_{kind}_{fabric.name}", kind,
                     CUT_SECONDS_MAX * (2 * each + 2),
                     functools.partial(series, fabric, kind, each),
                     functools.partial(why_not_over, fabric))
            for kind in ("adr", "eadr")]


def series(fabric, kind, cuts, context):
    """Cut after cut on one pool. Every other time the program outlives it; else it ends, and only
    the replica is left."""
    pair = context.pair(kind)
    pair.begin(fabric)
    pair.writer.run(
        f"rm -rf {HOME} && mkdir {HOME} && mkdir -p /usr/bin && ln -sf /bin/env /usr/bin/env\n"
        f"truncate -s {FILE_MIB}M {FILE} && PMEM_IS_PMEM_FORCE=1 objtx create {FILE}")
    result = rounds(pair, context, [restored, outlived] * cuts, None, judge)
    different = compare(pair)
    return {**result, "summary": f"{result['summary']}; {different} bytes differ that were never "
                                 "persisted"}


def mirrored(pair, count, loud=""):
    return (f"PMEM_IS_PMEM_FORCE=1 perdure mirror run --peers {PEER} "
            f"--transport {pair.fabric.transport} --take-over --timeout-ms {TIMEOUT_MS} "
            f"--scratch {HOME} --map {FILE}={POOL} -- objtx run {FILE} {count} {loud}")


def cut_under_load(pair, prng):
    pair.start_program(mirrored(pair, 100000000, "loud"))
    pair.await_output(r"^(\d+)$")
    moment = prng.uniform(0, MOMENT_SECONDS_MAX)
    time.sleep(moment)
    dirty, kept = pair.cut_responder(prng.random(), prng.choice(EVICTIONS))
    return {"moment_s": round(moment, 3), "lines_dirty": dirty, "lines_evicted": kept}


def end(pair):
    """The program has no way to be asked: it ends by the signal, and is mirrored as it left it."""
    pair.writer.run("kill -TERM $(cat /run/writer.pid)")
    pair.await_writer_gone(BACK_SECONDS_MAX)


def restored(pair, _parts, prng):
    """The program ends without its replica's machine; its own file is lost as well."""
    result = cut_under_load(pair, prng)
    end(pair)
    pair.restore_responder()
    return result


def outlived(pair, _parts, prng):
    """The program waits until its replica is back, and goes on."""
    result = cut_under_load(pair, prng)
    at_the_cut = last_number(pair)
    pair.restore_responder()
    go_on(pair, at_the_cut)
    end(pair)
    return result


def restore(pair, file):
    """The copy is as long as the program's file, which is shorter than the mirror."""
    return (f"perdure mirror restore --peers {PEER} --pool {POOL} "
            f"--transport {pair.fabric.transport} --take-over --local {file}")


def judge(pair, _parts, acknowledged):
    """From the replica alone: the program's file is made anew from it. The one transaction behind
    the last that the program said may be there, too. Returns the last that is."""
    said = pair.writer.run(
        f"rm -f {FILE} {FILE}.mirror && {restore(pair, FILE)} && PMEM_IS_PMEM_FORCE=1 "
        f"objtx check {FILE} && pmempool check {FILE} >{HOME}/checked || "
        f"{{ cat {HOME}/checked; exit 1; }}", 150)
    found = int(re.search(r"^(\d+)$", said, re.MULTILINE).group(1))
    if not acknowledged <= found <= acknowledged + 1:
        raise Failed(f"transaction {acknowledged} was committed, the replica has {found}")
    return found


def compare(pair):
    """After a run that ends in good order both sides hold the same. Returns in how many bytes they
    differ all the same."""
    pair.writer.run(f"{mirrored(pair, AFTER_A_LOSS)} && rm -f {COPY}* && {restore(pair, COPY)}",
                    150)
    different = int(pair.writer.run(f"cmp -l {FILE} {COPY} | awk '$1 > {HEADER_BYTES}' | wc -l"))
    if different > NEVER_PERSISTED_MAX:
        raise Failed(f"{different} bytes of the file and of its replica differ")
    return different
