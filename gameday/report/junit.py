"""A run as JUnit XML: a case per expectation; broken is a failure, unknown an error.

A `failure` was seen not to hold, an `error` could not be judged. Valid under the two schemas that readers use: Ant's
(windyroad's JUnit.xsd), which wants more attributes than anybody reads, and that of Jenkins' xUnit plugin
(junit-10.xsd).
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status, Verdict
from gameday.report.run_folder import RunFolder
from gameday.report.safe_text import visible
from gameday.values.results import Cleanliness


def junit(run: RunFolder) -> bytes:
    """Return one suite named after the plan: a case per verdict, and one for leaving the cluster clean."""
    started, records = run.started, run.history.records
    cases = [_case(verdict) for verdict in run.verdicts] + [_clean_case(run)]
    stopped = run.result.outcome in (RunOutcome.REFUSED, RunOutcome.ABORTED)
    if stopped or (run.result.outcome is not RunOutcome.PASSED and not any(_is_red(case) for case in cases)):
        cases.append(_ended_case(run))
    seconds = (records[-1].at - records[0].at).total_seconds() if records else 0.0
    plan, cluster = (started.plan_name, started.cluster_name) if started else ("", "")
    suite = Element(
        "testsuite",
        name=_text(plan or "unknown plan"),
        id="0",
        package="gameday",
        hostname=_text(cluster or "unknown cluster"),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{max(0.0, seconds):.3f}",
    )
    if records:
        suite.set("timestamp", f"{records[0].at:%Y-%m-%dT%H:%M:%S}")
    _properties(suite, run)
    suite.extend(cases)
    doctor = [f"doctor: {line}" for line in run.doctors_word.lines] if run.doctors_word else []
    SubElement(suite, "system-out").text = _text("\n".join([run.result.why, *doctor]))
    SubElement(suite, "system-err")
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    made: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _properties(suite: Element, run: RunFolder) -> None:
    started, properties = run.started, SubElement(suite, "properties")
    values = {"outcome": str(run.result.outcome), "cluster-state": str(run.result.cleanliness)}
    if started:
        values |= {"run": started.run_id, "cluster": started.cluster, "plan-sha256": started.plan_sha256}
        values |= {"trigger": started.trigger, "gameday-version": started.gameday_version}
        values |= {"virtual-gpus": "yes" if run.is_virtual else "no"}
    for name, value in values.items():
        SubElement(properties, "property", name=name, value=_text(value))


def _case(verdict: Verdict) -> Element:
    where = f" on {verdict.node}" if verdict.node and verdict.node not in verdict.expectation else ""
    seconds = verdict.seconds or 0.0
    case = _named(verdict.check, verdict.expectation + where, seconds)
    bound = f"wanted {verdict.bound}; " if verdict.bound else ""
    dated = f" ({verdict.dated})" if verdict.dated else ""
    text = f"{bound}measured {verdict.measured or 'nothing'}{dated}; {verdict.why}"
    if verdict.status is Status.BROKEN:
        SubElement(case, "failure", message=_text(verdict.why or verdict.measured), type="broken").text = _text(text)
    elif verdict.status is Status.UNKNOWN:
        SubElement(case, "error", message=_text(verdict.why), type="unknown").text = _text(text)
    elif verdict.status is Status.NOT_ASKED:
        SubElement(case, "skipped", message=_text(verdict.why))
    return case


def _is_red(case: Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _clean_case(run: RunFolder) -> Element:
    case = _named("cluster-clean", "The cluster is left as it was found", 0.0)
    if run.result.cleanliness is Cleanliness.DIRTY:
        SubElement(case, "failure", message=_text(run.result.why), type="dirty")
    elif run.result.cleanliness is Cleanliness.UNKNOWN:
        SubElement(case, "error", message=_text(run.result.why), type="unknown")
    return case


def _ended_case(run: RunFolder) -> Element:
    """Return the case of a run that was refused, aborted or failed without a verdict: the suite must not be green."""
    case = _named("run", "The run is carried out to its end", 0.0)
    element = "failure" if run.result.outcome is RunOutcome.FAILED else "error"
    SubElement(case, element, message=_text(run.result.why), type=str(run.result.outcome))
    return case


def _named(check: str, name: str, seconds: float) -> Element:
    return Element("testcase", classname=f"gameday.{_text(check)}", name=_text(name), time=f"{seconds:.3f}")


def _text(value: str) -> str:
    """XML 1.0 cannot hold control characters at all, however they are escaped, nor these two."""
    return "".join(c for c in visible(value) if c not in "\ufffe\uffff")
