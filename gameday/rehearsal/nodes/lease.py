"""A node's Lease: renewed every ten seconds, it is how a cluster knows that a kubelet lives."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from kubesim.client import ApiClient, Object
from kubesim.clock import now_utc, rfc3339_micro
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

LEASE_DURATION_S = 40  # kubelet's nodeLeaseDurationSeconds
RENEW_S = 10.0  # a quarter of it, also the time within which a renewal must be answered
_RETRY_S = (0.2, 7.0)  # kubelet's: k8s.io/component-helpers apimachinery/lease
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodeLease:
    """`keep` renews it; `node_uid` is the Node that owns it, so that it goes with the Node."""

    def __init__(self, api: ApiClient, node: str) -> None:
        self.node_uid = ""
        self._api = api
        self._node = node
        self._known: Object | None = None  # as the server last told it

    async def keep(self, allowed: Callable[[], Awaitable[None]]) -> None:
        """Renew until cancelled, whenever `allowed` returns."""
        await asyncio.sleep(random.uniform(0, 1))  # noqa: S311 - spreads the first ones
        pause_s = _RETRY_S[0]
        while True:
            await allowed()
            try:
                await self._renew()
                wait_s = RENEW_S
                pause_s = _RETRY_S[0]
            except ApiError as error:
                log.info("lease of %s: %s", self._node, error)
                self._known = None
                wait_s, pause_s = pause_s, min(pause_s * 2, _RETRY_S[1])
            await asyncio.sleep(wait_s * random.uniform(0.96, 1.04))  # noqa: S311 - kubelet's jitter

    async def _renew(self) -> None:
        """An update of the whole object, as kubelet does: for the API server half the work of a patch."""
        if self._known is None:
            try:
                self._known = await self._create()
                return
            except ApiError as error:
                if not error.conflict:
                    raise
            self._known = await self._api.get(f"{_LEASES}/{self._node}")
        meta = {key: value for key, value in self._known["metadata"].items() if key != "managedFields"}
        lease = {**self._known, "metadata": meta, "spec": {**self._known.get("spec", {}), **self._spec()}}
        path = f"{_LEASES}/{self._node}"
        self._known = await self._api.request("PUT", path, lease, timeout_s=RENEW_S)

    async def _create(self) -> Object:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self.node_uid}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._node, "ownerReferences": [owner]},
            "spec": self._spec(),
        }
        return await self._api.post(_LEASES, lease)

    def _spec(self) -> Object:
        return {
            "holderIdentity": self._node,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": rfc3339_micro(now_utc()),
        }
