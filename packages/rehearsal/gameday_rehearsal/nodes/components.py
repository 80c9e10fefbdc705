"""The pods of one machine as its container runtime and its kernel see them: sandboxes, cgroups, and frozen pods.

The effects of a frozen pod are modelled where they would show: the exporter does not answer, lines do not leave the
node, GPUs are not handed out, and the log store's process is really stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gameday.errors import HostError
from gameday.faults.component_pods import Component, component_of
from kubesim.client import Object

_ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class SandboxContainer:
    """A container's process as the runtime started it. Its id is the sandbox's, with the name in front."""

    name: str
    argv: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, container: Object) -> SandboxContainer:
        argv = (*(container.get("command") or ()), *(container.get("args") or ()))
        plain = tuple((one["name"], one.get("value", "")) for one in container.get("env") or ())
        return cls(container["name"], argv, plain)


@dataclass(frozen=True)
class Sandbox:
    """A pod's sandbox, as CRI reports it. Its id is the UID without dashes, twice, to be 64 digits long."""

    uid: str
    namespace: str
    name: str
    labels: dict[str, str]
    burstable: bool
    containers: tuple[SandboxContainer, ...] = ()

    @classmethod
    def of(cls, pod: Object) -> Sandbox:
        meta = pod["metadata"]
        return cls(
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            labels=dict(meta.get("labels") or {}),
            burstable=any(container.get("resources") for container in pod["spec"]["containers"]),
            containers=tuple(SandboxContainer.of(container) for container in pod["spec"]["containers"]),
        )

    @property
    def id(self) -> str:
        return self.uid.replace("-", "") * 2

    @property
    def slice(self) -> str:
        """The cgroup's last name with systemd's driver. Dashes would nest, so the UID has underscores."""
        return f"kubepods-{'burstable' if self.burstable else 'besteffort'}-pod{self.uid.replace('-', '_')}.slice"

    @property
    def cgroup(self) -> str:
        above = self.slice.rpartition("-")[0]
        return f"{_ROOT}/kubepods.slice/{above}.slice/{self.slice}"


class Components:
    """The machine's pods: `sandboxes` are those it has now; `changed` gets each component that stops or goes on."""

    def __init__(self, changed: Callable[[Component, bool], None]) -> None:
        self._changed = changed
        self.sandboxes: Callable[[], Iterable[Sandbox]] = tuple
        self._frozen: dict[str, Component | None] = {}  # by UID
        self._thawed = asyncio.Event()
        self._thawed.set()

    def frozen(self, component: Component) -> bool:
        return component in self._frozen.values()

    def frozen_pods(self) -> list[str]:
        """Return the names of the frozen pods, for a search for leftovers."""
        return sorted(f"{one.namespace}/{one.name}" for one in self.sandboxes() if one.uid in self._frozen)

    async def until_thawed(self, component: Component) -> None:
        while self.frozen(component):
            await self._thawed.wait()

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone, with its cgroup."""
        if uid in self._frozen:
            self._set(uid, self._frozen[uid], frozen=False)

    def reboot(self) -> None:
        for uid in list(self._frozen):
            self.forget(uid)

    # The kernel's files

    def read(self, path: str) -> str | None:
        """Return the cgroup file's content, or None if there is no such file."""
        found = self._at(path)
        if found is None:
            return None
        sandbox, name = found
        frozen = sandbox.uid in self._frozen
        return {"cgroup.freeze": f"{frozen:d}\n", "cgroup.events": f"populated 1\nfrozen {frozen:d}\n"}.get(name)

    def write(self, path: str, content: str) -> None:
        """Write a cgroup file. Raises HostError if the kernel would refuse."""
        found = self._at(path)
        if found is None or found[1] != "cgroup.freeze":
            raise HostError(f"{path}: No such file or directory (ENOENT)")
        if content.strip() not in ("0", "1"):
            raise HostError(f"{path}: Invalid argument (EINVAL): {content[:20]!r}")
        sandbox = found[0]
        self._set(sandbox.uid, component_of(sandbox.labels), frozen=content.strip() == "1")

    def _at(self, path: str) -> tuple[Sandbox, str] | None:
        folder, _, name = path.rpartition("/")
        return next(((one, name) for one in self.sandboxes() if one.cgroup == folder), None)

    def _set(self, uid: str, component: Component | None, *, frozen: bool) -> None:
        if frozen == (uid in self._frozen):
            return
        if frozen:
            self._frozen[uid] = component
            self._thawed.clear()
        else:
            self._frozen.pop(uid)
            self._thawed.set()
        if component:
            self._changed(component, frozen)
