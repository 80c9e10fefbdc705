"""How many requests a node's Lease costs, also while the API server errs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday_rehearsal.nodes import lease as lease_module
from gameday_rehearsal.nodes.lease import NodeLease
from kubesim.client import ApiClient, ApiError, Kubeconfig
from tests.rehearsal.nodes.conftest import Program

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class ErringApi(ApiClient):
    """The embedded server, before which a proxy errs: it drops requests, or the answers to them."""

    asked: list[str]
    drop_requests = 0
    drop_answers = 0

    async def request(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(method)
        if self.drop_requests:
            self.drop_requests -= 1
            raise ApiError(504, "Timeout", "the request was dropped")
        answer = await super().request(method, path, *args, **kwargs)
        if self.drop_answers:
            self.drop_answers -= 1
            raise ApiError(0, "Unreachable", "the answer was dropped")
        return answer


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubeconfig]:
    server = Program("kubesim.apiserver", "--data-dir", str(tmp_path_factory.mktemp("api")))
    yield Kubeconfig.load(Path(server.ready["kubeconfig"]))
    server.end()


@pytest.fixture
async def api(kubeconfig: Kubeconfig) -> AsyncIterator[ErringApi]:
    async with ErringApi(kubeconfig, "test") as client:
        client.asked = []
        yield client


@pytest.fixture
async def lease(api: ErringApi, request: pytest.FixtureRequest) -> NodeLease:
    """A Lease that was created, under the test's own name."""
    name = request.node.name.replace("_", "-")
    node = await api.post("/api/v1/nodes", {"metadata": {"name": name}})
    api.asked.clear()
    found = NodeLease(api, name, 40)
    found.node_uid = node["metadata"]["uid"]
    await found.renew()
    assert api.asked == ["GET", "POST"]
    api.asked.clear()
    return found


async def renewed(api: ErringApi, lease: NodeLease) -> str:
    found = await api.get(f"{LEASES}/{lease._node}")
    api.asked.pop()
    return str(found["spec"]["renewTime"])


async def test_a_renewal_is_one_request(api: ErringApi, lease: NodeLease) -> None:
    before = await renewed(api, lease)
    for _ in range(3):
        await lease.renew()
    assert api.asked == ["PUT"] * 3
    assert await renewed(api, lease) > before


async def test_it_stays_one_request_after_errors(api: ErringApi, lease: NodeLease) -> None:
    for _ in range(3):
        api.drop_requests = 1
        with pytest.raises(ApiError):
            await lease.renew()
    await lease.renew()
    assert api.asked == ["PUT"] * 4


async def test_a_renewal_whose_answer_was_lost_costs_one_reading(api: ErringApi, lease: NodeLease) -> None:
    api.drop_answers = 1
    with pytest.raises(ApiError):
        await lease.renew()
    await lease.renew()
    await lease.renew()
    assert api.asked == ["PUT", "PUT", "GET", "PUT", "PUT"]


async def test_a_lease_that_was_deleted_is_created_again(api: ErringApi, lease: NodeLease) -> None:
    await api.delete(f"{LEASES}/{lease._node}")
    api.asked.clear()
    await lease.renew()
    assert api.asked == ["PUT", "GET", "POST"]


async def test_a_new_process_reads_the_lease_before_it_writes(api: ErringApi, lease: NodeLease) -> None:
    again = NodeLease(api, lease._node, 40)
    await again.renew()
    await again.renew()
    assert api.asked == ["GET", "PUT", "PUT"]


async def test_leases_that_began_together_are_renewed_over_the_whole_period(monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(1)
    second: list[float] = []

    class Enough(Exception):
        """Ends `keep` after its third sleep."""

    async def times(count: int) -> list[float]:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == count:
                raise Enough

        async def at_once() -> None:
            return

        kept = NodeLease(None, "n", 40)  # type: ignore[arg-type]
        monkeypatch.setattr(kept, "renew", at_once)
        monkeypatch.setattr(lease_module.asyncio, "sleep", sleep)
        with pytest.raises(Enough):
            await kept.keep(at_once)
        return slept

    for _ in range(200):
        first, spread, period = await times(3)
        assert 0 <= first <= 1
        assert 9.6 <= period <= 10.4
        second.append(spread)
    for tenth in range(10):
        assert any(tenth <= seconds < tenth + 1 for seconds in second), f"none in second {tenth}"


async def test_a_failed_renewal_is_tried_again_soon_and_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    failed = ApiError(504, "Timeout", "no answer")

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 12:
            raise asyncio.CancelledError

    async def at_once() -> None:
        return

    async def fail() -> None:
        raise failed

    kept = NodeLease(None, "n", 40)  # type: ignore[arg-type]
    monkeypatch.setattr(kept, "renew", fail)
    monkeypatch.setattr(lease_module.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await kept.keep(at_once)
    assert slept[1] <= 0.3
    assert 3.5 <= slept[-1] <= 10.5
