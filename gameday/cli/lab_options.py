"""The options of a lab's settings, the same for every command that starts one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gameday.errors import CommandError
from gameday.text import shown

if TYPE_CHECKING:
    from gameday.plan.rehearsal import RehearsalSettings
    from gameday.rehearsal.lab.settings import LabSettings

ApiServers = Annotated[
    int | None,
    typer.Option("--apiservers", min=1, max=5, help="Lab: number of API servers; several are behind HAProxy."),
]
BalanceBy = Annotated[
    str | None,
    typer.Option("--balance", help="Lab: how HAProxy chooses a server: roundrobin (the default) or leastconn."),
]
ApiServerFlags = Annotated[
    list[str] | None,
    typer.Option("--apiserver-flag", help="Lab: NAME=VALUE, a flag of every API server, such as goaway-chance=0.02."),
]
ApiServerMemory = Annotated[
    str | None,
    typer.Option("--apiserver-memory", help="Lab: memory above which an API server is killed, such as 1GiB."),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", help="Lab: COMPONENT:NAME=VALUE, such as kube-apiserver:GOGC=50."),
]
ControllerManagerQps = Annotated[
    int | None,
    typer.Option("--controller-manager-qps", min=1, help="Lab: kube-controller-manager's requests a second; stock 20."),
]
SchedulerQps = Annotated[
    int | None,
    typer.Option("--scheduler-qps", min=1, help="Lab: kube-scheduler's requests a second; stock 50."),
]
Hold = Annotated[
    list[str] | None,
    typer.Option("--hold", help="Lab: an API server, such as kube-apiserver-2, that `gameday lab start` starts."),
]


Dra = Annotated[
    bool,
    typer.Option("--dra", help="Lab: publish the GPUs as ResourceSlices, too, for pods with ResourceClaims."),
]


@dataclass(frozen=True)
class LabOptions:
    """The options as given; None or empty if not given."""

    apiservers: int | None = None
    balance: str | None = None
    apiserver_flag: Sequence[str] | None = None
    apiserver_memory: str | None = None
    env: Sequence[str] | None = None
    controller_manager_qps: int | None = None
    scheduler_qps: int | None = None
    hold: Sequence[str] | None = None
    dra: bool = False

    def words(self) -> Iterator[str]:
        """Yield the given options as they were typed."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is True:
                yield f"--{field.name}"
                continue
            for one in value if isinstance(value, list | tuple) else [value]:
                if one not in (None, False):
                    yield from (f"--{field.name.replace('_', '-')}", str(one))

    def settings(self, defaults: RehearsalSettings | None = None) -> LabSettings:
        """Return the lab's settings: the plan's defaults, overridden by the given options.

        Raises CommandError for a value that the lab does not take; it names the option.
        """
        from pydantic import ValidationError  # noqa: PLC0415

        from gameday.rehearsal.lab.settings import LabSettings  # noqa: PLC0415

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
