"""Credentials and certificates of an HTTP server, from the references in its `Endpoint`."""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Generator
from functools import cache
from pathlib import Path

import httpx
from pydantic import SecretStr

from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError


class Credentials(httpx.Auth):
    """The Authorization header of an endpoint; its references are read for every attempt, because tokens rotate."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header to the request.

        Raises:
            AdapterError: A referenced file or variable is missing or holds no usable secret.
        """
        if value := self._authorization():
            request.headers["Authorization"] = value
        yield request

    def secrets(self) -> dict[str, str]:
        """Return the endpoint's bearer token and password by the endpoint's keys; references are read.

        Raises:
            AdapterError: A referenced file or variable is missing or holds no usable secret.
        """
        one = self._endpoint
        found = {
            "bearer_token": self._secret("bearer_token", one.bearer_token, one.bearer_token_file, one.bearer_token_env),
            "password": self._secret("password", one.password, one.password_file, one.password_env),
        }
        return {key: secret for key, secret in found.items() if secret is not None}

    def _authorization(self) -> str | None:
        secrets = self.secrets()
        if token := secrets.get("bearer_token"):
            return f"Bearer {token}"
        password = secrets.get("password")
        if self._endpoint.username is None or password is None:
            return None
        return "Basic " + b64encode(f"{self._endpoint.username}:{password}".encode()).decode()

    def _secret(self, key: str, given: SecretStr | None, file: Path | None, variable: str | None) -> str | None:
        if given:
            return given.get_secret_value()
        if variable is not None:
            if secret := os.environ.get(variable):
                return secret
            raise self._error(f"{key}_env: ${variable} is not set", "export it before the run")
        return self._read_secret(key, file) if file else None

    def _read_secret(self, key: str, file: Path) -> str:
        try:
            secret = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise self._error(f"{key}_file {file}: {reason}", "correct the path in the cluster profile") from None
        if not secret.isprintable() or not secret.isascii():
            raise self._error(
                f"{key}_file {file} holds more than one line of printable ASCII", "write only the secret into it"
            )
        return secret

    def _error(self, cause: str, hint: str) -> AdapterError:
        return AdapterError(self._endpoint.url, cause, hint)


@cache
def _public_certificates() -> ssl.SSLContext:
    """Return httpx's own TLS context. It takes about 40 ms to make, so all clients of a process share one."""
    return httpx.create_ssl_context()


def trusted_certificates(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the TLS context with the endpoint's `ca_file`, or the one with the public certificates.

    Raises:
        AdapterError: The file cannot be read or is not a PEM bundle.
    """
    if endpoint.ca_file is None:
        return _public_certificates()
    try:
        return ssl.create_default_context(cafile=str(endpoint.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise AdapterError(
            endpoint.url, f"ca_file {endpoint.ca_file}: {error.strerror or error}", "it must be a PEM bundle"
        ) from None
