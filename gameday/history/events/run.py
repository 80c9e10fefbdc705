"""The life of a run: its start and its end, its steps, what it waits for, guardrails, approval, problems."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.history.events.model import EventModel
from gameday.values.nodes import NodeRole, StruckDomain, Target
from gameday.values.pricing import OutageTerms
from gameday.values.results import Cleanliness, Step, StepOutcome


class RunStarted(EventModel):
    kind: Literal["run_started"] = "run_started"
    run_id: str
    plan_name: str
    plan_sha256: str = Field(description="of the plan file's bytes, kept beside the history as plan.yaml")
    gameday_version: str
    trigger: Literal["rehearsal", "manual", "scheduled"]
    operator: str
    cluster: str = Field(description="kube context or server URL, without credentials")
    cluster_uid: str = Field(description="UID of the kube-system namespace")
    cluster_name: str = Field(default="", description="what people call the cluster: the profile's name")
    cluster_id: str = Field(default="", description="the name by which runs count as one cluster's; empty: its UID")
    server_version: str
    role: NodeRole = Field(default=NodeRole.GPU, description="of the targets")
    flow_run_id: str | None = None
    flow_run_url: str | None = None
    command: str = Field(description="shell line that runs the same plan again")
    virtual: bool = Field(default=False, description="the profile is a rehearsal's, so all nodes are virtual")
    outage_terms: OutageTerms | None = Field(default=None, description="the cluster profile's figures for outages")


class StepStarted(EventModel):
    kind: Literal["step_started"] = "step_started"
    step: Step
    deadline_s: float | None = Field(description="seconds the step may take; None if it has no bound")


class StepEnded(EventModel):
    kind: Literal["step_ended"] = "step_ended"
    step: Step
    outcome: StepOutcome
    why: str = ""


class WaitStarted(EventModel):
    """The condition that the run waits for; the live view shows the newest one."""

    kind: Literal["wait_started"] = "wait_started"
    step: Step
    what: str
    deadline_s: float


class TargetsChosen(EventModel):
    kind: Literal["targets_chosen"] = "targets_chosen"
    targets: tuple[Target, ...]
    candidates: int
    rule: str
    seed: int
    domain: StruckDomain | None = Field(default=None, description="None: the plan breaks a number of nodes")
    virtual: tuple[str, ...] = Field(default=(), description="targets that no machine is behind")


class SteadyStateChecked(EventModel):
    """A line of the steady-state gate. `ok` None means it could not be read."""

    kind: Literal["steady_state_checked"] = "steady_state_checked"
    name: str
    ok: bool | None
    detail: str
    node: str | None = None
    seconds: float | None = Field(default=None, description="latency, if the check measures one")


class GuardChecked(EventModel):
    """A guardrail's result, before the fault or while it is in."""

    kind: Literal["guard_checked"] = "guard_checked"
    guardrail: str
    phase: Literal["before", "during"]
    limit: str = Field(description="as shown to people, with the owner of the limit")
    measured: str = Field(description="empty if it could not be measured")
    ok: bool | None = Field(description="None if it could not be measured")
    why: str = Field(default="", description="what is wrong, or why it could not be measured")
    nodes: tuple[str, ...] = Field(default=(), description="nodes that `why` speaks of, beside the targets")
    looks: int = Field(default=1, description="how often it was looked at in this phase, this time included")


class ApprovalAsked(EventModel):
    """The run waits for a person's yes; nothing is broken yet."""

    kind: Literal["approval_asked"] = "approval_asked"
    within_s: float
    where: str = Field(description="the place to answer")


class ApprovalAnswered(EventModel):
    """`by` is the name the person gave: Prefect's open-source server knows no users."""

    kind: Literal["approval_answered"] = "approval_answered"
    approved: bool
    by: str
    via: Literal["Prefect", "command line"]
    comment: str = ""
    season: str = Field(default="", description="the season for which it was answered once; empty: for this run alone")
    answered_at: AwareDatetime | None = Field(default=None, description="None: when this was written")


class DoctorFinding(BaseModel):
    """A check of `gameday doctor` that did not pass."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    area: str
    check: str
    ok: bool | None = Field(description="False: failed; None: unknown")
    found: str
    fix: str = Field(description="the next step; empty if there is none")


class DoctorAsked(EventModel):
    """The checks of `gameday doctor` about signals that were missed, run after the undo."""

    kind: Literal["doctor_asked"] = "doctor_asked"
    steps: tuple[Step, ...] = Field(description="the steps with expectations that did not hold or could not be judged")
    checks: int = Field(description="how many were asked, those that were passed among them")
    findings: tuple[DoctorFinding, ...] = Field(description="those that failed, then those that are unknown")
    cut_short: str = Field(default="", description="why the rest was not asked; empty if all were")


class Problem(EventModel):
    """A problem that did not end the run; `hint` says what a person can do."""

    kind: Literal["problem"] = "problem"
    step: Step | None
    what: str
    hint: str = ""


class Aborted(EventModel):
    kind: Literal["aborted"] = "aborted"
    by: Literal["operator", "guard"]
    why: str


class Refused(EventModel):
    """Nothing was changed; the run stops before inject."""

    kind: Literal["refused"] = "refused"
    why: str
    hint: str = ""


class RunEnded(EventModel):
    kind: Literal["run_ended"] = "run_ended"
    cleanliness: Cleanliness
