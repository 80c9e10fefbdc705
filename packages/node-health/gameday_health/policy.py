"""Health policies: ordered rules, read from a file, that answer a signal. The first rule that matches wins.

A policy file is a document like a plan: frozen models, no unknown keys, every mistake reported with its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import (
    ALERT_NAME,
    NODE_NAME,
    PLAN_NAME,
    Bound,
    ConditionStatus,
    ConditionType,
    DocumentModel,
    Duration,
    Reason,
    conflict,
)
from gameday.values.patterns import begins, found_in, why_no_pattern
from gameday.xid.catalogue import Action, Remedy, nvlink5_actions, xids
from gameday.xid.decide import Decision, Response, decide
from gameday.xid.lines import KernelEvent, Kind, Severity, read_other
from gameday.xid.messages import LEAST_HEAD, MESSAGE_BY_NAME, is_of_the_driver, without_names
from gameday.xid.record import Writer
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.signal import Signal, SignalKind

_HIGHEST_CODE = 99_999  # an SXid is printed as %05d (docs/sources.md, Lines of the driver)
_CODES = re.compile(r"(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?")


def _read_codes(value: object) -> object:
    found = _CODES.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if found is None:
        raise PydanticCustomError("codes", "must be a code like 79, or a range in quotes like '144-150'")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not 0 < first <= last <= _HIGHEST_CODE:
        raise PydanticCustomError("codes", "must run upwards, from 1 to 99999")
    return first, last


def _check_pattern(pattern: str) -> str:
    if why := why_no_pattern(pattern):
        message = "RE2 cannot read this pattern: {why}; it knows no look-around and no back-references"
        raise PydanticCustomError("pattern", message, {"why": why})
    if "`" in pattern:
        raise PydanticCustomError("pattern", "must do without the character `, which ends a pattern in LogQL")
    return pattern


def _check_not_empty(value: tuple[object, ...]) -> tuple[object, ...]:
    if not value:
        raise PydanticCustomError("empty", "must have at least one entry")
    return value


def _check_message(name: str) -> str:
    if name not in MESSAGE_BY_NAME:
        raise PydanticCustomError("message", "must be one of {known}", {"known": ", ".join(MESSAGE_BY_NAME)})
    return name


NotEmpty = AfterValidator(_check_not_empty)
"""The check that a list has an entry, made after its items, so that a mistake in one is not also an empty list."""
Codes = Annotated[tuple[int, int], BeforeValidator(_read_codes)]
"""The first and the last code of a range."""
Pattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_pattern)]
PromLabel = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=128)]


class KernelLogMatch(DocumentModel):
    """Lines of the kernel log. All keys that are given must fit; without any, every recognised line does.

    `text` alone is also about lines that are not recognised.
    """

    kinds: tuple[Kind, ...] = ()
    """xid, sxid, gpu-lost (gone from the bus in a line without an Xid), peermem, driver (a message with a name),
    other (no line of these)."""
    messages: tuple[Annotated[str, AfterValidator(_check_message)], ...] = ()
    """Names of the driver's messages without a code: uvm-fatal, gpu-needs-reset, nvswitch-fatal, adapter-failed,
    gsp-timeout, gsp-rpc-failed."""
    xids: tuple[Codes, ...] = ()
    """Codes and ranges in quotes: [79, '144-150']. With `sxids`, a line of either list fits."""
    sxids: tuple[Codes, ...] = ()
    """Codes and ranges of NVSwitch errors."""
    nvidia_actions: tuple[Action, ...] = ()
    """NVIDIA's immediate action for the code, for 144 to 150 that of the sub-unit in the line."""
    severities: tuple[Severity, ...] = ()
    """The severity that the line itself states: fatal, non-fatal."""
    catalogue: tuple[Response, ...] = ()
    """The answer that NVIDIA's catalogue asks for, as gameday/xid/decide.py reads it: quarantine, workload, event,
    ignore."""
    text: Pattern | None = None
    """A regular expression, in RE2's syntax, that the line must contain. In a line that is not the driver's the message
    must begin with it, in at least 16 characters: others may have chosen what comes later, or a name before it."""

    @property
    def asks_for_other_lines(self) -> bool:
        """True for a rule about lines that are not recognised: only its pattern decides."""
        keys = (self.messages, self.xids, self.sxids, self.nvidia_actions, self.severities, self.catalogue)
        return self.text is not None and not any(keys) and self.kinds in ((), (Kind.OTHER,))

    def matches(self, signal: Signal) -> bool:
        event = signal.event
        if event is None:
            return False
        if event.kind is Kind.OTHER:
            return self.asks_for_other_lines and self.has_text(event.text)
        # Anybody can choose the name of the process in the line.
        line = event.line.replace(f"name={event.process}", "name=") if event.process else event.line
        return self.fits(event) and (self.text is None or found_in(self.text, line))

    def has_text(self, message: str) -> bool:
        """Return True if an unrecognised line's message has the pattern in a place that nobody can forge."""
        assert self.text
        if is_of_the_driver(message):
            return found_in(self.text, without_names(message))
        return begins(message, self.text) >= LEAST_HEAD

    def fits(self, event: KernelEvent) -> bool:
        """Return True if all keys but `text` fit a recognised line."""
        return (
            (not self.kinds or event.kind in self.kinds)
            and (not self.messages or event.name in self.messages)
            and self._has_code(event)
            and (not self.nvidia_actions or bool(nvidia_actions(event) & set(self.nvidia_actions)))
            and (not self.severities or event.severity in self.severities)
            and (not self.catalogue or decide(event).response in self.catalogue)
        )

    def _has_code(self, event: KernelEvent) -> bool:
        if not self.xids and not self.sxids:
            return True
        listed = {Kind.XID: self.xids, Kind.SXID: self.sxids}.get(event.kind, ())
        return event.code is not None and any(first <= event.code <= last for first, last in listed)


class AlertMatch(DocumentModel):
    """Alerts that fire, as Alertmanager sends or shows them."""

    names: Annotated[tuple[Annotated[str, Field(pattern=ALERT_NAME, max_length=200)], ...], NotEmpty]
    """Names of alerts."""
    labels: dict[PromLabel, str] = Field(default_factory=dict)
    """Labels that the alert must have, with exactly these values."""
    node_label: PromLabel = "node"
    """The label that holds the node's name."""
    gpu_label: PromLabel = "pci_bus_id"
    """The label that holds the GPU's PCI address; an alert without it is about the whole node."""

    def matches(self, signal: Signal) -> bool:
        return signal.name in self.names and all(signal.labels.get(key) == want for key, want in self.labels.items())


class ConditionMatch(DocumentModel):
    """A condition in the node's status."""

    type: ConditionType
    """The condition's type, such as GpuUnhealthy."""
    status: ConditionStatus = "True"
    """The status that is bad."""
    reasons: tuple[Reason, ...] = ()
    """Reasons, if only some are bad."""

    def matches(self, signal: Signal) -> bool:
        return (
            signal.name == self.type
            and signal.labels.get("status") == self.status
            and (not self.reasons or signal.labels.get("reason") in self.reasons)
        )


class EventMatch(DocumentModel):
    """Kubernetes Events about the node."""

    reasons: Annotated[tuple[Reason, ...], NotEmpty]
    """Reasons of the Events."""
    component: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The component that reports; None: any but our own."""
    type: Literal["Normal", "Warning"] | None = None
    """The Event's type; None: both."""

    def matches(self, signal: Signal) -> bool:
        return (
            signal.name in self.reasons
            and self.component in (None, signal.labels.get("component"))
            and self.type in (None, signal.labels.get("type"))
        )


class MetricMatch(DocumentModel):
    """A PromQL expression; every series that it returns is a bad node."""

    query: Annotated[str, Field(min_length=1, max_length=2000)]
    """The expression, such as DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS > 4."""
    node_label: PromLabel = "Hostname"
    """The series' label that holds the node's name; dcgm-exporter calls it Hostname."""
    gpu_label: PromLabel = "pci_bus_id"
    """The series' label that holds the GPU's PCI address; a series without it is about the whole node."""


class PodLogMatch(DocumentModel):
    """Lines that pods on the node wrote, in the log store."""

    namespaces: Annotated[tuple[Annotated[str, Field(pattern=NODE_NAME, max_length=63)], ...], NotEmpty]
    """Namespaces of the pods."""
    pattern: Pattern
    """A regular expression, in RE2's syntax as Loki's are, that the line must contain."""

    def matches(self, signal: Signal) -> bool:
        return signal.labels.get("namespace") in self.namespaces and found_in(self.pattern, signal.text)


class Watch(DocumentModel):
    """The repetition that turns a watched signal into a quarantine."""

    times: Annotated[int, Field(ge=2, le=16)]
    """Quarantine at this many sightings of the rule on one device."""
    within: Bound
    """The window in which they must fall."""
    apart: Duration = timedelta()
    """A sighting sooner than this after the one before it is of the same burst, and does not count."""


class Rule(DocumentModel):
    """A kind of signal and the answer to it."""

    name: Annotated[str, Field(pattern=PLAN_NAME, max_length=63)]
    """The rule's name, for Events, metrics and `gameday health explain`."""
    kernel_log: KernelLogMatch | None = None
    """Match lines of the kernel log."""
    alert: AlertMatch | None = None
    """Match alerts."""
    condition: ConditionMatch | None = None
    """Match a node condition."""
    event: EventMatch | None = None
    """Match Kubernetes Events."""
    metric: MetricMatch | None = None
    """Match the series of a PromQL expression."""
    pod_log: PodLogMatch | None = None
    """Match lines of pods' logs."""
    response: Response
    """ignore; event (record it); workload (record it as an application's error); watch; quarantine."""
    watch: Watch | None = None
    """The repetition that a watched signal must reach; only with `response: watch`."""
    remedy: Remedy | None = None
    """The repair to begin with. None: the catalogue's for this line, and of other signals none, so that only removing
    the taint by hand ends the fault."""
    why: Annotated[str, Field(max_length=160)] = ""
    """The reason to give on the node; by default NVIDIA's name for the code."""
    source: Annotated[str, Field(max_length=500)] = ""
    """The source of this knowledge."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        matches = [key for key in _MATCH_KEYS if getattr(self, key) is not None]
        if len(matches) != 1:
            keys = ", ".join(_MATCH_KEYS)
            raise conflict((matches[-1],) if matches else (), f"a rule has exactly one of {keys}")
        if (self.response is Response.WATCH) != (self.watch is not None):
            at = ("response",) if self.watch is None else ("watch",)
            raise conflict(at, "`response: watch` and the key `watch:` (times, within) go together")
        if self.remedy is not None and self.response not in (Response.WATCH, Response.QUARANTINE):
            raise conflict(("remedy",), "only a rule that quarantines has a remedy: take it out")
        return self

    @cached_property
    def kind(self) -> SignalKind:
        """The kind of signal that the rule matches."""
        return next(kind for key, kind in _MATCH_KEYS.items() if getattr(self, key) is not None)

    def matches_status(self, signal: Signal) -> bool:
        """Return True if the rule is about this condition's status, for any reason."""
        match = self.condition
        return match is not None and (match.type, match.status) == (signal.name, signal.labels.get("status"))

    def matches(self, signal: Signal) -> bool:
        """Return True if the rule is about this signal."""
        if signal.kind is not self.kind:
            return False
        match = self.kernel_log or self.alert or self.condition or self.event or self.pod_log
        return signal.name == self.name if match is None else match.matches(signal)


_MATCH_KEYS = {
    "kernel_log": SignalKind.KERNEL_LOG,
    "alert": SignalKind.ALERT,
    "condition": SignalKind.CONDITION,
    "event": SignalKind.EVENT,
    "metric": SignalKind.METRIC,
    "pod_log": SignalKind.POD_LOG,
}


class Brake(DocumentModel):
    """The bound on quarantines: so many at once are a wrong signal more often than broken GPUs."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """No more than this share of the cluster's nodes; as NVSentinel's breaker (docs/sources.md, NVSentinel)."""
    window: Bound = timedelta(minutes=5)
    """Quarantines within this count."""
    least: Annotated[int, Field(ge=0)] = 4
    """The number that is always allowed, as a share of a few nodes is soon reached."""


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """The answer to one signal."""

    response: Response
    remedy: Remedy
    """The repair that ends the fault. NONE with a quarantine: only removing the taint by hand ends it."""
    reason: str
    rule: Rule | None
    """The rule that matched; None if none did."""


class Trust(StrEnum):
    """The lines of the kernel log that a policy acts upon."""

    KERNEL = "kernel"
    """Lines that the kernel wrote, as the log shows, and notes of a GPU reset that root wrote."""
    ANY = "any"
    """Every line in a form of the driver's; a game-day's injected lines are no others than these."""


class Policy(DocumentModel):
    """A health policy: what is done about which signal."""

    kind: Literal["HealthPolicy"]
    """Distinguishes the file from a plan."""
    name: Annotated[str, Field(pattern=PLAN_NAME, max_length=63)]
    """The policy's name; the file is called after it."""
    about: Annotated[str, Field(min_length=1, max_length=1000)]
    """The policy's purpose, in a sentence or two."""
    brake: Brake = Brake()
    """The bound on quarantines in a short time."""
    trust: Trust = Trust.ANY
    """kernel: only lines of which the log shows that the kernel wrote them (node-health.md, Who can have written a
    line); no injected line is one, and a log that does not show the facility has none. any: also every other."""
    never_quarantine: tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...] = ()
    """Negative controls: lines of the kernel log. The file is refused if a rule would watch or quarantine on one."""
    rules: Annotated[tuple[Rule, ...], NotEmpty]
    """Rules in their order; the first that matches decides. A signal that none matches is ignored."""
    repair: RepairPolicy = RepairPolicy()
    """The repair of quarantined nodes, for the repairer; the quick part does not read it."""

    def decide(self, signal: Signal) -> PolicyDecision:
        """Return the answer to a signal."""
        catalogue = decide(signal.event) if signal.event else None
        rule = next((rule for rule in self.rules if rule.matches(signal)), None)
        if rule is None:
            reason = f"no rule of policy {self.name} is about this signal"
            return PolicyDecision(Response.IGNORE, Remedy.NONE, reason, None)
        remedy = Remedy.NONE
        if rule.response in (Response.WATCH, Response.QUARANTINE):
            remedy = rule.remedy or (catalogue.remedy if catalogue else Remedy.NONE)
        return PolicyDecision(rule.response, remedy, rule.why or _reason(signal, catalogue, rule), rule)

    def trusts(self, event: KernelEvent) -> bool:
        """Return True if the policy acts upon lines of those who can have written this one."""
        writer = Writer.ROOT if event.kind is Kind.GPU_RESET else Writer.KERNEL
        return self.trust is Trust.ANY or event.writer is writer

    def other_line(self, line: str) -> KernelEvent | None:
        """Return an unrecognised line if the pattern of a rule asks for it, else None."""
        matches = [rule.kernel_log for rule in self.rules if rule.kernel_log and rule.kernel_log.asks_for_other_lines]
        event = read_other(line) if matches else None
        return event if event and any(match.has_text(event.text) for match in matches) else None

    @property
    def other_lines(self) -> tuple[str, ...]:
        """Patterns of the rules that ask for unrecognised lines."""
        matches = (rule.kernel_log for rule in self.rules)
        return tuple(match.text for match in matches if match and match.text and match.asks_for_other_lines)

    def rules_of(self, kind: SignalKind) -> tuple[Rule, ...]:
        """Return the rules about one kind of signal, in their order."""
        return tuple(rule for rule in self.rules if rule.kind is kind)


def nvidia_actions(event: KernelEvent) -> frozenset[Action]:
    """Return NVIDIA's immediate actions for a line; none for codes that no sheet has, and for lines without an Xid."""
    if event.code is None or event.kind not in (Kind.XID, Kind.GPU_LOST):
        return frozenset()
    if event.unit:
        return nvlink5_actions(event.code, event.unit, event.error_status)
    xid = xids().get(event.code)
    return frozenset({xid.immediate} if xid and xid.is_used else ())


def _reason(signal: Signal, catalogue: Decision | None, rule: Rule) -> str:
    if signal.event and signal.event.kind is Kind.OTHER:
        return f"a line of the kernel log, by rule {rule.name}"
    if catalogue:
        return catalogue.reason
    if signal.kind is SignalKind.POD_LOG:
        return f"a pod's log, by rule {rule.name}"
    return f"{signal.kind} {signal.name}"
