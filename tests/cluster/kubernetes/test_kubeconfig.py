"""A kubeconfig's secrets are used and shown nowhere, however broken it is, and a stored one meets no disk."""

from __future__ import annotations

import base64
import stat
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from gameday.cluster.kube_errors import explained
from gameday.cluster.kubeconfig import embedded_kubeconfig, load_configuration
from gameday.errors import AdapterError, KubernetesError

PLANTED = "planted-secret-of-the-kubeconfig"


def content(user: Any = None, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": PLANTED} if user is None else user}],
    } | changes


BROKEN = {
    "not YAML": f"users: [{{user: {{token: {PLANTED}}}\n",
    "an alias that is none": f"users: *{PLANTED}",
    "a tag that is none": f"users: !{PLANTED} x",
    "text": PLANTED,
    "a list": yaml.safe_dump([PLANTED]),
    "empty": "",
    "no user": yaml.safe_dump(content(users=[{"name": "u", "token": PLANTED}])),
    "a user that is text": yaml.safe_dump(content(user=PLANTED)),
    "a user without a name": yaml.safe_dump(content(users=[{"user": {"token": PLANTED}}])),
    "two users of one name": yaml.safe_dump(content(users=[{"name": PLANTED, "user": {"token": PLANTED}}, PLANTED])),
    "no such cluster": yaml.safe_dump(content(clusters=[{"name": PLANTED, "cluster": {}}])),
    "no such context": yaml.safe_dump(content() | {"current-context": PLANTED}),
    "the key in place of its file": yaml.safe_dump(content(user={"token": "t", "client-key": PLANTED})),
    "the token in place of its file": yaml.safe_dump(content(user={"tokenFile": PLANTED})),
    "a key that is not base64": yaml.safe_dump(content(user={"client-key-data": f"{PLANTED}x", "token": "t"})),
    "a token of two lines": yaml.safe_dump(content(user={"token": f"{PLANTED}\nx"})),
    "a token that is not ASCII": yaml.safe_dump(content(user={"token": f"{PLANTED}€"})),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("stored", [False, True], ids=["file", "stored"])
def test_a_broken_one_is_refused_without_a_word_of_it(
    text: str, stored: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(AdapterError, match="no usable Kubernetes configuration") as raised:
        load_configuration(
            None if stored else file, None, in_cluster=False, content=SecretStr(text) if stored else None
        )
    assert raised.value.hint
    assert PLANTED not in f"{raised.value} {raised.value.__cause__} {caplog.text} {''.join(capfd.readouterr())}"


def test_a_renewed_token_that_cannot_be_sent_is_not_repeated() -> None:
    connection = HTTPConnection("127.0.0.1")
    connection.putrequest("GET", "/")
    with (
        pytest.raises(KubernetesError, match="read a node: a header cannot be sent") as raised,
        explained("s", "read a node"),
    ):
        connection.putheader("Authorization", f"Bearer {PLANTED}\nx")
    assert PLANTED not in str(raised.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"/nowhere: no usable Kubernetes configuration: there is none"):
        load_configuration(Path("/nowhere"), None, in_cluster=False)


@pytest.fixture
def new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder that Python's tempfile makes files in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    yield tmp_path / "temporary"


def test_a_stored_one_is_used_and_is_in_no_file(new_files: Path) -> None:
    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    user = {"token": PLANTED, "client-key-data": encoded(PLANTED), "client-certificate-data": encoded("certificate")}
    cluster = {"server": "https://127.0.0.1:9", "certificate-authority-data": encoded("authority")}
    text = yaml.safe_dump(content(user=user, clusters=[{"name": "k", "cluster": cluster}]))
    found = load_configuration(None, None, in_cluster=False, content=SecretStr(text))
    assert (found.host, found.api_key["BearerToken"]) == ("https://127.0.0.1:9", f"Bearer {PLANTED}")
    assert [Path(file).read_text() for file in (found.key_file, found.cert_file, found.ssl_ca_cert)] == [
        PLANTED,
        "certificate",
        "authority",
    ]
    assert list(new_files.iterdir()) == []
    assert str(Path(found.key_file).readlink()).startswith("/memfd:")
    assert stat.S_ISREG(Path(found.key_file).stat().st_mode)
    again = load_configuration(None, None, in_cluster=False, content=SecretStr(text))
    assert again.key_file == found.key_file, "a service that loads it again and again runs out of descriptors"


def test_one_context_is_embedded_with_the_files_that_it_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("the key")
    (tmp_path / "token").write_text("the token")
    many = content(user={"client-key": "key.pem", "client-certificate": "key.pem", "tokenFile": "token"})
    many["contexts"].append({"name": "other", "context": {"cluster": "k2", "user": "u2"}})
    many["clusters"].append({"name": "k2", "cluster": {"server": "http://other"}})
    many["users"].append({"name": "u2", "user": {"token": PLANTED}})
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(many))
    text = embedded_kubeconfig(file, None)
    assert PLANTED not in text
    assert str(tmp_path) not in text
    found = load_configuration(None, None, in_cluster=False, content=SecretStr(text))
    assert found.api_key["BearerToken"] == "Bearer the token"
    assert Path(found.key_file).read_text() == "the key"
    assert load_configuration(None, None, in_cluster=False, content=SecretStr(embedded_kubeconfig(file, "other")))


def test_a_file_that_cannot_be_embedded_is_no_riddle(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    with pytest.raises(AdapterError, match="there is none, or it is empty"):
        embedded_kubeconfig(file, None)
    file.write_text(yaml.safe_dump(content()))
    with pytest.raises(AdapterError, match="its contexts lack an entry"):
        embedded_kubeconfig(file, "none")
