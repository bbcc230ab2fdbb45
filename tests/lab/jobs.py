"""Scenarios of the ordinary work, with requester and responder on two machines."""

import functools
import zlib

from pair import PEER, POOL
from report import Failed
from settings import SHARE

RECORDS = 3000
ALONE_RECORDS = 100  # one at a time
POOL_MIB = 4
SHAPES = ("singleton", "compound")
PRIMARIES = ("write", "write_imm", "send")


def of_fabric(fabric, scenario):
    return [scenario(f"{name}_{kind}_{fabric.name}", kind, 300,
                     functools.partial(job, fabric, kind), fabric.why_not)
            for name, job in (("main_job", main_job), ("remotelog", remotelog))
            for kind in ("adr", "eadr")]


def input_text(count):
    """Lines of many sizes."""
    lines = []
    for number in range(1, count + 1):
        line = f"{number} {'perdure ' * (number % 40)}"
        lines.append(f"{line}{zlib.crc32(line.encode()):08x}\n")
    return "".join(lines).encode()


def append_and_compare(pair, pool, text, options):
    """Appends the lines by `perdure log append`, reads them back, compares byte for byte. Returns
    the summary of append, which names the methods and the latency."""
    name = f"{pair.responder.name}.input"
    (SHARE / name).write_bytes(text)
    where = f"--peers {PEER} --pool {pool} --transport {pair.fabric.transport}"
    summary = pair.writer.run(f"perdure log append {where} {options} /mnt/share/{name}", 200)
    pair.responder.run(f"perdure log read {where} >/mnt/share/{name}.read", 100)
    read = (SHARE / f"{name}.read").read_bytes()
    for file in (name, f"{name}.read"):
        (SHARE / file).unlink()
    if read != text:
        raise Failed(f"{options}: {len(text)} bytes were appended, {len(read)} others read back\n"
                     f"{summary}")
    return summary


def main_job(fabric, kind, context):
    """Many records at full speed, then one at a time."""
    pair = context.pair(kind)
    pair.begin(fabric)
    results = {"window 1024": append_and_compare(pair, POOL, input_text(RECORDS), "--window 1024")}
    verdict, text = pair.verify()
    if verdict != "equal":
        raise Failed(f"log verify says {verdict}: {text}")
    pair.create_pool("alone", POOL_MIB)
    results["window 1"] = append_and_compare(pair, "alone", input_text(ALONE_RECORDS),
                                             "--window 1")
    return {"summary": results["window 1024"].splitlines()[0].replace("measured", "emulated"),
            **results}


def remotelog(fabric, kind, context):
    """Each operation by which records can travel, with a tail pointer and without."""
    pair = context.pair(kind)
    pair.begin(fabric)
    results = {}
    for shape in SHAPES:
        for primary in PRIMARIES:
            pool = f"{shape}.{primary}"
            pair.create_pool(pool, POOL_MIB)
            options = f"--shape {shape} --primary {primary} --window 1"
            results[pool] = append_and_compare(pair, pool, input_text(ALONE_RECORDS), options)
    return {"summary": f"{len(results)} ways of {ALONE_RECORDS} records", **results}
