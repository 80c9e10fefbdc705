"""Rules of a policy that can never answer a signal: their keys exclude each other, or a wider rule comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from gameday.xid.catalogue import nvlink5_codes, sxids, xids
from gameday.xid.lines import KernelEvent, Kind, Severity
from gameday.xid.messages import MESSAGES
from gameday_health.model import MANAGER
from gameday_health.policy import AlertMatch, ConditionMatch, EventMatch, KernelLogMatch, PodLogMatch, Policy, Rule


def dead_rules(policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the index of each rule that can never answer, with the reason.

    Patterns are not compared with lines: nobody can say what a pattern can match in a line of the driver.
    """
    for index, rule in enumerate(policy.rules):
        if why := _why_dead(rule, policy.rules[:index]):
            yield index, why


def _why_dead(rule: Rule, earlier: Sequence[Rule]) -> str:
    if rule.kernel_log:
        return _why_no_line(rule.kernel_log, earlier)
    if rule.event and rule.event.component == MANAGER:
        return f"can never match: Events of {MANAGER} are the controller's own, and no signals"
    wider = next((one for one in earlier if _is_wider(one, rule)), None)
    return _behind(wider) if wider else ""


def _why_no_line(match: KernelLogMatch, earlier: Sequence[Rule]) -> str:
    if match.asks_for_other_lines:
        same = (one for one in earlier if one.kernel_log and one.kernel_log.asks_for_other_lines)
        wider = next((one for one in same if one.kernel_log and one.kernel_log.text == match.text), None)
        return _behind(wider) if wider else ""
    if match.kinds and set(match.kinds) <= {Kind.GPU_RESET}:
        return "can never match: the agent's notes of a GPU reset end faults, and no rule is asked about them"
    events = [event for event in _events(_codes(match)) if match.fits(event)]
    if not events:
        return "can never match: no line has all of its keys; `text` alone is about lines that are not recognised"
    # A rule with a pattern leaves lines to those after it.
    wide = [one for one in earlier if one.kernel_log and one.kernel_log.text is None]
    answered = [next((one for one in wide if one.kernel_log and one.kernel_log.fits(event)), None) for event in events]
    first = answered[0]
    return _behind(first) if first and all(answered) else ""


def _behind(rule: Rule) -> str:
    return f"can never match: rule {rule.name} before it answers first"


def _codes(match: KernelLogMatch) -> frozenset[int]:
    return frozenset(code for first, last in (*match.xids, *match.sxids) for code in (first, last))


@cache
def _events(codes: frozenset[int]) -> tuple[KernelEvent, ...]:
    """Return events of each kind, code, severity and stated action that a line can have, and of `codes`."""
    made = [KernelEvent(Kind.GPU_LOST, "", code=79), KernelEvent(Kind.PEERMEM, "")]
    made += [KernelEvent(kind, "") for kind in (Kind.XID, Kind.SXID)]
    made += [KernelEvent(Kind.DRIVER, "", name=message.name) for message in MESSAGES]
    made += [KernelEvent(Kind.XID, "", code=code) for code in {*xids(), *codes, max(xids()) + 1}]
    made += [KernelEvent(Kind.XID, "", code=154, recovery=f"{one}", recovery_number=one) for one in range(9)]
    severities = (None, *Severity)
    made += [
        KernelEvent(
            Kind.XID, "", code=row.xid, unit=row.unit.split("/")[-1], error_status=row.error_status, severity=one
        )
        for row in nvlink5_codes()
        for one in severities
    ]
    made += [
        KernelEvent(Kind.SXID, "", code=code, severity=severity, detail_only=is_detail)
        for code in {*sxids(), *codes, max(sxids()) + 1}
        for severity, is_detail in [*((one, False) for one in severities), (None, True)]
    ]
    return tuple(made)


def _is_wider(one: Rule, other: Rule) -> bool:
    """Return True if every signal that `other` matches, except lines of the kernel log, also matches `one`."""
    match (
        one.alert or one.condition or one.event or one.pod_log,
        other.alert or other.condition or other.event or other.pod_log,
    ):
        case AlertMatch() as wide, AlertMatch() as narrow:
            return set(narrow.names) <= set(wide.names) and wide.labels.items() <= narrow.labels.items()
        case ConditionMatch() as wide, ConditionMatch() as narrow:
            is_same = (wide.type, wide.status) == (narrow.type, narrow.status)
            return is_same and _has_all(wide.reasons, narrow.reasons)
        case EventMatch() as wide, EventMatch() as narrow:
            is_same = wide.component in (None, narrow.component) and wide.type in (None, narrow.type)
            return is_same and _has_all(wide.reasons, narrow.reasons)
        case PodLogMatch() as wide, PodLogMatch() as narrow:
            return wide.pattern == narrow.pattern and set(narrow.namespaces) <= set(wide.namespaces)
    return False


def _has_all(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    return not wide or (bool(narrow) and set(narrow) <= set(wide))
