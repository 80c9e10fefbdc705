"""The plan's models: the plan as a whole and its recovery.

A fault's parameters are a model of their own, beside the fault. A plan is validated against the parameter models that
the caller knows (see `plan.load`), so a new fault needs no edit here.

A combination of keys that makes no sense is refused with a `conflict` error. Its context names the field to change
(`at`), so that the loader can point at the line.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import PLAN_NAME, DocumentModel, Duration, conflict, format_duration
from gameday.plan.arms import Arms
from gameday.plan.expectations import AnyExpectations
from gameday.plan.fault import AnyFault
from gameday.plan.limits import Approval, Guardrails
from gameday.plan.purpose import Purpose
from gameday.plan.qa import Qa
from gameday.plan.rehearsal import RehearsalSettings
from gameday.plan.repair_chain import RepairChain, key_of
from gameday.plan.scales import Scales
from gameday.plan.settings import AnySettings, every_default
from gameday.plan.targets import Baseline, Targets
from gameday.values.measures import Measure
from gameday.values.nodes import NodeRole

NO_REMEDIATION = "none"


def _is_known_remediation(name: str, info: ValidationInfo) -> str:
    """Refuse a name that is not among the context's `remediations`; without those, accept any name."""
    known: Collection[str] | None = (info.context or {}).get("remediations")
    if known is not None and name not in known:
        raise PydanticCustomError(
            "remediation", "unknown remediation; known: {known}", {"known": ", ".join(sorted(known)) or "none"}
        )
    return name


RemediationName = Annotated[str, Field(max_length=63), AfterValidator(_is_known_remediation)]


class ServerRestart(DocumentModel):
    """A restart of a lab's API servers once the load is gone, which shows how much memory only a restart frees."""

    settle: Duration = Field(default=timedelta(seconds=30), ge=timedelta(seconds=20), le=timedelta(minutes=10))
    """Time from the end of the load to the restart, and again from the restart to the end of the step. Memory is
    measured in the second half, which has at least two samples at a scrape every 5 s."""


class Recovery(DocumentModel):
    """The repair of the node: by the game-day once the fault is out, or by the cluster while the game-day watches."""

    by: Literal["game-day", "cluster"] = "game-day"
    """`game-day`: the game-day repairs the node and gives it back. `cluster`: the game-day keeps its hands off, and
    measures how the cluster repairs the node by itself (docs/hands-off.md)."""
    remediation: RemediationName = NO_REMEDIATION
    """The repair, by its name; `none` leaves the node as it is."""
    within: Duration = timedelta(minutes=10)
    """Longest time from the start of the step until the node is Ready again."""
    fault_during: AnyFault | None = None
    """A second fault, put in when the remediation starts and taken out when it has ended, to test the repair itself."""
    fault_out: Literal["repair-begun", "deadline"] = "repair-begun"
    """The moment at which the fault is taken out, if the cluster repairs. `repair-begun`: the first sign of the repair,
    or the end of the chain. `deadline`: the end of the fault's `hold`; after a reboot the fault is put in again."""
    node_ends: Literal["in-service", "out-of-service"] = "in-service"
    """The state in which the node must be at the end, if the cluster repairs. `out-of-service`: the cluster must not
    give the node back within the bound of `hops.returned`."""
    hops: RepairChain = RepairChain()
    """The hops that the cluster must take, if the cluster repairs; the detector's profile completes them."""
    restart_api_servers: ServerRestart | None = None
    """The API servers are restarted, one after the other, once the load is gone. Only a lab can do this; on another
    cluster the run is refused."""

    @property
    def is_hands_off(self) -> bool:
        """True if the cluster repairs the node and the game-day only watches."""
        return self.by == "cluster"

    @property
    def gives_node_back(self) -> bool:
        """True if the node is to be in service at the end."""
        return self.node_ends == "in-service"

    @property
    def repair(self) -> str:
        """The repair in words: the remediation's name, or that the cluster repairs."""
        return "by the cluster" if self.is_hands_off else self.remediation

    @property
    def repairs_node(self) -> bool:
        """True if the plan names a remediation."""
        return self.remediation != NO_REMEDIATION

    @model_validator(mode="after")
    def _there_is_something_to_disturb(self) -> Recovery:
        if self.fault_during and not self.repairs_node:
            raise conflict(
                ("fault_during",),
                "there is no remediation to disturb: choose one, or put both faults into one of type compound",
            )
        return self

    @model_validator(mode="after")
    def _there_is_one_repairer(self) -> Recovery:
        if not self.is_hands_off:
            for key in ("fault_out", "node_ends", "hops"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise conflict((key,), "this key needs `by: cluster`: here the game-day itself repairs the node")
            return self
        if self.repairs_node:
            raise conflict(("remediation",), "the cluster repairs this node (`by: cluster`): leave the remediation out")
        if self.fault_during:
            raise conflict(
                ("fault_during",), "this fault disturbs a remediation of the game-day, and here the cluster repairs"
            )
        if self.node_ends == "out-of-service" and self.hops.expected() and not self.hops.returned:
            raise conflict(
                ("hops",), "write in `returned` how long to watch that the node stays out of service: {within: 1m}"
            )
        return self


class Plan(DocumentModel):
    """A game-day: the hypothesis, the fault, the targets, the expectations, the repair and the limits."""

    apiVersion: Literal["gameday/v1"]
    name: str = Field(pattern=PLAN_NAME, max_length=63)
    """Name of the plan and of its file: lower-case letters, digits and `-`."""
    title: str = Field(min_length=1, max_length=200)
    """Short title for lists and for the head of the report."""
    hypothesis: str = Field(min_length=1, max_length=4000)
    """The belief of the cluster's owners, in a sentence that the report can compare with what was measured."""
    purpose: Purpose = Purpose()
    """The reason for the game-day, the change under which it is held, and the person to call."""
    detector: str = Field(default="gameday", min_length=1, max_length=1024)
    """Detector profile that completes `expect` if the plan writes this key: the name of a shipped one (`gameday
    detectors`) or of one in the cluster profile's `detector_profiles`, or the path of a file."""
    fault: AnyFault
    """The fault; its `type` names it."""
    targets: Targets = Targets()
    settings: AnySettings = Field(default_factory=every_default)
    baseline: Baseline = Baseline()
    expect: AnyExpectations
    recover: Recovery = Recovery()
    qa: Qa = Qa()
    guardrails: Guardrails = Guardrails()
    approval: Approval = Approval()
    rehearsal: RehearsalSettings = RehearsalSettings()
    arms: Arms | None = None
    """Arms of a comparison (docs/arms.md): the plan is played once for each, with a few of its keys changed."""
    scales: Scales = Field(default_factory=dict)
    """Other sizes of the plan by their names, such as `talk`: `gameday rehearse --scale` plays it in one of them."""

    def dangers(self) -> dict[str, str]:
        """Return why each dangerous fault of this plan is dangerous, by its type."""
        during = self.recover.fault_during
        return self.fault.dangers() | (during.dangers() if during else {})

    @property
    def names_detector(self) -> bool:
        """True if the plan writes the key `detector`."""
        return "detector" in self.model_fields_set

    @property
    def longest_bound(self) -> timedelta:
        """The longest time from the fault going in to the last moment at which an expectation may come true."""
        return max((bound for _, bound in self.expect.all_bounds()), default=timedelta())

    @model_validator(mode="after")
    def _check_conflicts(self) -> Plan:
        if not (self.expect.can_be_broken or self.names_detector):
            raise conflict(
                ("expect",),
                "a plan that expects nothing can prove nothing: name alerts, taints, conditions, events or "
                "stays_schedulable_for here, or a detector whose profile says what to expect",
            )
        self._check_targets()
        self._check_dangers()
        self._check_bounds()
        self._check_repair_chain()
        self._check_fault()
        self._check_restart()
        if not self.fault.is_read_back:
            self.fault.check_plan(self)
        for part in self.expect.parts():
            part.check_plan(self)
        return self

    def _check_restart(self) -> None:
        is_load = self.fault.runs_on is NodeRole.API_CLIENT or self.fault.is_read_back
        if self.recover.restart_api_servers and not is_load:
            raise conflict(
                ("recover", "restart_api_servers"),
                f"{self.fault.type} breaks a GPU node, and the API servers' memory is measured under a load on them "
                "only, such as api_churn",
            )

    def _check_domain(self) -> None:
        for key, given in (("nodes", self.targets.nodes != 1), ("names", bool(self.targets.names))):
            if given:
                raise conflict(("targets", key), "targets.domain says which nodes are broken: leave out one of the two")
        if self.arms:
            raise conflict(("targets", "domain"), "a season assigns the nodes of arms one by one, and no whole domain")
        if self.fault.runs_on is not NodeRole.GPU and not self.fault.is_read_back:
            raise conflict(
                ("targets", "domain"), f"{self.fault.type} breaks no GPU node, and a domain consists of them"
            )

    def _check_targets(self) -> None:
        if self.targets.domain:
            self._check_domain()
        most = self.guardrails.max_nodes
        if most is not None and self.targets.nodes > most:
            raise conflict(
                ("targets", "nodes"),
                f"targets.nodes ({self.targets.nodes}) is more than guardrails.max_nodes ({most})",
            )
        if self.targets.names and len(self.targets.names) < self.targets.nodes:
            raise conflict(
                ("targets", "names"),
                f"targets.nodes is {self.targets.nodes}, but targets.names lists {len(self.targets.names)}",
            )

    def _check_dangers(self) -> None:
        during = self.recover.fault_during
        faults = {("fault", "type"): self.fault, ("recover", "fault_during", "type"): during}
        for at, fault in faults.items():
            for name, why in (fault.dangers() if fault else {}).items():
                if name not in self.guardrails.allow_dangerous:
                    raise conflict(
                        at,
                        f"{name} is dangerous ({why}): to use it, name it in guardrails.allow_dangerous here, and in "
                        "the cluster profile's allow_dangerous",
                    )

    def _check_bounds(self) -> None:
        longest = self.guardrails.max_duration
        bounds = [(("expect", *at), bound) for at, bound in self.expect.all_bounds()]
        if self.approval.required:
            bounds.append((("approval", "within"), self.approval.within))
        for at, bound in bounds:
            if bound > longest:
                raise conflict(
                    at,
                    f"this bound ({format_duration(bound)}) is longer than guardrails.max_duration "
                    f"({format_duration(longest)}), which would abort the run first",
                )

    def _check_repair_chain(self) -> None:
        recover, longest = self.recover, self.guardrails.max_duration
        if not recover.is_hands_off:
            return
        if self.expect.stays_schedulable_for is not None:
            raise conflict(
                ("recover", "by"), "a node that stays schedulable needs no repair: leave `by` or the expectation out"
            )
        if not (recover.hops.expected() or self.names_detector):
            raise conflict(
                ("recover", "by"),
                "a cluster that must take no hop can fail at none: write recover.hops, or name a detector whose "
                "profile says how the cluster repairs",
            )
        if recover.hops.longest > longest:
            slowest = max(recover.hops.expected(), key=lambda hop: hop[1].within)
            raise conflict(
                ("recover", "hops", key_of(slowest[0]), "within"),
                f"all hops together may take {format_duration(recover.hops.longest)}, which is longer than "
                f"guardrails.max_duration ({format_duration(longest)}): that would abort the run first",
            )

    def _check_fault(self) -> None:
        over_nodes = self.expect.all_reduce
        if self.fault.needs_canary and self.expect.canary is None and not (over_nodes and over_nodes.gpus):
            raise conflict(
                ("expect",),
                f"only the canary job notices {self.fault.type}: write in expect.canary what it must measure, or give "
                "expect.all_reduce backend: nccl",
            )
        measured = self.expect.canary.measure if self.expect.canary else None
        if measured is Measure.LARGEST_BLOCK and self.fault.type != "gpu_memory":
            raise conflict(
                ("expect", "canary", "measure"), "only the fault gpu_memory holds memory whose pieces are measured"
            )
        if self.fault.needs_lab and self.rehearsal.cluster != "lab":
            raise conflict(
                ("fault", "type"),
                f"{self.fault.type} stops a program of the control plane, which only a lab allows: write "
                "`rehearsal: {cluster: lab}`",
            )
        self._check_role()
        if self.expect.topology_manager_rejects and self.fault.type != "numa":
            raise conflict(
                ("expect", "topology_manager_rejects"),
                "only the fault numa makes sure that the target has more than one NUMA node",
            )

    def _check_role(self) -> None:
        """Refuse what only a GPU node can show or have, if the fault runs on an API-client node."""
        during = self.recover.fault_during
        if during and during.runs_on is not self.fault.runs_on:
            raise conflict(
                ("recover", "fault_during", "type"),
                f"{during.type} needs a {during.runs_on}, and {self.fault.type} a {self.fault.runs_on}: both faults of "
                "a plan need the same kind of node",
            )
        if self.fault.runs_on is NodeRole.GPU:
            for key in () if self.fault.is_read_back else self.expect.about(NodeRole.API_CLIENT):
                raise conflict(
                    ("expect", key),
                    f"{self.fault.type} breaks a GPU node, and nothing would measure this: it needs a fault that runs "
                    f"on an {NodeRole.API_CLIENT}, such as list_storm",
                )
            return
        for key in self.expect.about(NodeRole.GPU):
            raise conflict(
                ("expect", key),
                f"{self.fault.type} leaves its node whole: this expectation is about a GPU node that breaks",
            )
        if self.recover.is_hands_off or self.recover.repairs_node:
            raise conflict(
                ("recover",), f"{self.fault.type} leaves its node whole, so there is no node to repair: leave this out"
            )
