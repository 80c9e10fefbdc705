"""The files of a proof: prove.html, prove.json and prove.xml (JUnit); pure, from its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gameday.history.journal import History, read_history
from gameday.plain_file import write_each
from gameday.report.page import environment
from gameday.text import printable
from gameday_prove.events import ProveEnded, ProveLinePlayed
from gameday_prove.judge import Proof, ProofVerdict, Word, judge
from gameday_prove.leftovers import left_by_others
from gameday_prove.look import profiles

HISTORY_FILE, PAGE_FILE, REPORT_FILE, JUNIT_FILE = "history.jsonl", "prove.html", "prove.json", "prove.xml"
_TONES = {
    Word.NOTICED: "held",
    Word.LATE: "broken",
    Word.MISSED: "broken",
    Word.WRONGLY_ACTED: "broken",
    Word.BLIND: "broken",
    Word.NOT_JUDGED: "unknown",
}


def tone(verdict: ProofVerdict) -> str:
    """Return the class of a verdict on the page: held, broken or unknown."""
    return "unknown" if verdict.word is Word.BLIND and not verdict.is_red else _TONES[verdict.word]


def judged(folder: Path) -> tuple[History, Proof]:
    """Return a proof's history and its verdicts. Raises FileNotFoundError."""
    history = read_history(folder / HISTORY_FILE)
    return history, judge(history, {one.name: one for one in profiles()})


def write_files(folder: Path) -> tuple[Proof, str]:
    """Write page, JSON and JUnit beside the history; return the verdicts, and why a file is not whole, if one is not.

    Raises FileNotFoundError if there is no history.
    """
    history, proof = judged(folder)
    files = {
        folder / PAGE_FILE: _page(folder.name, history, proof),
        folder / REPORT_FILE: _json(history, proof),
        folder / JUNIT_FILE: junit(folder.name, proof, history),
    }
    return proof, write_each(files)


def _page(id: str, history: History, proof: Proof) -> str:
    template = environment("prove").get_template("page.html")
    return template.render(
        id=id,
        proof=proof,
        around=proof.looked.surroundings if proof.looked else None,
        played={one.line: one for one in history.of(ProveLinePlayed)},
        ended=history.last(ProveEnded),
        left=left_by_others(history),
        tone=tone,
        began=history.records[0].at if history.records else None,
    )


def _json(history: History, proof: Proof) -> str:
    looked, ended = proof.looked, history.last(ProveEnded)
    return (
        dumps(
            {
                "outcome": proof.outcome,
                "exit_code": int(proof.exit_code),
                "headline": proof.headline,
                "looked": looked.model_dump(mode="json") if looked else None,
                "verdicts": [asdict(one) for one in proof.verdicts],
                "left_by_others": left_by_others(history),
                "ended": ended.model_dump(mode="json") if ended else None,
            },
            indent=1,
        )
        + "\n"
    )


def junit(name: str, proof: Proof, history: History) -> str:
    """Return one suite with a case for each verdict, and one for a clean end."""
    cases = [_case(one, proof) for one in proof.verdicts]
    clean, ended = (
        Element("testcase", classname="gameday.prove", name="nothing of ours is left"),
        history.last(ProveEnded),
    )
    if ended is None or ended.cleanliness != "clean":
        evidence = "; ".join(ended.evidence) if ended else "its process died"
        SubElement(clean, "failure", message=printable(evidence))
    cases.append(clean)
    if ended and ended.stopped:
        stopped = Element("testcase", classname="gameday.prove", name="played to its end")
        SubElement(stopped, "error", message=printable(ended.stopped))
        cases.append(stopped)
    counts = {kind: str(sum(one.find(kind) is not None for one in cases)) for kind in ("failure", "error", "skipped")}
    suite = Element(
        "testsuite",
        name=name,
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
    )
    suite.extend(cases)
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    made: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return made.decode() + "\n"


def _case(verdict: ProofVerdict, proof: Proof) -> Element:
    lines: Sequence[tuple[int, int]] = [(one.number, one.xid) for one in proof.looked.lines] if proof.looked else []
    xid = dict(lines).get(verdict.line, 0)
    case = Element("testcase", classname=f"gameday.prove.{printable(verdict.who)}", name=f"{verdict.line}. Xid {xid}")
    case.set("time", f"{verdict.seconds or 0:.3f}")
    if verdict.is_red:
        SubElement(case, "failure", message=printable(verdict.why), type=str(verdict.word))
    elif verdict.word in (Word.NOT_JUDGED, Word.BLIND):
        SubElement(case, "skipped", message=printable(verdict.why))
    return case
