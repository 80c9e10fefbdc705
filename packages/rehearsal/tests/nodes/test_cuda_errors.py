"""The stand-in of the interception library in simulated containers, and the volume it reads."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gameday.values.cuda_switch import ANNOTATION, CudaError, CudaSwitch, parse_switch, was_felt, why_not_loaded
from gameday_rehearsal.nodes import containers
from gameday_rehearsal.nodes.containers import ContainerProcess, start_container
from gameday_rehearsal.nodes.sandbox import Sandbox
from tests.interception.test_cuda_error import MARK, NOW, VALUES
from tests.rehearsal.nodes.conftest import new_rack

ITEM = {"path": "cuda-error", "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}}


def pod(annotation: str = "", **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "training", "name": "p", "uid": "u1", "annotations": {ANNOTATION: annotation}},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {
                    "name": "trainer",
                    "image": "trainer",
                    "env": [
                        {"name": "LD_PRELOAD", "value": "/cuda/libgameday-cuda-error.so"},
                        {"name": "GAMEDAY_CUDA_SWITCH", "value": "/switch/cuda-error"},
                    ],
                    "volumeMounts": [{"name": "cuda", "mountPath": "/cuda"}, {"name": "s", "mountPath": "/switch"}],
                    **container,
                }
            ],
            "volumes": [{"name": "cuda", "emptyDir": {}}, {"name": "s", "downwardAPI": {"items": [ITEM]}}],
        },
    }


def value(*, for_new: bool = False, minutes: float = 5) -> str:
    until = datetime.now(UTC) + timedelta(minutes=minutes)
    return str(CudaSwitch(CudaError.ECC_UNCORRECTABLE.code, until, for_new, MARK))


def lines(process: ContainerProcess) -> list[str]:
    return [line.text for line in process.log.read(0)[0]]


async def started(folder: Path, of: dict[str, Any]) -> tuple[ContainerProcess, Sandbox]:
    sandbox = Sandbox(folder, of)
    return await start_container(of, of["spec"]["containers"][0], sandbox, 0, {}, new_rack().machines[0]), sandbox


async def test_an_annotation_ends_a_running_process_and_the_log_says_why(tmp_path: Path) -> None:
    process, sandbox = await started(tmp_path, pod())
    assert not why_not_loaded(lines(process))
    assert not sandbox.project(pod()), "nothing has changed"
    process.look()
    assert sandbox.project(pod(value()))
    process.look()
    assert await asyncio.wait_for(process.wait(), 10) == 1
    assert was_felt(lines(process), MARK)
    assert lines(process)[-1] == "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize("for_new", [False, True])
async def test_a_process_that_starts_later_fails_only_where_the_value_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_new: bool
) -> None:
    monkeypatch.setattr(containers, "_FIRST_CALL_AFTER_S", 0.0)
    process, _ = await started(tmp_path, pod(value(for_new=for_new)))
    called = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, called.set)  # after the process's own first call
    await called.wait()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == (1 if for_new else 128 + 15)
    assert was_felt(lines(process), MARK) is for_new


async def test_a_value_that_is_over_ends_nothing(tmp_path: Path) -> None:
    process, sandbox = await started(tmp_path, pod())
    assert sandbox.project(pod(value(minutes=-1)))
    process.look()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == 128 + 15


NO_MOUNT = [{"name": "s", "mountPath": "/switch"}]


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"env": []}, "no process in it has said"),
        ({"volumeMounts": NO_MOUNT}, "the loader could not load libgameday-cuda-error.so: ld.so: object"),
    ],
)
async def test_without_the_library_the_value_ends_nothing(tmp_path: Path, container: dict[str, Any], why: str) -> None:
    process, sandbox = await started(tmp_path, pod(**container))
    assert why in why_not_loaded(lines(process))
    assert sandbox.project(pod(value(for_new=True), **container))
    process.look()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == 128 + 15


@pytest.mark.parametrize(("text", "meant"), VALUES)
def test_the_stand_in_reads_a_value_as_the_library_does(
    tmp_path: Path, text: str, meant: tuple[int, int, bool] | None
) -> None:
    sandbox = Sandbox(tmp_path, pod())
    sandbox.project(pod(text))
    written = (sandbox.volume("s") / "cuda-error").read_text(encoding="utf-8")
    found = parse_switch(written, datetime.fromtimestamp(NOW, UTC))
    assert (found and (found.code, int(found.until.timestamp()), found.for_new_processes)) == meant


@pytest.mark.parametrize(
    ("path", "field", "text"),
    [
        ("deep/labels", "metadata.labels['app']", "trainer"),
        ("none", "metadata.labels['missing']", ""),
        ("../../../out", "metadata.labels['app']", None),
        ("name", "metadata.name", None),
    ],
)
def test_a_volume_has_what_a_field_names_and_nothing_outside_the_pod(
    tmp_path: Path, path: str, field: str, text: str | None
) -> None:
    made = pod()
    made["metadata"]["labels"] = {"app": "trainer"}
    made["spec"]["volumes"][1]["downwardAPI"]["items"] = [{"path": path, "fieldRef": {"fieldPath": field}}]
    sandbox = Sandbox(tmp_path / "pods", made)
    file = sandbox.volume("s") / path
    assert (file.read_text() if file.exists() else None) == text
