"""Against a stand-in that keeps annotations as Grafana's HTTP API does, and asks for the token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gameday import cli
from gameday.cluster.grafana import Grafana
from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError
from gameday.report.annotation import annotation_of
from gameday.report.run_folder import load_run_folder
from tests.report.run_builder import FAULT_AT, VARIANTS, Timed, at, cut_off, passing, replacing, write

TOKEN = "glsa_not-for-logs"


@dataclass
class Stand:
    url: str = ""
    kept: list[dict[str, Any]] = field(default_factory=list)

    def endpoint(self) -> Endpoint:
        return Endpoint(url=self.url, bearer_token_env="GRAFANA_TOKEN")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    made = Stand()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tags = set(parse_qs(urlsplit(self.path).query).get("tags", []))
            self._say([one for one in made.kept if tags <= set(one["tags"])])

        def do_POST(self) -> None:
            made.kept.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))) | {"id": len(made.kept)})
            self._say({"message": "Annotation added", "id": made.kept[-1]["id"]})

        def _say(self, content: object) -> None:
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps(content if allowed else {"message": "Invalid API key"}).encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    yield made
    server.shutdown()
    server.server_close()


def test_the_fault_window_becomes_a_region_with_the_runs_tags(stand: Stand, tmp_path: Path) -> None:
    found = annotation_of(load_run_folder(write(tmp_path, passing())))
    assert found is not None
    with Grafana(stand.endpoint()) as grafana:
        assert grafana.annotate(found.start, found.end, found.text, found.tags)
    (kept,) = stand.kept
    assert kept["time"] == round(at(FAULT_AT).timestamp() * 1000)
    assert kept["timeEnd"] > kept["time"]
    assert "run:20260303-090000-7f3a" in kept["tags"]


def test_a_run_is_drawn_once(stand: Stand, tmp_path: Path) -> None:
    found = annotation_of(load_run_folder(write(tmp_path, passing())))
    assert found is not None
    with Grafana(stand.endpoint()) as grafana:
        drawn = [grafana.annotate(found.start, found.end, found.text, found.tags) for _ in range(2)]
    assert (drawn, len(stand.kept)) == ([True, False], 1)


def test_a_refusal_never_shows_the_token(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "glsa_wrong")
    with Grafana(stand.endpoint()) as grafana, pytest.raises(AdapterError) as caught:
        grafana.annotate(at(0), at(1), "x", ["gameday"])
    assert "401" in str(caught.value)
    assert "glsa_wrong" not in str(caught.value) + caplog.text


def test_a_run_without_a_fault_marks_nothing(tmp_path: Path) -> None:
    assert annotation_of(load_run_folder(write(tmp_path, cut_off(passing(), 5)))) is None


def test_a_plans_title_is_no_markup_in_a_dashboard(tmp_path: Path) -> None:
    from gameday.history.events import RunStarted

    events: list[Timed] = replacing(passing(), lambda e: isinstance(e, RunStarted), plan_name="<img src=x>")
    found = annotation_of(load_run_folder(write(tmp_path, events, plan=None)))
    assert found is not None
    assert "<img" not in found.text


def test_the_command_marks_a_run_by_its_profile(
    stand: Stand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "run", VARIANTS["passing"]())
    profile = tmp_path / "profile.yaml"
    servers = "".join(f"{name}: {{url: {stand.url}}}\n" for name in ("prometheus", "alertmanager", "loki"))
    profile.write_text(servers + f"grafana: {{url: {stand.url}, bearer_token_env: GRAFANA_TOKEN}}\n")
    assert cli.run(["export", str(run), "--grafana", str(profile)]) == 0
    assert len(stand.kept) == 1
    assert TOKEN not in "".join(capsys.readouterr())
