"""Readiness probes: exec of `cat` and `test`, httpGet on the machine's loopback.

Only those programs, and only inside the pod's own folder: anybody who may create pods chooses a probe's command, and
there is no container to confine it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import aiohttp

from gameday_rehearsal.nodes.sandbox import Sandbox
from kubesim.client import Object

_PERIOD_S, _TIMEOUT_S = 10.0, 1.0  # the API's defaults (core/v1 Probe)


async def follow_readiness(
    container: Object, sandbox: Sandbox, *, real: bool, on_change: Callable[[bool], None]
) -> None:
    """Probe until cancelled and report every change. Without a probe or a real process, be ready immediately."""
    probe = container.get("readinessProbe")
    if not probe or not real:
        on_change(True)
        return
    period_s = float(probe.get("periodSeconds") or _PERIOD_S)
    wanted = {True: int(probe.get("successThreshold") or 1), False: int(probe.get("failureThreshold") or 3)}
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
    ready, in_a_row, last = False, 0, False
    while True:
        passed = await _passes(probe, container, sandbox)
        in_a_row = in_a_row + 1 if passed == last else 1
        last = passed
        if passed != ready and in_a_row >= wanted[passed]:
            ready = passed
            on_change(ready)
        await asyncio.sleep(period_s)


async def _passes(probe: Object, container: Object, sandbox: Sandbox) -> bool:
    if "exec" in probe:
        command = [sandbox.rewritten(container, str(word)) for word in probe["exec"].get("command") or ()]
        return _run_inside(command, sandbox)
    if "httpGet" in probe:
        return await _get(probe["httpGet"], float(probe.get("timeoutSeconds") or _TIMEOUT_S))
    return False


def _run_inside(command: list[str], sandbox: Sandbox) -> bool:
    match command:
        case ["cat", path]:
            found = sandbox.holds(path)
            return bool(found and found.is_file() and os.access(found, os.R_OK))
        case ["test", "-e" | "-f", path]:
            found = sandbox.holds(path)
            return bool(found and found.exists())
        case _:
            return False


async def _get(action: Object, timeout_s: float) -> bool:
    port, path = action.get("port"), str(action.get("path") or "/")
    if not isinstance(port, int) or not path.startswith("/"):
        return False
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return 200 <= answer.status < 400
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
