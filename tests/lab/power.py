"""Power cuts: what was acknowledged as durable is there afterwards, whole and in order."""

import collections
import functools
import math
import time

import records
from report import Failed

CUT_SECONDS_MAX = 90            # one cut with its check; 13 s on an idle machine
MOMENT_SECONDS_MAX = 1.5        # after the first record, the power fails within this
RECOVERY_SECONDS_MAX = 0.8      # and during recovery within this
CUTS_PER_LOG = 10               # then a new one, before it is full
# How probable it is that the cache evicted a dirty line before the power failed.
EVICTIONS = (0.0, 0.3, 0.9)
# Of all cuts, how many parts each scenario gets.
PARTS = {"power_cut_adr": 5, "power_cut_eadr": 4, "writer_cut": 1, "both_cut": 1,
         "recovery_cut": 1}


def share(cuts, fabrics):
    """Cuts for each kind of scenario, so that all together are at least `cuts`."""
    whole = sum(PARTS.values()) * max(fabrics, 1)
    return {name: math.ceil(cuts * parts / whole) for name, parts in PARTS.items()}


def of_fabric(fabric, scenario, cuts):
    ways = {"power_cut_adr": ("adr", cut_responder), "power_cut_eadr": ("eadr", cut_responder),
            "writer_cut": ("adr", cut_writer), "both_cut": ("adr", cut_both),
            "recovery_cut": ("adr", cut_recovery)}
    return [scenario(f"{name}_{fabric.name}", kind, CUT_SECONDS_MAX * (cuts[name] + 1),
                     functools.partial(series, fabric, kind, way, cuts[name]), fabric.why_not)
            for name, (kind, way) in ways.items()]


class Ledger:
    """What is known of a log: up to where it was checked."""

    def __init__(self):
        self.next_number = 1
        self.next_index = 0

    def check(self, pair, acknowledged):
        """Reads what came since the last check and judges it. Raises Failed."""
        found = pair.read(self.next_index)
        missing = records.lost(found, self.next_number, acknowledged)
        if missing or found.faults:
            raise Failed(f"{missing} records are lost: acknowledged up to {acknowledged}, found "
                         f"{found.first} to {found.last}, expected from {self.next_number} on; "
                         f"{'; '.join(found.faults)}")
        result = {"acknowledged": max(acknowledged - self.next_number + 1, 0),
                  "found": found.last - found.first + 1 if found.first else 0}
        if found.first:
            self.next_number = found.last + 1
            self.next_index = found.next_index
        return result


def series(fabric, kind, way, cuts, context):
    """Cut after cut on the same medium, each with its own prng."""
    pair = context.pair(kind)
    done = []
    for number in range(cuts):
        if number % CUTS_PER_LOG == 0:
            pair.begin(fabric)
            ledger = Ledger()
        prng = context.prng(number)
        try:
            done.append(way(pair, ledger, prng))
        except Failed as failed:
            raise Failed(f"cut {number}: {failed}") from failed
        if number % CUTS_PER_LOG == CUTS_PER_LOG - 1 or number == cuts - 1:
            check_whole(pair, ledger)
    total = {key: sum(each[key] for each in done) for key in ("acknowledged", "found")}
    verdicts = collections.Counter(each["verify"] for each in done if "verify" in each)
    return {"summary": f"{cuts} cuts, {total['acknowledged']} records acknowledged, 0 lost"
                       + "".join(f"; {count} {word}" for word, count in verdicts.items()),
            "lost": 0, **total, "cuts": done}


def check_whole(pair, ledger):
    """What was there after earlier cuts still is."""
    found = pair.read()
    if found.faults or (found.first, found.last) not in ((1, ledger.next_number - 1), (0, 0)):
        raise Failed(f"in the end the log holds {found.first} to {found.last}, expected 1 to "
                     f"{ledger.next_number - 1}; {'; '.join(found.faults)}")


def start_traffic(pair, ledger, prng, options=""):
    pair.start_writer(ledger.next_number, options=options)
    pair.await_traffic()
    moment = prng.uniform(0, MOMENT_SECONDS_MAX)
    time.sleep(moment)
    return moment


def described(result, moment, dirty=0, kept=0):
    return {**result, "moment_s": round(moment, 3), "lines_dirty": dirty, "lines_evicted": kept}


def cut_responder(pair, ledger, prng):
    """The responder's power fails while the writer appends at full speed."""
    eviction, seed = prng.choice(EVICTIONS), prng.random()
    moment = start_traffic(pair, ledger, prng)
    dirty, kept = pair.cut_responder(seed, eviction)
    pair.restore_responder()
    pair.await_writer_end()
    result = described(ledger.check(pair, pair.acknowledged()), moment, dirty, kept)
    # Not judged: what was not acknowledged may be torn, or be there behind a hole.
    return {**result, "verify": pair.verify()[0]}


def cut_writer(pair, ledger, prng):
    """The writer's power fails; what it had acknowledgements for until then holds."""
    moment = start_traffic(pair, ledger, prng)
    pair.writer.cut_power()
    pair.restore_writer()
    return described(ledger.check(pair, pair.acknowledged()), moment)


def cut_both(pair, ledger, prng):
    """The power of the whole room fails."""
    eviction, seed = prng.choice(EVICTIONS), prng.random()
    moment = start_traffic(pair, ledger, prng)
    pair.writer.cut_power()
    dirty, kept = pair.cut_responder(seed, eviction)
    pair.writer.start()
    pair.restore_responder()
    pair.await_writer_boot()
    return described(ledger.check(pair, pair.acknowledged()), moment, dirty, kept)


def cut_recovery(pair, ledger, prng):
    """The power fails again while the next writer recovers the log, or just after."""
    first = cut_responder(pair, ledger, prng)
    eviction, seed = prng.choice(EVICTIONS), prng.random()
    pair.start_writer(ledger.next_number)
    moment = prng.uniform(0, RECOVERY_SECONDS_MAX)
    time.sleep(moment)
    dirty, kept = pair.cut_responder(seed, eviction)
    recovered = "open epoch" in pair.output()
    pair.restore_responder()
    pair.await_writer_end()
    second = described(ledger.check(pair, pair.acknowledged()), moment, dirty, kept)
    total = {key: first[key] + second[key] for key in ("acknowledged", "found")}
    return {**second, **total, "recovered_before": recovered, "first": first}
