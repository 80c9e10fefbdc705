"""The forms that Prefect draws for deployments: plans in words, clusters by name, no parameters that programs set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gameday.errors import DocumentError
from gameday.faults.registry import fault_for, parameter_models
from gameday.flows.choices import WORDS
from gameday.plan.load import LoadedPlan, load_plan

_SET_BY_PROGRAMS = frozenset(
    {"trigger", "run_id", "season_id", "fleet_id", "comparison_id", "command", "member", "given", "reports", "profiles"}
)
"""Parameters of flows that the command line, a season, a schedule or a deployment sets, but no person."""
_PLAYS_ARMS = "comparison"
"""The flow that plays plans with arms."""
ASKED = ("plan", "profile", "clusters", "at_once")
"""Parameters that say what is broken, and where. Prefect's *Quick run* shows a deployment's form if it requires
one of them, and calls the others optional.
"""
_TITLES = {
    "plan": ("Plan", "What breaks, and what must notice it."),
    "plans": ("Plans", "What breaks. Empty: every shipped plan that is not dangerous."),
    "profile": ("Cluster", "The cluster, by the name in its profile. Empty: the worker's `GAMEDAY_*` variables."),
}
"""Title and description of the parameters for which the form offers values."""


@dataclass(frozen=True)
class Choices:
    """The values that forms offer."""

    plans: Mapping[str, str]
    """Shipped plans by name and plan files by path, all without arms; the value is the form's text about each."""
    with_arms: Mapping[str, str]
    """The same for plans with arms, which are played together."""
    profiles: Mapping[str, str]
    """Paths and blocks of the clusters' profiles by the clusters' names; the first is the default.

    Empty: the environment's profile.
    """
    sources: Mapping[str, str]
    """The same for all clusters on offer: these, and then those that the server has blocks of."""
    reports: str
    """Folder of the runs' folders."""
    clusters: Sequence[str] = field(default=())
    """Names of the clusters that have their own deployments and work pool."""

    def parameters(self, properties: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return a deployment's parameters for which its prefect.yaml has no value."""
        values = {
            "profile": next(iter(self.profiles), None),
            "profiles": dict(self.sources),
            "reports": self.reports,
            "plan": self.plans.get(str(properties.get("plan", {}).get("default"))),
        }
        return {name: value for name, value in values.items() if value and name in properties}


def words_of(loaded: LoadedPlan, name: str) -> str:
    """Return the form's text about a plan: its name or path, title, layer, duration, and a warning if it is dangerous.

    Args:
        loaded: The plan.
        name: Its name, or its path if it is not a shipped one.
    """
    plan = loaded.plan
    targets = f"a whole {plan.targets.domain.label}" if plan.targets.domain else f"{plan.targets.nodes} nodes"
    said = (
        plan.title,
        str(fault_for(plan.fault).layer),
        *([targets] if plan.targets.domain or plan.targets.nodes > 1 else ()),
        *([f"repair: {plan.recover.repair}"] if plan.recover.repair != "none" else ()),
        *(["needs the lab"] if plan.fault.needs_lab else ()),
        *(["asks for approval"] if plan.approval.required else ()),
        *(["DANGEROUS"] if plan.dangers() else ()),
    )
    return f"{name}{WORDS}{' · '.join(said)}"


def offered(plans: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form's texts about the plans without arms, and about those with arms.

    A plan that cannot be read gets no text and counts as one without arms: its run says what is wrong.

    Args:
        plans: The files by the plans' names or paths.
    """
    without: dict[str, str] = {}
    with_arms: dict[str, str] = {}
    for name, path in plans.items():
        try:
            loaded = load_plan(path, parameter_models())
        except DocumentError:
            without[name] = f"{name}{WORDS}cannot be used as it is; `gameday validate` says why"
        else:
            (with_arms if loaded.arms else without)[name] = words_of(loaded, name)
    return without, with_arms


def form(
    flow: str | None, properties: Mapping[str, dict[str, Any]], choices: Choices, defaults: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parameters that a person sets, with the values on offer if there are some.

    Args:
        flow: The flow's name.
        properties: Its parameters' JSON schemas, by name.
        choices: The values to offer. A default that is none of them is offered, too: somebody has set it.
        defaults: The deployment's parameters.
    """
    plans = choices.with_arms if flow == _PLAYS_ARMS else choices.plans
    all_plans = {**choices.plans, **choices.with_arms}
    for name, written in properties.items():
        if name in _SET_BY_PROGRAMS:
            continue
        title, description = _TITLES.get(name, (name.replace("_", " ").capitalize(), written.get("description", "")))
        shown = _without_null(written) | {"title": title, "description": description}
        if name in defaults:
            shown["default"] = defaults[name]
        match name:
            case "plan":
                yield name, _listed(shown, plans)
            case "profile" if choices.sources:
                yield (
                    name,
                    shown
                    | {
                        "enum": _with(list(choices.sources), shown),
                        "description": "The cluster, by the name in its profile.",
                    },
                )
            case "plans":
                yield name, _listed(shown, all_plans)
            case "clusters":
                yield name, shown | {"items": {"type": "string", "enum": _with(choices.clusters, shown)}}
            case _:
                yield name, shown


def required(shown: Mapping[str, dict[str, Any]], of_flow: Sequence[str], *, breaks: bool) -> list[str]:
    """Return the parameters that the form does not call optional.

    Args:
        shown: The form's parameters.
        of_flow: Those that the flow itself requires.
        breaks: The deployment breaks things; then what to break and where are not optional.
    """
    asked = [name for name in ASKED if breaks and "default" in shown.get(name, {})]
    return list(dict.fromkeys([*of_flow, *asked]))


def _listed(shown: dict[str, Any], plans: Mapping[str, str]) -> dict[str, Any]:
    """Return a parameter for plans: the form lists their texts, and programs may give bare names."""

    def one_of(values: Sequence[str], title: str) -> dict[str, Any]:
        one = {"type": "string", "enum": _with(values, shown)}
        return {"title": title, **({"type": "array", "items": one} if shown.get("type") == "array" else one)}

    rest = {key: value for key, value in shown.items() if key not in ("type", "items")}
    return {**rest, "anyOf": [one_of(list(plans.values()), "with words"), one_of(list(plans), "by name")]}


def _with(values: Sequence[str], shown: Mapping[str, Any]) -> list[str]:
    default = shown.get("default") or ()
    return list(dict.fromkeys([*values, *([default] if isinstance(default, str) else default)]))


def _without_null(written: dict[str, Any]) -> dict[str, Any]:
    """Return an optional parameter as one that may be left empty; otherwise the form would ask for its type first."""
    kinds = [kind for kind in written.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) != 1:
        return dict(written)
    rest = {key: value for key, value in written.items() if key != "anyOf" and (key, value) != ("default", None)}
    kind: dict[str, Any] = kinds[0]
    return kind | rest
