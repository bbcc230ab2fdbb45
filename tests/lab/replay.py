"""Scenarios of receive buffers in persistent memory: a message is durable where it arrived, and is
applied after the power cut, for a one-sided method never waits for the responder's processor."""

import functools
import re
import time

from power import CUT_SECONDS_MAX, MOMENT_SECONDS_MAX, Ledger, check_whole
from report import Failed

CUTS = 2
HELD_SECONDS = 1.0  # shorter than the writer's patience
METHOD = "replay"  # in the names of methods that need it


def of_fabric(fabric, scenario):
    """Only where caches survive: on ADR no such method is right while DDIO is on, and what a
    software RNIC stores lies in the processor's cache. And only where there is a FLUSH, which siw
    has not: a READ in its place says nothing of a message's receive buffer."""
    if fabric.name != "rxe":
        return []
    return [scenario(f"power_cut_replay_{fabric.name}", "eadr", CUT_SECONDS_MAX * (CUTS + 1),
                     functools.partial(replayed_series, fabric), fabric.why_not)]


def replayed_series(fabric, context):
    pair = context.pair("eadr")
    pair.begin(fabric, receive_buffers="pm")
    ledger = Ledger()
    cuts = [replayed_cut(pair, ledger, context.prng(number), held=number % 2 == 1)
            for number in range(CUTS)]
    check_whole(pair, ledger)
    replayed = sum(cut["replayed"] for cut in cuts)
    acknowledged = sum(cut["acknowledged"] for cut in cuts)
    return {"summary": f"{CUTS} cuts, {acknowledged} records acknowledged by {cuts[0]['method']}, "
                       f"0 lost, {replayed} messages replayed", "cuts": cuts}


def replayed_cut(pair, ledger, prng, held):
    """The responder's power fails at full speed. held: perdured stood still before, so that what
    was acknowledged last is in its buffers and nowhere else."""
    pair.start_writer(ledger.next_number, options="--primary send --measure-costs 0")
    method = pair.await_output(r"^open .* method (\S+)$").group(1)
    if METHOD not in method:
        raise Failed(f"the writer uses {method}, which replays nothing")
    pair.await_traffic()
    time.sleep(prng.uniform(0, MOMENT_SECONDS_MAX))
    if held:
        pair.responder.run("kill -STOP $(cat /run/perdured.pid)")
        time.sleep(HELD_SECONDS)
    pair.cut_responder(prng.random(), 0)
    pair.restore_responder()
    pair.await_writer_end()
    replayed = int(re.search(r"; (\d+) messages replayed", pair.perdured_log()).group(1))
    result = ledger.check(pair, pair.acknowledged())
    if held and replayed == 0:
        raise Failed("perdured stood still, and yet there was nothing to replay")
    return {**result, "method": method, "replayed": replayed}
