"""The client against a scripted server: the answers a real one gives only when things go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from kubesim.client import ApiClient, Reflector
from kubesim.errors import ApiError, KubeconfigError
from kubesim.kubeconfig import Kubeconfig

PODS = "/api/v1/pods"


def pod(name: str, version: int, uid: str | None = None) -> dict[str, Any]:
    meta = {"name": name, "namespace": "d", "uid": uid or name, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": meta}


class Script:
    """Answers each list and each watch with the next scripted handler; the last one repeats."""

    def __init__(self) -> None:
        self.lists: list[Callable[[web.Request], web.Response]] = []
        self.watches: list[list[dict[str, Any]] | int] = []
        self.seen: list[dict[str, str]] = []
        self.agents: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(dict(request.query))
        self.agents.add(request.headers["User-Agent"])
        if "watch" not in request.query:
            return self.lists.pop(0)(request)
        script = self.watches.pop(0) if self.watches else None
        if isinstance(script, int):
            return refuse(script)(request)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if script is None:
            await asyncio.Event().wait()  # nothing more happens until the client leaves
        for event in script or ():
            await response.write(orjson.dumps(event) + b"\n")
        return response


def items(*pods: dict[str, Any], version: int, token: str = "") -> Callable[[web.Request], web.Response]:
    body = {"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(pods)}
    return lambda _: web.json_response(body)


def refuse(status: int, **headers: str) -> Callable[[web.Request], web.Response]:
    body = {"kind": "Status", "reason": "Because", "message": "the script says so"}
    return lambda _: web.json_response(body, status=status, headers=headers)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def api(script: Script) -> AsyncIterator[ApiClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with ApiClient(Kubeconfig(f"http://{host}:{port}"), "tester") as client:
        yield client
    await runner.cleanup()


async def follow(reflector: Reflector, until: Callable[[], bool]) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    changed = asyncio.Event()

    def note(kind: str) -> Callable[..., Awaitable[None] | None]:
        def handler(*objects: dict[str, Any]) -> None:
            calls.append((kind, objects[-1]["metadata"]["name"]))
            changed.set()

        return handler

    reflector.on(note("add"), note("update"), note("delete"))
    task = asyncio.create_task(reflector.run())
    try:
        while not until():
            await changed.wait()
            changed.clear()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return calls


async def test_drops_managed_fields_that_only_the_server_reads(script: Script, api: ApiClient) -> None:
    listed, changed = pod("a", 1), pod("b", 6)
    for one in (listed, changed):
        one["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    script.lists = [items(listed, version=5)]
    script.watches = [[{"type": "ADDED", "object": changed}]]
    pods = Reflector(api, PODS)
    await follow(pods, lambda: len(pods.store) == 2)
    assert not [one for one in pods.store.values() if "managedFields" in one["metadata"]]


async def test_lists_in_pages_then_follows(script: Script, api: ApiClient) -> None:
    script.lists = [items(pod("a", 1), version=5, token="next"), items(pod("b", 2), version=5)]
    script.watches = [
        [
            {"type": "MODIFIED", "object": pod("a", 6)},
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
            {"type": "DELETED", "object": pod("b", 10)},
        ]
    ]
    reflector = Reflector(api, PODS, label_selector="app=x")
    calls = await follow(reflector, lambda: "d/b" not in reflector.store and "d/a" in reflector.store)
    assert calls == [("add", "a"), ("add", "b"), ("update", "a"), ("delete", "b")]
    assert [query.get("continue") for query in script.seen[:2]] == [None, "next"]
    assert {query["labelSelector"] for query in script.seen} == {"app=x"}
    assert all(agent.startswith("tester/") for agent in script.agents)


async def test_resumes_where_the_watch_broke_off(script: Script, api: ApiClient) -> None:
    script.lists = [items(version=5)]
    script.watches = [[{"type": "ADDED", "object": pod("a", 7)}], 503, [{"type": "ADDED", "object": pod("b", 8)}]]
    reflector = Reflector(api, PODS)
    assert await follow(reflector, lambda: len(reflector.store) == 2) == [("add", "a"), ("add", "b")]
    assert [query["resourceVersion"] for query in script.seen[1:4]] == ["5", "7", "7"]
    assert reflector.listening_since is not None


@pytest.mark.parametrize("how", ["event", "status"])
async def test_gone_lists_again_and_reports_the_differences(script: Script, api: ApiClient, how: str) -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    script.lists = [
        items(pod("a", 1), pod("b", 2), pod("c", 3), version=5),
        items(pod("b", 2), pod("c", 8), pod("a", 9, uid="another"), version=9),
    ]
    script.watches = [[gone] if how == "event" else 410]
    reflector = Reflector(api, PODS)
    calls = await follow(reflector, lambda: reflector.store.get("d/a", {}).get("metadata", {}).get("uid") == "another")
    assert calls[:3] == [("add", "a"), ("add", "b"), ("add", "c")]
    assert calls[3:] == [("update", "c"), ("delete", "a"), ("add", "a")]


@pytest.mark.parametrize("status", [429, 503])
async def test_waits_as_long_as_retry_after_asks(script: Script, api: ApiClient, status: int) -> None:
    script.lists = [refuse(status, **{"Retry-After": "0"}), items(version=1)]
    assert (await api.get(PODS))["items"] == []
    script.lists = [refuse(status)]
    with pytest.raises(ApiError) as caught:
        await api.get(PODS)
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, "Because", "the script says so")


async def test_a_server_that_is_away_is_an_api_error(unused_tcp_port: int) -> None:
    async with ApiClient(Kubeconfig(f"http://127.0.0.1:{unused_tcp_port}"), "tester") as client:
        with pytest.raises(ApiError) as caught:
            await client.get(PODS)
    assert caught.value.unreachable
    assert str(unused_tcp_port) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("current-context: a\ncontexts: []\n", "contexts: a"),
        ("- a list\n", "not a mapping"),
        ("a: [", "not YAML"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'http://x'}}]\nusers: [{name: u, user: {exec: {}}}]\n",
            "exec credentials",
        ),
    ],
)
def test_unusable_kubeconfig_says_why(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=says) as caught:
        Kubeconfig.load(path)
    assert str(path) in str(caught.value)


def test_kubeconfig_hides_its_token(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://x/'}}]\nusers: [{name: u, user: {token: s3cret}}]\n"
    )
    config = Kubeconfig.load(path)
    assert (config.server, config.token) == ("http://x", "s3cret")
    assert "s3cret" not in repr(config)
