"""Failures of requests to the API server in words that a person can act on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gameday.cluster.kubeconfig import CREDENTIALS_HINT, NoCredentialsError
from gameday.errors import KubernetesError
from gameday.text import printable
from gameday.values.etcd_full import ETCD_FULL_HINT, is_etcd_full

# The API server's longest messages list every invalid field of an object; the first dozen are enough to correct it.
_MESSAGE_CHARACTERS = 1000
_ANONYMOUS = "system:anonymous"
_HINTS = {
    401: f"the API server does not take these credentials, expired or another cluster's: {CREDENTIALS_HINT}",
    403: "this account may not do it: grant it with `kubectl apply -f deploy/rbac` (runner.yaml for a run), or ask "
    "`kubectl auth can-i` as this account",
    409: "somebody else has written it meanwhile: `kubectl get --show-managed-fields -o yaml` says who",
}
_UNREACHED_HINT = "is the API server up, and the kubeconfig its own?"
# Messages that an API server passes on as a 500 while etcd restarts or elects a leader (etcd, api/v3rpc/rpctypes, and
# gRPC). Any other 500, e.g. of a webhook or of a kubelet that does not answer, stays the same when repeated.
_STORE_IS_AWAY = re.compile(r"code = Unavailable|etcdserver: (no leader|leader changed|request timed out)")


def reason_of(error: Exception) -> str:
    """Return why a request failed, on one line and without headers, which may hold credentials."""
    if isinstance(error, KubernetesError):
        return error.cause
    if isinstance(error, HTTPError):
        return printable(str(getattr(error, "reason", None) or error), _MESSAGE_CHARACTERS)
    if not isinstance(error, ApiException):
        return printable(f"{type(error).__name__}: {error}", _MESSAGE_CHARACTERS)
    try:
        message = json.loads(error.body or "").get("message", "")
    except (ValueError, AttributeError, TypeError):
        message = ""
    text = f"{error.status or ''} {message or error.reason or 'no reason given'}"
    return printable(" ".join(text.split()), _MESSAGE_CHARACTERS)


def is_store_away(status: int | None, body: str) -> bool:
    """Return True for an API server's answer that etcd does not answer now, but may in a moment.

    Args:
        status: The HTTP status.
        body: The answer's body.
    """
    return status == HTTPStatus.INTERNAL_SERVER_ERROR and _STORE_IS_AWAY.search(body) is not None


def is_outcome_unknown(error: KubernetesError) -> bool:
    """Return True if it is not known whether the server has carried the request out."""
    return error.status is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def hint_of(error: ApiException) -> str:
    """Return what a person can do about a refusal; empty if that is not known."""
    reason = reason_of(error)
    if is_etcd_full(reason):
        return ETCD_FULL_HINT
    if error.status == HTTPStatus.NOT_FOUND:
        return _hint_of_absence(error)
    if error.status == HTTPStatus.FORBIDDEN and _ANONYMOUS in reason:
        return f"the request carried no credentials, because the kubeconfig gives none: {CREDENTIALS_HINT}"
    return _HINTS.get(error.status or 0, "")


def _hint_of_absence(error: ApiException) -> str:
    """Return what to do if the server knows no such object, or no such kind of object."""
    try:
        details = json.loads(error.body or "").get("details") or {}
        kind, name = str(details.get("kind") or ""), printable(str(details.get("name") or ""))
    except (ValueError, AttributeError, TypeError):
        kind = name = ""
    if kind == "nodes":
        events = f"kubectl get events --field-selector involvedObject.name={name}"
        return f"the node was deleted, or never was there: `{events}` may say by whom"
    if kind == "namespaces":
        return "create it with `kubectl apply -k deploy`, or set `namespace` in the cluster profile to one that exists"
    if not kind:
        return "this server has no such kind of object: is its address right, and does its version serve it?"
    return "it is gone, or its namespace (`namespace` of the cluster profile) was never created"


@contextmanager
def explained(server: str, act: str) -> Iterator[None]:
    """Turn the client's exceptions into a KubernetesError of one line: the server, the act and the cause."""
    try:
        yield
    except ApiException as error:
        raise KubernetesError(server, f"{act}: {reason_of(error)}", hint_of(error), status=error.status) from None
    except HTTPError as error:
        hint = CREDENTIALS_HINT if isinstance(error, NoCredentialsError) else _UNREACHED_HINT
        raise KubernetesError(server, f"{act}: {reason_of(error)}", hint) from None
    except (ValueError, TypeError) as error:
        if "header value" in str(error):  # http.client repeats the header, which is a token here
            why = (
                "a header cannot be sent; an exec plugin or a renewed token gave more than one line of printable ASCII"
            )
            raise KubernetesError(server, f"{act}: {why}", "check the credentials in the kubeconfig") from None
        raise KubernetesError(server, f"{act}: the answer could not be read: {error}") from None
