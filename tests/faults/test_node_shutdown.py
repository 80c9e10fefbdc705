"""A power-off: the alarm that wakes the node, and a node without one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gameday.errors import HostError
from gameday.faults import node_shutdown
from gameday.faults.node_shutdown import NodeShutdownFault, NodeShutdownParameters
from tests.faults.live_host import LiveHost, call, until
from tests.host.fake import FakeHost, result

pytestmark = pytest.mark.usefixtures("soon")
SHUTDOWN = NodeShutdownFault()

OFF = NodeShutdownParameters().model_copy(update={"off_for": timedelta(seconds=1)})


async def test_a_node_that_is_off_wakes_by_its_clock() -> None:
    host = LiveHost()
    evidence = await call(SHUTDOWN.inject, OFF, 0, host)
    assert host.machine.wake_at is not None
    await until(lambda: not host.machine.powered)
    await until(lambda: host.machine.powered)
    assert host.machine.boot_id != evidence.undo_state["boot_id"]
    await call(SHUTDOWN.undo, OFF, 0, host, {})
    assert await call(SHUTDOWN.verify_undone, OFF, 0, host, {})


async def test_a_power_off_that_is_only_due_is_cancelled_with_its_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_shutdown, "DELAY_S", 3600.0)
    host = LiveHost()
    await call(SHUTDOWN.inject, OFF, 0, host)
    assert not await call(SHUTDOWN.verify_undone, OFF, 0, host, {})
    assert "was cancelled" in (await call(SHUTDOWN.undo, OFF, 0, host, {})).lines[0]
    assert (host.machine.wake_at, host.machine.timers) == (None, {})
    assert await call(SHUTDOWN.verify_undone, OFF, 0, host, {})


def test_a_node_that_nothing_would_switch_on_again_is_not_switched_off() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, stdout="running\n")
    with pytest.raises(HostError, match="nothing would switch this node on again: no wake-up alarm"):
        SHUTDOWN.prior_state(NodeShutdownParameters(), 0, host)
    host.files["/sys/class/rtc/rtc0/wakealarm"] = "1790000000\n"
    with pytest.raises(HostError, match="is set to 1790000000 already, and not by this run"):
        SHUTDOWN.prior_state(NodeShutdownParameters(), 0, host)
    assert all("is-system-running" in argv for argv in host.ran)


def test_a_second_agent_leaves_the_alarm_of_a_node_that_is_powering_off() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, 1, stdout="stopping\n")
    host.files["/sys/class/rtc/rtc0/wakealarm"] = "1790000000\n"
    assert "brings it back" in SHUTDOWN.undo(OFF, 0, host, {}).lines[0]
    assert host.files["/sys/class/rtc/rtc0/wakealarm"] == "1790000000\n"
    assert not SHUTDOWN.verify_undone(OFF, 0, host, {})
