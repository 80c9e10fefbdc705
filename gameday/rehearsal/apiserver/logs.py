"""pods/log: fetched from the kubelet of the pod's node and streamed through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from gameday.rehearsal.apiserver import errors
from gameday.rehearsal.apiserver.objects import Objects
from gameday.rehearsal.apiserver.resources import of

Json = dict[str, Any]
_PODS = of("pods")
_PASSED = ("follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes")
_CHUNK = 64 * 1024


def kubelet_url(objects: Objects, namespace: str, name: str, params: Mapping[str, str]) -> str:
    """Where the kubelet has the log; "" while the pod has no node. Raises ApiError 400 or 404."""
    pod = objects.get(_PODS, namespace, name).obj
    spec = pod["spec"]
    names = [item["name"] for item in (*(spec.get("initContainers") or ()), *spec["containers"])]
    container = params.get("container", "")
    if not container and len(spec["containers"]) > 1:
        shown = " ".join(item["name"] for item in spec["containers"])
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{shown}]")
    container = container or spec["containers"][0]["name"]
    if container not in names:
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
    if not spec.get("nodeName"):
        return ""
    node = objects.get(of("nodes"), "", spec["nodeName"]).obj.get("status") or {}
    addresses = {item["type"]: item["address"] for item in node.get("addresses") or []}
    address = addresses.get("InternalIP") or addresses.get("Hostname")
    port = ((node.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    if not address or not port:
        why = f"node {spec['nodeName']} has no InternalIP address or no kubelet port in its status"
        raise errors.ApiError(500, "InternalError", f"cannot read logs: {why}")
    return f"http://{address}:{port}/containerLogs/{quote(namespace)}/{quote(name)}/{quote(container)}"


async def stream(request: web.BaseRequest, session: aiohttp.ClientSession, url: str) -> web.StreamResponse:
    """Pass the kubelet's answer through as it comes. Raises ApiError when the kubelet refuses or is away."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    if not url:
        await response.prepare(request)
        return response
    passed = {key: value for key, value in request.query.items() if key in _PASSED}
    try:
        async with session.get(url, params=passed) as upstream:
            if upstream.status != 200:
                text = (await upstream.text()).strip()
                code = upstream.status if upstream.status in (400, 404) else 500
                reason = {400: "BadRequest", 404: "NotFound"}.get(code, "InternalError")
                raise errors.ApiError(code, reason, text or f"kubelet answered {upstream.status}")
            await response.prepare(request)
            async for chunk in upstream.content.iter_chunked(_CHUNK):
                await response.write(chunk)
            await response.write_eof()
    except (aiohttp.ClientError, TimeoutError) as error:
        if response.prepared:
            return response
        raise errors.ApiError(500, "InternalError", f'Get "{url}": {error}') from error
    except ConnectionError:
        pass  # the client left
    return response
