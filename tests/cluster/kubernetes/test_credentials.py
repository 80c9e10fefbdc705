"""Credentials that a kubeconfig names and cannot be had end the command with the reason, as in kubectl."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from pydantic import SecretStr

from gameday.cluster.kube_errors import explained
from gameday.cluster.kubeconfig import load_configuration
from gameday.cluster.quiet_http import QuietServer
from gameday.errors import AdapterError, KubernetesError
from tests.cluster.kubernetes.test_kubeconfig import content

V1 = "client.authentication.k8s.io/v1"
EXPIRED = "Error when retrieving token from sso: Token has expired and refresh failed"
LATER = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
LONG_AGO = "2020-01-01T00:00:00Z"


def plugin(script: str, **keys: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", script], **keys}}


def prints(status: object, **keys: Any) -> dict[str, Any]:
    answer = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
    return plugin(f"print({answer!r})", **keys)


def token_until(moment: float) -> str:
    """Return an OIDC id-token that expires at a Unix time."""
    parts = [json.dumps({"alg": "none"}), json.dumps({"exp": moment}), "signature"]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def oidc(token: str, **config: str) -> dict[str, Any]:
    return {"auth-provider": {"name": "oidc", "config": {"id-token": token, **config}}}


def refused(tmp_path: Path, user: object, *, stored: bool = False) -> AdapterError:
    file, text = tmp_path / "kubeconfig", yaml.safe_dump(content(user=user))
    file.write_text(text)
    with pytest.raises(AdapterError) as raised:
        load_configuration(
            None if stored else file, None, in_cluster=False, content=SecretStr(text) if stored else None
        )
    assert raised.value.cause.startswith("no credentials for the API server: ")
    assert "kubectl auth whoami" in raised.value.hint
    assert "rbac" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("stored", [False, True], ids=["file", "stored"])
def test_an_exec_plugin_that_fails_is_quoted(stored: bool, tmp_path: Path) -> None:
    fails = plugin(f"import sys; print({EXPIRED!r}, file=sys.stderr); sys.exit(255)")
    said = refused(tmp_path, fails, stored=stored).cause
    assert said.endswith(f"gave no credentials: process returned 255. {EXPIRED}")


def test_a_plugin_beside_its_kubeconfig_is_quoted_in_the_old_version_too(tmp_path: Path) -> None:
    script = tmp_path / "plugin-fails.sh"
    script.write_text(f'#!/bin/sh\necho "{EXPIRED}" >&2\nexit 255\n')
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "./plugin-fails.sh"}}
    assert EXPIRED in refused(tmp_path, user).cause


def test_a_plugin_that_is_missing_says_how_to_install_it(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": V1, "command": "no-such-plugin", "installHint": "get it with brew"}}
    assert refused(tmp_path, user).cause.endswith("its exec plugin no-such-plugin is not there: get it with brew")


def test_no_secret_that_a_plugin_prints_is_repeated(tmp_path: Path) -> None:
    planted = ["k8s-aws-v1x9aHR0cHM6Ly9zdHMuYW1hem9u", "of-the-environment"]
    said = f"denied: token={planted[0]} {planted[0]} {planted[1]} password: hunter22"
    script = f"import sys; print({said!r}, file=sys.stderr); print({planted[0]!r}); sys.exit(1)"
    cause = refused(tmp_path, plugin(script, env=[{"name": "SECRET", "value": planted[1]}])).cause
    assert "denied: token=(hidden) (hidden) (hidden) password: (hidden)" in cause


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (plugin("print('hello')"), "failed to decode process output"),
        (plugin("print('[]')"), "missing key 'apiVersion'"),
        (prints(None), "printed no ExecCredential"),
        (prints({}), "neither a token nor a certificate with its key"),
        (prints({"clientCertificateData": "x"}), "neither a token nor a certificate with its key"),
        ({"tokenFile": "/dev/null"}, "its tokenFile gives no token"),
        ({"auth-provider": {"name": "azure", "config": {}}}, "its auth-provider gives no token"),
        (oidc("no.jwt"), "its auth-provider gives no token"),
        (oidc(token_until(1e9)), "has no key"),
        (oidc(token_until(1e9), **{"idp-issuer-url": "http://127.0.0.1:9"}), "its auth-provider gives no token: "),
    ],
)
def test_whatever_else_gives_no_credentials_is_no_anonymous_request(user: object, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, user).cause


def test_a_user_that_is_not_there_is_no_anonymous_request(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content(users=[])))
    with pytest.raises(AdapterError, match="its users lack the one that its context names"):
        load_configuration(file, None, in_cluster=False)


def test_an_oidc_token_that_the_issuer_does_not_renew_is_an_error(tmp_path: Path) -> None:
    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        def log_message(self, *_: object) -> None: ...

    server = QuietServer(("127.0.0.1", 0), Issuer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        said = refused(tmp_path, oidc(token_until(1e9), **{"idp-issuer-url": url})).cause
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "its OIDC token has expired, and the issuer gave no new one" in said


def test_a_plugin_that_fails_at_a_renewal_is_an_error_of_the_request(tmp_path: Path) -> None:
    once = tmp_path / "once"
    status = {"token": "t", "expirationTimestamp": LONG_AGO}
    answer = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
    script = (
        "import pathlib, sys\n"
        f"once = pathlib.Path({str(once)!r})\n"
        f"if once.exists(): print({EXPIRED!r}, file=sys.stderr); sys.exit(1)\n"
        f"once.touch(); print({answer!r})"
    )
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content(user=plugin(script))))
    found = load_configuration(file, None, in_cluster=False)
    with pytest.raises(KubernetesError) as raised, explained("https://api", "read a node"):
        found.get_api_key_with_prefix("BearerToken")
    assert EXPIRED in raised.value.cause
    assert "kubectl auth whoami" in raised.value.hint


def test_a_plugin_that_works_is_used_and_may_give_a_certificate(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    status = {"token": "t", "clientCertificateData": "c", "clientKeyData": "k", "expirationTimestamp": LATER}
    file.write_text(yaml.safe_dump(content(user=prints(status))))
    found = load_configuration(file, None, in_cluster=False)
    assert found.api_key["BearerToken"] == "Bearer t"
    assert (Path(found.cert_file).read_text(), Path(found.key_file).read_text()) == ("c", "k")


@pytest.mark.parametrize(
    ("status", "body", "hint", "never"),
    [
        (401, {"message": "Unauthorized"}, "does not take these credentials", "deploy/rbac"),
        (
            403,
            {"message": 'User "system:anonymous" cannot list'},
            "carried no credentials",
            "deploy/rbac",
        ),
        (403, {"message": 'nodes is forbidden: User "ada" cannot'}, "deploy/rbac", "log in"),
        (404, {"details": {"kind": "nodes", "name": "n"}}, "involvedObject.name=n", "namespace of the cluster profile"),
        (404, {"details": {"kind": "namespaces", "name": "n"}}, "kubectl apply -k deploy", "get events"),
        (404, {"details": {"kind": "pods", "name": "p"}}, "its namespace", "get events"),
        (404, {}, "no such kind of object", "namespace"),
    ],
)
def test_a_refusal_says_what_helps_with_it(status: int, body: object, hint: str, never: str) -> None:
    error = ApiException(status=status, reason="x")
    error.body = json.dumps(body)
    with pytest.raises(KubernetesError) as failed, explained("https://fake", "read node n"):
        raise error
    assert hint in failed.value.hint
    assert never not in failed.value.hint
