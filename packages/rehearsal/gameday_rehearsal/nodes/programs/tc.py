"""`tc qdisc` on the model: show as JSON, and a root qdisc netem, tbf, fq, fq_codel, pfifo or mq added and deleted."""

from __future__ import annotations

import json
import re
from typing import Any

from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.network import Interface, Qdisc
from gameday_rehearsal.nodes.programs.base import Printed, Refused

_FAILED = 2
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_SIZES = {"b": 1, "kb": 1024, "mb": 1024 * 1024}
_NUMBER = re.compile(r"([0-9.]+)([a-z%]*)")
_QUEUES = ("fq", "fq_codel", "pfifo", "mq")
_OWN_CORRELATION = {"correlation": 0}


async def tc(args: list[str], machine: Machine) -> Printed:
    words = [arg for arg in args if arg != "-j"]
    match words:
        case ["qdisc", "show", "dev", name]:
            return Printed(stdout=json.dumps(_interface(machine, name, 1).qdiscs()) + "\n")
        case ["qdisc", "del", "dev", name, "root"]:
            interface = _interface(machine, name, _FAILED)
            if interface.qdisc is None:
                raise _refused("Error: Cannot delete qdisc with handle of zero.")
            interface.qdisc = None
            return Printed()
        case ["qdisc", ("add" | "replace") as verb, "dev", name, "root", "handle", handle, kind, *options]:
            interface = _interface(machine, name, _FAILED)
            if verb == "add" and interface.qdisc is not None:
                raise _refused("Error: Exclusivity flag on, cannot modify.")
            interface.qdisc = Qdisc(kind, handle, _options(kind, options))
            return Printed()
    raise _refused(f'What is "{" ".join(words)[:60]}"? The virtual tc shows, adds, replaces and deletes root qdiscs.')


def _interface(machine: Machine, name: str, exit_status: int) -> Interface:
    if found := machine.network.interfaces.get(name):
        return found
    raise Refused(Printed(stderr=f'Cannot find device "{name}"\n', exit_status=exit_status))


def _options(kind: str, words: list[str]) -> dict[str, Any]:
    """Parse a discipline's options into the form of `tc -j`."""
    if kind == "netem":
        return _netem(words)
    if kind == "tbf":
        given = dict(zip(words[::2], words[1::2], strict=True))
        rate, burst = _rate(given["rate"]), int(_measure(given["burst"], _SIZES))
        return {"rate": rate, "burst": burst, "lat": round(_measure(given["latency"], _TIMES) * 1e6)}
    if kind not in _QUEUES:
        raise _refused("Error: Specified qdisc kind is unknown.")
    return dict(zip(words[::2], map(int, words[1::2]), strict=True)) if words else {}


def _netem(words: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"limit": 1000}
    rest = list(words)
    while rest:
        word, value = rest.pop(0), rest.pop(0)
        match word:
            case "delay":
                jitter = rest.pop(0) if rest and rest[0][0].isdigit() else "0s"
                times = {"delay": _measure(value, _TIMES), "jitter": _measure(jitter, _TIMES)}
                options["delay"] = times | _OWN_CORRELATION
            case "loss":
                options["loss-random"] = {"loss": _share(value)} | _OWN_CORRELATION
            case "duplicate" | "corrupt":
                options[word] = {word: _share(value)} | _OWN_CORRELATION
            case "rate":
                options["rate"] = {"rate": _rate(value), "packetoverhead": 0, "cellsize": 0, "celloverhead": 0}
            case _:
                raise _refused(f'What is "{word}"?')
    return options | {"ecn": False, "gap": 0}


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def _rate(text: str) -> int:
    """Return a rate in bytes a second."""
    return round(_measure(text, _RATES) / 8)


def _measure(text: str, units: dict[str, Any]) -> float:
    found = _NUMBER.fullmatch(text)
    if not found or found[2] not in units:
        raise _refused(f'Illegal "{text}"')
    return float(found[1]) * float(units[found[2]])


def _refused(why: str) -> Refused:
    return Refused(Printed(stderr=f"{why}\n", exit_status=_FAILED))
