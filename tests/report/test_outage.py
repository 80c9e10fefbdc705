"""Cost of a game-day: GPU-hours out of work per target, money by the run's own terms, sums, what stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gameday.cluster.profile import ClusterProfile
from gameday.history.events import CordonSeen, NodeReturned, NodeSeen, Refused, RepairHopSeen, RunStarted, TaintSeen
from gameday.report.out_of_work import out_of_work
from gameday.report.outage import OutOfWork, outage_totals
from gameday.report.run_folder import load_run_folder
from gameday.values.nodes import NodeRole, Taint
from gameday.values.pricing import OutageTerms
from gameday.values.results import RepairHop
from tests.report import run_builder as build
from tests.report.test_report_sections import section_of

TERMS = OutageTerms(price_per_gpu_hour=2.5, currency="EUR", hours_until_noticed=8)
HOURS = 8 * (44.0 - build.FAULT_AT) / 3600
"""GPU-hours of the passing run: eight GPUs from the fault to the return."""


def measured(folder: Path, timed: list[build.Timed]) -> OutOfWork:
    return out_of_work(load_run_folder(build.write(folder, timed)))


def priced(timed: list[build.Timed], terms: OutageTerms = TERMS) -> list[build.Timed]:
    return build.replacing(timed, lambda e: isinstance(e, RunStarted), outage_terms=terms)


def never_returned() -> list[build.Timed]:
    """The taint was not seen to go either."""
    gone = lambda e: isinstance(e, TaintSeen) and not e.present  # noqa: E731
    return build.without(build.passing(), lambda e: isinstance(e, NodeReturned), gone)


def test_after_an_abort_the_taint_that_goes_is_the_return(tmp_path: Path) -> None:
    gone = TaintSeen(node=build.NODE, taint=build.TAINT, present=False, manager=None, at=build.at(30.0))
    found = measured(tmp_path, [*never_returned(), build.Timed(30.0, gone)])
    assert (found.gpu_hours, found.why) == (pytest.approx(8 * (30.0 - build.FAULT_AT) / 3600), "")


def test_every_gpu_of_the_target_counts_from_the_fault_to_the_return(tmp_path: Path) -> None:
    found = measured(tmp_path, build.passing())
    assert (found.gpu_hours, found.gpus, found.why) == (pytest.approx(HOURS), 8, "")


def test_a_cordon_before_the_fault_counts_from_the_cordon(tmp_path: Path) -> None:
    cordon = CordonSeen(node=build.NODE, cordoned=True, at=build.at(4.0))
    found = measured(tmp_path, [*build.passing(), build.Timed(4.0, cordon)])
    assert found.gpu_hours == pytest.approx(8 * 40.0 / 3600)


def test_the_return_by_the_clusters_own_repair_is_an_end(tmp_path: Path) -> None:
    hop = RepairHopSeen(
        hop=RepairHop.RETURNED, node=build.NODE, at=build.at(50.0), by="x", source="x", took_s=1, since="x"
    )
    found = measured(tmp_path, [*never_returned(), build.Timed(46.0, hop)])
    assert found.gpu_hours == pytest.approx(8 * (50.0 - build.FAULT_AT) / 3600)


def test_a_target_that_stayed_schedulable_lost_nothing(tmp_path: Path) -> None:
    quiet = build.without(build.passing(), lambda e: isinstance(e, TaintSeen))
    preferred = Taint(key="a", effect="PreferNoSchedule")
    soft = TaintSeen(node=build.NODE, taint=preferred, present=True, manager=None, at=build.at(12))
    assert measured(tmp_path, [*quiet, build.Timed(12, soft)]).gpu_hours == 0


def test_a_refused_run_and_one_that_loads_the_api_server_lost_nothing(tmp_path: Path) -> None:
    refused = [*build.cut_off(build.passing(), 7.9), build.Timed(7.95, Refused(why="held"))]
    assert measured(tmp_path / "refused", refused).gpu_hours == 0
    clients = build.replacing(build.passing(), lambda e: isinstance(e, RunStarted), role=NodeRole.API_CLIENT)
    assert measured(tmp_path / "clients", clients).gpu_hours == 0


def test_what_the_history_does_not_hold_is_unknown_and_says_why(tmp_path: Path) -> None:
    returns = measured(tmp_path / "returns", never_returned())
    assert (returns.gpu_hours, returns.why) == (None, f"{build.NODE}: its return is not in the history")
    killed = measured(tmp_path / "killed", build.cut_off(build.passing(), 9.9))
    assert (killed.gpu_hours, killed.why) == (None, f"{build.NODE}: the run was cut off before its end")
    uncounted = measured(tmp_path / "gpus", build.without(build.passing(), lambda e: isinstance(e, NodeSeen)))
    assert (uncounted.gpu_hours, uncounted.why) == (None, f"{build.NODE}: its number of GPUs is not in the history")


def test_the_report_says_gpu_hours_money_and_the_rule(tmp_path: Path) -> None:
    page, data = section_of(build.write(tmp_path, priced(build.passing())), "outage")
    assert data["money"] == pytest.approx(2.5 * HOURS)
    said = page.text("outage")
    assert "0.0769 GPU-hours" in said
    assert "0.192 EUR" in said
    assert "from the fault, or from the cordon or taint that came before it" in said


def test_without_a_price_there_is_no_money_and_unknown_is_no_zero(tmp_path: Path) -> None:
    page, data = section_of(build.write(tmp_path / "plain", build.passing()), "outage")
    assert data["money"] is None
    assert "price_per_gpu_hour" in page.text("outage")
    page, data = section_of(build.write(tmp_path / "never", priced(never_returned())), "outage")
    assert (data["money"], data["total"]["gpu_hours"]) == (None, None)
    assert "Not known" in page.text("outage")


def test_sums_leave_out_the_unknown_and_keep_currencies_and_rehearsals_apart() -> None:
    dollars = OutageTerms(price_per_gpu_hour=3, currency="USD", hours_until_noticed=4)
    runs = [
        (False, OutOfWork(gpu_hours=1.0, gpus=8, terms=TERMS)),
        (False, OutOfWork(gpu_hours=2.0, gpus=8, terms=dollars)),
        (False, OutOfWork(gpu_hours=0.5, gpus=4)),
        (False, OutOfWork(gpu_hours=None, why="cut off", terms=TERMS)),
        (False, None),
        (True, OutOfWork(gpu_hours=9.0, gpus=8, terms=OutageTerms(hours_until_noticed=8))),
    ]
    real, virtual = outage_totals(runs)
    assert (real.known, real.unknown, real.gpu_hours, real.compared) == (3, 2, 3.5, 2)
    assert (real.compared_gpu_hours, real.unnoticed_gpu_hours) == (3.0, 1 + 8 * 8 + 2 + 8 * 4)
    assert [(m.currency, m.cost, m.unnoticed) for m in real.money] == [("EUR", 2.5, 162.5), ("USD", 6.0, 102.0)]
    assert (virtual.virtual, virtual.gpu_hours, virtual.unnoticed_gpu_hours, virtual.money) == (True, 9.0, 73.0, ())


def test_nothing_known_sums_to_unknown() -> None:
    (total,) = outage_totals([(False, None)])
    assert (total.gpu_hours, total.known, total.unknown) == (None, 0, 1)


SERVERS = {name: {"url": f"http://{name}"} for name in ("prometheus", "alertmanager", "loki")}


def test_a_profile_gives_its_terms_to_the_history() -> None:
    profile = ClusterProfile.model_validate({**SERVERS, "price_per_gpu_hour": 2.5, "price_currency": "EUR"})
    assert profile.outage_terms == TERMS
    plain = ClusterProfile.model_validate(SERVERS).outage_terms
    assert (plain.price_per_gpu_hour, plain.currency, plain.hours_until_noticed) == (None, "", 8)


@pytest.mark.parametrize(
    "wrong",
    [
        {"price_per_gpu_hour": 0},
        {"price_per_gpu_hour": "nan"},
        {"price_currency": "US dollars"},
        {"hours_until_noticed": 0},
        {"hours_until_noticed": "inf"},
    ],
)
def test_a_price_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ClusterProfile.model_validate({**SERVERS, **wrong})
