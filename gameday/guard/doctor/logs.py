"""The log store: its labels, and the kernel log of a target."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from gameday.cluster.loki import RANGE_EVERY_S, Loki
from gameday.errors import AdapterError
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets

# A kernel log may be silent for long, but a node that wrote nothing into the store for a day has no shipper.
_LOG_LOOK_BACK = timedelta(hours=24)


def check_logs(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that the log store answers, knows the profile's labels, and has lines of a target.

    Raises:
        AdapterError: The log store does not answer.
    """
    profile, loki = run.profile, run.servers.loki
    stored_labels = loki.labels()
    yield Prerequisite("logs", "answers", True, f"{profile.loki.url}, {len(stored_labels)} labels")
    wanted = {*loki.selector_labels(), *([profile.loki_node_label] if profile.loki_node_label_kind == "index" else [])}
    missing = sorted(wanted - stored_labels)
    fix = "set loki_selector and loki_node_label in the cluster profile to what the shipper writes" if missing else ""
    if profile.loki_node_label in missing:
        fix = f"for lines shipped by OTLP (Konduktor's stack), set loki_node_label_kind: structured_metadata; {fix}"
    detail = f"no line carries {', '.join(missing)}" if missing else ", ".join(sorted(wanted))
    yield Prerequisite("logs", "labels exist", not missing, detail, fix)
    yield _tail(loki)
    if targets and not missing:
        node, now = targets[0].node, run.clock.now()
        lines = loki.iterate_node_lines(node, containing="", start=now - _LOG_LOOK_BACK, end=now)
        any_line = next(iter(lines), None) is not None
        hint = "is the dmesg shipper running on the node? --send-pod writes a line"
        detail = f"lines of {node} within {_LOG_LOOK_BACK.total_seconds() / 3600:g} h: {'yes' if any_line else 'none'}"
        yield Prerequisite("logs", "kernel log of a target", any_line or None, detail, "" if any_line else hint)


def _tail(loki: Loki) -> Prerequisite:
    try:
        loki.try_tail()
    except AdapterError as error:
        instead = f"the node-health controller reads query_range every {RANGE_EVERY_S:g} s in its place"
        fix = "let the proxy before the log store pass the websocket of /loki/api/v1/tail"
        return Prerequisite("logs", "tail", None, f"cannot be followed: {error}; {instead}", fix)
    return Prerequisite("logs", "tail", True, "opens")
