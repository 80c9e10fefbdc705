"""The plan's flow control, put in and taken back: exactly the wanted seats, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.errors import KubernetesError, StepFailedError
from gameday.plan.rehearsal import RehearsalSettings
from gameday.run.run import Run
from gameday.values.results import Cleanliness
from gameday_control_plane import flow_control_objects as flow_control
from gameday_control_plane.events import FlowControlRead, FlowControlSet, SeatsRead
from gameday_control_plane.flow_control_objects import FlowControlKind
from gameday_control_plane.flow_control_seats import nominal_seats
from gameday_control_plane.moments import settings as control_plane_settings
from gameday_control_plane.moments.settings import _shares, fault_goes_in, note_flow_control_after
from gameday_control_plane.settings import ControlPlaneSettings, FlowControl
from gameday_control_plane.undos import DeleteFlowControl
from tests.control_plane.flow_control_api import FakeFlowControl
from tests.support.runs import quick_plan, with_plan
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script

NAME = "gameday-heavy-list"
SPARE = f"{NAME}-spare"
SERVERS = ("a:6443", "b:6443")


RunWith = Callable[[ControlPlaneSettings], Run]


@pytest.fixture
def run_with(tmp_path: Path) -> Iterator[RunWith]:
    """Make a run whose plan has these settings."""
    with ExitStack() as stack:

        def make(settings: ControlPlaneSettings) -> Run:
            loaded = with_plan(quick_plan(), settings=settings, rehearsal=RehearsalSettings())
            return stack.enter_context(ScriptedCluster(Script(), nodes=0).run(loaded, tmp_path))

        yield make


def noted(run: Run) -> list[Any]:
    """Return what a run has noted of its flow control."""
    return [
        one.event
        for one in run.history().records
        if isinstance(one.event, FlowControlSet | SeatsRead | FlowControlRead)
    ]


def undos(run: Run) -> list[Any]:
    return [entry.undo for entry in run.ledger.open_entries()]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeFlowControl:
    fake = FakeFlowControl()
    monkeypatch.setattr(flow_control.client, "FlowcontrolApiserverV1Api", lambda _: fake)
    return fake


@pytest.fixture
def seats(api: FakeFlowControl, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Total seats by server, from which each computes those of its levels as a real one does."""
    totals = dict.fromkeys(SERVERS, 600)

    def scraped(run: Run) -> dict[str, dict[str, int]]:
        shares = flow_control.FlowControlApi(run.kubernetes).shares()
        return {
            server: {level: nominal_seats(total, own, sum(shares.values())) for level, own in shares.items()}
            for server, total in totals.items()
        }

    monkeypatch.setattr(control_plane_settings, "nominal_seats", scraped)
    return totals


def wanting(**settings: Any) -> ControlPlaneSettings:
    return ControlPlaneSettings(flow_control=FlowControl(**settings))


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 50])
def test_every_server_has_exactly_the_wanted_seats(
    api: FakeFlowControl, seats: dict[str, int], wanted: int, run_with: RunWith
) -> None:
    run = run_with(wanting(seats=wanted))
    fault_goes_in(run, ())
    note_flow_control_after(run)
    put_in, before, after, read = noted(run)
    assert isinstance(put_in, FlowControlSet)
    assert before == SeatsRead(phase="before", seats=dict.fromkeys(SERVERS, wanted))
    assert after == SeatsRead(phase="after", seats=dict.fromkeys(SERVERS, wanted))
    assert read == FlowControlRead(changes=())
    assert {name for kind, name in api.objects if kind is FlowControlKind.SCHEMA} == {NAME}


def test_what_others_did_to_the_level_and_the_schema_is_noted(
    api: FakeFlowControl, seats: dict[str, int], run_with: RunWith
) -> None:
    run = run_with(wanting())
    fault_goes_in(run, ())
    api.changed[SPARE] = "kubectl-edit"
    del api.objects[FlowControlKind.LEVEL, NAME]
    api.objects[FlowControlKind.SCHEMA, NAME]["metadata"]["labels"] = {}
    note_flow_control_after(run)
    assert noted(run)[-1].changes == (
        f"flow_schema {NAME} is not this run's any more",
        f"priority_level_configuration {NAME} is gone",
        f"priority_level_configuration {SPARE} was changed by kubectl-edit",
    )


def test_the_undo_is_in_the_ledger_before_anything_is_made(
    api: FakeFlowControl, seats: dict[str, int], monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    run = run_with(wanting())
    made_before: list[int] = []
    intend = run.ledger.intend

    def intend_and_look(*about: Any, **options: Any) -> Any:
        made_before.append(len(api.objects))
        return intend(*about, **options)

    monkeypatch.setattr(run.ledger, "intend", intend_and_look)
    fault_goes_in(run, ())
    assert made_before == [0]


def test_a_plan_without_flow_control_changes_nothing(
    api: FakeFlowControl, seats: dict[str, int], run_with: RunWith
) -> None:
    run = run_with(ControlPlaneSettings())
    fault_goes_in(run, ())
    note_flow_control_after(run)
    assert (noted(run), undos(run), api.objects) == ([], [], {})


@pytest.mark.parametrize(("kind", "left"), [(FlowControlKind.LEVEL, 1), (FlowControlKind.SCHEMA, 3)])
def test_a_name_that_is_taken_fails_the_step_and_leaves_the_object_to_its_owner(
    api: FakeFlowControl, seats: dict[str, int], kind: FlowControlKind, left: int, run_with: RunWith
) -> None:
    api.add(kind, NAME)
    run = run_with(wanting())
    with pytest.raises(StepFailedError, match="of the plan's name already") as failed:
        fault_goes_in(run, ())
    assert "gameday reap" in failed.value.hint
    assert len(api.objects) == left
    assert undone(run, undos(run)[0]).cleanliness is Cleanliness.CLEAN
    assert set(api.objects) == {(kind, NAME)}


def test_seats_that_never_come_fail_the_step_with_what_each_server_has(
    api: FakeFlowControl, seats: dict[str, int], run_with: RunWith
) -> None:
    seats["b:6443"] = 1200
    with pytest.raises(StepFailedError, match=r"a:6443: 1, b:6443: 2|a:6443: \d+, b:6443: \d+") as failed:
        fault_goes_in(run_with(wanting()), ())
    assert "--max-requests-inflight" in failed.value.hint


@pytest.mark.parametrize("scraped", [{}, {"a:6443": {}}, {"a:6443": {"of-others": 5}}])
def test_a_cluster_that_nobody_scrapes_fails_before_anything_is_made(
    api: FakeFlowControl, monkeypatch: pytest.MonkeyPatch, scraped: dict[str, dict[str, int]], run_with: RunWith
) -> None:
    monkeypatch.setattr(control_plane_settings, "nominal_seats", lambda _: scraped)
    run = run_with(wanting())
    with pytest.raises(StepFailedError) as failed:
        fault_goes_in(run, ())
    assert "let Prometheus scrape the API servers" in failed.value.hint
    assert (undos(run), api.objects) == ([], {})


def test_another_refusal_of_the_server_is_told_as_it_is(
    api: FakeFlowControl, seats: dict[str, int], monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise flow_control.client.ApiException(status=403, reason="Forbidden")

    monkeypatch.setattr(api, "create_flow_schema", refused)
    with pytest.raises(KubernetesError, match="Forbidden"):
        fault_goes_in(run_with(wanting()), ())


@given(seats=st.integers(1, 50), total=st.integers(100, 5000), others=st.integers(50, 1000))
def test_shares_give_exactly_the_seats_or_the_step_says_that_none_do(seats: int, total: int, others: int) -> None:
    try:
        shares = _shares(seats, total, others)
    except StepFailedError as error:
        assert "settings.flow_control.seats" in error.hint
        return
    assert nominal_seats(total, shares.own, others + shares.own + shares.spare) == seats


# --- taking it back ---


def undone(run: Any, entry: DeleteFlowControl) -> Any:
    return entry.carry_out(run.kubernetes, run.id, run.pods)


UNDO = DeleteFlowControl(schema_name=NAME, levels=(NAME, SPARE))


def test_the_schema_goes_before_its_levels(api: FakeFlowControl, seats: dict[str, int], run_with: RunWith) -> None:
    run = run_with(wanting())
    fault_goes_in(run, ())
    done = undone(run, undos(run)[0])
    assert done.cleanliness is Cleanliness.CLEAN
    assert [kind for kind, _ in api.deleted] == [FlowControlKind.SCHEMA, FlowControlKind.LEVEL, FlowControlKind.LEVEL]
    assert api.objects == {}
    assert all(line.endswith(" deleted") for line in done.evidence)
    again = undone(run, undos(run)[0])
    assert again.cleanliness is Cleanliness.CLEAN
    assert all(line.endswith("is no longer there") for line in again.evidence)


@pytest.mark.parametrize("owner", [None, "another-run"])
def test_objects_that_are_not_the_runs_any_more_are_left_alone(
    api: FakeFlowControl, owner: str | None, run_with: RunWith
) -> None:
    api.add(FlowControlKind.SCHEMA, NAME, "scripted-run")
    api.add(FlowControlKind.LEVEL, NAME, owner)
    done = undone(run_with(wanting()), UNDO)
    assert done.cleanliness is Cleanliness.CLEAN
    assert set(api.objects) == {(FlowControlKind.LEVEL, NAME)}
    assert f"({owner or 'no run'} owns it)" in done.evidence[1]


def test_a_schema_that_stays_keeps_its_levels_and_is_not_called_clean(api: FakeFlowControl, run_with: RunWith) -> None:
    for kind in FlowControlKind:
        api.add(kind, NAME, "scripted-run")
    api.stuck.add(NAME)
    done = undone(run_with(wanting()), UNDO)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert "still there" in done.evidence[-1]
    assert [kind for kind, _ in api.deleted] == [FlowControlKind.SCHEMA]
