"""The memory that a restart frees: medians on both sides, a verdict of three values, and no crash of its own making."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import ApiServersRestarted, FaultInjected, FaultUndone
from gameday.history.frames import SCHEMAS, Frames, conform
from gameday.plan.models import Recovery, ServerRestart
from gameday_control_plane.checks import api_canary
from gameday_control_plane.checks.containment import MEMORY, STARTED
from gameday_control_plane.checks.containment import check as containment
from gameday_control_plane.checks.restart_drop import check, restart_drops
from gameday_control_plane.events import ApiCanarySampled
from gameday_control_plane.expect.control_plane import ExpectedApiCanary, ExpectedContainment
from gameday_control_plane.figures.restart import figures
from gameday_control_plane.values.api_requests import ApiCanarySample
from tests.report.run_builder import NODE, PLAN, Timed, cut_off, history_of, passing

PASSING = passing()
HISTORY = history_of(PASSING)
WRITTEN = next(event.written_at for event in HISTORY.of(FaultInjected))
ASKED, READY = WRITTEN + timedelta(minutes=2), WRITTEN + timedelta(minutes=3)
RESTARTED = Timed(0, ApiServersRestarted(asked_at=ASKED, ready_at=READY))
MIB = 2**20


def plan(**expected: Any) -> Any:
    restart = ServerRestart(settle=timedelta(seconds=20))
    changes = {
        "containment": ExpectedContainment.model_validate({"restart_frees": expected} if expected else {}),
        "api_canary": ExpectedApiCanary(),
    }
    return PLAN.model_copy(
        update={
            "recover": Recovery(restart_api_servers=restart),
            "expect": PLAN.expect.model_copy(update=changes),
        }
    )


def row(at_s: float, mib: float, server: str = "a") -> dict[str, object]:
    """A sample of memory, so many seconds after the fault went in."""
    return sample(MEMORY, at_s, mib * MIB, server)


def sample(metric: str, at_s: float, value: float, server: str = "a") -> dict[str, object]:
    time = WRITTEN + timedelta(seconds=at_s)
    return dict.fromkeys(SCHEMAS["api_server"], "") | {
        "time": time, "server": server, "metric": metric, "value": value,
    }  # fmt: skip


def frames(*rows: dict[str, object]) -> Frames:
    return Frames(api_server=conform("api_server", list(rows)))


def judged(*rows: dict[str, object], restarted: Timed | None = RESTARTED, **expected: float) -> Verdict:
    history = history_of([*([restarted] if restarted else []), *PASSING])
    (verdict,) = check(plan(**expected), history, frames(*rows))
    return verdict


# The last ten seconds before the restart, and the second ten after it.
SEEN = (row(105, 900), row(112, 400), row(116, 420), row(119, 410), row(185, 900), row(191, 300), row(198, 320))


def test_the_medians_of_the_settled_halves_are_compared() -> None:
    (drop,) = restart_drops(plan(), history_of([RESTARTED, *PASSING]), frames(*SEEN)).values()
    assert (drop.before, drop.after) == (410 * MIB, 310 * MIB)
    found = {one.name: one.value for one in figures(plan(), history_of([RESTARTED, *PASSING]), frames(*SEEN))}
    assert found["API server: restart drop"] == pytest.approx(100 * 100 / 410)
    assert found["API server: memory that the restart freed"] == 100


@pytest.mark.parametrize(
    ("expected", "status"),
    [
        ({"at_least": 0.2, "at_most": 0.45}, Status.HELD),
        ({"at_least": 0.25}, Status.BROKEN),
        ({"at_most": 0.2}, Status.BROKEN),
    ],
)
def test_a_drop_of_a_quarter_is_judged(expected: dict[str, float], status: Status) -> None:
    verdict = judged(*SEEN, **expected)
    assert (verdict.status, verdict.measured) == (status, "a: 24% of 410 MiB")


def test_every_server_is_judged() -> None:
    other = (row(112, 400, "b"), row(191, 390, "b"))
    assert judged(*SEEN, *other, at_least=0.2).status is Status.BROKEN


def test_what_was_not_scraped_on_both_sides_is_unknown() -> None:
    for rows in ((), SEEN[:4], (*SEEN, row(112, 400, "b"))):
        verdict = judged(*rows, at_least=0.2)
        assert verdict.status is Status.UNKNOWN
        assert "not measured: samples of process_resident_memory_bytes" in verdict.why


def test_a_restart_that_was_not_made_is_unknown() -> None:
    verdict = judged(*SEEN, restarted=None, at_least=0.2)
    assert (verdict.status, verdict.why) == (Status.UNKNOWN, "the API servers were not restarted")
    (early,) = check(plan(at_least=0.2), history_of(cut_off(PASSING, 3)), frames())
    assert "not reached" in early.why
    assert figures(plan(), HISTORY, frames(*SEEN)) == []


def test_the_runs_own_restart_is_no_crash_and_another_one_is() -> None:
    started = sample(STARTED, 130, WRITTEN.timestamp() + 125)
    crashed = sample(STARTED, 190, WRITTEN.timestamp() + 185)
    history = history_of([RESTARTED, *PASSING])

    def servers_up(*rows: dict[str, object]) -> Status:
        verdicts = containment(plan(), history, frames(*rows))
        return next(one.status for one in verdicts if one.check == "containment-servers-up")

    assert servers_up(started) is Status.HELD
    assert servers_up(started, crashed) is Status.BROKEN


def test_an_ordinary_client_must_be_well_again_after_the_restart() -> None:
    undone = next(record.at for record, _ in HISTORY.with_times(FaultUndone))
    ready = undone + timedelta(seconds=30)
    restarted = Timed(0, ApiServersRestarted(asked_at=undone, ready_at=ready))
    refused = ApiCanarySample(kind="get", sent_at=ready - timedelta(seconds=3), seconds=0.1, status=0, error="refused")
    served = tuple(
        ApiCanarySample(kind="get", sent_at=ready + timedelta(seconds=n), seconds=0.1, status=200) for n in range(30)
    )
    sampled = Timed(0, ApiCanarySampled(node=NODE, samples=(refused, *served)))
    with_restart = history_of([restarted, sampled, *PASSING])
    assert api_canary.after_fault(plan(), with_restart)[0].status is Status.HELD
    assert api_canary.after_fault(plan(), history_of([sampled, *PASSING]))[0].status is Status.BROKEN
