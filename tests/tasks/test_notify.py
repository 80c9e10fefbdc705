from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.settings import PREFECT_API_URL, temporary_settings

import gameday.tasks.publish
from gameday.checks.outcome import RunOutcome
from gameday.cluster.profile import ClusterProfile
from gameday.report.message import message, worth_telling
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary
from gameday.tasks.publish import safe_words
from gameday.values.results import Cleanliness
from tests.report.run_builder import passing, write

LINK = "https://reports.example/r1/report.html"


@pytest.fixture
def passed(tmp_path: Path) -> Summary:
    made = summarise(load_run_folder(write(tmp_path, passing())))
    assert made is not None
    return made


def as_(run: Summary, **update: Any) -> Summary:
    return run.model_copy(update=update)


def test_a_first_green_run_is_no_news(passed: Summary) -> None:
    assert not worth_telling(passed, None, "red or change")
    assert not worth_telling(passed, passed, "red or change")
    assert worth_telling(passed, passed, "every run")


@pytest.mark.parametrize("outcome", [one for one in RunOutcome if one is not RunOutcome.PASSED])
def test_every_red_outcome_is_notified(passed: Summary, outcome: RunOutcome) -> None:
    assert worth_telling(as_(passed, outcome=outcome), as_(passed, outcome=outcome), "red or change")


def test_a_dirty_cluster_is_notified_whatever_the_outcome(passed: Summary) -> None:
    dirty = as_(passed, cleanliness=Cleanliness.DIRTY)
    assert worth_telling(dirty, passed, "red or change")
    assert "CLUSTER DIRTY" in message(dirty, passed, LINK).subject


def test_turning_green_is_a_change(passed: Summary) -> None:
    before = as_(passed, outcome=RunOutcome.FAILED, started=passed.started - timedelta(days=7))
    assert worth_telling(passed, before, "red or change")
    assert "Changed: the run before" in message(passed, before, LINK).body


def test_the_message_has_the_verdict_why_the_figures_and_the_link(passed: Summary) -> None:
    said = message(passed, None, LINK)
    assert said.subject == "PASSED: A GPU falls off the bus"
    assert "time to alert 5.4 s" in said.body
    assert said.body.endswith(LINK)


def test_a_plans_title_cannot_call_everybody_or_forge_a_link(passed: Summary) -> None:
    hostile = as_(passed, title="<!channel> @everyone\n`x` \x1b[31m", why="<https://evil|click> " + "a" * 5000)
    said = message(hostile, None, LINK)
    assert not set("<>@`\x1b") & set(said.subject + said.body.removesuffix(LINK))
    assert "\n" not in said.subject
    assert len(said.body) < 2000


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/secret-path", received
    server.shutdown()
    server.server_close()


def profile_with(*blocks: str) -> ClusterProfile:
    here = {"url": "http://127.0.0.1:1"}
    return ClusterProfile(prometheus=here, alertmanager=here, loki=here, notify=blocks)


@pytest.mark.usefixtures("flow_logger")
def test_prefects_own_block_carries_the_message(
    webhook: tuple[str, list[dict[str, str]]], passed: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, received = webhook
    body = {"text": "{{subject}}|{{body}}"}
    block = CustomWebhookNotificationBlock(name="oncall", url=url, json_data=body)
    monkeypatch.setattr(Block, "load", lambda name: {"custom-webhook/oncall": block}[name])
    gameday.tasks.publish.notify(profile_with("custom-webhook/oncall"), message(passed, None, LINK))
    assert received[0]["text"].startswith("PASSED: A GPU falls off the bus|")


@pytest.mark.usefixtures("flow_logger")
def test_a_block_that_fails_is_named_and_its_url_is_not(
    passed: Summary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    block = CustomWebhookNotificationBlock(name="oncall", url="http://127.0.0.1:1/secret-path", json_data={"a": "b"})
    monkeypatch.setattr(Block, "load", lambda name: block)
    with caplog.at_level("WARNING", "test.publish"):
        gameday.tasks.publish.notify(profile_with("custom-webhook/oncall"), message(passed, None, LINK))
    assert "custom-webhook/oncall" in caplog.text
    assert "secret-path" not in "".join(
        record.getMessage() for record in caplog.records if record.name == "test.publish"
    )


@pytest.mark.usefixtures("flow_logger")
def test_where_no_server_is_named_a_block_is_not_looked_for_on_one_of_prefects_own(
    passed: Summary, caplog: pytest.LogCaptureFixture
) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}), caplog.at_level("WARNING", "test.publish"):
        gameday.tasks.publish.notify(profile_with("custom-webhook/oncall"), message(passed, None, LINK))
    (said,) = [record.getMessage() for record in caplog.records if record.name == "test.publish"]
    assert said.startswith("no notification was sent through custom-webhook/oncall: ")
    assert "set PREFECT_API_URL" in said


@pytest.mark.usefixtures("flow_logger")
def test_a_failed_copy_is_reported_outside_of_prefect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gameday.tasks.publish.OUTSIDE_PREFECT.addHandler(caplog.handler)
    try:
        assert (
            gameday.tasks.publish.copy_out(write(tmp_path / "r1", passing()), "file:///proc/nowhere", "report.html")
            is None
        )
    finally:
        gameday.tasks.publish.OUTSIDE_PREFECT.removeHandler(caplog.handler)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "gameday.publish"]
    assert said.startswith("not published: file:///proc/nowhere/r1 cannot be written")
    assert "gameday export FOLDER --publish-to" in said


@pytest.mark.usefixtures("flow_logger")
def test_a_block_that_cannot_notify_is_reported(
    passed: Summary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Block, "load", lambda name: object())
    with caplog.at_level("WARNING", "test.publish"):
        gameday.tasks.publish.notify(profile_with("secret/x"), message(passed, None, LINK))
    assert "not a notification block" in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "reports/r1: no space left on device; make room there"),
        (OSError(13, "token=planted"), "PermissionError"),
        (ValueError("token=planted"), "ValueError"),
    ],
)
def test_a_full_disk_is_said_and_no_secret_of_another_error(error: Exception, said: str) -> None:
    assert safe_words(error, Path("reports/r1")).startswith(said)
