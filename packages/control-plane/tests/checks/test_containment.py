"""The verdicts on where the load was held: by the servers' own metrics, never by silence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected
from gameday.history.frames import SCHEMAS, Frames, conform
from gameday_control_plane.checks.containment import EXECUTING, MEMORY, STARTED, WORK_SECONDS, check
from gameday_control_plane.events import FlowControlRead, FlowControlSet, LoadLogged, SeatsRead
from gameday_control_plane.expect.control_plane import ExpectedContainment
from gameday_control_plane.settings import ControlPlaneSettings, FlowControl
from gameday_control_plane.values.api_requests import ApiRequest
from tests.report.run_builder import NODE, PLAN, Timed, cut_off, history_of, passing

PASSING = passing()
WRITTEN = next(event.written_at for event in history_of(PASSING).of(FaultInjected))
LEVEL = "gameday-heavy-list"
MIB = 2**20


def plan(**expected: Any) -> Any:
    containment = ExpectedContainment(**{"executing_at_most": 2, "memory_growth_at_most": 100 * MIB, **expected})
    settings = ControlPlaneSettings(flow_control=FlowControl(seats=2))
    return PLAN.model_copy(
        update={"settings": settings, "expect": PLAN.expect.model_copy(update={"containment": containment})}
    )


def row(metric: str, after_fault_s: float, value: float, server: str = "a:6443", level: str = "") -> dict[str, object]:
    blank = dict.fromkeys(SCHEMAS["api_server"], "")
    time = WRITTEN + timedelta(seconds=after_fault_s)
    return blank | {"time": time, "server": server, "metric": metric, "priority_level": level, "value": value}


def frames(*rows: dict[str, object]) -> Frames:
    return Frames(api_server=conform("api_server", list(rows)))


def request(client: int, first_byte: float, end: float, status: int = 200) -> ApiRequest:
    return ApiRequest(
        client=client, round=0, attempt=1, sent_at=WRITTEN, start=0, first_byte=first_byte, end=end, status=status,
        bytes=10,
    )  # fmt: skip


STEADY = (
    row(EXECUTING, 1, 2, level=LEVEL),
    row(EXECUTING, 2, 1, level=LEVEL),
    row(MEMORY, -5, 300 * MIB),
    row(MEMORY, 1, 350 * MIB),
    row(STARTED, -5, 1000.0),
    row(STARTED, 1, 1000.0),
    row(WORK_SECONDS, -5, 100.0, level=LEVEL),
    row(WORK_SECONDS, 60, 106.0, level=LEVEL),
)
SEATS = tuple(Timed(0, SeatsRead(phase=phase, seats={"a:6443": 2})) for phase in ("before", "after"))
UNCHANGED = Timed(0, FlowControlRead(changes=()))
SET = Timed(0, FlowControlSet(name=LEVEL, seats=2, shares=1, spare_shares=54, total_seats=600))
LOG = Timed(0, LoadLogged(node=NODE, requests=(request(0, 1, 2), request(1, 1, 2), request(2, 2, 3))))


def judged(
    *rows: dict[str, object], events: tuple[Timed, ...] = (SET, *SEATS, UNCHANGED, LOG), **expected: Any
) -> dict[str, Verdict]:
    verdicts = check(plan(**expected), history_of([*events, *PASSING]), frames(*rows))
    return {verdict.check: verdict for verdict in verdicts}


def test_a_load_that_is_held_holds_everything() -> None:
    verdicts = judged(*STEADY)
    assert {name: one.status for name, one in verdicts.items()} == dict.fromkeys(
        (
            "containment-seats",
            "containment-unchanged",
            "containment-executing",
            "containment-executing-mean",
            "containment-memory",
            "containment-servers-up",
        ),
        Status.HELD,
    )
    assert verdicts["containment-memory"].measured == "50 MiB (a:6443)"


def test_without_frames_nothing_is_said_of_the_servers() -> None:
    verdicts = judged()
    for name in ("containment-executing", "containment-executing-mean", "containment-memory", "containment-servers-up"):
        assert verdicts[name].status is Status.UNKNOWN
        assert "not measured: " in verdicts[name].why


def test_a_run_that_never_got_to_the_fault_says_so() -> None:
    verdicts = check(plan(), history_of(cut_off(PASSING, 3)), frames(*STEADY))
    assert {one.status for one in verdicts} == {Status.UNKNOWN}
    assert all("not reached" in one.why for one in verdicts if one.check != "containment-seats")


def test_a_third_seat_in_one_scrape_breaks() -> None:
    verdict = judged(*STEADY, row(EXECUTING, 3, 3, level=LEVEL))["containment-executing"]
    assert (verdict.status, verdict.measured) == (Status.BROKEN, "3 at most in 3 scrapes of gameday-heavy-list")


def test_seats_of_several_servers_are_not_added_up_and_those_of_flow_schemas_are() -> None:
    other = row(EXECUTING, 1, 2, server="b:6443", level=LEVEL)
    assert judged(*STEADY, other)["containment-executing"].status is Status.HELD
    second = {**row(EXECUTING, 1, 1, level=LEVEL), "flow_schema": "another"}
    assert judged(*STEADY, second)["containment-executing"].status is Status.BROKEN


def test_levels_of_others_and_scrapes_outside_of_the_load_do_not_count() -> None:
    others = (row(EXECUTING, 1, 40, level="system"), row(EXECUTING, -3, 9, level=LEVEL), row(EXECUTING, 9999, 9))
    assert judged(*STEADY, *others)["containment-executing"].status is Status.HELD


def test_without_a_level_of_ours_the_busiest_one_is_judged() -> None:
    without = plan().model_copy(update={"settings": ControlPlaneSettings()})
    rows = frames(*STEADY, row(EXECUTING, 1, 12, level="workload-low"))
    verdicts = {one.check: one for one in check(without, history_of([LOG, *PASSING]), rows)}
    assert verdicts["containment-executing"].measured.startswith("12 at most")
    assert "containment-seats" not in verdicts


def test_the_server_that_grew_most_is_judged_and_one_without_a_figure_before_is_not() -> None:
    rows = (
        row(MEMORY, -5, 100 * MIB, "b:6443"),
        row(MEMORY, 1, 900 * MIB, "b:6443"),
        row(MEMORY, 1, 9000 * MIB, "new:6443"),
    )
    verdict = judged(*STEADY, *rows)["containment-memory"]
    assert (verdict.status, verdict.measured) == (Status.BROKEN, "800 MiB (b:6443)")


def test_a_server_that_started_again_breaks_and_is_named_with_its_time() -> None:
    again = WRITTEN + timedelta(seconds=2)
    rows = [row(STARTED, second, again.timestamp() + wobble) for second, wobble in ((3, 0.001), (4, -0.001))]
    verdict = judged(*STEADY, *rows)["containment-servers-up"]
    assert (verdict.status, verdict.measured) == (Status.BROKEN, "1 restarts")
    assert f"a:6443 started again at {again:%H:%M}" in verdict.why


def test_the_mean_over_the_load_sees_what_no_scrape_saw() -> None:
    # Three seconds in which the load had requests under way, and 7.5 seconds of work: 2.5 at a time.
    grown = row(WORK_SECONDS, 60, 107.5, level=LEVEL)
    verdict = judged(*STEADY[:-1], grown)["containment-executing-mean"]
    assert (verdict.status, verdict.measured) == (Status.BROKEN, "2.50 in 3.0 s (a:6443)")


def test_the_loads_own_count_of_its_objects_is_no_third_request_at_a_time() -> None:
    grown = row(WORK_SECONDS, 60, 106.1, level=LEVEL)
    verdict = judged(*STEADY[:-1], grown)["containment-executing-mean"]
    assert (verdict.status, verdict.measured) == (Status.HELD, "2.03 in 3.0 s (a:6443)")


def test_the_mean_of_each_server_is_judged_and_a_level_that_first_serves_begins_at_nothing() -> None:
    other = (row(WORK_SECONDS, -5, 1.0, "b:6443", "system"), row(WORK_SECONDS, 60, 3.0, "b:6443", LEVEL))
    verdict = judged(*STEADY, *other)["containment-executing-mean"]
    assert (verdict.status, verdict.measured) == (Status.HELD, "2.00 in 3.0 s (a:6443)")


@pytest.mark.parametrize(
    "rows",
    [
        STEADY[:-1],  # nothing after the load
        (*STEADY[:-2], STEADY[-1]),  # nothing before it
        (*STEADY[:-1], row(WORK_SECONDS, 60, 3.0, level=LEVEL)),  # the server began anew
    ],
)
def test_a_server_that_was_not_scraped_around_the_load_has_no_mean(rows: tuple[dict[str, object], ...]) -> None:
    assert judged(*rows)["containment-executing-mean"].status is Status.UNKNOWN


def test_a_load_that_was_only_refused_holds_nothing() -> None:
    refused = LoadLogged(node=NODE, requests=tuple(request(number, 1, 2, 429) for number in range(3)))
    verdict = judged(*STEADY, events=(SET, *SEATS, Timed(0, refused)))["containment-executing-mean"]
    assert (verdict.status, verdict.measured) == (Status.UNKNOWN, "")


def test_other_seats_on_one_server_break_and_are_named() -> None:
    after = Timed(0, SeatsRead(phase="after", seats={"a": 2, "b": 3}))
    verdict = judged(*STEADY, events=(SET, SEATS[0], after, LOG))["containment-seats"]
    assert (verdict.status, verdict.why) == (Status.BROKEN, "b had 3 after the fault")


def test_seats_that_were_read_once_only_are_not_held() -> None:
    assert judged(*STEADY, events=(SET, SEATS[0], LOG))["containment-seats"].status is not Status.HELD


def test_a_level_that_was_never_put_in_is_unknown() -> None:
    assert judged(*STEADY, events=(LOG,))["containment-seats"].status is Status.UNKNOWN


def test_a_change_by_somebody_else_breaks_and_names_who() -> None:
    read = Timed(0, FlowControlRead(changes=("priority_level_configuration x was changed by kubectl-edit",)))
    verdict = judged(*STEADY, events=(SET, *SEATS, read, LOG))["containment-unchanged"]
    assert (verdict.status, verdict.why) == (Status.BROKEN, read.event.changes[0])


def test_a_level_that_nobody_looked_at_again_is_unknown() -> None:
    assert judged(*STEADY, events=(SET, *SEATS, LOG))["containment-unchanged"].status is Status.UNKNOWN
