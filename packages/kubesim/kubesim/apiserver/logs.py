"""pods/log: fetch the log from the kubelet of the pod's node, and stream it to the client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from kubesim.apiserver import errors
from kubesim.apiserver.objects import Objects
from kubesim.apiserver.resources import resource_named
from kubesim.certificates import Authority

Json = dict[str, Any]
_PODS = resource_named("pods")
_PASSED = ("follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes")
_CHUNK = 64 * 1024
_CONNECT_S = 5


def kubelet_session(authority: Authority) -> aiohttp.ClientSession:
    """Open a session with kubelets that the authority vouches for, under an API server's name."""
    pair = authority.client("apiserver-kubelet-client", "kube-apiserver-kubelet-client")
    tls = ssl.create_default_context(cafile=str(authority.certificate))
    tls.load_cert_chain(pair.certificate, pair.key)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=timeout)


def log_url(objects: Objects, namespace: str, name: str, params: Mapping[str, str]) -> str:
    """Return the URL of the log at the kubelet; empty while the pod has no node.

    Raises StatusError 400 or 404.
    """
    _check_options(params)
    pod = objects.get(_PODS, namespace, name).obj
    spec = pod["spec"]
    names = [item["name"] for item in (*(spec.get("initContainers") or ()), *spec["containers"])]
    container = params.get("container", "")
    if not container and len(spec["containers"]) > 1:
        shown = " ".join(names)
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{shown}]")
    container = container or spec["containers"][0]["name"]
    if container not in names:
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
    if not spec.get("nodeName"):
        return ""
    stored = objects.store.get("nodes", "", spec["nodeName"])
    if stored is None:
        # The real server looks for the node, but its message speaks of a pod.
        raise errors.not_found(_PODS, spec["nodeName"])
    node = stored.obj.get("status") or {}
    addresses = {item["type"]: item["address"] for item in node.get("addresses") or []}
    address = addresses.get("InternalIP") or addresses.get("Hostname")
    port = ((node.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    if not address or not port:
        why = f"node {spec['nodeName']} has no InternalIP address or no kubelet port in its status"
        raise errors.StatusError(500, "InternalError", f"cannot read logs: {why}")
    return f"https://{address}:{port}/containerLogs/{quote(namespace)}/{quote(name)}/{quote(container)}"


def _check_options(params: Mapping[str, str]) -> None:
    """Refuse amounts that are no whole numbers, by StatusError 400."""
    for option in ("tailLines", "sinceSeconds", "limitBytes"):
        if not params.get(option, "0").isdecimal():
            raise errors.bad_request(f"{option}: {params[option]!r} is no whole number")


async def stream_log(request: web.BaseRequest, session: aiohttp.ClientSession, url: str) -> web.StreamResponse:
    """Pass the kubelet's answer on as it comes. Raises StatusError if the kubelet refuses or does not answer."""
    if not url:
        return web.Response(status=204)
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    passed = {key: value for key, value in request.query.items() if key in _PASSED}
    try:
        async with session.get(url, params=passed) as upstream:
            if upstream.status != 200:
                text = (await upstream.text()).strip()
                code = upstream.status if upstream.status in (400, 404) else 500
                reason = {400: "BadRequest", 404: "NotFound"}.get(code, "InternalError")
                raise errors.StatusError(code, reason, text or f"kubelet answered {upstream.status}")
            await response.prepare(request)
            async for chunk in upstream.content.iter_chunked(_CHUNK):
                await response.write(chunk)
            await response.write_eof()
    except (aiohttp.ClientError, TimeoutError) as error:
        if response.prepared:
            return response
        raise errors.StatusError(500, "InternalError", f'Get "{url}": {error}') from error
    except ConnectionError:
        pass  # the client left
    return response
