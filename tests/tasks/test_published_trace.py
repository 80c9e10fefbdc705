"""`traces` of the profile: the receiver that each published run is sent to, and what the log says where it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cluster.profile import ClusterProfile
from gameday.tasks.publish import publish_folder
from tests.report.run_builder import passing, write
from tests.support.ports import free_ports
from tests.support.trace_receiver import Receiver

HERE = {"url": "http://127.0.0.1:1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run", passing())


def profile_of(url: str | None) -> ClusterProfile:
    return ClusterProfile(prometheus=HERE, alertmanager=HERE, loki=HERE, traces=url)


def test_a_published_run_is_sent_once(trace_receiver: Receiver, folder: Path) -> None:
    publish_folder(profile_of(f"{trace_receiver.url}/v1/traces"), folder)
    assert trace_receiver.paths == ["/v1/traces"]
    assert trace_receiver.requests[0].resource_spans[0].scope_spans[0].spans[0].name.startswith("game-day ")


def test_without_the_key_nothing_is_sent(trace_receiver: Receiver, folder: Path) -> None:
    publish_folder(profile_of(None), folder)
    assert trace_receiver.paths == []


@pytest.mark.usefixtures("flow_logger")
def test_a_receiver_that_is_away_costs_a_warning_with_the_command_for_later(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    (port,) = free_ports(1)
    with caplog.at_level("WARNING", "test.publish"):
        publish_folder(profile_of(f"http://127.0.0.1:{port}"), folder)
    assert "no trace was sent: " in caplog.text
    assert f"gameday export {folder} --traces http://127.0.0.1:{port}" in caplog.text
