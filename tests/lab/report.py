"""What became of the scenarios: lines for people, JUnit for tools/test_summary.py, JSON for all."""

import dataclasses
import html
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


packages = {}  # of the guest: how many are pinned, and which differ
METHOD_COLUMNS = ("method", "fabric", "nvdimm", "cuts", "acknowledged", "lost", "")


def methods(outcomes):
    """Wrong methods beside the right ones: a row of METHOD_COLUMNS for each, by fabric."""
    rows = [row for each in outcomes for row in each.details.get("methods", ())]
    fabrics = list(dict.fromkeys(row["fabric"] for row in rows))
    rows.sort(key=lambda row: fabrics.index(row["fabric"]))
    return [[str(row[name]) for name in METHOD_COLUMNS[:-1]] + ["WRONG" if row["wrong"] else ""]
            for row in rows]


def methods_text(outcomes):
    rows = [list(METHOD_COLUMNS)] + methods(outcomes)
    wide = [max(len(row[n]) for row in rows) for n in range(len(METHOD_COLUMNS))]
    numbers = [n for n, name in enumerate(METHOD_COLUMNS) if name in ("cuts", "acknowledged",
                                                                      "lost")]
    return "\n".join("  ".join(cell.rjust(wide[n]) if n in numbers else cell.ljust(wide[n])
                               for n, cell in enumerate(row)).rstrip() for row in rows)


def methods_page(outcomes):
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "\n".join(["<!DOCTYPE html><meta charset=utf-8><title>Perdure: wrong methods</title>",
                      "<style>table{border-collapse:collapse}td,th{padding:2px 8px;"
                      "border:1px solid #999;text-align:left}</style>",
                      "<h1>Wrong methods beside the right ones (emulated)</h1>",
                      "<p>Records that were reported durable before a power cut, and how many of "
                      "them were not there afterwards.</p>", "<table>",
                      line(METHOD_COLUMNS, "th"), *(line(row, "td") for row in methods(outcomes)),
                      "</table>"]) + "\n"


def write(outcomes, seed):
    """build/lab/results/ctest.xml, build/lab/report.json, and build/lab/methods.html."""
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
                "packages": packages,
                "methods": [row for each in outcomes for row in each.details.get("methods", ())],
                "scenarios": [dataclasses.asdict(each) for each in outcomes]}
    (BUILD / "report.json").write_text(json.dumps(document, indent=1) + "\n")
    if methods(outcomes):
        (BUILD / "methods.html").write_text(methods_page(outcomes))


def printable(text):
    """XML has no control characters, consoles of guests do."""
    return "".join(each for each in text if each >= " " or each in "\n\t")
