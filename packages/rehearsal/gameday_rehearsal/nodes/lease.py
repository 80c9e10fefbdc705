"""A node's Lease: renewed four times within its duration, it shows the cluster that the kubelet is alive."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from gameday_rehearsal.lease_duration import RENEWALS
from kubesim.client import ApiClient, Object
from kubesim.clock import now_utc, rfc3339_micro
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

_ANSWERED_WITHIN_S = 10.0  # kubelet's: a quarter of the usual duration
_RETRY_S = (0.2, 7.0)  # kubelet's: k8s.io/component-helpers apimachinery/lease
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodeLease:
    """A node's Lease; `node_uid` is the Node that owns it, so that both are deleted together.

    `duration_s` is its leaseDurationSeconds.

    A renewal is one PUT of the object as the server last returned it. An error keeps that object: reading and creating
    it again after each error would send three requests instead of one, and an API server that is slow under the load of
    thousands of nodes would never recover.
    """

    def __init__(self, api: ApiClient, node: str, duration_s: int) -> None:
        self.node_uid = ""
        self._duration_s = duration_s
        self._api = api
        self._node = node
        self._path = f"{_LEASES}/{node}"
        self._last: Object | None = None  # as the server last returned it

    async def keep(self, allowed: Callable[[], Awaitable[None]]) -> None:
        """Renew until cancelled, each time `allowed` returns."""
        await asyncio.sleep(random.uniform(0, 1))  # noqa: S311 - spreads the first ones
        # Nodes that registered together must not renew together: their second renewals are spread over a whole period.
        renew_s = self._duration_s / RENEWALS
        wait_s = random.uniform(0, renew_s)  # noqa: S311 - as above
        pause_s = _RETRY_S[0]
        while True:
            await allowed()
            try:
                await self.renew()
            except ApiError as error:
                log.info("lease of %s: %s", self._node, error)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                pause_s = min(pause_s * 2, _RETRY_S[1])
                continue
            await asyncio.sleep(wait_s * random.uniform(0.96, 1.04))  # noqa: S311 - kubelet's jitter
            wait_s, pause_s = renew_s, _RETRY_S[0]

    async def renew(self) -> None:
        """Renew once: one PUT, and more only if the Lease is new, gone, or written by somebody else.

        Raises ApiError. It is then unknown whether the server has taken the renewal; the next PUT may be a conflict,
        after which the Lease is read again.
        """
        if self._last is not None:
            try:
                await self._put(self._last)
                return
            except ApiError as error:
                if not (error.conflict or error.not_found):
                    raise
        try:
            lease = await self._api.get(self._path)
        except ApiError as error:
            if not error.not_found:
                raise
            self._last = await self._create()
            return
        await self._put(lease)

    async def _put(self, lease: Object) -> None:
        """Update the whole object, as kubelet does: the API server has half the work of a patch. Raises ApiError."""
        meta = {key: value for key, value in lease["metadata"].items() if key != "managedFields"}
        renewed = {**lease, "metadata": meta, "spec": {**lease.get("spec", {}), **self._spec()}}
        self._last = await self._api.request("PUT", self._path, renewed, timeout_s=_ANSWERED_WITHIN_S)

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
            "leaseDurationSeconds": self._duration_s,
            "renewTime": rfc3339_micro(now_utc()),
        }
