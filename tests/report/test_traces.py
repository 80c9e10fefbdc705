"""A run as an OpenTelemetry trace: its spans, their times, and what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from gameday.history.events import FaultInjected, FaultUndone, HopSeen, RunStarted, StepEnded, TargetsChosen
from gameday.report.run_folder import load_run_folder
from gameday.report.safe_text import LONGEST
from gameday.report.sections.chain import OF_REAL_XIDS
from gameday.report.traces import MOST_VALUES, trace_of
from gameday.values.nodes import Target
from gameday.values.results import Cleanliness, Hop, Step, StepOutcome
from tests.report.run_builder import (
    FAULT_AT,
    NODE,
    START,
    VARIANTS,
    Timed,
    at,
    ended,
    passing,
    replacing,
    without,
    write,
)

OTHER = "gpu-node-04"


def trace(folder: Path, timed: Iterable[Timed]) -> Sequence[ReadableSpan]:
    return trace_of(load_run_folder(write(folder, timed)))


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in (span.attributes or {}).items()}


def error(span: ReadableSpan) -> str | None:
    return span.status.description if span.status.status_code is StatusCode.ERROR else None


def times(span: ReadableSpan) -> tuple[float, float]:
    """When a span starts and ends, in seconds of the run."""
    start, end = ((ns or 0) / 1e9 - START.timestamp() for ns in (span.start_time, span.end_time))
    return round(start, 3), round(end, 3)


def two_nodes() -> list[Timed]:
    targets = (Target(node=NODE, gpu=5), Target(node=OTHER, gpu=0))
    timed = replacing(passing(), lambda e: isinstance(e, TargetsChosen), targets=targets)
    hop = HopSeen(hop=Hop.WRITTEN, node=OTHER, at=at(FAULT_AT), source="agent")
    return [*timed, Timed(FAULT_AT + 0.2, hop)]


def clocks_apart() -> list[Timed]:
    """One hop is dated before the run's first record, and another after its last."""
    timed = replacing(passing(), lambda e: isinstance(e, HopSeen) and e.hop is Hop.WRITTEN, at=at(-3))
    return replacing(timed, lambda e: isinstance(e, HopSeen) and e.hop is Hop.NOTIFIED, at=at(60))


def fault_of_the_future() -> list[Timed]:
    return replacing(passing(), lambda e: isinstance(e, FaultInjected), written_at=at(100))


RUNS = VARIANTS | {"two": two_nodes, "clocks": clocks_apart, "future": fault_of_the_future}


@pytest.mark.parametrize("variant", RUNS)
def test_the_spans_are_one_tree_that_can_be_sent(tmp_path: Path, variant: str) -> None:
    made = trace(tmp_path, RUNS[variant]())
    ids = {span.context.span_id for span in made}
    assert len(ids) == len(made)
    assert [span.name for span in made if span.parent is None] == ["game-day gpu-fell-off-the-bus"]
    for span in made:
        start, end = times(span)
        assert start <= end
        assert span.parent is None or span.parent.span_id in ids
    (sent,) = encode_spans(made).resource_spans
    about = {pair.key: pair.value.string_value for pair in sent.resource.attributes}
    assert about["service.name"] == "gpu-gameday"
    assert about["k8s.cluster.uid"] == "5b0e9c3e-8a1f-4f2c-9f0e-2d6f1f0f7a11"


def test_it_has_every_step_hop_window_and_undo(tmp_path: Path) -> None:
    made = trace(tmp_path, passing())
    root = "game-day gpu-fell-off-the-bus"
    names = sorted(span.name for span in made)
    hops = [hop for hop in Hop if hop not in OF_REAL_XIDS]
    assert names == sorted([root, *Step, "fault window", "detection", *hops, *["undo"] * 4])
    detection = named(made, "detection").context
    assert {span.name for span in made if span.parent and span.parent.span_id == detection.span_id} == set(hops)


def test_the_times_are_those_of_the_history(tmp_path: Path) -> None:
    made = trace(tmp_path, passing())
    recover, firing, window = (named(made, name) for name in (Step.RECOVER, Hop.RULE_FIRING, "fault window"))
    assert times(recover) == (21.1, 34.6)
    # From its cause, the pending rule, to itself.
    assert times(firing) == (FAULT_AT + 2.4, FAULT_AT + 5.4)
    assert times(window) == (FAULT_AT, 22.3)


def test_the_root_says_which_run_it_is_and_how_it_ended(tmp_path: Path) -> None:
    root = trace(tmp_path, passing())[0]
    assert error(root) is None
    assert attributes(root) == {
        "gameday.run.id": "20260303-090000-7f3a",
        "gameday.plan": "gpu-fell-off-the-bus",
        "gameday.title": "A GPU falls off the bus",
        "gameday.fault": "xid",
        "gameday.cluster": "rehearsal",
        "gameday.targets": [NODE],
        "gameday.virtual-gpus": "yes",
        "gameday.outcome": "passed",
        "gameday.cleanliness": "clean",
        "gameday.why": attributes(root)["gameday.why"],
    }


def test_a_red_run_is_an_error_that_says_where_the_chain_breaks(tmp_path: Path) -> None:
    made = trace(tmp_path, VARIANTS["detector-off"]())
    root = made[0]
    assert "did not hold" in (error(root) or "")
    assert any("Alert GpuXidCritical fires" in line for line in attributes(root)["gameday.broken"])
    assert "no 'detector decided' after 'in log store'" in (error(named(made, "detection")) or "")
    assert error(named(made, Step.VERIFY_TAINT)) == "no taint within 15 s"
    assert error(named(made, Step.RECOVER)) is None


def test_a_killed_run_ends_where_its_history_ends(tmp_path: Path) -> None:
    made = trace(tmp_path, VARIANTS["killed"]())
    cut = named(made, Step.AWAIT_ALERT)
    assert error(cut) == "the run was cut off in this step"
    assert cut.end_time == made[0].end_time
    assert Step.RECOVER not in [span.name for span in made]
    assert [error(span) for span in made if span.name == "undo"] == ["no undo of this is on record"] * 2


def test_an_undo_that_left_something_is_an_error(tmp_path: Path) -> None:
    timed = replacing(
        passing(), lambda e: isinstance(e, FaultUndone) and e.intent == "i2", cleanliness=Cleanliness.DIRTY
    )
    made = trace(tmp_path, timed)
    assert error(made[0])
    undos = [span for span in made if span.name == "undo" and error(span)]
    assert [attributes(span)["gameday.undo.act"] for span in undos] == ["write Xid 79 to the kernel log"]


def test_each_node_has_a_chain_of_its_own(tmp_path: Path) -> None:
    chains = [span for span in trace(tmp_path, two_nodes()) if span.name == "detection"]
    assert [attributes(chain)["k8s.node.name"] for chain in chains] == [NODE, OTHER]


def test_a_second_export_is_the_same_trace_and_another_run_is_another(tmp_path: Path) -> None:
    first, again = trace(tmp_path / "run", passing()), trace(tmp_path / "run", passing())
    assert encode_spans(first) == encode_spans(again)
    other = trace(tmp_path / "other", replacing(passing(), lambda e: isinstance(e, RunStarted), run_id="another"))
    assert first[0].context.trace_id != other[0].context.trace_id
    assert not {span.context.span_id for span in first} & {span.context.span_id for span in other}


def test_hostile_text_stays_data(tmp_path: Path) -> None:
    evil = '\x1b[31m"}]}<script>\u202e token=hunter2hunter2 ' + "x" * 10_000
    timed = ended(passing(), Step.QA_NODE, StepOutcome.BROKEN, evil)
    timed = replacing(timed, lambda e: isinstance(e, RunStarted), plan_name=evil, cluster=evil, gameday_version=evil)
    lines = tuple(f"line {n} {evil}" for n in range(500))
    timed = replacing(timed, lambda e: isinstance(e, FaultInjected), evidence=lines)
    targets = (Target(node=NODE, gpu=5), *(Target(node=f"{evil}{n}", gpu=0) for n in range(30)))
    made = trace(tmp_path, replacing(timed, lambda e: isinstance(e, TargetsChosen), targets=targets))
    said = [f"{span.name}{error(span)}{attributes(span)}{dict(span.resource.attributes)}" for span in made]
    assert "hunter2" not in "".join(said)
    assert not re.search("[\x00-\x1f\x7f\u202e]", "".join(said))
    assert encode_spans(made).ByteSize() < 100_000
    evidence = attributes(named(made, "fault window"))["gameday.fault.evidence"]
    assert len(evidence) == MOST_VALUES + 1
    assert evidence[-1] == f"and {500 - MOST_VALUES} more"
    assert len(error(named(made, Step.QA_NODE)) or "") < LONGEST + 100


def test_times_beyond_what_receivers_keep_are_cut(tmp_path: Path) -> None:
    far = at(0).replace(year=9999)
    timed = replacing(passing(), lambda e: isinstance(e, HopSeen) and e.hop is Hop.NOTIFIED, at=far)
    assert max(span.end_time or 0 for span in trace(tmp_path, timed)) == 2**63 - 1


def test_steps_left_out_have_no_span_and_a_run_without_a_start_has_no_trace(tmp_path: Path) -> None:
    left_out = [t for t in passing() if getattr(t.event, "step", None) is not Step.QA_NODE]
    left_out.append(Timed(34.7, StepEnded(step=Step.QA_NODE, outcome=StepOutcome.NOT_ASKED, why="left out")))
    assert Step.QA_NODE not in [span.name for span in trace(tmp_path / "short", left_out)]
    headless = write(tmp_path / "headless", without(passing(), lambda e: isinstance(e, RunStarted)))
    assert trace_of(load_run_folder(headless)) == ()
