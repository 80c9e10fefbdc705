"""The page docs/faults.md, made from the faults' own classes by `python -m gameday.faults.docs`.

A test compares the page on disk with it. It leaves out the faults of other packages.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gameday.documents.key_table import key_table
from gameday.faults.base import Fault
from gameday.faults.registry import found_faults, known_faults, parameter_models
from gameday.plan.models import FaultParameters
from gameday.plan.schema import plan_schema

_HEAD = """\
# The faults

One section for each fault, in the order of the layer at which it enters. A fault that enters at one layer does not
reach the others by itself: a line in the kernel log never reaches DCGM's counters, a value in DCGM's cache never
reaches NVML. So each section says what the fault does *not* reach, and who can see it.

This page is made from the faults' own classes by `make docs`. Every fault has `hold` as well, see [plans](plans.md).
[Writing a fault](writing-a-fault.md) shows how to add one.
"""


def page() -> str:
    """Return the whole page; it depends only on the classes."""
    faults = {name: fault for name, fault in known_faults().items() if name not in found_faults().packages}
    schema = plan_schema(parameter_models(), {}, ())["$defs"]
    by_layer: dict[str, list[str]] = {}
    for name in sorted(faults, key=lambda name: (list(type(faults[name].layer)).index(faults[name].layer), name)):
        by_layer.setdefault(faults[name].layer, []).append(name)
    parts = [_HEAD, _table(faults)]
    for layer, names in by_layer.items():
        parts.append(f"## {layer[0].upper()}{layer[1:]}\n")
        parts += [_section(name, faults[name], schema) for name in names]
    return "\n".join(parts)


def _table(faults: Mapping[str, Fault[Any]]) -> str:
    rows = [
        f"| [`{name}`](#{name}) | {fault.layer} | {fault.summary} | {'yes' if fault.parameters.dangerous else ''} |"
        for name, fault in sorted(faults.items())
    ]
    return "\n".join(["| fault | layer | what it does | dangerous |", "|---|---|---|---|", *rows]) + "\n"


def _section(name: str, fault: Fault[Any], schema: Mapping[str, Any]) -> str:
    lines = [f"### {name}\n", f"{_prose(fault)}\n"]
    if fault.parameters.dangerous:
        lines.append(
            f"**Dangerous:** {fault.parameters.dangerous}. The plan (`guardrails.allow_dangerous`) and the cluster "
            "profile (`allow_dangerous`) both have to name it.\n"
        )
    lines += [f"**Does not reach:** {fault.does_not_reach}.\n", "**Seen by:**\n"]
    lines += [f"* {one}" for one in fault.seen_by]
    lines += ["", f"**The injector's pod:** {_pod(fault)}.\n"]
    lines += [*_parameters(fault.parameters, schema), ""]
    return "\n".join([*lines, *filter(None, [fault.details()])])


def _pod(fault: Fault[Any]) -> str:
    """Return the rights of the injector's pod in words."""
    own = "security_of" not in vars(type(fault))
    return fault.security.describe() if own else "the rights that the faults in it need"


def _prose(fault: Fault[Any]) -> str:
    """Return the class's docstring with one paragraph per line, as Markdown needs it."""
    paragraphs = (inspect.getdoc(type(fault)) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _parameters(model: type[FaultParameters], schema: Mapping[str, Any]) -> Iterator[str]:
    common = ("type", "hold")
    if model.model_fields.keys() <= set(common):
        yield "No parameters of its own."
    else:
        yield from key_table(schema[model.__name__], schema, title="parameter", without=common)


if __name__ == "__main__":
    sys.stdout.write(page())
