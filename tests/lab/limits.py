"""What Perdure costs over an RDMA device, beside a bare verbs program, perftest and librpma,
between two processes of one machine. All times are emulated."""

import functools
import json
import re

import instructions
from devices import no_siw
from report import Failed
from settings import LONG, SHARE

SECONDS_MAX = 420
# What is measured is emulated, so CI only looks whether it is measured at all.
BENCH_ROUNDS, SAMPLES = (3, 100) if LONG else (1, 50)
ROUNDS = 200
PERFTEST = ("ib_write_lat", "ib_send_lat")
# All but what needs more memory or time than a guest has.
QUESTIONS = ("in flight", "one-sided", "per append", instructions.QUESTION)


def of_fabric(fabric, scenario):
    if not fabric.rdma:
        return []
    why_not = no_siw if fabric.rdma == "siw" else lambda guest: ""
    return [scenario(f"limits_{fabric.name}", "eadr", SECONDS_MAX,
                     functools.partial(limits, fabric.rdma), why_not)]


def limits(rdma, context):
    machine = context.lab.machine(f"limits-{rdma}", cpus=2)
    machine.boot()
    machine.run(f"lab-net 10.0.0.1/24 {rdma}")
    findings = []
    for question in QUESTIONS:
        findings += bench_limits(machine, question)
    perftest = {program: median_us(machine, program, rdma) for program in PERFTEST}
    rpma = rpma_median_us(machine)
    context.lab.release(machine)
    unanswered = [f"{each['name']}: {each['failure']}" for each in findings if each["failure"]]
    if unanswered:
        raise Failed("no answer:\n" + "\n".join(unanswered))
    found = {each["name"]: each for each in findings}
    for question in ("allocations per append", "posts per append"):
        if not found[question]["met"]:
            raise Failed(f"{question}: {found[question]['ours']}, and "
                         f"{found[question]['target']} was to be; {found[question]['note']}")
    # Over siw nobody has counted what they were.
    wanted = instructions.WANTED if rdma == "rxe" else {}
    wrong, by_other_methods = instructions.judged(findings, wanted)
    if wrong:
        raise Failed("\n".join(wrong))
    one = found["64 B durable, one-sided"]
    return {"summary": f"64 B one-sided: bare {one['bare']:.0f} us, Perdure "
                       f"{one['ours']:.0f} us, librpma {rpma:.0f} us; "
                       f"{found['instructions before the post']['ours']:.0f} "
                       "instructions (emulated)",
            "findings": findings, "instructions_by_other_methods": by_other_methods,
            "perftest_us_median": perftest, "librpma_us_median": rpma}


def bench_limits(machine, question):
    file = SHARE / f"{machine.name}.json"
    # A target that is missed is 1 as well; what there is no answer to, the caller sees.
    machine.try_run(f"perdure bench limits --fabric verbs --rounds {BENCH_ROUNDS} "
                f"--samples {SAMPLES} --format json "
                f"--only '{question}' --output /mnt/share/{file.name}", SECONDS_MAX)
    text = file.read_text()
    file.unlink()
    return json.loads(text)["findings"]


def median_us(machine, program, rdma):
    """Of 64 bytes between two processes of the machine, or nothing if it does not come through."""
    command = f"timeout 40 {program} -R -d {rdma}0 -s 64 -n {ROUNDS}"
    _, output = machine.try_run(
        f"{command} >/run/perftest.log 2>&1 &\n"
        f"for i in 1 2 3 4 5 6 7 8 9; do sleep 1; {command} 10.0.0.1 && break; done", 100)
    line = re.search(r"^\s*64\s+\d+\s+(.*)$", output, re.MULTILINE)
    return float(line.group(1).split()[2]) if line else None


def rpma_median_us(machine):
    """Of a WRITE of 64 bytes and a flush to visibility."""
    output = machine.run(
        "perdure_lab_rpma_lat serve 10.0.0.1 7480 >/run/rpma.log 2>&1 &\n"
        "for i in 1 2 3 4 5 6 7 8 9; do sleep 1; "
        f"timeout 60 perdure_lab_rpma_lat ask 10.0.0.1 7480 {ROUNDS} && exit; done; "
        "cat /run/rpma.log; exit 1", 100)
    return float(re.search(r"^median_us (\S+)$", output, re.MULTILINE).group(1))
