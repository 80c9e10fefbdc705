"""A stand-in's repair of a machine: a reset that the machine refuses is no repair."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gameday.detectors.load import load_detector
from gameday.host.base import ProgramResult
from gameday.rehearsal.fake_detector.actions import Actions
from gameday.rehearsal.fake_detector.repair import FakeRepairer
from gameday.values.results import RepairKind
from kubesim.client import ApiClient, Reflector

PCI = "0000:4e:00"
NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": "8"},
    },
}


async def no_pods(path: str, query: dict[str, str]) -> dict[str, Any]:
    return {"items": []}


@pytest.mark.parametrize(("exit_status", "returned"), [(0, True), (3, False)])
async def test_a_node_is_given_back_only_after_a_reset_that_was_not_refused(exit_status: int, returned: bool) -> None:
    asked: list[list[str]] = []
    shown: list[str] = []
    given_back: list[bool] = []

    async def run(request: web.Request) -> web.Response:
        argv = (await request.json())["argv"]
        asked.append(argv)
        status = exit_status if "--gpu-reset" in argv else 0
        result = ProgramResult(argv=tuple(argv), exit_status=status, stdout="In use by another client", stderr="")
        return web.json_response(text=result.model_dump_json())

    async def show(node: object, sign: object, said: str) -> None:
        shown.append(said)

    async def give_back() -> None:
        given_back.append(True)

    app = web.Application()
    app.router.add_post("/hosts/n1/run", run)
    stack = load_detector("nvsentinel").repairs
    assert stack is not None
    stack = stack.model_copy(update={"hops": stack.hops.model_copy(update={"validated": None})})
    async with TestServer(app) as hosts:
        repairer = FakeRepairer(
            cast(ApiClient, SimpleNamespace(get=no_pods)),
            cast(Actions, SimpleNamespace(show=show)),
            cast(Reflector, SimpleNamespace(store={"n1": NODE})),
            stack,
            str(hosts.make_url("")).rstrip("/"),
        )
        await repairer.repair("n1", RepairKind.GPU_RESET, PCI, give_back)
    assert ["nvidia-smi", "--gpu-reset", "-i", PCI] in asked
    assert asked[-1][-2:] == ["-pm", "1"]
    assert bool(given_back) is returned
    assert shown == ["NVSentinel: work moved", "NVSentinel: repair begun"]
