"""The page docs/faults.md, made from the faults' own classes by `python -m gameday.faults.docs`.

A test compares the page on disk with it. It leaves out the faults of other people's packages.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gameday.documents.key_list import key_list
from gameday.faults.base import Fault, Layer
from gameday.faults.registry import found_faults, parameter_models
from gameday.plan.fault import FaultParameters

_HEAD = """\
# The faults

In the order of the layer at which they enter, each with what it does *not* reach and who can see it. `make docs` makes
this page from the faults' own classes; [writing a fault](writing-a-fault.md) shows how to add one.

Every fault has `hold` ([plans](plans.md)), and most have `gpu`: the NVML index of the GPU, or none for the one that the
run chose. Plan (`guardrails.allow_dangerous`) and cluster profile (`allow_dangerous`) both have to name a dangerous
fault. What no detector sees by default is in [sources](sources.md#who-notices-what-by-default).

The faults on the control plane act from a pod on an API-client node. Their objects carry the label
gameday.dev/load=NAME, such as `list-storm`, by which the undo deletes them; only they and the clients have to be
undone. The `hold` of `api_churn`, `list_or_watch` and `list_storm` begins before the objects are made, at about a
hundred per second.
"""
_TARGET = "NVML index of the GPU; None: the one the run chose."
"""The description of `gpu` that most faults share; the head of the page has it once."""
_LONG = 60
"""Characters from which a text that an earlier section has is only referred to."""


def page() -> str:
    """Return the whole page; it depends only on the classes."""
    from gameday.plan.schema import plan_schema  # noqa: PLC0415 - an agent's pod loads all modules here, and no plan

    faults = found_faults().documented
    schema = plan_schema(parameter_models(), {}, ())["$defs"]
    by_layer: dict[str, list[str]] = {}
    for name in sorted(faults, key=lambda name: (list(type(faults[name].layer)).index(faults[name].layer), name)):
        by_layer.setdefault(faults[name].layer, []).append(name)
    parts = [_HEAD, *_contents(by_layer, faults)]
    said: dict[str, str] = {}
    for layer, names in by_layer.items():
        lists = {name: list(_parameters(faults[name].parameters, schema)) for name in names}
        counts = Counter(line for lines in lists.values() for line in lines)
        shared = [line for line, count in counts.items() if count > 1]
        parts.append(f"## {layer[0].upper()}{layer[1:]}\n")
        if shared:
            parts += ["Parameters of more than one:\n", *shared, ""]
        parts += [_section(name, faults[name], lists[name], shared, said) for name in names]
    return "\n".join([*parts, *_pods(faults)])


def _contents(by_layer: Mapping[str, list[str]], faults: Mapping[str, Fault[Any]]) -> Iterator[str]:
    """Yield a line with links to the faults of each layer."""
    for layer, names in by_layer.items():
        links = [f"[`{one}`](#{one}){' (dangerous)' if faults[one].parameters.dangerous else ''}" for one in names]
        yield f"* {layer}: {', '.join(links)}"
    yield ""


def _section(
    name: str, fault: Fault[Any], parameters: Sequence[str], shared: Sequence[str], said: dict[str, str]
) -> str:
    """Return a fault's section; `said` has the long texts of the sections before, each with its fault."""
    lines = [f"### {name}\n", f"{_prose(fault)}\n"]
    if fault.parameters.dangerous:
        lines.append(f"**Dangerous:** {fault.parameters.dangerous}.\n")
    for label, text in (("Does not reach", fault.does_not_reach), ("Seen by", "; ".join(fault.seen_by))):
        first = said.setdefault(text, name) if len(text) > _LONG else name
        lines.append(f"**{label}:** {text if first == name else f'as `{first}`'}.\n")
    above = ", ".join(f"`{line.split('`')[1]}`" for line in parameters if line in shared)
    own = [line for line in parameters if line not in shared]
    if parameters:
        lines.append(f"**Parameters:**{f' {above}, as above.' if above else ''}\n")
    lines += [*own, ""] if own else []
    return "\n".join([*lines, *filter(None, [fault.details])])


def _pods(faults: Mapping[str, Fault[Any]]) -> Iterator[str]:
    """Yield the rights of the injectors' pods in words, each with the faults that need them."""
    needing: dict[str, list[str]] = {}
    for name, fault in sorted(faults.items()):
        made_of_others = fault.layer is Layer.SEVERAL
        rights = "the rights that the faults in it need" if made_of_others else fault.security.describe()
        needing.setdefault(rights, []).append(f"`{name}`")
    yield "## The injectors' pods\n"
    yield from (f"* {', '.join(names)}: {rights}." for rights, names in needing.items())
    yield ""


def _prose(fault: Fault[Any]) -> str:
    """Return the class's docstring with one paragraph per line, as Markdown needs it."""
    paragraphs = (inspect.getdoc(type(fault)) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _parameters(model: type[FaultParameters], schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield an item for each parameter but those that the page's head has."""
    gpu = model.model_fields.get("gpu")
    common = {"type", "hold", *(["gpu"] if gpu and gpu.description == _TARGET else [])}
    yield from key_list(schema[model.__name__], schema, without=sorted(common))


if __name__ == "__main__":
    sys.stdout.write(page())
