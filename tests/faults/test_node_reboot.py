"""A reboot: due, cancelled, and over."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults import node_reboot
from gameday.faults.node_reboot import NodeRebootFault, NodeRebootParameters
from tests.faults.live_host import LiveHost, call, until

pytestmark = pytest.mark.usefixtures("soon")
REBOOT = NodeRebootFault()


async def test_the_node_reboots_and_only_the_new_boot_is_clean() -> None:
    host, parameters = LiveHost(), NodeRebootParameters()
    evidence = await call(REBOOT.inject, parameters, 0, host)
    assert not await call(REBOOT.verify_undone, parameters, 0, host, evidence.undo_state)
    await until(lambda: host.machine.going_down)
    assert not await call(REBOOT.verify_undone, parameters, 0, host, evidence.undo_state)
    with pytest.raises(HostError, match="shutting down already"):
        await call(REBOOT.prior_state, parameters, 0, host)
    await until(lambda: host.machine.powered and host.machine.boot_id != evidence.undo_state["boot_id"])
    for state in (evidence.undo_state, {}):
        assert "nothing to undo" in (await call(REBOOT.undo, parameters, 0, host, state)).lines[0]
        assert await call(REBOOT.verify_undone, parameters, 0, host, state)


async def test_a_reboot_that_is_only_due_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_reboot, "DELAY_S", 3600.0)
    host, parameters = LiveHost(), NodeRebootParameters()
    evidence = await call(REBOOT.inject, parameters, 0, host)
    undone = await call(REBOOT.undo, parameters, 0, host, evidence.undo_state)
    assert undone.lines == ("the reboot was cancelled before it began",)
    assert await call(REBOOT.verify_undone, parameters, 0, host, evidence.undo_state)
    assert host.machine.boot_id == evidence.undo_state["boot_id"]
