"""Cluster profiles as blocks of a real Prefect server: stored, listed, read back, and their secrets shown nowhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client
from pydantic import SecretStr

from gameday.cli import run
from gameday.cli.prefect_client import client_of
from gameday.cluster.http_credentials import Credentials
from gameday.cluster.kubeconfig import load_configuration
from gameday.cluster.profile import ClusterProfile, load_profile
from gameday.cluster.profile_block import ClusterBlock, block_names
from gameday.errors import ProfileError
from tests.support.prefect_api import prefect_of_settings

SECRETS = ["planted-token-of-prometheus", "planted-password-of-loki", "planted-token-of-the-kubeconfig"]
FILE = """\
name: eu
kubeconfig: {folder}/kubeconfig
prometheus: {{url: "http://127.0.0.1:9", bearer_token_file: "{folder}/token"}}
alertmanager: {{url: "http://127.0.0.1:9"}}
loki: {{url: "http://127.0.0.1:9", username: ada, password_env: PLANTED_PASSWORD}}
guardrails:
  max_nodes: 2
  windows: [{{days: [mon], start: "09:00", end: "16:00", zone: Europe/Berlin}}]
  freezes: [{{start: 2026-12-18, end: 2027-01-04, why: end of the year}}]
"""


def test_the_fields_are_the_profiles_and_the_secret_ones_are_secret() -> None:
    assert list(ClusterBlock.model_fields) == list(ClusterProfile.model_fields)
    secret = set(ClusterBlock.model_json_schema()["secret_fields"])
    servers = {"prometheus", "alertmanager", "loki"}
    assert secret == {
        "kubeconfig_content",
        *(f"{one}.{key}" for one in servers for key in ("bearer_token", "password")),
    }


@pytest.mark.parametrize("name", ["EU", "a b", "../x", "", "-a", "a_b"])
def test_a_name_that_prefect_does_not_take_is_refused(name: str, tmp_path: Path) -> None:
    assert run(["cluster", "save", "--profile", str(tmp_path / "p.yaml"), "--", name]) == 64


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("alertmanager: {url: 'http://a'}\nkubeconfig_content: planted", "kubeconfig_content"),
        ("alertmanager: {url: 'http://a', bearer_token: planted}", "alertmanager.bearer_token"),
        ("alertmanager: {url: 'http://a', username: a, password: planted}", "alertmanager.password"),
    ],
)
def test_a_file_that_holds_a_secret_is_refused(more: str, key: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    kept = [line for line in FILE.format(folder=tmp_path).splitlines() if not line.startswith("alertmanager")]
    file.write_text("\n".join([*kept, more]))
    with pytest.raises(ProfileError, match=rf"{key}: a file holds no secret.*gameday cluster save") as raised:
        load_profile(file)
    assert "planted" not in str(raised.value)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile that refers to three secrets."""
    (tmp_path / "token").write_text(f"{SECRETS[0]}\n")
    monkeypatch.setenv("PLANTED_PASSWORD", SECRETS[1])
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": SECRETS[2]}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    path = tmp_path / "profile.yaml"
    path.write_text(FILE.format(folder=tmp_path))
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of the Prefect server that the settings name."""
    home = tmp_path_factory.mktemp("prefect")
    with prefect_of_settings(home):
        yield home


@pytest.mark.slow
def test_a_stored_profile_is_the_file_with_its_secrets_and_they_are_shown_nowhere(
    server: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["cluster", "save", "eu", "--profile", str(file)]) == 0
    assert run(["cluster", "save", "eu", "--profile", str(file)]) == 0, "the same name again replaces it"
    assert run(["cluster", "list"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "block:eu"
    assert "  kubeconfig_content: **********" in said
    assert "  prometheus.bearer_token: **********" in said
    from_file = load_profile(file)
    monkeypatch.delenv("PLANTED_PASSWORD")
    for name in ("token", "kubeconfig"):
        (file.parent / name).unlink()
    profile = load_profile("block:eu")
    assert profile.guardrails == from_file.guardrails
    assert Credentials(profile.prometheus).secrets() == {"bearer_token": SECRETS[0]}
    assert Credentials(profile.loki).secrets() == {"password": SECRETS[1]}
    found = load_configuration(None, profile.context, profile.in_cluster, profile.kubeconfig_content)
    assert found.api_key["BearerToken"] == f"Bearer {SECRETS[2]}"
    stored = b"".join(one.read_bytes() for one in server.rglob("*") if one.is_file())
    assert b"kubeconfig_content" in stored
    places = [said, repr(profile), profile.model_dump_json(), stored.decode(errors="replace")]
    assert [secret for secret in SECRETS for place in places if secret in place] == []


@pytest.mark.slow
def test_a_block_that_cannot_be_used_is_refused_in_words(
    server: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ClusterBlock(**yaml.safe_load(FILE.format(folder="/nowhere")) | {"kubeconfig": None}).save("bad", overwrite=True)
    assert "bad" in block_names()
    reap = ["reap", "--no-wait", "--profile"]
    block = ClusterBlock.load("bad")
    block.kubeconfig_content = SecretStr(f"users: *{SECRETS[0]}")  # type: ignore[attr-defined]
    block.save("bad", overwrite=True)
    assert run([*reap, "block:bad"]) == 2
    said = capsys.readouterr().err
    assert "kubeconfig_content: no usable Kubernetes configuration: line 1 is not YAML" in said
    assert "gameday cluster save" in said
    assert run([*reap, "block:none"]) == 64
    assert "gameday cluster save none --profile FILE" in capsys.readouterr().err
    with client_of({"PREFECT_API_URL": "http://127.0.0.1:9/api"}):
        assert run([*reap, "block:eu"]) == 64
    assert "the Prefect server http://127.0.0.1:9/api does not answer; start it, or" in capsys.readouterr().err
    (file.parent / "token").unlink()
    assert run(["cluster", "save", "eu", "--profile", str(file)]) == 64
    said = capsys.readouterr().err
    assert f"bearer_token_file {shlex.quote(str(file.parent / 'token'))}: No such file or directory" in said
    assert not any(secret in said for secret in SECRETS)


@pytest.mark.slow
def test_the_forms_offer_the_blocks(server: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert run(["cluster", "save", "offered", "--profile", str(file)]) == 0
    assert run(["deploy", "--profile", str(file)]) == 0
    with get_client(sync_client=True) as client:
        game_day = client.read_deployment_by_name("game-day/game-day (breaks one GPU)")
    assert game_day.parameter_openapi_schema is not None
    form, name = game_day.parameter_openapi_schema["properties"]["profile"], load_profile(file).name
    assert form["enum"][0] == form["default"] == name
    assert "offered" in form["enum"]
    profiles = game_day.parameters["profiles"]
    assert (profiles[name], profiles["offered"]) == (str(file), "block:offered")
    assert run(["deploy", "--profile", "block:offered"]) == 0
    with get_client(sync_client=True) as client:
        reaper = client.read_deployment_by_name("reaper/reaper (undoes only)").parameters
    assert (reaper["profile"], reaper["profiles"]["offered"]) == ("offered", "block:offered")


def test_secrets_in_two_ways_are_refused() -> None:
    both = {"url": "http://p", "bearer_token": "a", "bearer_token_env": "A"}
    with pytest.raises(ValueError, match="give the secret in one way"):
        ClusterProfile(prometheus=both, alertmanager={"url": "http://a"}, loki={"url": "http://l"})  # type: ignore[arg-type]


def test_a_secret_that_no_header_can_hold_is_refused_where_it_is_given() -> None:
    with pytest.raises(ValueError, match="printable ASCII") as raised:
        ClusterProfile(
            prometheus={"url": "http://p", "bearer_token": "planted\nx"},  # type: ignore[arg-type]
            alertmanager={"url": "http://a"},  # type: ignore[arg-type]
            loki={"url": "http://l"},  # type: ignore[arg-type]
        )
    assert "planted" not in str(raised.value)
