"""Role qa: read the node, judge it, print a line for each check, and pass only if every check passes."""

from __future__ import annotations

from gameday.agent.context import Context
from gameday.agent.qa.checks import judge
from gameday.agent.qa.readings import read_node
from gameday.agent.task import AgentResult, QaResult, QaTask
from gameday.values.results import Cleanliness


def qa(task: QaTask, context: Context) -> AgentResult:
    """Judge the node. The result is always clean, because QA changes nothing; QA that is stopped early has failed."""
    results: list[QaResult] = []
    if not context.ending.event.is_set():
        readings = read_node(context.host, task.marker, task.expected_gpus, context.ending.event, task.proof)
        for result in judge(readings, task.proof.floors):
            context.print_note(result)
            results.append(result)
    not_ok = [result for result in results if not result.ok]
    stopped = context.ending.event.is_set()
    summary = f"{len(results) - len(not_ok)} of {len(results)} checks passed"
    return AgentResult(
        role=task.role,
        ok=bool(results) and not not_ok and not stopped,
        cleanliness=Cleanliness.CLEAN,
        ended_by=context.ending.reason,
        error="stopped before QA was complete" if stopped else _error(not_ok),
        evidence=(summary, *map(_line, not_ok)),
    )


def _error(not_ok: list[QaResult]) -> str:
    if not not_ok:
        return ""
    more = f", and {len(not_ok) - 1} more" if len(not_ok) > 1 else ""
    return f"QA did not pass: {_line(not_ok[0])}{more}"


def _line(result: QaResult) -> str:
    where = "node" if result.gpu is None else f"GPU {result.gpu}"
    value = "could not be measured" if result.value is None else f"{result.value} {result.unit}".rstrip()
    return f"{where}: {result.check}: {value}, wanted {result.bound or 'a reading'}. {result.detail}".rstrip(". ")
