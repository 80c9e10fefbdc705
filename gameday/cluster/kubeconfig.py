"""The way to the API server: a kubeconfig's file, a kubeconfig kept as a secret, or a pod's own service account.

No error here repeats what a kubeconfig holds. The client's own errors do: they name the entry that they cannot use, and
the name that they give it is the whole entry, with its token.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config
from pydantic import SecretStr

from gameday.errors import AdapterError

_HINT = "name a kubeconfig that `kubectl` can use"
_UNUSABLE = (
    config.ConfigException,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    IndexError,
    yaml.YAMLError,
)
"""Errors of the client about a broken kubeconfig: it looks at little before it uses it."""
_MISSING_KEY = re.compile(r"Expected key ([\w-]+) in ")
_MISSING_ENTRY = re.compile(r"\b(contexts|clusters|users) list$")
_FILES = {
    "cluster": {"certificate-authority": "certificate-authority-data"},
    "user": {"client-certificate": "client-certificate-data", "client-key": "client-key-data"},
}
"""Keys that name a file, by section, and the key that holds the same content as base64."""


class _PluginErrors(logging.Filter):
    """Takes the words of an exec plugin, whose output may hold a token, out of what the client logs of it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.module == "kube_config":
            record.msg = "the exec plugin of the kubeconfig gave no credentials: run it by hand to see why"
            record.args = ()
        return True


_PLUGIN_ERRORS = _PluginErrors()


def load_configuration(
    kubeconfig: Path | None, context: str | None, in_cluster: bool, content: SecretStr | None = None
) -> client.Configuration:
    """Return the way to reach the API server.

    Args:
        kubeconfig: None for KUBECONFIG or ~/.kube/config.
        context: None for the kubeconfig's current one.
        in_cluster: Use the pod's own service account instead.
        content: The text of a kubeconfig, which is used in place of a file and written to no disk.

    Raises:
        AdapterError: No configuration can be loaded.
    """
    # The client logs them on the root logger, and again whenever it renews a token.
    logging.getLogger().addFilter(_PLUGIN_ERRORS)
    where, hint = str(kubeconfig or "KUBECONFIG or ~/.kube/config"), _HINT
    if in_cluster:
        where = "the pod's service account"
    elif content:
        where, hint = "the cluster profile's kubeconfig_content", "`gameday cluster save` stores another one"
    configuration = client.Configuration()
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=configuration)
        elif content:
            config.load_kube_config_from_dict(
                _without_files(yaml.safe_load(content.get_secret_value())),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        else:
            config.load_kube_config(
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=configuration,
            )
    except _UNUSABLE as error:
        why = str(error) if in_cluster else _why(error, kubeconfig)
        raise AdapterError(where, f"no usable Kubernetes configuration: {why}", hint) from None
    _check_token(configuration, where, hint)
    return configuration


def embedded_kubeconfig(file: Path, context: str | None) -> str:
    """Return one context of a kubeconfig as text that names no file: what `kubectl config view` minifies and flattens.

    Args:
        file: The kubeconfig.
        context: None for its current one.

    Raises:
        AdapterError: It cannot be used, or a file that it names cannot be read.
    """
    load_configuration(file, context, in_cluster=False)  # refuses all that the client would refuse later
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    name = context or found["current-context"]
    chosen = _entry(found, "contexts", name)
    cluster = _entry(found, "clusters", chosen["context"]["cluster"])
    users = [one for one in found.get("users") or () if one["name"] == chosen["context"].get("user")]
    try:
        for section, entry in (("cluster", cluster), *(("user", user) for user in users)):
            _embed(entry[section], section, file.parent)
    except OSError as error:
        why = f"a file that it names cannot be read: {error.strerror}"
        raise AdapterError(str(file), why, "check its keys that name files") from None
    kept = {"apiVersion": "v1", "kind": "Config", "current-context": name, "contexts": [chosen], "clusters": [cluster]}
    return yaml.safe_dump({**kept, "users": users})


def _entry(found: Mapping[str, Any], section: str, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = next(one for one in found[section] if one["name"] == name)
    return entry


def _embed(entry: dict[str, Any], section: str, folder: Path) -> None:
    for key, data_key in _FILES[section].items():
        if file := entry.pop(key, None):
            entry.setdefault(data_key, base64.b64encode((folder / file).read_bytes()).decode())
    if file := entry.pop("tokenFile", None):
        entry.setdefault("token", (folder / file).read_text(encoding="utf-8"))


def _without_files(found: Any) -> Any:
    """Return the kubeconfig with its certificates and keys in memory: the client would write each to a file."""
    for section, entry in (("cluster", one) for one in found.get("clusters") or ()):
        _hold_in_memory(entry.get(section), section)
    for section, entry in (("user", one) for one in found.get("users") or ()):
        _hold_in_memory(entry.get(section), section)
    return found


def _hold_in_memory(entry: Any, section: str) -> None:
    for key, data_key in _FILES[section].items():
        if isinstance(entry, dict) and (data := entry.pop(data_key, None)):
            entry[key] = _in_memory(base64.standard_b64decode(data))


@cache
def _in_memory(content: bytes) -> str:
    """Return the path of a file that is in this process' memory alone, for as long as the process lives."""
    descriptor = os.memfd_create("kubeconfig")
    os.write(descriptor, content)
    return f"/proc/self/fd/{descriptor}"


def _why(error: Exception, kubeconfig: Path | None) -> str:
    """Return why a kubeconfig cannot be used, in words that hold nothing of it."""
    match error:
        case yaml.MarkedYAMLError() if error.problem_mark:
            return f"line {error.problem_mark.line + 1} is not YAML"
        case yaml.YAMLError():
            return "it is not YAML"
        case OSError() if kubeconfig and error.filename == str(kubeconfig):
            return error.strerror or "it cannot be read"
        case OSError():
            return f"a file that it names cannot be read: {error.strerror}"
    return _why_refused(str(error))


def _why_refused(said: str) -> str:
    """Return what one of the client's own errors says, without the entries that it repeats."""
    if missing := _MISSING_KEY.search(said):
        return f"it has no key {missing[1]} where one is needed"
    if "Expected object with name " in said and (missing := _MISSING_ENTRY.search(said)):
        return f"its {missing[1]} lack an entry of the name that is asked for"
    if said.startswith("File does not exist"):
        return "a file that it names is not there (certificate-authority, client-certificate or client-key)"
    if "No configuration found" in said or "file is empty" in said:
        return "there is none, or it is empty"
    return "it is not what a kubeconfig holds"


def _check_token(configuration: client.Configuration, where: str, hint: str) -> None:
    """Refuse a token that no header can hold: the HTTP client would print it in its error."""
    token = configuration.api_key.get("BearerToken") or ""
    if not (token.isascii() and token.isprintable()):
        why = "no usable Kubernetes configuration: its token is not printable ASCII alone, without a line break"
        raise AdapterError(where, why, hint)
