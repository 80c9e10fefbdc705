"""A stand-in's repair of a machine: a reset that the machine refuses is no repair, and a node that fails stays out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gameday.detectors.load import load_detector
from gameday.host.base import ProgramResult
from gameday.values.results import RepairKind
from gameday_rehearsal.fake_detector.actions import Actions
from gameday_rehearsal.fake_detector.repair import FakeRepairer
from gameday_rehearsal.nodes.in_process import ModelHost
from gameday_rehearsal.nodes.machine import HOST_ENGINE
from gameday_rehearsal.nodes.programs.run import run_program
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

    async def run(argv: list[str]) -> ProgramResult:
        asked.append(argv)
        status = exit_status if "--gpu-reset" in argv else 0
        return ProgramResult(argv=tuple(argv), exit_status=status, stdout="In use by another client", stderr="")

    shown, given_back = await repaired(run)
    assert ["nvidia-smi", "--gpu-reset", "-i", PCI] in asked
    assert given_back is returned
    assert shown == ["NVSentinel: work moved", "NVSentinel: repair begun"] + returned * ["NVSentinel: validated"]


def nothing(host: ModelHost) -> None:
    """Break nothing."""


def loses_a_gpu(host: ModelHost) -> None:
    host.fleet.lost[0, 2] = True


def awaits_a_row_remap(host: ModelHost) -> None:
    host.fleet.remap_pending[0, 2] = True


def has_no_host_engine(host: ModelHost) -> None:
    host.machine.set_unit(HOST_ENGINE, active=False)


@pytest.mark.parametrize(
    ("put_in", "validated"),
    [(nothing, True), (loses_a_gpu, False), (awaits_a_row_remap, False), (has_no_host_engine, False)],
)
async def test_a_node_that_fails_its_validation_stays_out(
    put_in: Callable[[ModelHost], None], validated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The reset of GPU 0 succeeds; what is wrong with the node afterwards is found by the model's own dcgmi."""
    host = ModelHost()
    put_in(host)
    pci = host.machine.gpus[0].sysfs_name

    async def run(argv: list[str]) -> ProgramResult:
        return await run_program(host.machine, argv, 5)

    shown, given_back = await repaired(run, pci)
    assert given_back is validated
    assert ("NVSentinel: validated" in shown) is validated
    assert ("n1 stays out, because its validation failed: dcgmi diag --run 2" in caplog.text) is not validated


async def repaired(run: Callable[[list[str]], Awaitable[ProgramResult]], pci: str = PCI) -> tuple[list[str], bool]:
    """Repair n1 by a GPU reset as NVSentinel's profile says; return the signs shown, and whether it was given back."""
    shown: list[str] = []
    given_back: list[bool] = []

    async def serve(request: web.Request) -> web.Response:
        return web.json_response(text=(await run((await request.json())["argv"])).model_dump_json())

    async def show(node: object, sign: object, said: str) -> None:
        shown.append(said)

    async def give_back() -> None:
        given_back.append(True)

    app = web.Application()
    app.router.add_post("/hosts/n1/call/run", serve)
    stack = load_detector("nvsentinel").repairs
    assert stack is not None
    async with TestServer(app) as hosts:
        repairer = FakeRepairer(
            cast(ApiClient, SimpleNamespace(get=no_pods)),
            cast(Actions, SimpleNamespace(show=show)),
            cast(Reflector, SimpleNamespace(store={"n1": NODE})),
            stack,
            str(hosts.make_url("/hosts")),
        )
        await repairer.repair("n1", RepairKind.GPU_RESET, pci, give_back)
    return shown, bool(given_back)
