"""A stopped unit that the node needs: timers of the host stop and start it."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from gameday.errors import HostError
from gameday.faults import critical_unit_stopped
from gameday.faults.critical_unit_stopped import CriticalUnitStoppedFault, CriticalUnitStoppedParameters, NeededUnit
from tests.faults.live_host import LiveHost, call, until

pytestmark = pytest.mark.usefixtures("soon")
CRITICAL = CriticalUnitStoppedFault()

KUBELET = CriticalUnitStoppedParameters(unit=NeededUnit.KUBELET, hold=timedelta(seconds=1))


async def test_what_systemd_stops_with_containerd_is_started_with_it_again() -> None:
    host = LiveHost()
    host.machine.required_by = {"containerd": ("kubelet",), "kubelet": ("ssh", "nvidia-dcgm-exporter")}
    host.machine.set_unit("nvidia-dcgm-exporter", active=False)  # off before: not ours to start
    parameters = KUBELET.model_copy(update={"unit": NeededUnit.CONTAINERD})
    state = (await call(CRITICAL.inject, parameters, 0, host)).undo_state
    assert state["with"] == "kubelet.service ssh.service"
    await until(lambda: not host.machine.is_active("kubelet"))
    host.machine.set_unit("containerd", active=True)
    assert not await call(CRITICAL.verify_undone, parameters, 0, host, state), "the kubelet is still down"
    await until(lambda: host.machine.is_active("ssh") and host.machine.is_active("kubelet"))
    await until(lambda: not host.machine.timers)
    assert await call(CRITICAL.verify_undone, parameters, 0, host, state)
    assert not host.machine.is_active("nvidia-dcgm-exporter")


async def test_an_undo_starts_what_systemd_stopped_with_containerd() -> None:
    host = LiveHost()
    host.machine.required_by = {"containerd": ("kubelet",)}
    parameters = KUBELET.model_copy(update={"unit": NeededUnit.CONTAINERD, "hold": timedelta(hours=1)})
    state = (await call(CRITICAL.inject, parameters, 0, host)).undo_state
    await until(lambda: not host.machine.is_active("kubelet"))
    await call(CRITICAL.undo, parameters, 0, host, state)
    assert host.machine.is_active("containerd")
    assert host.machine.is_active("kubelet")


async def test_the_host_stops_and_starts_a_needed_unit_with_no_agent_alive() -> None:
    host = LiveHost()
    evidence = await call(CRITICAL.inject, KUBELET, 0, host)
    assert host.machine.is_active("kubelet"), "the injector's word has to leave the node first"
    assert evidence.lines[1] == "host timer: systemctl stop kubelet in 0.1 s"
    await until(lambda: not host.machine.is_active("kubelet"))
    assert not await call(CRITICAL.verify_undone, KUBELET, 0, host, {})
    await until(lambda: host.machine.is_active("kubelet"))
    assert await call(CRITICAL.verify_undone, KUBELET, 0, host, {})


async def test_a_hold_sees_the_unit_go_and_an_undo_brings_it_back_and_leaves_no_timer() -> None:
    host, ended = LiveHost(), threading.Event()
    parameters = KUBELET.model_copy(update={"hold": timedelta(hours=1)})
    await call(CRITICAL.inject, parameters, 0, host)
    holding = asyncio.create_task(call(CRITICAL.hold, parameters, 0, host, ended))
    await until(lambda: not host.machine.is_active("kubelet"))
    ended.set()
    assert await holding in (
        ("kubelet was loaded, inactive at the end of the hold",),
        ("ended before kubelet stopped",),
    )
    undone = await call(CRITICAL.undo, parameters, 0, host, {})
    assert undone.lines == ("gameday-start-kubelet.timer cancelled", "systemctl start kubelet")
    assert host.machine.timers == {}
    assert await call(CRITICAL.verify_undone, parameters, 0, host, {})


async def test_an_undo_before_the_stop_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_unit_stopped, "DELAY_S", 3600.0)
    host = LiveHost()
    parameters = KUBELET.model_copy(update={"hold": timedelta(hours=1)})
    await call(CRITICAL.inject, parameters, 0, host)
    assert not await call(CRITICAL.verify_undone, parameters, 0, host, {}), "a timer of ours is due"
    await call(CRITICAL.undo, parameters, 0, host, {})
    assert host.machine.timers == {}
    assert host.machine.is_active("kubelet")


async def test_a_second_order_is_refused_while_the_first_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_unit_stopped, "DELAY_S", 3600.0)
    host = LiveHost()
    await call(CRITICAL.inject, KUBELET, 0, host)
    with pytest.raises(HostError, match=r"exit 1: Failed to start transient timer unit: .* already loaded"):
        await call(CRITICAL.inject, KUBELET, 0, host)
    await call(CRITICAL.undo, KUBELET, 0, host, {})
