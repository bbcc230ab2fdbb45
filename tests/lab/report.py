"""What became of the scenarios: lines for people, JUnit for tools/test_summary.py, JSON for all."""

import dataclasses
import json
import xml.etree.ElementTree as ElementTree

from settings import BUILD

RESULTS = BUILD / "results"


class Skip(Exception):
    """A scenario can not run here; the text is the reason."""


class Failed(Exception):
    """What a scenario checks does not hold."""


@dataclasses.dataclass
class Outcome:
    name: str
    status: str = "PASS"  # PASS, FAIL, SKIP
    reason: str = ""
    seconds: float = 0.0
    details: dict = dataclasses.field(default_factory=dict)

    def line(self):
        text = f"{self.status} {self.name:<22} {self.seconds:6.1f} s"
        summary = self.reason.splitlines()[0] if self.reason else self.details.get("summary", "")
        return f"{text}  {summary}".rstrip()


def summary(outcomes):
    count = {status: sum(each.status == status for each in outcomes)
             for status in ("PASS", "FAIL", "SKIP")}
    return f"{count['PASS']} passed, {count['FAIL']} failed, {count['SKIP']} skipped"


def write(outcomes, seed):
    """build/lab/results/ctest.xml and build/lab/report.json."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    suite = ElementTree.Element("testsuite", name="lab", tests=str(len(outcomes)))
    words = {"PASS": "run", "FAIL": "fail", "SKIP": "notrun"}
    for each in outcomes:
        case = ElementTree.SubElement(suite, "testcase", name=each.name, classname="lab",
                                      time=f"{each.seconds:.1f}", status=words[each.status])
        if each.status == "SKIP":
            ElementTree.SubElement(case, "skipped", message=each.reason.splitlines()[0])
        if each.status == "FAIL":
            ElementTree.SubElement(case, "failure", message=each.reason.splitlines()[0])
        ElementTree.SubElement(case, "system-out").text = printable(each.reason)
    ElementTree.ElementTree(suite).write(RESULTS / "ctest.xml", encoding="unicode",
                                         xml_declaration=True)
    document = {"format": 1, "label": "emulated", "seed": f"{seed:#x}",
                "scenarios": [dataclasses.asdict(each) for each in outcomes]}
    (BUILD / "report.json").write_text(json.dumps(document, indent=1) + "\n")


def printable(text):
    """XML has no control characters, consoles of guests do."""
    return "".join(each for each in text if each >= " " or each in "\n\t")
