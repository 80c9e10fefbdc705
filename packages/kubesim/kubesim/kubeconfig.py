"""Kubeconfigs: how to reach one API server, read and written without the official client."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kubesim.errors import KubeconfigError
from kubesim.private_file import write_private


@dataclass(frozen=True)
class Kubeconfig:
    """A kubeconfig's current context: how to reach one API server."""

    server: str
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the current context of a kubeconfig file.

        Understands certificate-authority, client-certificate and client-key (each as a file or as data), token and
        tokenFile. Raises KubeconfigError.
        """
        document = _read_yaml(path)
        try:
            context = _named(document, "contexts", document["current-context"])["context"]
            cluster = _named(document, "clusters", context["cluster"])["cluster"]
            user = _named(document, "users", context["user"])["user"] if context.get("user") else {}
            server = str(cluster["server"]).rstrip("/")
        except (KeyError, TypeError) as error:
            raise KubeconfigError(f"{path}: no entry {error}; check current-context and what it refers to") from None
        if "exec" in user:
            raise KubeconfigError(f"{path}: exec credentials are not understood here; give a token or a client key")
        try:
            tls = _tls(path.parent, cluster, user) if server.startswith("https://") else None
            token = user.get("token")
            if token is None and "tokenFile" in user:
                token = (path.parent / user["tokenFile"]).read_text().strip()
        except (OSError, ValueError) as error:
            raise KubeconfigError(f"{path}: cannot use its credentials: {error}") from None
        return cls(server=server, token=token, tls=tls)


def write_kubeconfig(
    path: Path,
    name: str,
    *,
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    namespace: str | None = None,
    context: str = "kubesim",
) -> None:
    """Write a kubeconfig with one user and one context, as JSON (which is YAML); only its owner may read it.

    Args:
        path: The file.
        name: The user's name inside the kubeconfig.
        cluster: The cluster entry: server and certificate authority.
        user: The user entry: a token, or a client certificate and its key.
        namespace: The context's default namespace; None for none.
        context: The name of the context and of the cluster.

    Raises:
        OSError: The file cannot be written.
    """
    entry = {"cluster": context, "user": name, **({"namespace": namespace} if namespace else {})}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": context, "context": entry}],
        "current-context": context,
    }
    write_private(path, json.dumps(content, indent=2).encode())


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text())
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot read the kubeconfig: {error.strerror}") from None
    except YAMLError:
        raise KubeconfigError(f"{path}: the kubeconfig is not YAML") from None
    if not isinstance(document, dict):
        raise KubeconfigError(f"{path}: the kubeconfig is not a mapping")
    return document


def _named(document: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    for entry in document[section] or ():
        if entry["name"] == name:
            found: Mapping[str, Any] = entry
            return found
    raise KeyError(f"{section}: {name}")


def _tls(folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        authority = _material(folder, cluster, "certificate-authority")
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = _material(folder, user, "client-certificate"), _material(folder, user, "client-key")
    if certificate and key:
        # The ssl module takes a client key only from a file.
        with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
            pem.write(certificate + b"\n" + key)
            pem.flush()
            context.load_cert_chain(pem.name)
    return context


def _material(folder: Path, section: Mapping[str, Any], name: str) -> bytes | None:
    if data := section.get(f"{name}-data"):
        return base64.b64decode(data, validate=True)
    if file := section.get(name):
        return (folder / str(file)).read_bytes()
    return None
