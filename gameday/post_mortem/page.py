"""Turn an incident's folder into post-mortem.html, .md and .json: the run report's parts that need no plan, and notes.

Pure: plans and earlier runs are given, so that the page can be made again a year later, after the game-day that it
asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import to_json

from gameday.checks.verdict import Status
from gameday.errors import NotesError
from gameday.history.events import AlertSeen, KernelLineSeen, NodeSeen, Problem, TaintSeen, TargetsChosen
from gameday.plain_file import write_whole
from gameday.plan.models import Plan
from gameday.post_mortem.findings import IncidentFinding, findings, first_sign, noticed
from gameday.post_mortem.incident import Incident, read_incident
from gameday.post_mortem.matching_plan import MatchingPlan, find_matching_plan
from gameday.report.markdown import markdown
from gameday.report.narration import narrate
from gameday.report.notes import Notes, read_notes
from gameday.report.page import environment
from gameday.report.render import build_section
from gameday.report.run_folder import RunFile, RunFolder, load_run_folder
from gameday.report.sections import actions, chain, cost, gpus, learning, people
from gameday.report.sections.timeline import MOST_ROWS
from gameday.report.summary import Noticed, Summary
from gameday.values.nodes import NodeSnapshot

FORMAT = 1
"""The format of post-mortem.json; raised when an existing field changes its meaning or goes."""


@dataclass(frozen=True, kw_only=True)
class IncidentRun(RunFolder):
    """A run in which nobody injected anything: T is the first sign, and the shaded time goes from there to the end."""

    incident: Incident

    @property
    def zero(self) -> datetime:
        sign = first_sign(self.history)
        return sign.at if sign else self.incident.start

    def fault_window(self, node: str | None = None) -> tuple[float, float] | None:
        """Return seconds since T+0, from the first sign to the end of the node's last alert; None without a sign."""
        if first_sign(self.history) is None:
            return None
        newest = {event.label_set: event for event in self.history.of(AlertSeen) if event.state != "pending"}
        ends = [event.at for event in newest.values() if event.state == "resolved"]
        end = max(ends) if ends and len(ends) == len(newest) else self.incident.end
        return 0.0, max(0.0, self.offset_s(end))


class StoryLine(BaseModel):
    at: datetime
    offset_s: float
    actor: str
    text: str
    tone: str


class AlertRow(BaseModel):
    """An alert of the node; times are UTC, None if the state was not seen within the window."""

    alert: str
    severity: str | None
    labels: dict[str, str]
    summary: str
    stood_before: bool
    pending_at: datetime | None
    firing_at: datetime | None
    resolved_at: datetime | None
    receivers: tuple[str, ...]
    silenced: bool
    inhibited: bool


class GpuPod(BaseModel):
    pod: str
    gpus: int
    first_seen: datetime


class Story(BaseModel):
    """The content of post-mortem.json and of the page; `notes_problem` says why people's notes are missing."""

    incident: Incident
    noticed: Noticed
    headline: str
    zero: datetime
    zero_is: str
    findings: tuple[IncidentFinding, ...]
    alerts: tuple[AlertRow, ...]
    lines: tuple[StoryLine, ...]
    lines_left_out: int
    pods: tuple[GpuPod, ...]
    pods_known: bool
    node_now: NodeSnapshot | None
    nearest: MatchingPlan
    notes: Notes
    notes_problem: str
    problems: tuple[str, ...]
    files: tuple[RunFile, ...]


@dataclass(frozen=True)
class PostMortem:
    html: Path
    markdown: Path
    json: Path
    story: Story


def render_post_mortem(
    folder: Path, plans: Sequence[Plan], runs: Sequence[Summary], rendered_at: datetime
) -> PostMortem:
    """Write the three files into the folder.

    Raises FileNotFoundError without a folder, OSError and ValueError if incident.json cannot be read, and OSError if
    nothing can be written.
    """
    incident = read_incident(folder)
    run = _load(folder, incident)
    try:
        notes, notes_problem = read_notes(folder), ""
    except NotesError as error:
        notes, notes_problem = Notes(), str(error)
    story = _story(run, notes, notes_problem, plans, runs)
    templates = environment("post_mortem")
    # The page shows these under "What happened" already.
    shortened = replace(run, notes=notes.model_copy(update={"summary": None, "impact": None, "authors": ()}))
    shared = (chain, gpus, people, learning, actions, cost)
    sections = {module.__name__.rpartition(".")[2]: build_section(module, shortened, templates) for module in shared}
    made = PostMortem(folder / "post-mortem.html", folder / "post-mortem.md", folder / "post-mortem.json", story)
    page = templates.get_template("post_mortem.html").render(story=story, sections=sections, rendered_at=rendered_at)
    write_whole(made.html, page)
    write_whole(made.markdown, markdown("post_mortem", "post_mortem.md", story=story))
    content = {"format": FORMAT, "rendered_at": rendered_at, **story.model_dump(mode="json")}
    write_whole(made.json, to_json(content, indent=1, inf_nan_mode="null") + b"\n")
    return made


def _load(folder: Path, incident: Incident) -> IncidentRun:
    run = load_run_folder(folder)
    return IncidentRun(
        plan=None,
        plan_text="",
        history=run.history,
        frames=run.frames,
        verdicts=(),
        result=run.result,
        files=run.files,
        problems=tuple(problem for problem in run.problems if not problem.startswith("plan.")),  # it never had one
        incident=incident,
    )


def _story(run: IncidentRun, notes: Notes, notes_problem: str, plans: Sequence[Plan], runs: Sequence[Summary]) -> Story:
    history, incident = run.history, run.incident
    sign = first_sign(history)
    found = findings(incident, history)
    fatal = [line for line in history.of(KernelLineSeen) if line.decision == "quarantine"]
    lines, left_out = _lines(run, notes)
    alerts = [alert for alert in history.of(AlertSeen) if not alert.at_baseline]
    seen = history.last(NodeSeen)
    pods = _pods(run)
    return Story(
        incident=incident,
        noticed=noticed(found),
        headline=_headline(noticed(found), found),
        zero=run.zero,
        zero_is=sign.what if sign else "the window's beginning: nothing in it names a fault",
        findings=found,
        alerts=_alerts(history.of(AlertSeen)),
        lines=lines,
        lines_left_out=left_out,
        pods=pods,
        pods_known=bool(pods),
        node_now=seen.snapshot if seen else None,
        nearest=find_matching_plan(
            next(iter(fatal or history.of(KernelLineSeen)), None), alerts, plans, runs, incident.cluster_id
        ),
        notes=notes,
        notes_problem=notes_problem,
        problems=(*run.problems, *(problem.what for problem in history.of(Problem))),
        files=run.files,
    )


def _headline(state: Noticed, found: Sequence[IncidentFinding]) -> str:
    words = {
        Noticed.YES: "The cluster noticed by itself",
        Noticed.PARTLY: "The cluster noticed in part",
        Noticed.NO: "The cluster did not notice",
    }
    wanted = [finding for finding in found if finding.id in ("alert", "taint")]
    said = "; ".join(
        f"{'alert' if one.id == 'alert' else 'quarantine'}: "
        + ("not known" if one.status is Status.UNKNOWN else one.answer)
        for one in wanted
    )
    return f"{words.get(state, 'It is unknown whether the cluster noticed')} ({said})."


def _alerts(seen: Sequence[AlertSeen]) -> tuple[AlertRow, ...]:
    """Return a row per label set, in order of its first sight."""
    lives: dict[str, list[AlertSeen]] = {}
    for event in seen:
        lives.setdefault(repr(sorted(event.labels.items())), []).append(event)
    return tuple(_alert(life) for life in lives.values())


def _alert(life: Sequence[AlertSeen]) -> AlertRow:
    first = life[0]
    own = ("alertname", "severity", "node", "Hostname", "hostname")

    def when(state: str) -> datetime | None:
        return min((event.at for event in life if event.state == state and not event.at_baseline), default=None)

    return AlertRow(
        alert=first.alert,
        severity=first.labels.get("severity"),
        labels={key: value for key, value in first.labels.items() if key not in own},
        summary=first.annotations.get("summary") or first.annotations.get("description", ""),
        stood_before=any(event.at_baseline for event in life),
        pending_at=when("pending"),
        firing_at=when("firing"),
        resolved_at=max((event.at for event in life if event.state == "resolved"), default=None),
        receivers=tuple(sorted({name for event in life for name in event.receivers})),
        silenced=any(event.silenced for event in life),
        inhibited=any(event.inhibited for event in life),
    )


def _lines(run: IncidentRun, notes: Notes) -> tuple[tuple[StoryLine, ...], int]:
    """Merge the accounts of machines and people; cut a long one in the middle, and return the number cut."""
    lines = []
    for record in run.history.records:
        event = record.event
        stood = isinstance(event, TaintSeen) and event.at_baseline
        said = None if stood or isinstance(event, TargetsChosen) else narrate(event)
        if said:
            at = said.at or record.at
            lines.append(StoryLine(at=at, offset_s=run.offset_s(at), actor=said.actor, text=said.text, tone=said.tone))
    for human in notes.moments():
        who = human.who or "somebody"
        lines.append(StoryLine(at=human.at, offset_s=run.offset_s(human.at), actor=who, text=human.what, tone="mark"))
    lines.sort(key=lambda line: line.at)
    head, tail = MOST_ROWS // 2, MOST_ROWS - MOST_ROWS // 2
    shown = lines if len(lines) <= MOST_ROWS else [*lines[:head], *lines[-tail:]]
    return tuple(shown), len(lines) - len(shown)


def _pods(run: IncidentRun) -> tuple[GpuPod, ...]:
    rows = run.frames.pods.sort_values("time")
    columns = (rows["namespace"], rows["pod"], rows["gpus"], rows["time"])
    return tuple(
        GpuPod(pod=f"{namespace}/{pod}", gpus=int(gpus), first_seen=at.to_pydatetime())
        for namespace, pod, gpus, at in zip(*columns, strict=True)
    )
