"""What netem and tbf share: a root qdisc of ours in place of the one that is there, which comes back."""

from __future__ import annotations

import json
from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from gameday.errors import HostError
from gameday.faults.base import NODE, Claim, Evidence, Fault, Layer
from gameday.faults.network import InterfaceParameters, ask, run, target
from gameday.host.base import Host
from gameday.host.privileges import HOST_NETWORK, PodSecurity

HANDLE = "6ada:"
"""Of our qdisc, so that an undo never deletes another's; any number that nobody uses by habit."""
_DEFAULT = "0:"
_SHAPING = ("netem", "tbf", "htb", "cake")
_GIVEN_BACK = ("mq", "pfifo", "bfifo", "pfifo_fast")
"""Set by somebody, and with no options or one whole number: they come back to the letter. Times and rates do not, as
the kernel rounds them to its own ticks."""
_BESIDE_ROOT = ("ingress", "clsact")

P = TypeVar("P", bound=InterfaceParameters)
Qdisc = dict[str, Any]


class QdiscFault(Fault[P]):
    """Puts a qdisc at the root of an interface's queue, and afterwards what was there before."""

    layer: ClassVar[Layer] = Layer.NETWORK
    security: ClassVar[PodSecurity] = HOST_NETWORK
    does_not_reach: ClassVar[str] = (
        "RDMA: InfiniBand verbs and RoCE bypass the kernel's queues, so NCCL over InfiniBand keeps its bandwidth while "
        "its bootstrap, sockets, TCP stores and file systems over the interface suffer; what arrives (only what leaves "
        "is queued); connections of the node with itself, which go over `lo`; kernel log, DCGM, NVML"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the canary's pings over the interface",
        "NetworkRetransmissions, where TCP loses segments for minutes (node_exporter)",
        "gpud (network latency component)",
        "no other detector (docs/sources.md, Who notices what by default)",
    )

    @abstractmethod
    def arguments(self, parameters: P) -> tuple[str, ...]:
        """What follows `tc qdisc add dev X root handle H`."""

    @abstractmethod
    def differs(self, parameters: P, options: dict[str, Any]) -> str:
        """What of the options that tc shows is not what was asked for; empty where all is."""

    def claims(self, parameters: P) -> tuple[Claim, ...]:
        return (Claim(f"the queue of {parameters.interface}"), Claim(NODE, shared=True))

    def prior(self, parameters: P, gpu: int, host: Host) -> dict[str, str]:
        target(parameters, host)
        before = qdiscs(host, parameters.interface)
        _refuse(parameters.interface, before)
        return {"qdiscs": json.dumps(before, separators=(",", ":"))}

    def inject(self, parameters: P, gpu: int, host: Host) -> Evidence:
        undo_state = self.prior(parameters, gpu, host)
        name, before = parameters.interface, qdiscs(host, parameters.interface)
        # `add` would refuse where somebody set a root; `replace` where nobody did is `add`.
        verb = "add" if _root(before).get("handle", _DEFAULT) == _DEFAULT else "replace"
        argv = ("tc", "qdisc", verb, "dev", name, "root", "handle", HANDLE, *self.arguments(parameters))
        written_at = datetime.now(UTC)
        run(host, *argv)
        now = _root(qdiscs(host, name))
        wrong = self.differs(parameters, now.get("options", {})) if now.get("handle") == HANDLE else "it is not there"
        if wrong:
            raise HostError(f"{' '.join(argv)} was accepted, but read back: {wrong}")
        lines = (f"before: {_told(before)}", " ".join(argv), f"after: {_told([now])}")
        return Evidence(lines=lines, written_at=written_at, undo_state=undo_state)

    def undo(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        name = parameters.interface
        if _root(qdiscs(host, name)).get("handle") != HANDLE:
            return Evidence(lines=(f"{name} has no qdisc of ours",))
        run(host, "tc", "qdisc", "del", "dev", name, "root")
        before = _root(json.loads(undo_state.get("qdiscs", "[]")))
        if before.get("handle", _DEFAULT) != _DEFAULT:
            run(host, "tc", "qdisc", "add", "dev", name, "root", "handle", str(before["handle"]), *_rebuilt(before))
        return Evidence(lines=(f"now: {_told(qdiscs(host, name))}",))

    def verify_undone(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        now = qdiscs(host, parameters.interface)
        known = "qdiscs" not in undo_state or now == json.loads(undo_state["qdiscs"])
        return known and _root(now).get("handle") != HANDLE


def qdiscs(host: Host, interface: str) -> list[Qdisc]:
    """As tc shows them, without reference counts and those beside the root. Raises HostError."""
    shown = ask(host, "tc", "-j", "qdisc", "show", "dev", interface)
    return [
        {key: value for key, value in one.items() if key != "refcnt"}
        for one in shown
        if one.get("kind") not in _BESIDE_ROOT
    ]


def close_to(value: object, wanted: float) -> bool:
    """The kernel rounds times, shares and sizes to its own units."""
    return isinstance(value, int | float) and abs(value - wanted) <= max(abs(wanted) * 0.02, 1e-6)


def _root(found: list[Qdisc]) -> Qdisc:
    return next((one for one in found if one.get("root")), {})


def _refuse(name: str, before: list[Qdisc]) -> None:
    """Raises HostError for what we could not give back, and for what is no business of ours."""
    for one in before:
        kind, handle = str(one.get("kind")), one.get("handle", _DEFAULT)
        if handle == HANDLE:
            raise HostError(
                f"{name} still has the qdisc of another game-day: `gameday reap`, or `tc qdisc del dev {name} root`"
            )
        if kind in _SHAPING:
            raise HostError(f"{name} has a {kind} of somebody else ({handle}): {_told([one])}; ask whoever shapes it")
        if handle != _DEFAULT and not (one.get("root") and _restorable(one)):
            raise HostError(
                f"{name} has a {kind} that somebody set ({handle}), and tc does not tell its options so that they "
                f"could be given back to the letter; choose an interface with the kernel's default"
            )


def _restorable(one: Qdisc) -> bool:
    options = one.get("options", {})
    return one.get("kind") in _GIVEN_BACK and (one["kind"] in ("mq", "pfifo_fast") or set(options) <= {"limit"})


def _rebuilt(one: Qdisc) -> tuple[str, ...]:
    limit = one.get("options", {}).get("limit") if one["kind"] in ("pfifo", "bfifo") else None
    return (str(one["kind"]), *(("limit", str(limit)) if limit is not None else ()))


def _told(found: list[Qdisc]) -> str:
    one = _root(found) or (found[0] if found else {})
    options = json.dumps(one.get("options", {}), separators=(",", ":"))
    return f"{one.get('kind', 'nothing')} {one.get('handle', '')} {options}"[:300]
