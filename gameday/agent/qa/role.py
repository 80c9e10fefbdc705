"""Role qa: read, judge, print a line per finding, and pass only when every finding does."""

from __future__ import annotations

from gameday.agent.context import Context
from gameday.agent.qa.checks import judge
from gameday.agent.qa.readings import read_node
from gameday.agent.task import Outcome, QaResult, QaTask
from gameday.values.results import Cleanliness


def qa(task: QaTask, context: Context) -> Outcome:
    """Changes nothing, so it is always clean. Stopped early, it fails: half a QA proves nothing."""
    results: list[QaResult] = []
    if not context.ending.event.is_set():
        load = task.floors.need_load
        readings = read_node(context.host, task.marker, task.expected_gpus, context.ending.event, load=load)
        for result in judge(readings, task.floors):
            context.say(result)
            results.append(result)
    not_ok = [result for result in results if not result.ok]
    stopped = context.ending.event.is_set()
    summary = f"{len(results) - len(not_ok)} of {len(results)} checks passed"
    return Outcome(
        role=task.role,
        ok=bool(results) and not not_ok and not stopped,
        cleanliness=Cleanliness.CLEAN,
        ended_by=context.ending.reason,
        error="stopped before QA was through" if stopped else ("" if not not_ok else _told(not_ok[0], len(not_ok))),
        evidence=(summary, *map(_line, not_ok)),
    )


def _told(first: QaResult, count: int) -> str:
    more = f", and {count - 1} more" if count > 1 else ""
    return f"QA did not pass: {_line(first)}{more}"


def _line(result: QaResult) -> str:
    where = "node" if result.gpu is None else f"GPU {result.gpu}"
    value = "could not be measured" if result.value is None else f"{result.value} {result.unit}".rstrip()
    return f"{where}: {result.check}: {value}, wanted {result.bound or 'a reading'}. {result.detail}".rstrip(". ")
