"""Write a plan that plays a case, or say why none can."""

from __future__ import annotations

from json import dumps

from gameday.corpus.models import Answer, Case, DcgmSample, Family, Layer
from gameday.xid.record import read_record

_MOST_LINES = 10
"""Records that printk lets through in five seconds (docs/sources.md, printk and /dev/kmsg)."""


def why_not_played(case: Case) -> str:
    """Return why no plan can play the case; empty if one can."""
    lines = _lines(case)
    reasons = {
        "a plan shows one value of one field, on a GPU that has none": case.layer is Layer.DCGM and not _sample(case),
        "no fault of ours reaches NVML's events": case.layer is Layer.NVML,
        "between its lines the node boots, is reset or returns": any(step.happens for step in case.steps),
        "its form is a shipper's, and the rehearsal has one shipper": case.family is Family.FORM and _has_prefix(lines),
        f"printk lets no more than {_MOST_LINES} lines through at once": len(lines) > _MOST_LINES,
        "a record in it has several lines": any(line.startswith(" ") for line in lines),
    }
    return "" if case.plan else next((why for why, holds in reasons.items() if holds), "")


def plan_of(case: Case) -> str:
    """Return the text of a plan that plays a case without a shipped one.

    A detector that nobody expects to see the lines is still judged by what it does.
    """
    act = case.answer is Answer.ACT
    taint = '{key: trainy.konduktor.ai/faulty, value: "true", effect: NoSchedule, within: 15s}'
    expect = f"taints: [{taint}]" if act else "stays_schedulable_for: 15s"
    return f"""\
# Written by `gameday cases --plans`, from gameday/corpus/cases/{case.name}.yaml.
apiVersion: gameday/v1
name: {case.name}
title: {dumps(case.title, ensure_ascii=False)}
hypothesis: {dumps(case.why, ensure_ascii=False)}
fault: {_fault(case)}
targets: {{nodes: 1}}
baseline: {{window: 6s, log_path_within: 10s}}
expect: {{{expect}, allow_other_alerts: true}}
recover: {{remediation: {"reboot" if act else "none"}, within: 60s}}
qa: {{within: 60s, burn_in: null}}
guardrails: {{max_nodes: 1, max_duration: 10m}}
"""


def _fault(case: Case) -> str:
    if sample := _sample(case):
        return f"{{type: dcgm_field, field: {sample.field}, value: {sample.value:g}, hold: 60s}}"
    messages = dumps([read_record(line).message for line in _lines(case)], ensure_ascii=False)
    return f"{{type: kernel_lines, lines: {messages}, hold: 60s}}"


def _sample(case: Case) -> DcgmSample | None:
    """Return the case's only sample, if it follows a healthy 0."""
    samples = [sample for step in case.steps for sample in step.dcgm]
    return samples[0] if len(samples) == len(case.steps) == 1 and not samples[0].before else None


def _lines(case: Case) -> list[str]:
    return [line for step in case.steps for line in (step.lines or "").splitlines() * min(step.repeat, _MOST_LINES + 1)]


def _has_prefix(lines: list[str]) -> bool:
    return any(read_record(line).message != line for line in lines)
