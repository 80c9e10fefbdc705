"""The API account of a pod on a virtual node: the volume that admission adds, filled and renewed like by a kubelet.

Only pods with a real process get one: nobody would read the token of a simulated container, and a thousand training
pods would ask for as many tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from ssl import DER_cert_to_PEM_cert
from typing import Self

from gameday.host.api_account import AUTHORITY, NAMESPACE, TOKEN
from kubesim.client import ApiClient, Object
from kubesim.clock import now_utc, parse_time
from kubesim.errors import ApiError
from kubesim.kubeconfig import Kubeconfig
from kubesim.private_file import write_private

log = logging.getLogger(__name__)

_DEFAULT_TOKEN_S = 3600
"""ServiceAccountTokenProjection.expirationSeconds if the volume names none (kubernetes.io, Projected Volumes)."""
_RENEWED_AFTER = 0.8
"""Share of a token's lifetime after which a kubelet asks for the next (pkg/kubelet/token/token_manager.go)."""
_TRY_AGAIN_S = (1.0, 60.0)


@dataclass(frozen=True)
class ApiAddress:
    """The API server as the pods of the virtual nodes reach it: its URL, and its authority's certificates as PEM."""

    url: str
    authority: str

    @classmethod
    def of(cls, kubeconfig: Kubeconfig) -> Self:
        """Return a kubeconfig's address."""
        found = kubeconfig.tls.get_ca_certs(binary_form=True) if kubeconfig.tls else []
        return cls(kubeconfig.server, "".join(DER_cert_to_PEM_cert(one) for one in found))


def token_volume(pod: Object) -> Object | None:
    """Return the volume of the pod's spec that holds a service account's token, or None if there is none."""
    volumes = pod["spec"].get("volumes") or ()
    return next((volume for volume in volumes if _token_source(volume) is not None), None)


def _token_source(volume: Object) -> Object | None:
    sources = (volume.get("projected") or {}).get("sources") or ()
    return next((source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source), None)


class ApiAccount:
    """The files of one pod's account: a token bound to the pod, the server's authority, the namespace."""

    def __init__(self, pod: Object, folder: Path, api: ApiClient, address: ApiAddress) -> None:
        """Prepare the account of a pod that has a token volume; `folder` is this machine's folder for the volume."""
        volume = token_volume(pod)
        assert volume is not None
        source = _token_source(volume) or {}
        meta = pod["metadata"]
        self.volume: str = volume["name"]
        self.url = address.url
        self._folder = folder
        self._api = api
        self._authority = address.authority
        self._namespace: str = meta["namespace"]
        account = pod["spec"].get("serviceAccountName") or "default"
        self._path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        self._request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [source["audience"]] if source.get("audience") else [],
                "expirationSeconds": source.get("expirationSeconds") or _DEFAULT_TOKEN_S,
                "boundObjectRef": bound,
            },
        }
        self._renew_at: datetime | None = None

    async def provide(self) -> None:
        """Write all of the files, with a new token. Raises ApiError, and OSError."""
        write_private(self._folder / AUTHORITY, self._authority.encode())
        write_private(self._folder / NAMESPACE, self._namespace.encode())
        await self._renew()

    async def keep(
        self,
        now: Callable[[], datetime] = now_utc,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Renew the token in place before it expires, until cancelled. Call `provide` first."""
        pause_s = _TRY_AGAIN_S[0]
        while True:
            assert self._renew_at is not None
            await sleep(max(0.0, (self._renew_at - now()).total_seconds()))
            try:
                await self._renew()
                pause_s = _TRY_AGAIN_S[0]
            except (ApiError, OSError) as error:  # the old token works a while longer
                log.warning("%s: the token cannot be renewed yet: %s", self._path, error)
                await sleep(pause_s)
                pause_s = min(pause_s * 2, _TRY_AGAIN_S[1])

    def remove(self) -> None:
        """Remove the files, because the pod has ended."""
        for name in (TOKEN, AUTHORITY, NAMESPACE):
            (self._folder / name).unlink(missing_ok=True)

    async def _renew(self) -> None:
        answer = await self._api.post(self._path, self._request)
        write_private(self._folder / TOKEN, answer["status"]["token"].encode())
        lifetime = timedelta(seconds=answer["spec"]["expirationSeconds"])
        self._renew_at = parse_time(answer["status"]["expirationTimestamp"]) - lifetime * (1 - _RENEWED_AFTER)
