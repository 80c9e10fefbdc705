"""Put our queueing discipline at an interface's root, and restore the one before; shared by netem and tbf."""

from __future__ import annotations

import json
from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from gameday.errors import HostError
from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.faults.network import InterfaceParameters, query, run_program, target_link
from gameday.host.base import Host
from gameday.host.privileges import HOST_NETWORK, PodSecurity

HANDLE = "6ada:"
"""The handle of our qdisc, by which an undo finds it; any number that is not in common use."""
_DEFAULT = "0:"
_SHAPING = ("netem", "tbf", "htb", "cake")
_RESTORABLE = ("mq", "pfifo", "bfifo", "pfifo_fast")
"""Kinds without options or with one whole number. Others cannot be restored exactly, as the kernel rounds times and
rates to its own ticks."""
_BESIDE_ROOT = ("ingress", "clsact")

P = TypeVar("P", bound=InterfaceParameters)
Qdisc = dict[str, Any]


class QdiscFault(Fault[P]):
    """A fault that puts a qdisc at the root of an interface's queue, and restores the one before."""

    layer: ClassVar[Layer] = Layer.NETWORK
    security: ClassVar[PodSecurity] = HOST_NETWORK
    does_not_reach: ClassVar[str] = (
        "RDMA: InfiniBand verbs and RoCE bypass the kernel's queues, so NCCL over InfiniBand keeps its bandwidth "
        "while its bootstrap and sockets suffer; packets that arrive; connections of the node with itself, over "
        "`lo`; kernel log, DCGM, NVML"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the canary's pings and the all-reduce over nodes, through the interface",
        "NetworkRetransmissions, if TCP loses segments for minutes (node_exporter)",
        "gpud (network latency component)",
        "no other detector",
    )

    @abstractmethod
    def arguments(self, parameters: P) -> tuple[str, ...]:
        """Return the arguments after `tc qdisc add dev X root handle H`."""

    @abstractmethod
    def mismatch(self, parameters: P, options: dict[str, Any]) -> str:
        """Return in words the options that tc shows differently from what was asked for; empty if all are right."""

    def claims(self, parameters: P) -> tuple[Claim, ...]:
        return (Claim(f"the queue of {parameters.interface}"),)

    def prior_state(self, parameters: P, gpu: int, host: Host) -> dict[str, str]:
        target_link(parameters, host)
        before = qdiscs(host, parameters.interface)
        _refuse(parameters.interface, before)
        return {"qdiscs": json.dumps(before, separators=(",", ":"))}

    def inject(self, parameters: P, gpu: int, host: Host) -> Evidence:
        undo_state = self.prior_state(parameters, gpu, host)
        name, before = parameters.interface, qdiscs(host, parameters.interface)
        # `add` fails if somebody set a root qdisc; otherwise `replace` does the same as `add`.
        verb = "add" if _root(before).get("handle", _DEFAULT) == _DEFAULT else "replace"
        argv = ("tc", "qdisc", verb, "dev", name, "root", "handle", HANDLE, *self.arguments(parameters))
        written_at = datetime.now(UTC)
        run_program(host, *argv)
        now = _root(qdiscs(host, name))
        wrong = self.mismatch(parameters, now.get("options", {})) if now.get("handle") == HANDLE else "it is missing"
        if wrong:
            raise HostError(f"{' '.join(argv)} was accepted, but read back: {wrong}")
        lines = (f"before: {_describe(before)}", " ".join(argv), f"after: {_describe([now])}")
        return Evidence(lines=lines, written_at=written_at, undo_state=undo_state)

    def undo(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        name = parameters.interface
        if _root(qdiscs(host, name)).get("handle") != HANDLE:
            return Evidence(lines=(f"{name} has no qdisc of ours",))
        run_program(host, "tc", "qdisc", "del", "dev", name, "root")
        before = _root(json.loads(undo_state.get("qdiscs", "[]")))
        if before.get("handle", _DEFAULT) != _DEFAULT:
            run_program(
                host, "tc", "qdisc", "add", "dev", name, "root", "handle", str(before["handle"]), *_arguments_of(before)
            )
        return Evidence(lines=(f"now: {_describe(qdiscs(host, name))}",))

    def verify_undone(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        now = qdiscs(host, parameters.interface)
        known = "qdiscs" not in undo_state or now == json.loads(undo_state["qdiscs"])
        return known and _root(now).get("handle") != HANDLE


def qdiscs(host: Host, interface: str) -> list[Qdisc]:
    """Return an interface's qdiscs as tc shows them, without reference counts and qdiscs outside the root.

    Raises:
        HostError: tc refuses, or there is no such interface.
    """
    shown = query(host, "tc", "-j", "qdisc", "show", "dev", interface)
    return [
        {key: value for key, value in one.items() if key != "refcnt"}
        for one in shown
        if one.get("kind") not in _BESIDE_ROOT
    ]


def is_close(value: object, wanted: float) -> bool:
    """Return True if a value differs at most by rounding: the kernel rounds times, shares and sizes."""
    return isinstance(value, int | float) and abs(value - wanted) <= max(abs(wanted) * 0.02, 1e-6)


def _root(found: list[Qdisc]) -> Qdisc:
    return next((one for one in found if one.get("root")), {})


def _refuse(name: str, before: list[Qdisc]) -> None:
    """Refuse qdiscs that could not be restored, and that somebody else shapes traffic with. Raises HostError."""
    for one in before:
        kind, handle = str(one.get("kind")), one.get("handle", _DEFAULT)
        if handle == HANDLE:
            raise HostError(
                f"{name} still has the qdisc of another game-day: `gameday reap`, or `tc qdisc del dev {name} root`"
            )
        if kind in _SHAPING:
            raise HostError(f"{name} has a {kind} of somebody else ({handle}): {_describe([one])}; ask its owner")
        if handle != _DEFAULT and not (one.get("root") and _is_restorable(one)):
            raise HostError(
                f"{name} has a {kind} that somebody set ({handle}), and its options, as tc shows them, could not be "
                f"restored exactly; choose an interface with the kernel's default"
            )


def _is_restorable(one: Qdisc) -> bool:
    options = one.get("options", {})
    return one.get("kind") in _RESTORABLE and (one["kind"] in ("mq", "pfifo_fast") or set(options) <= {"limit"})


def _arguments_of(one: Qdisc) -> tuple[str, ...]:
    limit = one.get("options", {}).get("limit") if one["kind"] in ("pfifo", "bfifo") else None
    return (str(one["kind"]), *(("limit", str(limit)) if limit is not None else ()))


def _describe(found: list[Qdisc]) -> str:
    one = _root(found) or (found[0] if found else {})
    options = json.dumps(one.get("options", {}), separators=(",", ":"))
    return f"{one.get('kind', 'nothing')} {one.get('handle', '')} {options}"[:300]
