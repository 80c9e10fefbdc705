"""Pods with CUDA calls that their owners allow to fail: found by label, switched by annotation, heard by their log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gameday.api_clients.connection import tls_context
from gameday.api_clients.exchange import Exchange, Failed
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday.values.cuda_switch import ANNOTATION, CudaSwitch
from gameday.values.wanted_pods import WantedPods

_NOT_FOUND, _CONFLICT = 404, 409
_GONE = (_NOT_FOUND, _CONFLICT)
"""Answers to a patch with a UID if the pod is gone or another one has its name."""
_MOST_PODS = 50
_MOST_CONTAINERS = 8
_NO_LOG = (400, _NOT_FOUND)
"""Answers for a container that has not begun yet, or that replaced no other."""
_FIRST_BYTES = 256 << 10
_LAST_LINES = 1000


@dataclass(frozen=True)
class CudaPod:
    """A pod that may be switched."""

    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """The path of the object's URL."""
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods/{quote(self.name, safe='')}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class CudaPods:
    """The pods of one node that a fault may switch. Every method raises HostError if the API server refuses."""

    def __init__(self, server: ApiServer, wanted: WantedPods) -> None:
        """Connect with the account of the agent's pod. Raises HostError."""
        if not server.node:
            raise HostError("this agent was not told its node's name, so that it cannot find that node's pods")
        self._node = server.node
        self._wanted = wanted
        self._exchange = Exchange(server, tls_context(server))

    def only_one(self) -> CudaPod:
        """Return the only running pod on this node with the labels.

        Raises:
            HostError: There is none, there are several, or it is switched on already.
        """
        found = [pod for pod in self._listed() if (pod.get("status") or {}).get("phase") == "Running"]
        where = f"in namespace {self._wanted.namespace} on {self._node} with the labels {self._wanted.selector}"
        if not found:
            raise HostError(f"no pod runs {where}: CUDA calls fail only in a pod whose owners consent by that label")
        if len(found) > 1:
            names = ", ".join(sorted(str(pod["metadata"]["name"]) for pod in found))
            raise HostError(f"{len(found)} pods run {where} ({names}), and one alone may fail: name more of its labels")
        pod = _pod(found[0])
        if value := _value(found[0]):
            raise HostError(
                f"pod {pod} has the annotation {ANNOTATION} already ({value[:60]}): `gameday reap` undoes the run that "
                f"left it; else kubectl -n {pod.namespace} annotate pod {pod.name} {ANNOTATION}-"
            )
        return pod

    def switched_on(self) -> list[CudaPod]:
        """Return the pods on this node that have the labels and a value."""
        return [_pod(pod) for pod in self._listed() if _value(pod)]

    def is_on(self, pod: CudaPod) -> bool:
        """Return True if the pod has a value; a pod that is gone has none."""
        found = self._ask("GET", pod.path, fine=_GONE)
        return found is not None and found["metadata"]["uid"] == pod.uid and bool(_value(found))

    def switch(self, pod: CudaPod, value: CudaSwitch | None) -> bool:
        """Give the pod this value, or none; return False if the pod is gone."""
        # The UID makes the server refuse if another pod has taken the name.
        annotations = {ANNOTATION: str(value) if value else None}
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        return self._ask("PATCH", pod.path, body=body, fine=_GONE) is not None

    def first_lines(self, pod: CudaPod) -> Iterator[str]:
        """Yield the first lines of the pod's running containers, where their processes say what they have loaded."""
        yield from self._log(pod, {"limitBytes": str(_FIRST_BYTES)})

    def last_lines(self, pod: CudaPod) -> Iterator[str]:
        """Yield the last lines of the pod's containers, and of those that they replaced."""
        yield from self._log(pod, {"tailLines": str(_LAST_LINES)})
        yield from self._log(pod, {"tailLines": str(_LAST_LINES), "previous": "true"})

    def _log(self, pod: CudaPod, part: dict[str, str]) -> Iterator[str]:
        found = self._ask("GET", pod.path, fine=_GONE)
        containers = found["spec"]["containers"][:_MOST_CONTAINERS] if found else ()
        for container in containers:
            query = {"container": str(container["name"]), **part}
            try:
                text = self._exchange.ask("GET", f"{pod.path}/log", query=query, accept="*/*")
            except Failed as error:
                if error.status in _NO_LOG:
                    continue
                raise HostError(f"log of pod {pod}: {error}") from None
            yield from text.decode("utf-8", "replace").splitlines()

    def _listed(self) -> list[dict[str, Any]]:
        query = {
            "labelSelector": self._wanted.selector,
            "fieldSelector": f"spec.nodeName={self._node}",
            "limit": str(_MOST_PODS),
        }
        path = f"/api/v1/namespaces/{quote(self._wanted.namespace, safe='')}/pods"
        found = self._ask("GET", path, query=query) or {}
        return [pod for pod in found.get("items") or () if not pod["metadata"].get("deletionTimestamp")]

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        fine: tuple[int, ...] = (),
    ) -> dict[str, Any] | None:
        """Return the answer's object; None for a status of `fine`."""
        sent = None if body is None else json.dumps(body).encode()
        try:
            raw = self._exchange.ask(method, path, query=query, body=sent, content_type="application/merge-patch+json")
            found: dict[str, Any] = json.loads(raw)
            return found
        except Failed as error:
            if error.status in fine:
                return None
            hint = f"; is deploy/cuda-error applied in {self._wanted.namespace}?" if error.status == 403 else ""
            raise HostError(f"{method} {path}: {error}{hint}") from None
        except ValueError as error:
            raise HostError(f"{method} {path}: the answer is not JSON: {error}") from None


def _pod(pod: dict[str, Any]) -> CudaPod:
    meta = pod["metadata"]
    return CudaPod(str(meta["namespace"]), str(meta["name"]), str(meta["uid"]))


def _value(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(ANNOTATION) or "")
