"""Ask a plan's probes: once before the fault, then beside the run until it ends.

The history gets statuses, counts and numbers, but never a body or an output, which may be huge or hold secrets.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import httpx

from gameday import __version__
from gameday.cluster.pod_exec import run_in_pod
from gameday.errors import AdapterError
from gameday.expect.probes import TARGETS, ExecProbe, ExpectedProbe, HttpProbe, PromqlProbe
from gameday.history.events import ProbeAnswered
from gameday.run.run import Run
from gameday.text import printable
from gameday.values.patterns import found_in

_BODY_BYTES = 64 << 10
_DETAIL_CHARACTERS = 400
_CANDIDATES = 50
"""Most pods that are listed to choose the first by name."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question of a probe."""

    holds: bool | None
    """None if it could not be read."""
    detail: str
    value: float | None = None


class ProbeWatch:
    """A probe that is asked again and again, beside the run, until `stop`."""

    def __init__(self, run: Run, probe: ExpectedProbe, nodes: Collection[str]) -> None:
        self._run = run
        self._probe = probe
        self._nodes = nodes
        self._is_over = False
        self._repetition = run.clock.repeat(f"probe-{probe.name}", self._ask)

    def stop(self) -> None:
        """End the watch; a question that is under way has its own time-out."""
        self._is_over = True
        self._repetition.stop(self._probe.timeout.total_seconds() + 1)

    def _ask(self) -> float:
        began = self._run.clock.monotonic()
        answered = ask(self._run, self._probe, self._nodes)
        if not self._is_over:
            self._run.note(answered)
        return max(0.0, began + self._probe.every.total_seconds() - self._run.clock.monotonic())


def ask(run: Run, probe: ExpectedProbe, nodes: Collection[str]) -> ProbeAnswered:
    """Ask a query, a request or a command once. If there is no answer, the detail says why.

    Args:
        run: The run.
        probe: Any probe but a job.
        nodes: The run's targets.
    """
    began, timeout_s = run.clock.now(), probe.timeout.total_seconds()
    try:
        if probe.promql:
            found = _ask_prometheus(run, probe.promql, nodes)
        elif probe.http:
            found = _ask_http(probe.http, timeout_s)
        else:
            assert probe.exec is not None
            found = _ask_pod(run, probe.exec, nodes, timeout_s)
    except AdapterError as error:
        found = Answer(None, f"{error.cause}{f'; {error.hint}' if error.hint else ''}")
    return answer_event(probe, began, run.clock.now(), found)


def answer_event(probe: ExpectedProbe, began: datetime, at: datetime, found: Answer) -> ProbeAnswered:
    """Return an answer as an event of the history."""
    return ProbeAnswered(
        probe=probe.name,
        asks=probe.kind,
        holds=found.holds,
        value=found.value,
        detail=printable(found.detail, _DETAIL_CHARACTERS),
        asked_at=began,
        at=at,
    )


def _ask_prometheus(run: Run, probe: PromqlProbe, nodes: Collection[str]) -> Answer:
    # In a PromQL string a backslash would need a second one; a class of one character needs none.
    pattern = "|".join(sorted(node.replace(".", "[.]") for node in nodes))
    samples = run.servers.prometheus.query(probe.query.replace(TARGETS, pattern))
    values = [sample.value for sample in samples if not math.isnan(sample.value)]
    if not values:
        return Answer(None, "the query has no series" if not samples else "the query's values are not numbers (NaN)")
    admitted = [value for value in values if probe.admits(value)]
    others = [value for value in values if not probe.admits(value)]
    if probe.series == "any":
        holds, decisive = bool(admitted), (admitted or others)[0]
    else:
        holds, decisive = not others, (others or admitted)[0]
        if len(values) < len(samples) and holds:
            return Answer(None, f"{len(samples) - len(values)} of {len(samples)} values are not numbers (NaN)")
    count = f"{len(admitted)} of {len(samples)} series within the limits"
    # JSON has no infinity, so only the detail has it.
    return Answer(holds, f"{decisive:.6g}; {count}", decisive if math.isfinite(decisive) else None)


def _ask_http(probe: HttpProbe, timeout_s: float) -> Answer:
    """Send one GET request; if no server answers it, the probe does not hold.

    No redirect is followed, and no proxy, cookie or credential of this process is used.
    """
    headers = {"User-Agent": f"gpu-gameday/{__version__}", "Accept-Encoding": "identity"}
    try:
        with httpx.Client(verify=_trusted(), trust_env=False, timeout=timeout_s, headers=headers) as client:
            deadline = time.monotonic() + timeout_s  # the socket's, which lives by the machine's clock
            with client.stream("GET", probe.url, follow_redirects=False) as answer:
                body = _first_bytes(answer, deadline) if probe.body else b""
                status = answer.status_code
    except httpx.ConnectError as error:
        return Answer(None if _is_ours(error) else False, f"no connection: {error}")
    except (httpx.TimeoutException, TimeoutError):
        return Answer(False, f"no answer within {timeout_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # a UnicodeError of a host's name is one
        return Answer(False, f"no answer: {type(error).__name__}: {error}")
    if status != probe.status:
        return Answer(False, f"status {status}")
    if probe.body and not found_in(probe.body, body.decode("utf-8", "replace")):
        return Answer(False, f"status {status}, and the pattern is not in the first {len(body)} bytes")
    return Answer(True, f"status {status}" + (", and the pattern is in the body" if probe.body else ""))


@cache
def _trusted() -> ssl.SSLContext:
    """Return the trusted certificates; reading them takes longer than many a request."""
    return httpx.create_ssl_context(trust_env=False)


def _first_bytes(answer: httpx.Response, deadline: float) -> bytes:
    """Read the beginning of a body as it was sent. Raises TimeoutError if it comes too slowly."""
    body = b""
    for chunk in answer.iter_raw():
        body += chunk[: _BODY_BYTES - len(body)]
        if len(body) >= _BODY_BYTES:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    return body


def _is_ours(error: BaseException | None) -> bool:
    """Return True if the failure may be this machine's: it knows no such name, or does not trust a certificate."""
    while error is not None:
        if isinstance(error, socket.gaierror | ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _ask_pod(run: Run, probe: ExecProbe, nodes: Collection[str], timeout_s: float) -> Answer:
    pod = _first_pod(run, probe, nodes)
    if pod is None:
        place = f" on {', '.join(sorted(nodes))}" if probe.where == "target" else ""
        return Answer(None, f"no running pod in {probe.namespace} has these labels{place}")
    result = run_in_pod(run.kubernetes, probe.namespace, pod, probe.container, probe.command, timeout_s)
    ended = f"exit status {result.exit_status} in {pod}"
    if result.exit_status != probe.exit_status:
        return Answer(False, ended)
    if probe.output and not found_in(probe.output, result.output):
        return Answer(False, f"{ended}, and the pattern is not in the output")
    return Answer(True, f"{ended}{', and the pattern is in the output' if probe.output else ''}")


def _first_pod(run: Run, probe: ExecProbe, nodes: Collection[str]) -> str | None:
    """Return the name of the first running pod that is not being deleted. Raises KubernetesError."""
    found: list[str] = []
    places = [f",spec.nodeName={node}" for node in sorted(nodes)] if probe.where == "target" else [""]
    for place in places:
        with run.kubernetes.explained(f"list the pods of {probe.namespace} for a probe"):
            pods = run.kubernetes.core.list_namespaced_pod(
                probe.namespace,
                label_selector=",".join(f"{key}={value}" for key, value in sorted(probe.selector.items())),
                field_selector=f"status.phase=Running{place}",
                limit=_CANDIDATES,
            ).items
        found += [pod.metadata.name for pod in pods if not pod.metadata.deletion_timestamp]
    return min(found, default=None)
