"""The scenarios by name, and the loop that runs them, each within its time."""

import contextlib
import dataclasses
import multiprocessing
import multiprocessing.connection
import random
import re
import secrets
import signal
import time
import typing

import binaries
import devices
import failing_media
import faults
import jobs
import limits
import losses
import mirrored_objects
import mirrors
import objects
import power
import programs
import replay
import replicas
import report
import sessions
import wrong_methods
from archive import Unavailable, pinned
from fabrics import FABRICS
from guest_build import Guest, tell_packages
from pair import Pair
from report import Failed, Outcome, Skip
from settings import LabError, say
from vm import Lab, die_with_parent, interrupted


@dataclasses.dataclass(frozen=True)
class Scenario:
    """run(context) returns what goes into the report, and may raise Skip, Failed, LabError.

    lane: scenarios of one lane share machines and run one after another, lanes side by side. It is
    the kind of NVDIMM that its machines have; or `emu`: no machines.
    """

    name: str
    lane: str
    seconds_max: int
    run: typing.Callable
    why_not: typing.Callable = lambda guest: ""


class OutOfTime(Exception):
    pass


class Context:
    """What scenarios share: the machines that are up, and the PRNG."""

    def __init__(self, lab, seed):
        self.lab = lab
        self.seed = seed
        self.clusters = {}
        self.scenario = ""

    def prng(self, what):
        """A PRNG of their own for each use, so that one scenario alone throws what it did in a run
        of all."""
        return random.Random(f"{self.seed:#x} {self.scenario} {what}")

    def pair(self, kind):
        """Two machines, the responder with an NVDIMM of that kind; they may be up already."""
        return self.shared(kind, lambda: Pair(self.lab, kind))

    def shared(self, name, make):
        """A cluster of machines that scenarios share by its name."""
        if name not in self.clusters:
            self.clusters[name] = make()
        return self.clusters[name]

    def forget_machines(self):
        """After a failure nothing that is up is trusted."""
        self.lab.keep_logs()
        self.lab.release(*list(self.lab.machines))
        self.clusters.clear()


def scenarios(cuts, usable):
    """All of them, in the order in which they share machines. usable: how many fabrics work here,
    which share the power cuts."""
    found = [Scenario("dax_pools", "eadr", 180, devices.dax_pools),
             Scenario("dax_owners", "eadr", 180, devices.dax_owners),
             Scenario("media", "eadr", 300, devices.media)]
    found += failing_media.of_machines(Scenario)
    for fabric in FABRICS:
        if fabric.rdma:
            found += devices.of_fabric(fabric, Scenario)
    for fabric in FABRICS:
        found += jobs.of_fabric(fabric, Scenario)
        found += faults.of_fabric(fabric, Scenario)
        found += sessions.of_fabric(fabric, Scenario)
        found += losses.of_fabric(fabric, Scenario)
        found += power.of_fabric(fabric, Scenario, power.share(cuts, usable))
        found += objects.of_fabric(fabric, Scenario, cuts)
        found += mirrored_objects.of_fabric(fabric, Scenario, cuts)
        found += mirrors.of_fabric(fabric, Scenario, cuts)
        found += replay.of_fabric(fabric, Scenario)
        found += wrong_methods.of_fabric(fabric, Scenario)
        found += limits.of_fabric(fabric, Scenario)
        if fabric.name in ("tcp", "rxe"):
            found += replicas.of_fabric(fabric, Scenario)
    return found + wrong_methods.emulated(Scenario)


def run_one(scenario, context):
    """Runs it within its time; whatever it raises becomes its outcome."""
    outcome = Outcome(scenario.name)
    context.scenario = scenario.name
    begin = time.monotonic()

    def out_of_time(_signum, _frame):
        raise OutOfTime(f"took longer than {scenario.seconds_max} s")

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(scenario.seconds_max)
    try:
        reason = scenario.why_not(context.lab.guest)
        if reason:
            raise Skip(reason)
        outcome.details = scenario.run(context) or {}
    except Skip as skip:
        outcome.status, outcome.reason = "SKIP", str(skip)
    except (Failed, LabError, OutOfTime) as error:
        outcome.status = "FAIL"
        outcome.reason = f"{error}\nreproduce: {reproduce(scenario.name, context.seed)}"
    finally:
        signal.alarm(0)
    outcome.seconds = time.monotonic() - begin
    if outcome.status == "FAIL":
        context.forget_machines()
    return outcome


def reproduce(name, seed):
    return f"tests/lab/lab test -k '^{name}$' --seed={seed:#x}"


def run_all(options):
    """`lab test`. Status 1 if a scenario failed."""
    pattern = re.compile(options.pattern)
    seed = options.seed if options.seed is not None else secrets.randbits(32)
    if options.list:
        print("\n".join(each.name for each in scenarios(options.cuts, len(FABRICS))))
        return 0
    lacks = programs.missing()
    if lacks:
        return skip_all(options, pattern, seed, "this machine lacks " + ", ".join(lacks))

    guest = Guest()
    try:
        guest.build()
    except Unavailable as reason:
        return skip_all(options, pattern, seed, str(reason))
    binaries.build(guest)
    report.packages = {"pinned": len(pinned()), "differ": tell_packages(guest)}
    usable = sum(not fabric.why_not(guest) for fabric in FABRICS)
    chosen = [each for each in scenarios(options.cuts, usable) if pattern.search(each.name)]
    say(f"seed {seed:#x}")
    outcomes = run_lanes(guest, chosen, seed)
    order = [each.name for each in chosen]
    return finish(sorted(outcomes, key=lambda each: order.index(each.name)), seed)


def run_lane(guest, chosen, seed, results):
    """In a process of its own; sends an outcome for each scenario."""
    die_with_parent(signal.SIGTERM)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError), Lab(guest) as lab:
        context = Context(lab, seed)
        for scenario in chosen:
            results.send(run_one(scenario, context))


def run_lanes(guest, chosen, seed):
    """All lanes at the same time. Returns the outcomes, and prints each as it comes."""
    fork = multiprocessing.get_context("fork")
    signal.signal(signal.SIGTERM, interrupted)
    lanes, outcomes = {}, []
    for name in sorted({each.lane for each in chosen}):
        ours, theirs = fork.Pipe(duplex=False)
        mine = [each for each in chosen if each.lane == name]
        lanes[ours] = fork.Process(target=run_lane, args=(guest, mine, seed, theirs))
        lanes[ours].start()
        theirs.close()
    try:
        while lanes:
            for ready in multiprocessing.connection.wait(list(lanes)):
                try:
                    outcomes.append(ready.recv())
                    print(outcomes[-1].line(), flush=True)
                    report.write(outcomes, seed)
                except EOFError:
                    lanes.pop(ready).join()
    finally:
        for process in lanes.values():  # interrupted: each ends its machines
            process.terminate()
            process.join()
    lost = [each for each in chosen if each.name not in {done.name for done in outcomes}]
    return outcomes + [Outcome(each.name, "FAIL", "its lane ended before it; see above")
                       for each in lost]


def skip_all(options, pattern, seed, reason):
    outcomes = [Outcome(each.name, "SKIP", reason)
                for each in scenarios(options.cuts, len(FABRICS)) if pattern.search(each.name)]
    for each in outcomes:
        print(each.line())
    return finish(outcomes, seed)


def finish(outcomes, seed):
    report.write(outcomes, seed)
    for each in outcomes:
        if each.status == "FAIL":
            print(f"\nFAILED {each.name}\n{each.reason}")
    if report.methods(outcomes):
        print("\n" + report.methods_text(outcomes) + "\n")
    print(report.summary(outcomes) if outcomes else "no scenario matched")
    return 1 if not outcomes or any(each.status == "FAIL" for each in outcomes) else 0
