"""The records that writer.cc appends, and the one judgement that every power cut ends in."""

import dataclasses
import zlib


@dataclasses.dataclass
class Found:
    """What a log holds, oldest first."""

    first_index: int = 0  # of the first record that was read
    next_index: int = 0   # one after the last
    first: int = 0        # number of the first record; 0: there is none
    last: int = 0
    faults: list = dataclasses.field(default_factory=list)  # sentences; empty: all is in order


def parse_records(data):
    """From the lines `INDEX<tab>NUMBER PAYLOAD CRC` of `perdure log read --index`.

    Every record is checked against its own CRC, which the log does not know of, and numbers and
    indices must go up by one.
    """
    found = Found()
    for line in data.split(b"\n")[:-1]:
        index, _, text = line.partition(b"\t")
        body, _, crc = text.rpartition(b" ")
        number = body.partition(b" ")[0]
        if not (number.isdigit() and index.isdigit()):
            found.faults.append(f"not a record: {line[:60]!r}")
            break
        index, number = int(index), int(number)
        if crc != b"%08x" % zlib.crc32(body):
            found.faults.append(f"record {number} (index {index}) is not whole")
        if found.first == 0:
            found.first, found.first_index = number, index
        elif (number, index) != (found.last + 1, found.next_index):
            found.faults.append(f"after record {found.last} (index {found.next_index - 1}) comes "
                                f"{number} (index {index})")
        found.last, found.next_index = number, index + 1
    return found


def lost(found, expected_first, acknowledged):
    """How many acknowledged records are not there, of those from expected_first on."""
    if acknowledged < expected_first:
        return 0
    if found.first == 0 or found.first > expected_first:
        there = 0  # a hole at the beginning: nothing after it counts
    else:
        there = min(found.last, acknowledged) - expected_first + 1
    return acknowledged - expected_first + 1 - max(there, 0)
