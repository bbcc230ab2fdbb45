"""Scenarios of a program on libpmemobj, unmodified, whose pool has a replica on another machine:
rpmemd and librpmem.so.1 of Perdure. The power of that machine fails while transactions run, or
either end is killed. What `perdure mirror run` does for the same program is in mirrored_objects.py.
"""

import dataclasses
import functools
import math
import re
import time

from cluster import RESPONDERS
from losses import BACK_SECONDS_MAX
from power import CUT_SECONDS_MAX, EVICTIONS, MOMENT_SECONDS_MAX
from programs import find
from report import Failed
from settings import SHARE
from vm import GuestError
from wrong_methods import judge as judge_methods
from wrong_methods import row

CUTS_PART = 12            # of all cuts, one in so many
KILL_SECONDS_MAX = 120    # rxe may keep a process that was killed for a while (losses.py)
BEYOND_REPAIR_SECONDS = 10  # a pool that can not be made anew until then never will be
SHELL_PORT = 7473
HOME = "/run/objects"
AFTER_A_LOSS = 40         # transactions more, where the program outlives it
HEADER_BYTES = 8192       # of a part: its header, and what PMDK keeps there of the running program
ENVIRONMENT = (f"export HOME={HOME} RPMEM_SSH={HOME}/ssh PMEM_IS_PMEM_FORCE=1 "
               "PERDURE_RPMEM_TRANSPORT={transport} PERDURE_RPMEM_RECONNECT_MS={patience_ms}")
SSH = f"#!/bin/dash\\nexec perdure-rpmem-connect -p {SHELL_PORT} \"$@\"\\n"
# In front of rpmemd: its part is a DAX device behind a header that is a file.
PART_ON_DEVICE = "/run/perdure/lib/part_on_device.so"


@dataclasses.dataclass(frozen=True)
class Parts:
    """Where the replica's part lies, and what is declared of it, if not what the machine's NVDIMM
    is (see Responder.domain); on_device: /dev/dax0.0 is in its place."""

    directory: str = "/run/pools"
    domain: str = ""
    on_device: bool = False

    def part(self):
        return f"{self.directory}/r.set.0"


# An RNIC registers no file on a DAX file system, and rpmemd serves no device.
FILES = Parts()
DEVICE = Parts("/run/memory", on_device=True)
# Memory that loses everything when the power fails, and is declared to have a battery.
PLAIN_MEMORY = Parts("/run/memory", "wsp")
# By fabric: what the names of the scenarios say, the kinds of machines, the parts. page: a drive
# behind a page cache, under the kernel that pins such pages for an RNIC.
CUTS = {"tcp": (("cut", ("adr", "eadr"), FILES),),
        "rxe": (("cut", ("page",), FILES), ("device_cut", ("adr", "eadr"), DEVICE)),
        "siw": (("device_cut", ("adr", "eadr"), DEVICE),)}


def of_fabric(fabric, scenario, cuts):
    each = pairs_of(cuts)
    why_not = functools.partial(why_not_over, fabric)
    found = [scenario(f"objects_{name}_{kind}_{fabric.name}", "adr" if kind == "adr" else "eadr",
                      CUT_SECONDS_MAX * (2 * each + 1),
                      functools.partial(cuts_in, fabric, kind, parts, each), why_not)
             for name, kinds, parts in CUTS[fabric.name] for kind in kinds]
    if fabric.rdma:
        kills = 2 * each
        found.append(scenario(f"objects_killed_{fabric.name}", "eadr",
                              KILL_SECONDS_MAX * (2 * kills + 1),
                              functools.partial(kills_in, fabric, kills), why_not))
    else:
        found.append(scenario(f"wrong_objects_{fabric.name}", "adr", 3 * CUT_SECONDS_MAX,
                              functools.partial(wrong_in, fabric), why_not))
    return found


def pairs_of(cuts):
    """How often each of two ways is gone."""
    return math.ceil(cuts / CUTS_PART / 2)


def why_not_over(fabric, guest):
    if not find("pmempool"):
        return "this machine lacks pmempool (pmdk-tools)"
    return fabric.why_not(guest)


def cuts_in(fabric, kind, parts, cuts, context):
    """Cut after cut on one pool. Every other time the program outlives it; else it ends, and only
    the replica is left."""
    pair = context.pair(kind)
    clear(pair, fabric, parts)
    make(pair, parts)
    result = rounds(pair, context, [restored, outlived] * cuts, parts, judge)
    pair.responder.run(f"rm -rf {parts.directory}/*.set*")
    return result


def kills_in(fabric, kills, context):
    """RDMA without persistent memory: kills leave plain memory as it is."""
    pair = context.pair("eadr")
    clear(pair, fabric, PLAIN_MEMORY)
    make(pair, PLAIN_MEMORY)
    result = rounds(pair, context, [rpmemd_killed, program_killed] * kills, PLAIN_MEMORY, judge)
    pair.responder.run(f"rm -rf {PLAIN_MEMORY.directory}")
    return result


def rounds(pair, context, ways, parts, judged):
    """One way after the other; after each what was committed is there, as `judged` finds it."""
    done, committed = [], 0
    for number, way in enumerate(ways):
        try:
            result = way(pair, parts, context.prng(number))
            acknowledged = last_number(pair)
            found = judged(pair, parts, acknowledged)
        except Failed as failed:
            raise Failed(f"round {number}, {way.__name__}: {failed}") from failed
        done.append({"way": way.__name__, **result, "acknowledged": acknowledged - committed,
                     "found": found})
        committed = found
    acknowledged = sum(each["acknowledged"] for each in done)
    return {"summary": f"{len(ways)} rounds, {acknowledged} transactions acknowledged, 0 lost, the "
                       f"last one was {committed}", "cuts": done}


# --- the replica's machine


def clear(pair, fabric, parts):
    """Machines with no pool, whose network works."""
    pair.begin_bare(fabric)
    (SHARE / header_of(pair)).unlink(missing_ok=True)
    if parts.on_device:
        # Parts are mapped at any page, so no larger ones will do. Zeros, as a new file has.
        pair.responder.run("grep -q /mnt/pmem /proc/mounts && umount /mnt/pmem\n"
                           "lab-pmem devdax clear >/dev/null && ndctl create-namespace -f "
                           "-e namespace0.0 -m devdax --map=mem --align=4096 >/dev/null && "
                           "lab-pmem devdax")
    elif not parts.domain:
        pair.server.mount()
    pair.responder.run(f"mkdir -p {parts.directory} && cd {parts.directory} && "
                       "rm -rf *.pool *.set*")


def header_of(pair):
    """A file in the share: the header of a part whose rest is on a device."""
    return f"{pair.responder.name}.header"


def serve(pair, parts):
    """What stands in for sshd, and what rpmemd reads. A drive speaks for itself."""
    domain = parts.domain or pair.server.domain
    declared = "" if domain == "auto" else f"declare-domain = {domain}\\n"
    preload = PART_ON_DEVICE if parts.on_device else ""
    header = f"/mnt/share/{header_of(pair)}"
    pair.responder.run(
        f"mkdir -p {HOME} {parts.directory}\n"
        f"printf 'poolset-dir = {parts.directory}\\nuse-syslog = no\\nlog-file = {HOME}/log\\n"
        f"{declared}' >{HOME}/.rpmemd.conf\n"
        f"[ -e {parts.directory}/r.set ] || {{ printf 'PMEMPOOLSET\\n10M {parts.part()}\\n' "
        f">{parts.directory}/r.set && sync; }}\n"
        f"[ -e {parts.part()} ] || [ ! -e {header} ] || {{ cp {header} {parts.part()} && "
        f"truncate -s 10M {parts.part()}; }}\n"
        f"[ -e {HOME}/shell.pid ] && kill $(cat {HOME}/shell.pid) && sleep 0.5\n"
        f"HOME={HOME} LD_PRELOAD={preload} perdure_lab_remote_shell {RESPONDERS[0]} {SHELL_PORT} "
        f">{HOME}/shell 2>&1 &\n"
        f"echo $! >{HOME}/shell.pid\n"
        "tries=0\n"
        f"until grep -q listening {HOME}/shell; do\n"
        f"  tries=$((tries + 1)); [ $tries -lt 100 ] || {{ cat {HOME}/shell; exit 1; }}; "
        "sleep 0.1\n"
        "done")


def keep_header(pair, parts):
    """Only the device outlives a power cut."""
    if parts.on_device:
        pair.responder.run(f"dd if={parts.part()} of=/mnt/share/{header_of(pair)} bs=4096 count=1 "
                           "2>/dev/null")


# --- the program


def make(pair, parts):
    serve(pair, parts)
    client(pair, f"rm -rf {HOME}; mkdir -p {HOME}\nprintf '{SSH}' >{HOME}/ssh; "
                 f"chmod +x {HOME}/ssh\n"
                 f"printf 'PMEMPOOLSET\\n10M {HOME}/l.set.0\\nREPLICA {RESPONDERS[0]} r.set\\n' "
                 f">{HOME}/l.set\n"
                 f"objtx create {HOME}/l.set")
    keep_header(pair, parts)


def environment(pair, patience_ms):
    return ENVIRONMENT.format(transport=pair.fabric.transport, patience_ms=patience_ms)


def client(pair, commands, seconds=60):
    return pair.writer.run(f"{environment(pair, 0)}\n{commands}", seconds)


def start(pair, prng, patience_ms):
    """Transactions at full speed, up to a moment of the prng's, which is returned."""
    pair.start_program(f"{environment(pair, patience_ms)}; "
                       f"objtx run {HOME}/l.set 100000000 loud")
    pair.await_output(r"^(\d+)$")
    moment = prng.uniform(0, MOMENT_SECONDS_MAX)
    time.sleep(moment)
    return {"moment_s": round(moment, 3)}


def cut_under_load(pair, parts, prng, patience_ms, eviction=None):
    """Returns the moment, and what became of the lines."""
    moment = start(pair, prng, patience_ms)
    seed, drawn = prng.random(), prng.choice(EVICTIONS)
    dirty, kept = pair.cut_responder(seed, drawn if eviction is None else eviction)
    pair.restore_responder(serve=False)
    at_the_cut = last_number(pair)
    serve(pair, parts)
    return at_the_cut, {**moment, "lines_dirty": dirty, "lines_evicted": kept}


def last_number(pair):
    numbers = re.findall(r"^(\d+)$", pair.output(), re.MULTILINE)
    return int(numbers[-1])


def go_on(pair, before):
    """The program has its replica back, and commits more."""
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while last_number(pair) < before + AFTER_A_LOSS:
        if time.monotonic() > deadline:
            raise Failed(f"the program does not go on after transaction {before}: "
                         f"{pair.output()[-500:]}\n{pair.writer_end()}\n{rpmemd_log(pair)}")
        time.sleep(0.1)


def rpmemd_log(pair):
    return pair.responder.try_run(f"tail -n 20 {HOME}/log", 10)[1]


def kill_program(pair):
    pair.stop_writer()
    pair.await_writer_gone(BACK_SECONDS_MAX)


# --- what happens to either end


def restored(pair, parts, prng):
    """The program ends with its replica's machine; its own pool is lost as well."""
    _, result = cut_under_load(pair, parts, prng, 0)
    kill_program(pair)
    return result


def outlived(pair, parts, prng):
    """The program waits until its replica is back, and goes on."""
    at_the_cut, result = cut_under_load(pair, parts, prng, 1000 * BACK_SECONDS_MAX)
    go_on(pair, at_the_cut)
    kill_program(pair)
    return result


def rpmemd_killed(pair, _parts, prng):
    """The program waits for another rpmemd, and goes on."""
    result = start(pair, prng, 1000 * BACK_SECONDS_MAX)
    at_the_kill = last_number(pair)
    pair.responder.run("kill -9 $(pidof rpmemd)")
    go_on(pair, at_the_kill)
    kill_program(pair)
    return result


def program_killed(pair, _parts, prng):
    result = start(pair, prng, 0)
    kill_program(pair)
    return result


# --- the judgement


def judge(pair, parts, acknowledged):
    """From the replica alone: the pool is made anew from it. The one transaction behind the last
    that the program said may be there, too. Returns the last that is."""
    make_anew(pair, BACK_SECONDS_MAX)
    require_same_bytes(pair, parts)
    found = last_transaction(pair)
    keep_header(pair, parts)
    if not acknowledged <= found <= acknowledged + 1:
        raise Failed(f"transaction {acknowledged} was committed, the replica has {found}")
    return found


def make_anew(pair, seconds):
    """The last rpmemd may not have ended yet, and has the part until then."""
    client(pair, "tries=0\n"
                 f"until rm -f {HOME}/l.set.0 && "
                 f"pmempool sync {HOME}/l.set >{HOME}/synced 2>&1; do\n"
                 f"  tries=$((tries + 1)); [ $tries -lt {seconds} ] || "
                 f"{{ cat {HOME}/synced; exit 1; }}; sleep 1\n"
                 "done", 2 * seconds + 30)


def last_transaction(pair):
    """The program's invariants hold."""
    said = client(pair, f"objtx check {HOME}/l.set")
    return int(re.search(r"^(\d+)$", said, re.MULTILINE).group(1))


def require_same_bytes(pair, parts):
    """PMDK's tool reads the replica's part, and it is the program's but for the headers. Of a
    device neither can be asked: it has no read()."""
    if parts.on_device:
        return
    pair.responder.run("tries=0\n"
                       f"until pmempool info {parts.part()} >{HOME}/info 2>&1; do\n"
                       "  tries=$((tries + 1)); [ $tries -lt 50 ] || "
                       f"{{ cat {HOME}/info; exit 1; }}; sleep 0.2\n"
                       "done")
    sums = [machine.run(f"tail -c +{HEADER_BYTES + 1} {part} | md5sum").split()[0]
            for machine, part in ((pair.writer, f"{HOME}/l.set.0"),
                                  (pair.responder, parts.part()))]
    if sums[0] != sums[1]:
        raise Failed("the pool that was made anew is not what its replica is")


# --- a wrong method


def wrong_in(fabric, context):
    """rpmemd is told that the caches of an ADR machine survive, and has to lose transactions that
    it acknowledged; told what is so, it has not."""
    pair = context.pair("adr")
    clear(pair, fabric, FILES)
    rows = [wrong_cut(pair, words, parts, context.prng(words))
            for words, parts in (("rpmemd: visibility taken as durable", Parts(domain="wsp")),
                                 ("rpmemd: as planned", FILES))]
    pair.responder.run(f"rm -rf {FILES.directory}/*.set*")
    return judge_methods(rows[:1], rows[1:])


def wrong_cut(pair, words, parts, prng):
    """A pool of its own, which is made durable as it should be."""
    pair.responder.run(f"rm -f {parts.part()}")
    make(pair, FILES)
    serve(pair, parts)
    # What the cache evicted by chance might be all that matters.
    cut_under_load(pair, FILES, prng, 0, eviction=0)
    kill_program(pair)
    acknowledged = last_number(pair)
    lost = acknowledged - min(found_in_replica(pair), acknowledged)
    return row(words, pair.fabric.name, pair.kind, 1, acknowledged, lost)


def found_in_replica(pair):
    """Its last transaction; 0 if nothing can be made of it."""
    try:
        make_anew(pair, BEYOND_REPAIR_SECONDS)
        return last_transaction(pair)
    except GuestError:
        return 0
