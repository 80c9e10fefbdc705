"""`gameday listen` with a real Alertmanager before it and a real Prefect server behind it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from ruamel.yaml import YAML

from gameday.cli import run
from gameday.cli.deployment_form import Choices
from gameday.cli.deployments import declared
from gameday.cli.listen import DEPLOYMENT, PostMortems, window_of
from gameday.cli.register_deployments import register_deployments
from gameday.cluster.alert_receiver import ReceivedAlert
from gameday.cluster.profile import ClusterProfile
from gameday.exit_codes import ExitCode
from gameday.processes.children import Child
from gameday.shipped import shipped_prefect_file
from gameday_rehearsal.observability import alertmanager_program
from tests.alerts.shipped import run_tool
from tests.rehearsal.processes import until
from tests.support.ports import free_ports
from tests.support.prefect_api import prefect_of_settings

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
BEGAN = datetime(2026, 1, 1, 9, tzinfo=UTC)
RESOLVED = {
    "status": "resolved",
    "labels": {"alertname": "GPUHot", "node": "gpu-node-1"},
    "startsAt": "2026-01-01T09:00:00Z",
    "endsAt": "2026-01-01T09:30:00Z",
    "fingerprint": "0123456789abcdef",
}
PROFILE_TEXT = """\
prometheus: {url: "http://127.0.0.1:9090"}
alertmanager: {url: "http://127.0.0.1:9093"}
loki: {url: "http://127.0.0.1:3100"}
"""
PROFILE = ClusterProfile(**YAML(typ="safe", pure=True).load(PROFILE_TEXT))


def alert(**changes: Any) -> ReceivedAlert:
    return ReceivedAlert.model_validate(RESOLVED | changes)


def test_the_window_begins_before_the_alert_and_ends_with_it() -> None:
    found = window_of(alert(), PROFILE)
    assert found
    assert (found.node, found.start, found.end) == (
        "gpu-node-1",
        BEGAN - timedelta(minutes=10),
        BEGAN + timedelta(minutes=30),
    )
    exported = window_of(alert(labels={"alertname": "x", "Hostname": "gpu-node-2"}), PROFILE)
    assert exported
    assert exported.node == "gpu-node-2"


def test_one_firing_has_one_key_and_the_next_another() -> None:
    keys = [found.key for one in (alert(), alert(endsAt="2026-01-01T09:31:00Z")) if (found := window_of(one, PROFILE))]
    assert keys == ["alert-0123456789abcdef-2026-01-01T09:00:00+00:00"] * 2
    later = window_of(alert(startsAt="2026-01-01T09:10:00Z"), PROFILE)
    assert later
    assert later.key not in keys


def test_of_an_alert_of_days_the_first_day_is_looked_at() -> None:
    found = window_of(alert(endsAt="2026-01-05T09:00:00Z"), PROFILE)
    assert found
    assert found.end - found.start == timedelta(hours=24)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "firing", "endsAt": "0001-01-01T00:00:00Z"},
        {"labels": {"alertname": "GPUHot"}},
        {"labels": {"node": "../../etc"}},
        {"labels": {"node": "n" * 254}},
        {"labels": {"node": "gpu-node-1\nx"}},
        {"endsAt": "2026-01-01T08:00:00Z"},
        {"startsAt": "0001-01-01T00:00:00Z"},
        {"fingerprint": ""},
        {"fingerprint": "'; drop table"},
    ],
)
def test_what_starts_no_post_mortem(changes: dict[str, Any]) -> None:
    assert window_of(alert(**changes), PROFILE) is None


def test_alertmanager_is_asked_to_send_again_while_prefect_is_gone(capsys: Capture) -> None:
    starter = PostMortems(PROFILE, None)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}):
        assert not starter.take([alert()])
    assert "Prefect did not take a run" in capsys.readouterr().err


@given(st.text(), st.text(), st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_no_text_and_no_time_breaks_it(node: str, print_: str, began: datetime, ended: datetime) -> None:
    found = window_of(alert(labels={"node": node}, fingerprint=print_, startsAt=began, endsAt=ended), PROFILE)
    assert found is None or (found.node == node and found.start < found.end)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "cannot be read: No such file or directory; make one with `(umask 077; openssl rand -hex 32 >"),
        ("\n", "is empty; make one with"),
        ("secret", "export PREFECT_API_URL="),
    ],
)
def test_refused_before_it_listens(token: str | None, said: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "token"
    if token is not None:
        file.write_text(token)
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert run(["listen", "--token-file", str(file)]) in (ExitCode.USAGE, ExitCode.REFUSED)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("alertname", "receivers"), [("GPUXidCritical", "gameday,oncall"), ("Watchdog", "gameday,null")]
)
def test_the_pages_routes_in_the_cluster_still_page_people(alertname: str, receivers: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/prefect.md").read_text(encoding="utf-8")
    (values,) = re.findall(r"```yaml\n(alertmanager:\n.*?)```", page, re.DOTALL)
    config = tmp_path / "alertmanager.yml"
    with config.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(YAML(typ="safe", pure=True).load(values)["alertmanager"]["config"], file)
    routed = run_tool("amtool", "config", "routes", "test", f"--config.file={config}", f"alertname={alertname}")
    assert routed.stdout.strip() == receivers, routed.stderr


def profile(folder: Path) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(PROFILE_TEXT)
    return file


def deploy_incident(folder: Path, *reset: str) -> None:
    incident = [one for one in declared(shipped_prefect_file()) if one.name == "incident (read only)"]
    named = {"eu": str(profile(folder))}
    register_deployments(incident, Choices({}, {}, named, named, "/r"), folder, reset)


class Chain:
    """Alertmanager, `gameday listen`, and the Prefect server of the settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "alert-token"
        self.token.write_text("the-secret\n")
        self.said = folder / "said.txt"
        with self.said.open("w") as said:
            argv = [sys.executable, "-m", "gameday.cli", "listen", "--token-file", str(self.token), "--port", "0"]
            argv += ["--profile", str(profile(folder))]
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            self.process = subprocess.Popen(argv, cwd=folder, stdout=said, stderr=said, env=environment)
        self.alertmanager: Child | None = None

    def start(self) -> None:
        until(lambda: "POST http" in self.words() or self.process.poll() is not None, 60, "it listens")
        assert self.process.poll() is None, self.words()
        (self.port,) = re.findall(r":(\d+)/alerts", self.words())
        (port,) = free_ports(1)
        self.api = f"http://127.0.0.1:{port}/api/v2"
        program = alertmanager_program(self.folder, port=port)
        # The stanza of the docs, with this test's port and file.
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/prefect.md").read_text(encoding="utf-8"), re.DOTALL)
        (stanza,) = (block for block in blocks if "127.0.0.1:9099" in block)
        stanza = stanza.replace(":9099/", f":{self.port}/").replace("/etc/alertmanager/alert-token", str(self.token))
        paced = stanza.replace("receiver: gameday", "receiver: gameday\n  group_wait: 0s\n  group_interval: 1s")
        (self.folder / "alertmanager.yml").write_text(paced)
        self.alertmanager = Child("alertmanager", list(program.argv), program.log_file, {}, says_ready=False)
        self.alertmanager.start()
        self.alertmanager.await_url(program.ready_url)

    def words(self) -> str:
        return self.said.read_text(encoding="utf-8")

    def raise_alert(self, node: str, began: datetime, ends: datetime) -> None:
        labels = {"alertname": "GPUHot", "node": node}
        sent = [{"labels": labels, "startsAt": began.isoformat(), "endsAt": ends.isoformat()}]
        httpx.post(f"{self.api}/alerts", json=sent, trust_env=False).raise_for_status()

    def firing(self) -> list[str]:
        found = httpx.get(f"{self.api}/alerts", trust_env=False).raise_for_status().json()
        return [one["labels"]["node"] for one in found]

    def end(self) -> None:
        if self.alertmanager:
            self.alertmanager.end()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with prefect_of_settings(tmp_path):
        deploy_incident(tmp_path)
        made = Chain(tmp_path)
        try:
            made.start()
            yield made
        finally:
            made.end()


def runs() -> list[FlowRun]:
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=["alert"])))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_resolved_alert_becomes_one_post_mortem_of_its_window(chain: Chain) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    began = now - timedelta(minutes=5)
    chain.raise_alert("gpu-node-1", began, now + timedelta(hours=1))
    until(lambda: chain.firing() == ["gpu-node-1"], 30, "it fires")
    chain.raise_alert("gpu-node-2", began, now + timedelta(hours=1))
    chain.raise_alert("gpu-node-1", began, now)
    until(runs, 60, "the post-mortem is there")
    (made,) = runs()
    assert made.parameters["node"] == "gpu-node-1", "gpu-node-2 fires still"
    assert (made.parameters["reports"], made.parameters["profile"]) == ("/r", "eu"), "by its name, as the form has it"
    assert datetime.fromisoformat(made.parameters["start"]) == began - timedelta(minutes=10)
    assert began < datetime.fromisoformat(made.parameters["end"]) <= datetime.now(UTC)

    # Sent again, as after a restart of Alertmanager's: the server holds one run for it.
    url, head = f"http://127.0.0.1:{chain.port}/alerts", {"Authorization": "Bearer the-secret"}
    # An answer may wait for the flow runs that it tells of.
    post = partial(httpx.post, url, timeout=30, trust_env=False)
    again = RESOLVED | {"fingerprint": "f" * 16}
    for _ in range(2):
        sent = post(json={"version": "4", "alerts": [again, again]}, headers=head)
        assert sent.status_code == 200, chain.words()
    assert len(runs()) == 2
    refused = [
        post(json={"version": "4", "alerts": [again]}),
        post(json={"version": "4", "alerts": "none"}, headers=head),
        post(content=b"x" * (1024 * 1024 + 1), headers=head),
    ]
    assert [one.status_code for one in refused] == [401, 400, 400]
    assert len(runs()) == 2
    assert "the-secret" not in chain.words()

    with get_client(sync_client=True) as client:
        client.delete_deployment(client.read_deployment_by_name(DEPLOYMENT).id)
    third = {"version": "4", "alerts": [RESOLVED | {"fingerprint": "e" * 16}]}
    assert post(json=third, headers=head).status_code == 503
    assert "no deployment post-mortem/incident (read only): `gameday deploy" in chain.words()
    deploy_incident(chain.folder, DEPLOYMENT)
    assert post(json=third, headers=head).status_code == 200, chain.words()
    chain.process.send_signal(signal.SIGTERM)
    assert chain.process.wait(30) == ExitCode.PASSED, chain.words()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_without_the_deployment_and_a_port_that_is_taken_are_named(tmp_path: Path, capsys: Capture) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with prefect_of_settings(tmp_path), socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        asked = ["listen", "--token-file", str(token), "--port", port, "--profile", str(profile(tmp_path))]
        assert run(asked) == ExitCode.REFUSED
        assert "no deployment post-mortem/incident (read only): `gameday deploy" in capsys.readouterr().err
        deploy_incident(tmp_path)
        assert run(asked) == ExitCode.REFUSED
        assert "give another --port" in capsys.readouterr().err
