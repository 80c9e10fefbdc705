"""The base classes of faults that burden or break the control plane; no fault itself."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel

from gameday.documents.fields import conflict
from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.host.base import Host
from gameday.host.privileges import API_CLIENT, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.api_clients.objects import LoadObjects
from gameday_control_plane.expect.control_plane import ControlPlane
from gameday_control_plane.faults.api_load import check_memory, refuse_leftovers

P = TypeVar("P", bound=FaultParameters)


class LoadParameters(FaultParameters):
    """Base of the parameters of faults that harm ordinary API clients; a plan then needs `expect.api_canary`."""

    def check_plan(self, plan: Any) -> None:
        if ControlPlane.of(plan.expect).api_canary is None:
            raise conflict(
                ("expect",),
                f"{self.type} loads the API server: write in expect.api_canary what an ordinary client "
                "must still get, or `api_canary: {}` for the defaults",
            )


class Load(Protocol):
    """The clients of a load that a fault began and has to end."""

    def end(self) -> None:
        """End the clients. Idempotent."""


L = TypeVar("L", bound=Load)


class ControlPlaneFault(Fault[P]):
    """Base of the faults that use the API server from an API-client node; all nodes of the cluster feel them."""

    layer: ClassVar[Layer] = Layer.CONTROL_PLANE
    api_account: ClassVar[str] = "gameday-api-client"
    security: ClassVar[PodSecurity] = API_CLIENT

    def claims(self, parameters: P) -> tuple[Claim, ...]:
        return (Claim(parameters.type, cluster_wide=True),)

    @abstractmethod
    def hold_and_tell(
        self, parameters: P, gpu: int, host: Host, ended: threading.Event, tell: Callable[[BaseModel], None]
    ) -> tuple[str, ...]:
        """Hold the fault, report measurements meanwhile, and return lines of evidence."""


class ApiLoadFault(ControlPlaneFault[P], Generic[P, L]):
    """Base of the faults that make objects of one kind in namespace gameday-load and run clients against them.

    A subclass keeps its clients with `begun`, and finds them with `load_of`; `undo` removes only them and the objects.
    """

    load: ClassVar[str]
    """The load's name: the value of its objects' label, and the start of their names."""
    resource: ClassVar[str]
    """Kind of the objects, in the plural, e.g. `secrets`."""

    def __init__(self) -> None:
        # Keyed by the parameters' identity, because two parts of one compound fault share this instance.
        self._loads: dict[int, L] = {}

    def objects(self, host: Host) -> LoadObjects:
        """Return the load's objects."""
        return LoadObjects(host.api_server(), self.resource, self.load)

    def begun(self, parameters: P, load: L) -> L:
        """Keep the clients for `load_of` and `undo`, and return them."""
        self._loads[id(parameters)] = load
        return load

    def load_of(self, parameters: P) -> L:
        """Return the clients that `inject` began."""
        return self._loads[id(parameters)]

    def prior_state(self, parameters: P, gpu: int, host: Host) -> dict[str, str]:
        refuse_leftovers(self.objects(host), self.resource, self.load)
        check_memory(self.load)
        return {}

    @abstractmethod
    def inject(self, parameters: P, gpu: int, host: Host) -> Evidence:
        """Make the objects, start the clients, keep them with `begun`, and return once the load has begun."""

    def undo(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        load = self._loads.pop(id(parameters), None)
        if load:
            load.end()
        return Evidence(lines=(f"deleted {self.objects(host).delete()} {self.resource} from namespace {NAMESPACE}",))

    def verify_undone(self, parameters: P, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not self.objects(host).exist()
