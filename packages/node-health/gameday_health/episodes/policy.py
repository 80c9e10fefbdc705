"""The rules of a repair: the ladder's rungs with their limits, drain, QA gate, repeat offenders, circuit breaker."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from gameday.cluster.profile import Endpoint
from gameday.documents.fields import PLAN_NAME, Bound, DocumentModel, Duration, conflict
from gameday.plan.qa import NodeProof
from gameday.remediations.registry import remediation_for
from gameday.xid.catalogue import Remedy

POWER_CYCLE = "power-cycle"
"""The rung that the repairer carries out itself, by the node's BMC over Redfish; agents do all others."""


GPU_RESET = "gpu-reset"
"""The rung that resets the faulty GPUs and no others."""
RESTART_WORKLOAD = "restart-workload"
"""The rung that restarts the pods of the faulty GPU elsewhere, and does nothing to the hardware."""


class Bmc(DocumentModel):
    """The nodes' baseboard management controllers, which speak Redfish."""

    endpoint: Endpoint
    """A node's BMC: `{node}` in the URL is its name, like https://{node}.bmc.example."""
    system: Annotated[str, Field(pattern=r"^/redfish/v1/[A-Za-z0-9._~/-]+$", max_length=200)] | None = None
    """Path of the ComputerSystem; null if the BMC has only one."""

    def endpoint_of(self, node: str) -> Endpoint:
        """Return a node's own BMC."""
        return self.endpoint.model_copy(update={"url": self.endpoint.url.replace("{node}", node)})


class Rung(DocumentModel):
    """A rung of the ladder: one way to repair a node."""

    repair: Annotated[str, Field(pattern=PLAN_NAME, max_length=63)]
    """The remediation's name: gpu-reset, driver-restart, reboot, or one that a package adds; or power-cycle,
    or restart-workload."""
    limit: int = Field(default=1, ge=1, le=10)
    """The most attempts of this rung in one episode."""
    within: Bound = timedelta(minutes=5)
    """The longest time for one attempt, with its verification."""
    quiet: Bound = timedelta(minutes=1)
    """Time without a new fault after which `restart-workload` counts as done; no other rung waits for it."""

    @field_validator("repair")
    @classmethod
    def _is_a_repair(cls, value: str) -> str:
        if value == "none":
            raise ValueError("a rung repairs something; leave it out to repair nothing")
        if value not in (POWER_CYCLE, RESTART_WORKLOAD):
            remediation_for(value)
        return value

    @property
    def needs_all_pods_gone(self) -> bool:
        """True if every pod with a controller has to leave before it, and not only those with GPUs."""
        if self.repair in (POWER_CYCLE, RESTART_WORKLOAD):
            return self.repair == POWER_CYCLE
        return remediation_for(self.repair).takes_node_down


class DrainRules(DocumentModel):
    """The way in which work leaves a node before its repair."""

    mode: Literal["wait", "evict"] = "evict"
    """`wait` lets pods end by themselves; `evict` asks for their eviction, within PodDisruptionBudgets."""
    scope: Literal["node", "faulty-gpu"] = "node"
    """The pods that leave before a GPU reset: all with GPUs, or only those that may hold the faulty GPU."""
    evict_after: Duration = timedelta()
    """Time in which pods may end by themselves before `evict` begins. With the scope `faulty-gpu`, pods that have the
    faulty GPU open are evicted at once."""
    within: Bound = timedelta(minutes=10)
    """A drain that takes longer hands the node over to a person."""


class QaGate(NodeProof):
    """The proof without which no node returns."""

    length: Duration = timedelta(seconds=10)
    """The least time of the proof: for so long from its beginning no new fault may come. Ten seconds are enough for a
    GPU that is still broken after its repair; the burn-in is part of this time."""
    within: Bound = timedelta(minutes=10)
    """The longest time for the proof, beside burn-in and `dcgmi diag`."""

    @property
    def longest(self) -> timedelta:
        """The longest time for the proof, burn-in and diagnosis included."""
        return self.within + self.longest_work

    @model_validator(mode="after")
    def _length_fits(self) -> QaGate:
        if self.length > self.longest:
            raise conflict(("length",), "the proof must last longer than it may take: raise `within`")
        return self

    @property
    def needs_idle_gpus(self) -> bool:
        """True if the proof would disturb work on the node, or be disturbed by it."""
        return self.burn_in is not None or self.floors.memory_free_mib is not None


class AttemptLimits(DocumentModel):
    """The most that is tried on one node."""

    per_episode: int = Field(default=6, ge=1, le=50)
    """Attempts of all rungs in one episode."""
    per_day: int = Field(default=8, ge=1, le=100)
    """Attempts of all rungs in 24 hours, earlier episodes included; then a person has to look."""


class RepeatOffenders(DocumentModel):
    """The treatment of a node that comes back with a fault soon after its return."""

    window: Bound = timedelta(hours=24)
    """Earlier episodes that ended within this count."""
    stay_out_after: int = Field(default=3, ge=1, le=100)
    """Number of returns within the window after which the next episode goes to a person."""


class Breaker(DocumentModel):
    """The most nodes that are under repair at the same time; all others wait, marked `withheld`."""

    nodes: int = Field(default=5, ge=1, le=10_000)
    """Nodes under repair, at most."""
    percent: float = Field(default=25, gt=0, le=100)
    """Share of the cluster's GPU nodes under repair, at most; one is always allowed."""

    def allowed(self, gpu_nodes: int) -> int:
        """Return how many nodes may be under repair in a cluster with this many GPU nodes."""
        return max(1, min(self.nodes, int(gpu_nodes * self.percent / 100)))


_FIRST_RUNG = {Remedy.NONE: RESTART_WORKLOAD, Remedy.GPU_RESET: GPU_RESET, Remedy.REBOOT: "reboot"}


class RepairPolicy(DocumentModel):
    """All rules of a repair."""

    ladder: tuple[Rung, ...] = Field(
        default=(
            Rung(repair="gpu-reset", limit=1, within=timedelta(minutes=3)),
            Rung(repair="driver-restart", limit=1, within=timedelta(minutes=4)),
            # A boot of a GPU server takes ten minutes and more (memory training, eight GPUs, NVSwitch fabric).
            Rung(repair="reboot", limit=2, within=timedelta(minutes=20)),
        ),
        min_length=1,
        max_length=10,
    )
    """The rungs, the gentlest first. A remedy that no rung bears begins with the first that repairs hardware."""
    drain: DrainRules = DrainRules()
    """The drain before a repair."""
    qa: QaGate = QaGate()
    """The QA gate."""
    attempts: AttemptLimits = AttemptLimits()
    """The limits of one node."""
    repeat_offenders: RepeatOffenders = RepeatOffenders()
    """Nodes that come back with a fault."""
    breaker: Breaker = Breaker()
    """The limits of the cluster."""
    bmc: Bmc | None = None
    """The nodes' BMCs, for a rung `power-cycle`; null: none."""
    webhook: Endpoint | None = None
    """A server that is sent, by POST, the evidence of each node that is handed over to a person; null: none."""

    @model_validator(mode="after")
    def _each_rung_once(self) -> RepairPolicy:
        names = [rung.repair for rung in self.ladder]
        if len(names) != len(set(names)):
            raise ValueError("the ladder names a repair twice; give its rung a higher limit")
        if RESTART_WORKLOAD in names[1:] or names == [RESTART_WORKLOAD]:
            raise ValueError("restart-workload repairs no hardware: make it the first rung, and put others after it")
        if POWER_CYCLE in names and self.bmc is None:
            raise ValueError("a rung power-cycle needs bmc.endpoint, the address of the nodes' BMCs")
        return self

    def first_rung(self, remedy: Remedy) -> int | None:
        """Return the index of the rung that a fault's remedy begins with, or None if only a person can help."""
        wanted = _FIRST_RUNG.get(remedy)
        names = [rung.repair for rung in self.ladder]
        if wanted in names:
            return names.index(wanted)
        return None if wanted in (None, RESTART_WORKLOAD) else self._first_of_hardware

    @property
    def _first_of_hardware(self) -> int:
        """The first rung that repairs hardware: only this one may replace a rung that is missing."""
        return int(self.ladder[0].repair == RESTART_WORKLOAD)

    def index_of(self, repair: str) -> int:
        """Return a rung's index; for a rung that was removed from the ladder, that of the first."""
        names = [rung.repair for rung in self.ladder]
        return names.index(repair) if repair in names else self._first_of_hardware
