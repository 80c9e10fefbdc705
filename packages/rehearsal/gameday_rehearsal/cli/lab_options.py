"""The options of a lab's settings, for every command that starts a lab."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gameday.errors import CommandError
from gameday.text import shown

if TYPE_CHECKING:
    from gameday.plan.rehearsal import RehearsalSettings
    from gameday_rehearsal.lab.settings import LabSettings


def _option(name: str, help: str, **bounds: Any) -> Any:
    return typer.Option(name, help=f"Lab: {help}", **bounds)


@dataclass(frozen=True)
class LabOptions:
    """The options as they were given; None and False: not given."""

    apiservers: Annotated[
        int | None, _option("--apiservers", "number of API servers; several are behind HAProxy.", min=1, max=5)
    ] = None
    balance: Annotated[
        str | None, _option("--balance", "how HAProxy chooses a server: roundrobin (the default) or leastconn.")
    ] = None
    apiserver_flag: Annotated[
        list[str] | None,
        _option("--apiserver-flag", "NAME=VALUE, a flag of every API server, such as goaway-chance=0.02."),
    ] = None
    apiserver_memory: Annotated[
        str | None, _option("--apiserver-memory", "memory above which an API server is killed, such as 1GiB.")
    ] = None
    env: Annotated[list[str] | None, _option("--env", "COMPONENT:NAME=VALUE, such as kube-apiserver:GOGC=50.")] = None
    controller_manager_qps: Annotated[
        int | None,
        _option("--controller-manager-qps", "kube-controller-manager's requests a second; stock 20.", min=1),
    ] = None
    scheduler_qps: Annotated[
        int | None, _option("--scheduler-qps", "kube-scheduler's requests a second; stock 50.", min=1)
    ] = None
    hold: Annotated[
        list[str] | None,
        _option("--hold", "an API server, such as kube-apiserver-2, that `gameday lab start` starts."),
    ] = None
    dra: Annotated[bool, _option("--dra", "publish the GPUs as ResourceSlices, too, for pods with ResourceClaims.")] = (
        False
    )

    real_node: Annotated[
        bool, _option("--real-node", "a node with a real kubelet and containerd beside the virtual ones; needs root.")
    ] = False

    def words(self) -> Iterator[str]:
        """Yield the given options as they were typed."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is True:
                yield f"--{field.name.replace('_', '-')}"
                continue
            for one in value if isinstance(value, list | tuple) else [value]:
                if one not in (None, False):
                    yield from (f"--{field.name.replace('_', '-')}", str(one))

    def settings(self, defaults: RehearsalSettings | None = None) -> LabSettings:
        """Return the lab's settings: the plan's defaults, overridden by the given options.

        Raises CommandError for a value that the lab does not take; it names the option.
        """
        from pydantic import ValidationError

        from gameday_rehearsal.lab.settings import LabSettings

        asked = (
            defaults.model_dump(exclude={"cluster", "held_api_servers", "training"}, exclude_none=True)
            if defaults
            else {}
        )
        if defaults and defaults.held_servers:
            asked["hold"] = defaults.held_servers
        given = {
            "api_servers": self.apiservers,
            "balance": self.balance,
            "api_server_memory": self.apiserver_memory,
            "controller_manager_qps": self.controller_manager_qps,
            "scheduler_qps": self.scheduler_qps,
            "hold": tuple(self.hold or ()) or None,
            "dra": self.dra or None,
            "real_node": self.real_node or None,
        }
        asked |= {key: value for key, value in given.items() if value is not None}
        for option in self.apiserver_flag or ():
            name, value = _name_and_value("--apiserver-flag", option, "goaway-chance=0.02")
            asked.setdefault("flags", {}).setdefault("kube-apiserver", {})[name] = value
        for option in self.env or ():
            component, _, rest = option.partition(":")
            name, value = _name_and_value("--env", rest, "kube-apiserver:GOGC=50")
            asked.setdefault("environment", {}).setdefault(component, {})[name] = value
        try:
            return LabSettings.model_validate(asked)
        except ValidationError as error:
            raise CommandError("\n".join(_problem(one) for one in error.errors(include_url=False))) from None

    def refuse_without_lab(self) -> None:
        """Raise CommandError if any option was given for a cluster that is not a lab."""
        if option := next(self.words(), None):
            raise CommandError(f"{option} is about the lab: add `--cluster lab`, or leave it out")


def takes_lab_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that has each of the lab's options, and passes them on as its last argument, `lab_options`."""
    names = [field.name for field in fields(LabOptions)]
    hints = get_type_hints(command, include_extras=True) | get_type_hints(LabOptions, include_extras=True)

    @wraps(command)
    def with_options(**given: Any) -> int:
        options = LabOptions(**{name: given.pop(name) for name in names})
        return command(**given, lab_options=options)

    del hints["lab_options"]
    own = [one for name, one in inspect.signature(command).parameters.items() if name != "lab_options"]
    shared = list(inspect.signature(LabOptions).parameters.values())
    parameters = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in (*own, *shared)]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = hints
    return with_options


_OPTIONS = {
    "api_servers": "--apiservers",
    "balance": "--balance",
    "api_server_memory": "--apiserver-memory",
    "controller_manager_qps": "--controller-manager-qps",
    "scheduler_qps": "--scheduler-qps",
    "hold": "--hold",
    "flags": "--apiserver-flag",
    "environment": "--env",
}


def _name_and_value(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"{option} {shown(text)}: write it like `{option} {example}`")
    return name, value


def _problem(error: Any) -> str:
    path = (*error["loc"], *error.get("ctx", {}).get("at", ()))
    value = error["input"]
    said = "" if isinstance(value, dict) else f" {shown(value)}"  # the message names what is wrong inside it
    return f"{_OPTIONS[str(path[0])]}{said}: {error['msg']}"
