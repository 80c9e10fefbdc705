"""The page docs/faults.md, made from the faults' own classes by `python -m gameday.faults.docs`.

A test compares the page on disk with it. It leaves out the faults of other packages.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gameday.documents.key_list import key_list
from gameday.faults.base import Fault
from gameday.faults.registry import found_faults, known_faults, parameter_models
from gameday.plan.fault import FaultParameters

_HEAD = """\
# The faults

One section for each fault, in the order of the layer at which it enters. A line in the kernel log never reaches DCGM's
counters, a value in DCGM's cache never reaches NVML: each section says what the fault does *not* reach, and who can
see it. `make docs` makes this page from the faults' own classes. [Writing a fault](writing-a-fault.md) shows how to add
one.

Every fault has `hold` ([plans](plans.md)), and most have `gpu`: the NVML index of the GPU, or none for the one that the
run chose. Plan (`guardrails.allow_dangerous`) and cluster profile (`allow_dangerous`) both have to name a dangerous
fault.
"""
_TARGET = "NVML index of the GPU; None: the one the run chose."
"""The description of `gpu` that most faults share; the head of the page has it once."""


def page() -> str:
    """Return the whole page; it depends only on the classes."""
    from gameday.plan.schema import plan_schema  # noqa: PLC0415 - an agent's pod loads all modules here, and no plan

    faults = {name: fault for name, fault in known_faults().items() if name not in found_faults().packages}
    schema = plan_schema(parameter_models(), {}, ())["$defs"]
    by_layer: dict[str, list[str]] = {}
    for name in sorted(faults, key=lambda name: (list(type(faults[name].layer)).index(faults[name].layer), name)):
        by_layer.setdefault(faults[name].layer, []).append(name)
    parts = [_HEAD, *_contents(by_layer, faults)]
    for layer, names in by_layer.items():
        parts.append(f"## {layer[0].upper()}{layer[1:]}\n")
        parts += [_section(name, faults[name], schema) for name in names]
    return "\n".join([*parts, *_pods(faults)])


def _contents(by_layer: Mapping[str, list[str]], faults: Mapping[str, Fault[Any]]) -> Iterator[str]:
    """Yield a line with links to the faults of each layer."""
    for layer, names in by_layer.items():
        links = [f"[`{one}`](#{one}){' (dangerous)' if faults[one].parameters.dangerous else ''}" for one in names]
        yield f"* {layer}: {', '.join(links)}"
    yield ""


def _section(name: str, fault: Fault[Any], schema: Mapping[str, Any]) -> str:
    lines = [f"### {name}\n", f"{_prose(fault)}\n"]
    if fault.parameters.dangerous:
        lines.append(f"**Dangerous:** {fault.parameters.dangerous}.\n")
    lines += [f"**Does not reach:** {fault.does_not_reach}.\n", "**Seen by:**\n"]
    lines += [f"* {one}" for one in fault.seen_by]
    lines += ["", *_parameters(fault.parameters, schema), ""]
    return "\n".join([*lines, *filter(None, [fault.details()])])


def _pods(faults: Mapping[str, Fault[Any]]) -> Iterator[str]:
    """Yield the rights of the injectors' pods in words, each with the faults that need them."""
    needing: dict[str, list[str]] = {}
    for name, fault in sorted(faults.items()):
        own = "security_of" not in vars(type(fault))
        rights = fault.security.describe() if own else "the rights that the faults in it need"
        needing.setdefault(rights, []).append(f"`{name}`")
    yield "## The injectors' pods\n"
    yield from (f"* {', '.join(names)}: {rights}." for rights, names in needing.items())
    yield ""


def _prose(fault: Fault[Any]) -> str:
    """Return the class's docstring with one paragraph per line, as Markdown needs it."""
    paragraphs = (inspect.getdoc(type(fault)) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _parameters(model: type[FaultParameters], schema: Mapping[str, Any]) -> Iterator[str]:
    gpu = model.model_fields.get("gpu")
    common = {"type", "hold", *(["gpu"] if gpu and gpu.description == _TARGET else [])}
    if model.model_fields.keys() <= common:
        yield "No parameters of its own."
    else:
        yield "**Parameters:**\n"
        yield from key_list(schema[model.__name__], schema, without=sorted(common))


if __name__ == "__main__":
    sys.stdout.write(page())
