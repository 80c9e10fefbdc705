"""Units stopped, the node rebooted and switched off: by systemd, read back, and back again whoever is still alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults import critical_unit_stopped, node_reboot, node_shutdown
from gameday.faults.base import Fault
from gameday.faults.critical_unit_stopped import CriticalUnitStoppedFault, CriticalUnitStoppedParameters, NeededUnit
from gameday.faults.node_reboot import NodeRebootFault, NodeRebootParameters
from gameday.faults.node_shutdown import NodeShutdownFault, NodeShutdownParameters
from gameday.faults.registry import parse_parameters
from gameday.faults.unit_stopped import UnitStoppedFault, UnitStoppedParameters, WatchingUnit
from gameday.host.base import ProgramResult
from gameday.rehearsal.nodes.programs.run import run_program
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

STOPPED, CRITICAL, REBOOT, SHUTDOWN = (
    UnitStoppedFault(),
    CriticalUnitStoppedFault(),
    NodeRebootFault(),
    NodeShutdownFault(),
)
KUBELET = CriticalUnitStoppedParameters(unit=NeededUnit.KUBELET, hold=timedelta(seconds=1))
OFF = NodeShutdownParameters().model_copy(update={"off_for": timedelta(seconds=1)})


class LiveHost(ModelHost):
    """Its programs run on the test's own loop, so that what they schedule happens."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()

    def run(self, argv: Sequence[str], timeout_s: float) -> ProgramResult:
        running: Coroutine[Any, Any, ProgramResult] = run_program(self.machine, list(argv), timeout_s)
        return asyncio.run_coroutine_threadsafe(running, self.loop).result(10)


async def call(method: Callable[..., Any], *arguments: Any) -> Any:
    """A fault's method beside the loop that its programs need."""
    return await asyncio.to_thread(method, *arguments)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (critical_unit_stopped, node_reboot, node_shutdown):
        monkeypatch.setattr(module, "IN_S", 0.1)
    monkeypatch.setattr("gameday.faults.critical_unit_stopped._LOOK_EVERY_S", 0.01)


@pytest.mark.parametrize("unit", list(WatchingUnit))
def test_a_unit_is_stopped_and_started_again_whatever_is_known_of_before(unit: WatchingUnit) -> None:
    host, parameters = ModelHost(), UnitStoppedParameters(unit=unit)
    evidence = STOPPED.inject(parameters, 0, host)
    assert not host.machine.is_active(unit)
    assert evidence.lines[0] == f"before: {unit} loaded, active"
    assert evidence.lines[2] == "after: loaded, inactive"
    for state in (evidence.undo_state, {}, {}):
        STOPPED.undo(parameters, 0, host, state)
        assert STOPPED.verify_undone(parameters, 0, host, state)
    assert host.machine.is_active(unit)


@pytest.mark.parametrize(
    ("fault", "parameters"),
    [(STOPPED, UnitStoppedParameters(unit=WatchingUnit.EXPORTER)), (CRITICAL, KUBELET)],
    ids=["watching", "needed"],
)
def test_a_unit_that_is_off_or_not_there_is_refused(fault: Fault[Any], parameters: Any) -> None:
    host = ModelHost()
    host.machine.set_unit(parameters.unit, active=False)
    with pytest.raises(HostError, match=f"{parameters.unit} is inactive already: there is nothing to stop"):
        fault.prior(parameters, 0, host)
    elsewhere = FakeHost()
    elsewhere.programs = lambda argv: result(argv, stdout="LoadState=not-found\nActiveState=inactive\n")
    with pytest.raises(HostError, match="is not-found on this node: is it there under another name, or in a pod"):
        fault.prior(parameters, 0, elsewhere)


def test_a_node_without_systemd_is_told() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, 127, stderr="systemctl: not found\n")
    with pytest.raises(HostError, match="no systemctl on this node"):
        STOPPED.prior(UnitStoppedParameters(unit=WatchingUnit.EXPORTER), 0, host)


def test_a_stop_that_stopped_nothing_is_an_error() -> None:
    host = ModelHost()
    host.ignore.add("stop")
    with pytest.raises(HostError, match=r"said yes, and the unit is loaded, active"):
        STOPPED.inject(UnitStoppedParameters(unit=WatchingUnit.EXPORTER), 0, host)


def test_a_refused_stop_is_told_in_systemds_words() -> None:
    host = FakeHost()
    told = "LoadState=loaded\nActiveState=active\n"
    host.programs = lambda argv: (
        result(argv, stdout=told) if "show" in argv else result(argv, 4, stderr="Access denied\n")
    )
    with pytest.raises(HostError, match=r"`systemctl stop nvidia-dcgm-exporter`: exit 4: Access denied"):
        STOPPED.inject(UnitStoppedParameters(unit=WatchingUnit.EXPORTER), 0, host)


def test_a_unit_that_somebody_starts_meanwhile_ends_the_fault() -> None:
    class Once(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            host.machine.set_unit("nvidia-dcgm-exporter", active=True)
            return False

    host, parameters = ModelHost(), UnitStoppedParameters(unit=WatchingUnit.EXPORTER)
    STOPPED.inject(parameters, 0, host)
    with pytest.raises(HostError, match="runs again: somebody started it"):
        STOPPED.hold(parameters, 0, host, Once())


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


def test_an_exporter_that_is_stopped_with_its_host_engine_comes_back_with_it() -> None:
    host, parameters = ModelHost(), UnitStoppedParameters(unit=WatchingUnit.HOST_ENGINE)
    host.machine.required_by = {"nvidia-dcgm": ("nvidia-dcgm-exporter",)}
    evidence = STOPPED.inject(parameters, 0, host)
    assert evidence.lines[1] == "systemctl stop nvidia-dcgm, and with it nvidia-dcgm-exporter.service"
    host.machine.set_unit("nvidia-dcgm", active=True)
    assert not STOPPED.verify_undone(parameters, 0, host, evidence.undo_state)
    STOPPED.undo(parameters, 0, host, evidence.undo_state)
    assert host.machine.is_active("nvidia-dcgm-exporter")
    assert STOPPED.verify_undone(parameters, 0, host, evidence.undo_state)


@pytest.mark.parametrize("data", [{"unit": "ssh"}, {"unit": "kubelet"}, {"unit": "kubelet; reboot"}, {}])
def test_other_units_are_refused(data: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="unit"):
        parse_parameters({"type": "unit_stopped"} | data)


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


async def test_an_undo_before_the_stop_calls_it_off() -> None:
    host = LiveHost()
    parameters = KUBELET.model_copy(update={"hold": timedelta(hours=1)})
    await call(CRITICAL.inject, parameters, 0, host)
    assert not await call(CRITICAL.verify_undone, parameters, 0, host, {}), "a timer of ours is due"
    await call(CRITICAL.undo, parameters, 0, host, {})
    assert host.machine.timers == {}
    assert host.machine.is_active("kubelet")


async def test_a_second_order_is_refused_while_the_first_is_due() -> None:
    host = LiveHost()
    await call(CRITICAL.inject, KUBELET, 0, host)
    with pytest.raises(HostError, match=r"exit 1: Failed to start transient timer unit: .* already loaded"):
        await call(CRITICAL.inject, KUBELET, 0, host)
    await call(CRITICAL.undo, KUBELET, 0, host, {})


async def test_the_node_reboots_and_only_the_new_boot_is_clean() -> None:
    host, parameters = LiveHost(), NodeRebootParameters()
    evidence = await call(REBOOT.inject, parameters, 0, host)
    assert not await call(REBOOT.verify_undone, parameters, 0, host, evidence.undo_state)
    await until(lambda: host.machine.going_down)
    assert not await call(REBOOT.verify_undone, parameters, 0, host, evidence.undo_state)
    with pytest.raises(HostError, match="shutting down already"):
        await call(REBOOT.prior, parameters, 0, host)
    await until(lambda: host.machine.powered and host.machine.boot_id != evidence.undo_state["boot_id"])
    for state in (evidence.undo_state, {}):
        assert "nothing to undo" in (await call(REBOOT.undo, parameters, 0, host, state)).lines[0]
        assert await call(REBOOT.verify_undone, parameters, 0, host, state)


async def test_a_reboot_that_is_only_due_is_called_off() -> None:
    host, parameters = LiveHost(), NodeRebootParameters()
    evidence = await call(REBOOT.inject, parameters, 0, host)
    undone = await call(REBOOT.undo, parameters, 0, host, evidence.undo_state)
    assert undone.lines == ("the reboot was called off before it began",)
    assert await call(REBOOT.verify_undone, parameters, 0, host, evidence.undo_state)
    assert host.machine.boot_id == evidence.undo_state["boot_id"]


async def test_a_node_that_is_off_wakes_by_its_clock() -> None:
    host = LiveHost()
    evidence = await call(SHUTDOWN.inject, OFF, 0, host)
    assert host.machine.wake_at is not None
    await until(lambda: not host.machine.powered)
    await until(lambda: host.machine.powered)
    assert host.machine.boot_id != evidence.undo_state["boot_id"]
    await call(SHUTDOWN.undo, OFF, 0, host, {})
    assert await call(SHUTDOWN.verify_undone, OFF, 0, host, {})


async def test_a_power_off_that_is_only_due_is_called_off_with_its_alarm() -> None:
    host = LiveHost()
    await call(SHUTDOWN.inject, OFF, 0, host)
    assert not await call(SHUTDOWN.verify_undone, OFF, 0, host, {})
    assert "called off" in (await call(SHUTDOWN.undo, OFF, 0, host, {})).lines[0]
    assert (host.machine.wake_at, host.machine.timers) == (None, {})
    assert await call(SHUTDOWN.verify_undone, OFF, 0, host, {})


def test_a_node_that_nothing_would_switch_on_again_is_not_switched_off() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, stdout="running\n")
    with pytest.raises(HostError, match="nothing would switch this node on again: no wake-up alarm"):
        SHUTDOWN.prior(NodeShutdownParameters(), 0, host)
    host.files["/sys/class/rtc/rtc0/wakealarm"] = "1790000000\n"
    with pytest.raises(HostError, match="is set to 1790000000 already, and not by us"):
        SHUTDOWN.prior(NodeShutdownParameters(), 0, host)
    assert all("is-system-running" in argv for argv in host.ran)


def test_a_second_agent_leaves_the_alarm_of_a_node_that_is_powering_off() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, 1, stdout="stopping\n")
    host.files["/sys/class/rtc/rtc0/wakealarm"] = "1790000000\n"
    assert "brings it back" in SHUTDOWN.undo(OFF, 0, host, {}).lines[0]
    assert host.files["/sys/class/rtc/rtc0/wakealarm"] == "1790000000\n"
    assert not SHUTDOWN.verify_undone(OFF, 0, host, {})


@pytest.mark.parametrize("fault", [CRITICAL, REBOOT, SHUTDOWN])
def test_what_may_cost_a_node_says_so(fault: Fault[Any]) -> None:
    assert fault.parameters.dangerous
    assert not STOPPED.parameters.dangerous
