"""What is made of the servers' answers: silences by their times, inhibition, taints that stood all along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gameday.cluster.alertmanager import NotifiedAlert, Silence
from gameday.cluster.profile import Endpoint, load_profile
from gameday.cluster.prometheus import Prometheus, Series
from gameday.errors import CollectedAlreadyError
from gameday.post_mortem import collect
from gameday.post_mortem.alerts import silences_of, with_notifications
from gameday.post_mortem.node import taint_history
from gameday.values.nodes import Taint
from tests.post_mortem.conftest import USUAL, alert, at, write_incident
from tests.report.run_builder import NODE, TAINT

EVERY_S = 30
PROFILE = """\
name: lab
prometheus: {url: "http://127.0.0.1:9"}
alertmanager: {url: "http://127.0.0.1:9"}
loki: {url: "http://127.0.0.1:9"}
"""


class AskedError(Exception):
    """A server would have been asked."""


@pytest.fixture
def collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], Path]:
    """Collects a window that ends then; raises AskedError as soon as it wants a server."""

    def asked(*_: object) -> None:
        raise AskedError

    monkeypatch.setattr(collect, "Servers", asked)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    profile = load_profile(tmp_path / "profile.yaml")
    return lambda end: collect.collect_incident(profile, NODE, at(0), end, tmp_path, "gameday post-mortem")


def test_a_window_is_collected_once_and_the_refusal_names_the_command_that_renders_it(
    collected: Callable[[datetime], Path], tmp_path: Path
) -> None:
    folder = write_incident(tmp_path / f"incident-20260303-090000-091000-{NODE}", USUAL)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(CollectedAlreadyError, match=f"`gameday post-mortem {folder}`"):
        collected(at(600))
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_another_window_and_one_that_was_not_collected_to_the_end_are_collected(
    collected: Callable[[datetime], Path], tmp_path: Path
) -> None:
    folder = write_incident(tmp_path / f"incident-20260303-090000-091000-{NODE}", USUAL)
    with pytest.raises(AskedError):
        collected(at(601))
    (folder / "incident.json").unlink()
    with pytest.raises(AskedError):
        collected(at(600))


def silence(start: float, end: float) -> Silence:
    return Silence.model_validate(
        {
            "id": "s", "status": {"state": "active"}, "startsAt": at(start), "endsAt": at(end), "createdBy": "bob",
            "matchers": [{"name": "alertname", "value": "GPUXidCritical"}],
        }
    )  # fmt: skip


def held(**status: object) -> NotifiedAlert:
    return NotifiedAlert.model_validate(
        {
            "labels": alert().labels, "startsAt": at(12), "endsAt": at(900), "updatedAt": at(13),
            "status": {"state": "suppressed", **status}, "receivers": [{"name": "pager"}],
        }
    )  # fmt: skip


@pytest.mark.parametrize(("start", "end", "silenced"), [(0, 600, True), (13, 600, False), (0, 12, False)])
def test_an_alert_is_silenced_by_what_was_in_force_as_it_fired(start: float, end: float, silenced: bool) -> None:
    result = with_notifications([alert(12), alert(60, "resolved")], [], [silence(start, end)])
    assert [event.silenced for event in result] == [silenced, False]


def test_a_silence_that_was_set_later_is_listed_with_its_times() -> None:
    (result,) = silences_of([alert(12)], [silence(300, 600)], at(0), at(600))
    assert (result.alert, result.start) == ("GPUXidCritical", at(300))


def test_what_another_alert_mutes_is_inhibited() -> None:
    (result,) = with_notifications([alert()], [held(inhibitedBy=["a1"])], [])
    assert (result.inhibited, result.silenced, result.receivers) == (True, False, ("pager",))
    (result,) = with_notifications([alert()], [held()], [])
    assert not result.inhibited


def test_alertmanager_calls_an_alert_by_prometheus_external_labels_too() -> None:
    sent = held().model_copy(update={"labels": alert().labels | {"prometheus": "monitoring/k8s"}})
    another = held().model_copy(update={"labels": alert().labels | {"node": "gpu-node-99"}})
    (result,) = with_notifications([alert()], [another, sent], [])
    assert result.receivers == ("pager",)
    (result,) = with_notifications([alert()], [another], [])
    assert result.receivers == ()


def taint_series(first: float, last: float, instance: str, key: str = TAINT.key) -> Series:
    labels = {"node": NODE, "key": key, "value": TAINT.value, "effect": TAINT.effect, "instance": instance}
    steps = range(round((last - first) / EVERY_S) + 1)
    return Series("kube_node_spec_taint", labels, tuple((at(first + EVERY_S * step), 1.0) for step in steps))


def taints(
    monkeypatch: pytest.MonkeyPatch, *series: Series, spoke: Sequence[tuple[float, float]] = ((0, 1200),)
) -> list[tuple[Taint, bool, float, bool]]:
    """`spoke`: from when until when kube-state-metrics was scraped."""
    times = tuple((at(second), 1.0) for begin, end in spoke for second in range(int(begin), int(end) + 1, EVERY_S))
    info = Series("kube_node_info", {"node": NODE}, times)

    def stored(_: Prometheus, selector: str, *window: object) -> list[Series]:
        return [one for one in (info, *series) if selector.startswith(one.name)]

    monkeypatch.setattr(Prometheus, "stored_samples", stored)
    with Prometheus(Endpoint(url="http://127.0.0.1:9")) as prometheus:
        result = taint_history(prometheus, NODE, at(0), at(1200))
    return [(one.taint, one.present, (one.at - at(0)) / timedelta(seconds=1), one.at_baseline) for one in result]


def test_a_standing_taint_is_at_baseline_and_a_restart_of_kube_state_metrics_puts_nothing_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = taints(monkeypatch, taint_series(10, 600, "10.0.0.1"), taint_series(660, 1200, "10.0.0.2"))
    assert result == [(TAINT, True, 10.0, True)]


def test_a_pause_of_kube_state_metrics_takes_no_taint_off(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = taint_series(120, 300, "10.0.0.1"), taint_series(840, 960, "10.0.0.2")
    result = taints(monkeypatch, *parts, spoke=((0, 300), (840, 960)))
    assert result == [(TAINT, True, 120.0, False)], "nor its silence at the end"


def test_a_taint_that_went_while_kube_state_metrics_was_there_went(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = taint_series(120, 300, "10.0.0.1"), taint_series(840, 1200, "10.0.0.2")
    result = taints(monkeypatch, *parts, spoke=((0, 330), (780, 1200)))
    assert result == [(TAINT, True, 120.0, False), (TAINT, False, 300.0, False), (TAINT, True, 840.0, False)]


def test_when_a_taint_came_is_not_known_of_one_that_was_there_at_the_first_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = taints(monkeypatch, taint_series(600, 1200, "10.0.0.1"), spoke=((600, 1200),))
    assert result == [(TAINT, True, 600.0, True)]


def test_two_kube_state_metrics_that_are_scraped_by_turns_show_one_taint(monkeypatch: pytest.MonkeyPatch) -> None:
    result = taints(monkeypatch, taint_series(300, 600, "10.0.0.1"), taint_series(301, 601, "10.0.0.2"))
    assert result == [(TAINT, True, 300.0, False), (TAINT, False, 601.0, False)]


def test_a_taint_that_comes_and_goes_has_two_events_and_is_not_mixed_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = taints(monkeypatch, taint_series(10, 1200, "10.0.0.1", "gpu"), taint_series(300, 600, "10.0.0.1"))
    assert [(taint.key, present) for taint, present, _, _ in result] == [
        ("gpu", True), (TAINT.key, True), (TAINT.key, False)
    ]  # fmt: skip
