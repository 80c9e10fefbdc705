"""A profile is read from file and environment, says what is wrong, and never shows a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gameday.cluster.profile import ClusterProfile, Endpoint, load_profile
from gameday.errors import ProfileError

FILE = """\
name: lab
prometheus: {url: "http://127.0.0.1:9090/"}
alertmanager: {url: "http://127.0.0.1:9093"}
loki: {url: "http://127.0.0.1:3100", bearer_token_env: LOKI_TOKEN, tenant: gpu}
loki_node_label_kind: structured_metadata
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text(FILE)
    return path


def test_a_file_is_completed_by_defaults(file: Path) -> None:
    profile = load_profile(file)
    assert profile.name == "lab"
    assert profile.prometheus.url == "http://127.0.0.1:9090"
    assert profile.loki.tenant == "gpu"
    assert profile.loki_node_label_kind == "structured_metadata"
    assert profile.opt_in_label == "gameday.dev/opt-in=true"
    assert profile.alert_node_label == "node"


def test_the_environment_wins_key_by_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEDAY_LOKI__URL", "http://127.0.0.1:4000")
    monkeypatch.setenv("GAMEDAY_NAMESPACE", "chaos")
    profile = load_profile(file)
    assert profile.namespace == "chaos"
    assert profile.loki == Endpoint(url="http://127.0.0.1:4000", bearer_token_env="LOKI_TOKEN", tenant="gpu")


def test_the_environment_alone_can_be_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    for server in ("PROMETHEUS", "ALERTMANAGER", "LOKI"):
        monkeypatch.setenv(f"GAMEDAY_{server}__URL", f"http://{server.lower()}:80")
    # another part of the project has GAMEDAY_ variables of its own
    monkeypatch.setenv("GAMEDAY_VIRTUAL_HOST", "http://127.0.0.1:1")
    assert load_profile().alertmanager.url == "http://alertmanager:80"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", ["not YAML", "line"]),
        ("- a\n- b\n", ["line 1: a document is a mapping of keys to values"]),
        ("", ["line 1: the file is empty"]),
        (f"guardrails: {{max_nodes: 0x{'f' * 5000}}}\n", ["line 1: this number cannot be read"]),
        (f"lease_duration_s: {'9' * 5000}\n", ["line 1: this number cannot be read"]),
        ("[" * 5000, ["line 1: nested deeper than 16 levels"]),
        (FILE + "nmaespace: x\n", ["nmaespace", "did you mean namespace?"]),
        (FILE.replace("tenant", "tenent"), ["loki.tenent", "did you mean tenant?"]),
        (FILE.replace("prometheus:", "#"), ["prometheus: is missing", "GAMEDAY_PROMETHEUS"]),
        (FILE.replace("http://127.0.0.1:9093", "127.0.0.1:9093"), ["alertmanager.url", "http://"]),
        (FILE.replace("http://127.0.0.1:9093", "http://am:web"), ["alertmanager.url", "a port is a number"]),
        (FILE.replace("http://127.0.0.1:9093", "http://[::1"), ["alertmanager.url", "IPv6 is in brackets"]),
        (FILE + "in_cluster: true\ncontext: c\n", ["in_cluster excludes"]),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_the_remedy(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(ProfileError) as raised:
        load_profile(file)
    assert all(word in str(raised.value) for word in [str(file), *words]), str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.yaml: cannot be read: No such file"):
        load_profile(tmp_path / "none.yaml")


def test_a_bad_variable_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEDAY_PROMETHEUS__TIMEOUT_S", "soon")
    with pytest.raises(ProfileError, match="the environment: GAMEDAY_PROMETHEUS__TIMEOUT_S"):
        load_profile(file)


@pytest.mark.parametrize(
    "extra",
    [
        {"url": "https://admin:hunter2@prometheus:9090"},
        {"url": "https://p", "bearer_token_env": "eyJhbGciOi.hunter2"},
        {"url": "https://p", "password_env": "PW"},
        {"url": "https://p", "bearer_token_env": "A", "bearer_token_file": "b"},
        {"url": "https://p", "bearer_token_env": "A", "username": "u", "password_env": "P"},
        {"url": "https://p?token=hunter2"},
    ],
)
def test_secrets_and_contradictions_are_refused_without_showing_them(extra: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as raised:
        Endpoint.model_validate(extra)
    assert "hunter2" not in str(raised.value)


def test_no_secret_is_in_repr_or_dump(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKI_TOKEN", "hunter2")
    profile = load_profile(file)
    assert "hunter2" not in repr(profile) + profile.model_dump_json()
    assert ClusterProfile(**profile.model_dump(mode="json")) == profile
