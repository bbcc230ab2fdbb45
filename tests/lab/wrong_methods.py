"""Scenarios of wrong methods, which must lose acknowledged records, beside the right one, which
must not: in the lab, where the operator declares more than the machine keeps, and on the emulated
fabric."""

import dataclasses
import functools
import json

import records
from power import CUT_SECONDS_MAX, EVICTIONS, Ledger, start_traffic
from programs import run
from report import Failed
from responder import Declaration
from settings import PERDURE_TREE
from vm import GuestError

CUTS = 1                # of each method, in the lab
EMULATED_CUTS = 400     # of each method, on the emulated fabric
EMULATED_SECONDS_MAX = 120
# In front of perdured: an RNIC whose FLUSH reaches visibility, and not persistence.
# And one that says it pages on demand, and pins.
ON_DEMAND_IN_NAME = "/run/perdure/lib/on_demand_in_name.so"


@dataclasses.dataclass(frozen=True)
class Wrong:
    """What is wrong; what makes the planner believe it to be right, by fabric; the method that
    follows; and what the pool lies on (see Cluster)."""

    name: str
    words: str
    declared: dict
    method: str
    kind: str = "adr"


# Over tcp and iWARP a completion says that the data have left. The planner knows, whatever is
# declared; the emulated fabric shows what would come of it.
COMPLETION = Wrong("wrong_completion", "WRITE completion taken as durable",
                   {"rxe": Declaration(domain="wsp")}, "write-completion")
# By all of these the processor writes, through its caches, and the planner knows that whatever is
# said of DDIO: it takes a battery to believe in.
VISIBILITY = Wrong("wrong_visibility", "flush to visibility taken as durable",
                   {"tcp": Declaration(domain="wsp"), "siw": Declaration(domain="wsp")},
                   "write-flush")
# A page of a file that the RNIC holds pinned (Linux before 6.5) is clean once it was written back,
# and stays so whatever the RNIC writes: msync has nothing to do, and says so.
CLEAN_PAGE = Wrong("wrong_clean_page", "msync of a page that the RNIC wrote, taken as durable",
                   {"rxe": Declaration(dma_dirties="yes", preload=ON_DEMAND_IN_NAME)},
                   "write-send-flush-ack", "page")


def of_fabric(fabric, scenario):
    return [scenario(f"{wrong.name}_{fabric.name}", "adr" if wrong.kind == "adr" else "eadr",
                     2 * (CUTS + 1) * CUT_SECONDS_MAX,
                     functools.partial(in_the_lab, fabric, wrong), fabric.why_not)
            for wrong in (COMPLETION, VISIBILITY, CLEAN_PAGE) if fabric.name in wrong.declared]


def emulated(scenario):
    return [scenario("wrong_methods_emu", "emu", EMULATED_SECONDS_MAX, on_the_emulated_fabric)]


def row(method, fabric, nvdimm, cuts, acknowledged, lost):
    """One line of the table that report.py makes of all scenarios."""
    return {"method": method, "fabric": fabric, "nvdimm": nvdimm, "cuts": cuts,
            "acknowledged": acknowledged, "lost": lost}


def judge(wrong, right):
    """wrong, right: rows. Returns the details of a scenario."""
    text = "; ".join(f"{each['fabric']}: {each['method']}: {each['lost']} of "
                     f"{each['acknowledged']} lost" for each in wrong + right)
    lost = sum(each["lost"] for each in wrong)
    summary = f"{lost} of {sum(each['acknowledged'] for each in wrong)} lost, by the right one 0"
    if any(each["lost"] == 0 for each in wrong) or any(each["lost"] for each in right) or \
            any(each["acknowledged"] == 0 for each in wrong + right):
        raise Failed(f"wrong methods must lose acknowledged records, the right ones none: {text}")
    return {"summary": summary, "methods": [{**each, "wrong": True} for each in wrong] +
            [{**each, "wrong": False} for each in right]}


def in_the_lab(fabric, wrong, context):
    pair = context.pair(wrong.kind)
    rows = []
    for lies in (True, False):
        total = {"acknowledged": 0, "lost": 0}
        for number in range(CUTS):
            method = cut_once(pair, fabric, wrong if lies else None, context.prng(number), total)
        words = f"{wrong.words} ({method})" if lies else f"as planned ({method})"
        rows.append(row(words, fabric.name, pair.kind, CUTS, **total))
    return judge(rows[:1], rows[1:])


def cut_once(pair, fabric, wrong, prng, total):
    """Adds to the total what one cut lost, and returns the method. wrong: or None."""
    pair.begin(fabric)
    options = ""
    if wrong:
        pair.server.declare(wrong.declared[fabric.name])
        options = "--primary write --measure-costs 0"  # the same method whatever the load
    start_traffic(pair, Ledger(), prng, options)
    # Even a cache that has evicted most of what was dirty, by chance, does not help.
    pair.cut_responder(prng.random(), EVICTIONS[-1])
    pair.server.declared = Declaration()
    method = pair.await_output(r"method (\S+)").group(1)
    if wrong and method != wrong.method:
        raise Failed(f"the method is {method}, not {wrong.method}: nothing was shown")
    count_lost(pair, total)
    return method


def count_lost(pair, total):
    """Adds up what is lost after a cut. A pool that can not be read has lost all."""
    pair.restore_responder()
    pair.await_writer_end()
    acknowledged = pair.acknowledged()
    try:
        found = pair.read()
    except GuestError:
        found = records.Found()
    if found.faults:
        raise Failed("a record that is not whole was returned: " + "; ".join(found.faults))
    total["acknowledged"] += acknowledged
    total["lost"] += records.lost(found, 1, acknowledged)


def on_the_emulated_fabric(context):
    """The same methods on the fabric that has no driver and no machine: see emulated_methods.cc."""
    text = run([PERDURE_TREE / "tests/lab/perdure_lab_emulated_methods", "--cuts", EMULATED_CUTS,
                "--seed", context.prng("emu").getrandbits(32)], EMULATED_SECONDS_MAX)
    rows = {True: [], False: []}
    for line in text.splitlines():
        said = json.loads(line)
        rows[said["wrong"]].append(row(said["method"], f"emu/{said['transport']}", "adr",
                                       said["cuts"], said["acknowledged"], said["lost"]))
    return judge(rows[True], rows[False])
