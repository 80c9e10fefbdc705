"""A run as an OpenTelemetry trace: the tree of its spans, their times, and the encoding they are sent in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gameday.history.events import FaultInjected, FaultUndone, HopSeen, RunStarted, StepEnded, TargetsChosen
from gameday.report.run_folder import load_run_folder
from gameday.report.safe_text import LONGEST
from gameday.report.traces import MOST_VALUES, Trace, trace_of
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
# Fields of the messages that we send, in proto3's JSON names (opentelemetry-proto 1.x, trace.proto).
SPAN_FIELDS = {
    "traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status",
}  # fmt: skip


def trace(folder: Path, timed: Iterable[Timed]) -> Trace:
    made = trace_of(load_run_folder(write(folder, timed)))
    assert made
    return made


def spans(made: Trace) -> list[dict[str, Any]]:
    """The spans as a receiver reads them."""
    request = json.loads(json.dumps(made.request(), allow_nan=False))
    return request["resourceSpans"][0]["scopeSpans"][0]["spans"]


def named(made: Trace, name: str) -> dict[str, Any]:
    (found,) = [span for span in spans(made) if span["name"] == name]
    return found


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    """A span's attributes as plain values."""
    values: dict[str, Any] = {}
    for pair in span["attributes"]:
        ((kind, value),) = pair["value"].items()
        assert pair["key"] not in values
        values[pair["key"]] = [one["stringValue"] for one in value["values"]] if kind == "arrayValue" else value
    return values


def second(span: dict[str, Any], end: str) -> float:
    """When a span starts or ends, in seconds of the run."""
    return round(int(span[f"{end}TimeUnixNano"]) / 1e9 - START.timestamp(), 3)


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
def test_the_spans_are_one_tree_whose_times_nest(tmp_path: Path, variant: str) -> None:
    made = spans(trace(tmp_path, RUNS[variant]()))
    by_id = {span["spanId"]: span for span in made}
    assert len(by_id) == len(made)
    assert [span["name"] for span in made if "parentSpanId" not in span] == ["game-day gpu-fell-off-the-bus"]
    for span in made:
        assert second(span, "start") <= second(span, "end")
        if "parentSpanId" in span:
            parent = by_id[span["parentSpanId"]]
            assert second(parent, "start") <= second(span, "start")
            assert second(span, "end") <= second(parent, "end")


def test_it_has_every_step_hop_window_and_undo(tmp_path: Path) -> None:
    made = trace(tmp_path, passing())
    names = [span["name"] for span in spans(made)]
    root = "game-day gpu-fell-off-the-bus"
    assert sorted(names) == sorted([root, *Step, "fault window", "detection", *Hop, *["undo"] * 4])
    detection = named(made, "detection")["spanId"]
    assert {span["name"] for span in spans(made) if span.get("parentSpanId") == detection} == set(Hop)


def test_the_times_are_those_of_the_history(tmp_path: Path) -> None:
    made = trace(tmp_path, passing())
    recover, firing, window = (named(made, name) for name in (Step.RECOVER, Hop.RULE_FIRING, "fault window"))
    assert (second(recover, "start"), second(recover, "end")) == (21.1, 34.6)
    # From its cause, the pending rule, to itself.
    assert (second(firing, "start"), second(firing, "end")) == (FAULT_AT + 2.4, FAULT_AT + 5.4)
    assert (second(window, "start"), second(window, "end")) == (FAULT_AT, 22.3)


def test_the_root_says_which_run_it_is_and_how_it_ended(tmp_path: Path) -> None:
    root = spans(trace(tmp_path, passing()))[0]
    assert root["status"] == {}
    assert attributes(root) == {
        "gameday.run.id": "20260303-090000-7f3a",
        "gameday.plan": "gpu-fell-off-the-bus",
        "gameday.title": "A GPU falls off the bus",
        "gameday.fault": "xid",
        "gameday.cluster": "rehearsal",
        "gameday.targets": [NODE],
        "gameday.virtual-gpus": "yes",
        "gameday.trigger": "rehearsal",
        "gameday.outcome": "passed",
        "gameday.cleanliness": "clean",
        "gameday.why": attributes(root)["gameday.why"],
        "gameday.version": "0.1.0",
    }


def test_a_red_run_is_an_error_that_says_where_the_chain_breaks(tmp_path: Path) -> None:
    made = trace(tmp_path, VARIANTS["detector-off"]())
    root = spans(made)[0]
    assert root["status"]["code"] == 2
    assert "did not hold" in root["status"]["message"]
    assert any("Alert GpuXidCritical fires" in line for line in attributes(root)["gameday.broken"])
    assert "no 'detector decided' after 'in log store'" in named(made, "detection")["status"]["message"]
    assert named(made, Step.VERIFY_TAINT)["status"] == {"code": 2, "message": "no taint within 15 s"}
    assert named(made, Step.RECOVER)["status"] == {}


def test_a_killed_run_ends_where_its_history_ends(tmp_path: Path) -> None:
    made = trace(tmp_path, VARIANTS["killed"]())
    cut = named(made, Step.AWAIT_ALERT)
    assert cut["status"] == {"code": 2, "message": "the run was cut off in this step"}
    assert second(cut, "end") == second(spans(made)[0], "end")
    assert Step.RECOVER not in [span["name"] for span in spans(made)]
    missing = [span["status"] for span in spans(made) if span["name"] == "undo"]
    assert missing == [{"code": 2, "message": "no undo of this is on record"}] * 2


def test_an_undo_that_left_something_is_an_error(tmp_path: Path) -> None:
    timed = replacing(
        passing(), lambda e: isinstance(e, FaultUndone) and e.intent == "i2", cleanliness=Cleanliness.DIRTY
    )
    made = spans(trace(tmp_path, timed))
    assert made[0]["status"]["code"] == 2
    undos = [(attributes(span), span["status"]) for span in made if span["name"] == "undo"]
    assert [about["gameday.undo.act"] for about, status in undos if status] == ["write Xid 79 to the kernel log"]


def test_each_node_has_a_chain_of_its_own(tmp_path: Path) -> None:
    chains = [span for span in spans(trace(tmp_path, two_nodes())) if span["name"] == "detection"]
    assert [attributes(chain)["k8s.node.name"] for chain in chains] == [NODE, OTHER]


def test_a_second_export_is_the_same_trace_and_another_run_is_another(tmp_path: Path) -> None:
    first, again = trace(tmp_path / "run", passing()), trace(tmp_path / "run", passing())
    assert first.request() == again.request()
    other = trace(tmp_path / "other", replacing(passing(), lambda e: isinstance(e, RunStarted), run_id="another"))
    assert first.trace_id != other.trace_id
    assert not {span["spanId"] for span in spans(first)} & {span["spanId"] for span in spans(other)}


@pytest.mark.parametrize("variant", RUNS)
def test_the_encoding_is_that_of_otlp(tmp_path: Path, variant: str) -> None:
    made = trace(tmp_path, RUNS[variant]())
    for span in spans(made):
        assert set(span) <= SPAN_FIELDS
        assert span["traceId"] == made.trace_id
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert span["kind"] == 1
        assert all(re.fullmatch("[0-9]+", span[f"{end}TimeUnixNano"]) for end in ("start", "end"))
        assert set(span["status"]) <= {"code", "message"}
    resource = made.request()["resourceSpans"][0]["resource"]
    assert attributes(resource)["service.name"] == "gpu-gameday"
    assert attributes(resource)["k8s.cluster.uid"] == "5b0e9c3e-8a1f-4f2c-9f0e-2d6f1f0f7a11"


def test_hostile_text_stays_data(tmp_path: Path) -> None:
    evil = '\x1b[31m"}]}<script>\u202e token=hunter2hunter2 ' + "x" * 10_000
    timed = ended(passing(), Step.QA_NODE, StepOutcome.BROKEN, evil)
    timed = replacing(timed, lambda e: isinstance(e, RunStarted), plan_name=evil, cluster=evil, gameday_version=evil)
    lines = tuple(f"line {n} {evil}" for n in range(500))
    timed = replacing(timed, lambda e: isinstance(e, FaultInjected), evidence=lines)
    targets = (Target(node=NODE, gpu=5), *(Target(node=f"{evil}{n}", gpu=0) for n in range(30)))
    made = trace(tmp_path, replacing(timed, lambda e: isinstance(e, TargetsChosen), targets=targets))
    text = json.dumps(made.request(), ensure_ascii=False)
    assert "hunter2" not in text
    assert not re.search("[\x00-\x1f\x7f\u202e]", text)
    assert len(text) < 100_000
    evidence = attributes(named(made, "fault window"))["gameday.fault.evidence"]
    assert len(evidence) == MOST_VALUES + 1
    assert evidence[-1] == f"and {500 - MOST_VALUES} more"
    assert len(named(made, Step.QA_NODE)["status"]["message"]) < LONGEST + 100


def test_times_beyond_what_receivers_keep_are_cut(tmp_path: Path) -> None:
    far = at(0).replace(year=9999)
    timed = replacing(passing(), lambda e: isinstance(e, HopSeen) and e.hop is Hop.NOTIFIED, at=far)
    assert int(spans(trace(tmp_path, timed))[0]["endTimeUnixNano"]) == 2**63 - 1


def test_steps_left_out_have_no_span_and_a_run_without_a_start_has_no_trace(tmp_path: Path) -> None:
    left_out = [t for t in passing() if getattr(t.event, "step", None) is not Step.QA_NODE]
    left_out.append(Timed(34.7, StepEnded(step=Step.QA_NODE, outcome=StepOutcome.NOT_ASKED, why="left out")))
    assert Step.QA_NODE not in [span["name"] for span in spans(trace(tmp_path / "short", left_out))]
    headless = write(tmp_path / "headless", without(passing(), lambda e: isinstance(e, RunStarted)))
    assert trace_of(load_run_folder(headless)) is None
