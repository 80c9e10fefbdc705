"""The way to the API server: a kubeconfig's file, a kubeconfig kept as a secret, or a pod's own service account.

Errors here repeat nothing of a kubeconfig except the name of an exec plugin's program. The client's own errors do: they
name the entry that they cannot use, and that name is the whole entry, with its token.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, FileOrData, KubeConfigLoader, KubeConfigMerger
from pydantic import SecretStr
from urllib3.exceptions import HTTPError

from gameday.errors import AdapterError
from gameday.text import printable, without_secrets

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
"""Errors of the client about a broken kubeconfig, which it hardly checks before using it."""
_MISSING_KEY = re.compile(r"Expected key ([\w-]+) in ")
_MISSING_ENTRY = re.compile(r"\b(contexts|clusters|users) list$")
_FILES = {
    "cluster": {"certificate-authority": "certificate-authority-data"},
    "user": {"client-certificate": "client-certificate-data", "client-key": "client-key-data"},
}
"""Keys that name a file, by section, each with the key for the same content as base64."""


_PROXIES = {"http", "https", "socks5h"}
_WAYS = ("auth-provider", "tokenFile", "token", "username")
CREDENTIALS_HINT = "log in again as for kubectl: `kubectl auth whoami` with the same kubeconfig has to work"
_WORDS_CHARACTERS = 400
"""Characters that are kept of the end of a plugin's output: its last line says why it failed."""


_OPAQUE = re.compile(r"(?=[A-Za-z+_=-]*[0-9])[A-Za-z0-9+_=-]{24,}")
"""A run of letters and digits that is longer than a word, and so probably a token."""
_SHORT = 6
"""Longest value of the plugin's environment that is not taken for a secret, such as a region or a profile."""


class NoCredentialsError(HTTPError):
    """The kubeconfig's way to credentials gives none; no request is sent without them.

    It counts as an error of a server that does not answer, because a failed renewal may work in a moment.
    """


class _Loader(KubeConfigLoader):  # type: ignore[misc]
    """The client's loader, except that missing credentials are an error, as in kubectl.

    The client itself would log that and go on as system:anonymous. This holds for the first credentials and for each
    renewal.
    """

    def _load_authentication(self) -> None:
        if self._user is None and self._current_context["context"].safe_get("user"):
            raise NoCredentialsError("its users lack the one that its context names")
        super()._load_authentication()
        has_some = {"token", "cert_file"} & vars(self).keys()
        if self._user and not has_some and (way := next((key for key in _WAYS if key in self._user), None)):
            raise NoCredentialsError(f"its {way} gives no token")

    def _set_config(self, client_configuration: client.Configuration) -> None:
        super()._set_config(client_configuration)  # before each request again
        client_configuration.proxy = _resolving(client_configuration.proxy)

    def _load_auth_provider_token(self) -> Any:
        try:
            return super()._load_auth_provider_token()
        except NoCredentialsError:
            raise
        except config.ConfigException as error:
            why = _why_refused(str(error))
        except Exception as error:  # of requests, oauthlib, urllib3 or the client, depending on what fails
            why = _words(f"{type(error).__name__}: {error}")
        raise NoCredentialsError(f"its auth-provider gives no token: {why}")

    def _refresh_oidc(self, provider: Any) -> None:
        expired = provider["config"]["id-token"]
        super()._refresh_oidc(provider)
        if provider["config"]["id-token"] == expired:
            raise NoCredentialsError("its OIDC token has expired, and the issuer gave no new one: log in again")

    def _load_from_exec_plugin(self) -> bool | None:
        if "exec" not in self._user:
            return None
        folder = self._get_base_path(self._cluster.path)
        status = _run_plugin(self._user["exec"], folder, self._cluster)
        if token := status.get("token"):
            self.token = f"Bearer {token}"
        if status.get("clientCertificateData") and status.get("clientKeyData"):
            for key, file in (("clientCertificateData", "cert_file"), ("clientKeyData", "key_file")):
                content = FileOrData(status, None, key, folder, base64_file_content=False)
                setattr(self, file, content.as_file())
        elif not token:
            raise NoCredentialsError("its exec plugin gave neither a token nor a certificate with its key")
        if "expirationTimestamp" in status:
            self.expiry = parse_rfc3339(status["expirationTimestamp"])
        return True


def _run_plugin(plugin: Any, folder: str, cluster: Any) -> dict[str, Any]:
    """Return the credentials that the exec plugin prints. Raises NoCredentialsError with the plugin's output."""
    program = printable(str(plugin.safe_get("command")), 80)
    secrets = [str(one["value"]) for one in plugin.safe_get("env") or () if len(str(one["value"])) > _SHORT]
    try:
        status = ExecProvider(plugin, folder, cluster).run()
    except FileNotFoundError:
        hint = _words(str(plugin.safe_get("installHint") or "install it, or put it on PATH"))
        raise NoCredentialsError(f"its exec plugin {program} is not there: {hint}") from None
    except OSError as error:
        raise NoCredentialsError(f"its exec plugin {program} cannot be started: {error.strerror}") from None
    except config.ConfigException as error:
        raise NoCredentialsError(
            f"its exec plugin {program} gave no credentials: {_words(str(error), secrets)}"
        ) from None
    except (AttributeError, TypeError, KeyError):
        # On a terminal the client leaves the plugin's output there, and then fails because it has none itself.
        raise NoCredentialsError(f"its exec plugin {program} failed; its output, if any, is above") from None
    if not isinstance(status, dict):
        raise NoCredentialsError(f"its exec plugin {program} printed no ExecCredential")
    return status


def _words(said: str, secrets: Collection[str] = ()) -> str:
    """Return the output of a user's program on one line, without `secrets` and anything that looks like one."""
    line = " ".join(without_secrets(said.removeprefix("exec: ")).split())
    for secret in secrets:
        line = line.replace(secret, "(hidden)")
    return printable(_OPAQUE.sub("(hidden)", line)[-_WORDS_CHARACTERS:])


def load_configuration(
    kubeconfig: Path | None, context: str | None, in_cluster: bool, content: SecretStr | None = None
) -> client.Configuration:
    """Return the way to reach the API server.

    Args:
        kubeconfig: None for KUBECONFIG or ~/.kube/config.
        context: None for the kubeconfig's current one.
        in_cluster: Use the pod's own service account instead.
        content: The text of a kubeconfig, used instead of a file and never written to a disk.

    Raises:
        AdapterError: No configuration can be loaded.
    """
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
            found = _without_files(yaml.safe_load(content.get_secret_value()))
            _Loader(found, context, config_base_path="").load_and_set(configuration)
        else:
            merged = KubeConfigMerger(str(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION))
            if merged.config is None:
                raise config.ConfigException("No configuration found")
            loader = _Loader(merged.config, context, config_base_path=None, config_persister=merged.save_changes)
            loader.load_and_set(configuration)
    except NoCredentialsError as error:
        raise AdapterError(where, f"no credentials for the API server: {error}", CREDENTIALS_HINT) from None
    except _UNUSABLE as error:
        why = str(error) if in_cluster else _why(error, kubeconfig)
        raise AdapterError(where, f"no usable Kubernetes configuration: {why}", hint) from None
    configuration.proxy = _resolving(configuration.proxy)
    _check_proxy(configuration, where)
    _check_token(configuration, where, hint)
    return configuration


def embedded_kubeconfig(file: Path, context: str | None) -> str:
    """Return one context of a kubeconfig as text without file names, like `kubectl config view --minify --flatten`.

    Args:
        file: The kubeconfig.
        context: None for its current one.

    Raises:
        AdapterError: It cannot be used, or a file that it names cannot be read.
    """
    load_configuration(file, context, in_cluster=False)  # refuses everything that the client would refuse later
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
    """Return the kubeconfig with its certificates and keys in memory; the client would write each to a file."""
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
    """Return the path of a file that exists only in this process' memory, for as long as the process lives."""
    descriptor = os.memfd_create("kubeconfig")
    os.write(descriptor, content)
    return f"/proc/self/fd/{descriptor}"


def _why(error: Exception, kubeconfig: Path | None) -> str:
    """Return why a kubeconfig cannot be used, without quoting it."""
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
    """Return the message of one of the client's own errors, without the entries that it repeats."""
    if missing := _MISSING_KEY.search(said):
        return f"it has no key {missing[1]} where one is needed"
    if "Expected object with name " in said and (missing := _MISSING_ENTRY.search(said)):
        return f"its {missing[1]} lack an entry of the requested name"
    if said.startswith("File does not exist"):
        return "a file that it names is not there (certificate-authority, client-certificate or client-key)"
    if "No configuration found" in said or "file is empty" in said:
        return "there is none, or it is empty"
    return "it is not what a kubeconfig holds"


def _resolving(proxy: str | None) -> str | None:
    """Return a SOCKS proxy's URL that makes the proxy resolve the API server's name, as for kubectl."""
    return re.sub(r"^socks5://", "socks5h://", proxy, flags=re.IGNORECASE) if proxy else None


def _check_proxy(configuration: client.Configuration, where: str) -> None:
    """Refuse a proxy type that no client here supports."""
    scheme, _, rest = (configuration.proxy or "").partition("://")
    if configuration.proxy and (scheme.lower() not in _PROXIES or not rest):
        why = "no usable Kubernetes configuration: its proxy-url (or HTTPS_PROXY) is no http, https or socks5 URL"
        raise AdapterError(where, why, "write it like socks5://127.0.0.1:1080")


def _check_token(configuration: client.Configuration, where: str, hint: str) -> None:
    """Refuse a token that no header can hold, because the HTTP client would print it in its error."""
    token = configuration.api_key.get("BearerToken") or ""
    if not (token.isascii() and token.isprintable()):
        why = "no usable Kubernetes configuration: its token is not printable ASCII alone, without a line break"
        raise AdapterError(where, why, hint)
