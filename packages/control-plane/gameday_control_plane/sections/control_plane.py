"""The control plane under load: an ordinary client's answers, those of the load, and the servers' figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from gameday.checks.facts import target_nodes
from gameday.history.events import ApiServersRestarted
from gameday.report.charts import Drawing, Scene, lines
from gameday.report.run_folder import RunFolder
from gameday.report.sections.gpus import moments_of, scene_of
from gameday_control_plane.checks.api_canary import Window, fault_window
from gameday_control_plane.checks.containment import EXECUTING, MEMORY, memory_growth
from gameday_control_plane.checks.memory_slope import MemorySlope, memory_slope
from gameday_control_plane.checks.pod_steps import LoadCost, StepCost, load_cost, step_costs
from gameday_control_plane.checks.restart_drop import RestartDrop, restart_drops
from gameday_control_plane.checks.webhook import webhook_outage
from gameday_control_plane.events import (
    ApiCanarySampled,
    FlowControlSet,
    LoadLogged,
    LoadMeasured,
    LoadStaged,
    PodStepsLogged,
)
from gameday_control_plane.values.api_loads import NodeLeases, Paused, Reconnected, WebhookOutage
from gameday_control_plane.values.api_requests import HAND_OVER_S, ApiCanarySample, ApiRequest, max_overlap, percentile
from gameday_control_plane.values.pod_steps import Allocation

ORDER = 71
TITLE = "Control plane"
GROUP = "GPUs, node and pods"
TEMPLATE = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")

_QUEUED = "apiserver_flowcontrol_current_inqueue_requests"
_CPU = "process_cpu_seconds_total"
_MOST_CURVES = 12
_WAYS = {
    Allocation.DEVICE_PLUGIN: "the device plugin’s count",
    Allocation.TOPOLOGY: "the device plugin’s count, of a scheduler that knows NUMA zones",
    Allocation.DRA: "a ResourceClaim each",
}
_CALLS = {"readyz": "GET /readyz", "get": "GET a ConfigMap", "put": "PUT a Lease", "list": "LIST one object"}


class Latency(BaseModel):
    """Latencies of the requests of one phase, seconds."""

    requests: int
    failed: int
    median: float
    p99: float
    worst: float


class CallRow(BaseModel):
    """A call of the API canary; None: no sample in that phase."""

    call: str
    before: Latency | None
    during: Latency | None
    after: Latency | None


class Load(BaseModel):
    """The load's requests, from its clients' own log."""

    node: str
    clients: int
    requests: int
    by_answer: tuple[tuple[str, int], ...] = Field(description="status, or why there is none -> number of requests")
    most_at_once: int = Field(description="answered at the same time, from first byte to last")
    bytes: int
    answered: Latency | None


class ServerRow(BaseModel):
    """An API server, in bytes; None if not measured."""

    server: str
    memory_before: float | None
    memory_peak: float | None
    growth: float | None


class Slope(BaseModel):
    """The memory of all API servers by the stages of a load, and the cost of each byte of concurrent LISTs."""

    list_bytes: int
    form: str
    slope: MemorySlope


class Outage(BaseModel):
    """The writes that a webhook without an endpoint matched, from the log of the client that sent them; seconds."""

    failure_policy: str
    lasted: float
    by_outcome: tuple[tuple[str, int], ...]
    median_before: float | None
    median: float | None
    worst: float | None
    leases: NodeLeases | None
    out_after: float | None


class Return(BaseModel):
    """The return of the clients of an API server that was restarted."""

    measured: Reconnected
    back: int = Field(description="clients that are connected again at the end")
    median_s: float | None
    last_s: float | None
    outcomes: tuple[tuple[str, int], ...] = Field(description="of the clients' requests after the restart")


class SchedulingSteps(BaseModel):
    """Pods in steps, the cost of each step, and the writes by pod."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    way: str = Field(description="how the pods asked for their GPUs")
    steps: tuple[StepCost, ...]
    cost: LoadCost


class PlaneChart(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    title: str
    unit: str
    metric: str
    drawing: Drawing | None = Field(exclude=True)
    failure: str = ""


class ControlPlane(BaseModel):
    flow_control: FlowControlSet | None
    calls: tuple[CallRow, ...]
    loads: tuple[Load, ...]
    servers: tuple[ServerRow, ...]
    slopes: tuple[Slope, ...]
    outage: Outage | None
    restarts: dict[str, RestartDrop] = Field(description="by server, what a restart with the load gone freed")
    pauses: tuple[Paused, ...]
    returns: tuple[Return, ...]
    scheduling: SchedulingSteps | None
    charts: tuple[PlaneChart, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return (
            ""
            if self.calls or self.loads or self.servers or self.pauses or self.returns or self.scheduling
            else "this game-day loaded no API server"
        )


def build(run: RunFolder) -> ControlPlane:
    samples = [sample for event in run.history.of(ApiCanarySampled) for sample in event.samples]
    restarts = run.history.of(ApiServersRestarted)
    # While the only API server restarts nobody is served, which says nothing about the time after the load.
    judged = [s for s in samples if not any(s.ended_at > r.asked_at and s.sent_at < r.ready_at for r in restarts)]
    measured = [event.measured for event in run.history.of(LoadMeasured)]
    node = target_nodes(run.history)[0]
    window = fault_window(run.history, node)
    scheduling = _scheduling(run)
    return ControlPlane(
        flow_control=run.history.last(FlowControlSet),
        calls=tuple(_call(call, judged, window) for call in _CALLS if any(s.kind == call for s in judged)),
        loads=tuple(_load(event) for event in run.history.of(LoadLogged) if event.requests or not scheduling),
        servers=tuple(_servers(run.frames.api_server, window)),
        slopes=tuple(_slopes(run)),
        outage=_outage(webhook_outage(run.history, node)),
        restarts=restart_drops(run.plan, run.history, run.frames) if run.plan else {},
        pauses=tuple(one for one in measured if isinstance(one, Paused)),
        returns=tuple(_return(one) for one in measured if isinstance(one, Reconnected)),
        scheduling=scheduling,
        charts=tuple(_charts(run, node, samples)),
    )


def _call(call: str, samples: Sequence[ApiCanarySample], window: Window | None) -> CallRow:
    mine = [sample for sample in samples if sample.kind == call]
    during = [s for s in mine if window and s.sent_at < window.end and s.ended_at > window.begin]
    before = [s for s in mine if not window or s.ended_at <= window.begin]
    after = [s for s in mine if window and s.sent_at >= window.end]
    return CallRow(call=_CALLS[call], before=_latency(before), during=_latency(during), after=_latency(after))


def _latency(requests: Sequence[ApiCanarySample | ApiRequest]) -> Latency | None:
    if not requests:
        return None
    seconds = [request.seconds for request in requests]
    return Latency(
        requests=len(requests),
        failed=sum(not request.is_served for request in requests),
        median=percentile(seconds, 0.5) or 0.0,
        p99=percentile(seconds, 0.99) or 0.0,
        worst=max(seconds),
    )


def _load(event: LoadLogged) -> Load:
    answers = Counter(str(request.status) if request.is_served else _failure(request) for request in event.requests)
    return Load(
        node=event.node,
        clients=len({request.client for request in event.requests}),
        requests=len(event.requests),
        by_answer=tuple(answers.most_common(6)),
        most_at_once=max_overlap(event.requests, HAND_OVER_S),
        bytes=sum(request.bytes for request in event.requests),
        answered=_latency([request for request in event.requests if request.is_served]),
    )


def _failure(request: ApiRequest) -> str:
    return " ".join(filter(None, (str(request.status or ""), request.error))) or "no answer"


def _servers(api_server: pd.DataFrame, window: Window | None) -> list[ServerRow]:
    rows = api_server[api_server.metric == MEMORY].sort_values("time")
    begin = pd.Timestamp(window.begin) if window else None
    before = rows[rows.time < begin] if begin is not None else rows
    during = rows[rows.time >= begin] if begin is not None else rows.iloc[:0]
    last, peak, growth = (
        before.groupby("server").value.last(),
        during.groupby("server").value.max(),
        memory_growth(api_server, window),
    )
    return [
        ServerRow(
            server=str(server),
            memory_before=last.get(server),
            memory_peak=peak.get(server),
            growth=growth.get(str(server)),
        )
        for server in sorted(rows.server.unique())
    ]


def _slopes(run: RunFolder) -> Iterator[Slope]:
    for staged in run.history.of(LoadStaged):
        slope = memory_slope(run.frames.api_server, staged)
        if slope:
            yield Slope(list_bytes=staged.list_bytes, form=staged.form, slope=slope)


def _outage(measured: WebhookOutage | None) -> Outage | None:
    if measured is None:
        return None
    seconds = [write.seconds for write in measured.writes]
    return Outage(
        failure_policy=measured.failure_policy,
        lasted=(measured.ended_at - measured.began_at).total_seconds(),
        by_outcome=tuple(Counter(write.outcome for write in measured.writes).most_common()),
        median_before=percentile(measured.before, 0.5),
        median=percentile(seconds, 0.5),
        worst=max(seconds, default=None),
        leases=measured.leases,
        out_after=measured.out_after_s,
    )


def _return(measured: Reconnected) -> Return:
    back = [seconds for seconds in measured.back_after_s if seconds is not None]
    return Return(
        measured=measured,
        back=len(back),
        median_s=percentile(back, 0.5),
        last_s=max(back, default=None),
        outcomes=tuple(
            sorted(((str(name), count) for name, count in measured.outcomes.items()), key=lambda one: -one[1])
        ),
    )


def _scheduling(run: RunFolder) -> SchedulingSteps | None:
    logged = run.history.last(PodStepsLogged)
    cost = load_cost(logged, run.frames) if logged else None
    if logged is None or cost is None:
        return None
    allocation = str(getattr(run.plan.fault, "allocation", "")) if run.plan else ""
    way = next((words for one, words in _WAYS.items() if one == allocation), "means that this page does not know")
    return SchedulingSteps(way=way, steps=tuple(step_costs(logged, run.frames)), cost=cost)


def _charts(run: RunFolder, node: str | None, samples: Sequence[ApiCanarySample]) -> list[PlaneChart]:
    canary = pd.DataFrame(
        {
            "t": [run.offset_s(sample.sent_at) for sample in samples],
            "gpu": [_CALLS[sample.kind] for sample in samples],
            "value": [sample.seconds for sample in samples],
        }
    )
    drawn = [
        ("Small requests of an ordinary client", "s", "API canary", canary),
        ("Memory of the API server", "MiB", MEMORY, _series(run, MEMORY, scale=2**-20)),
        ("Requests in work, by priority level", "requests", EXECUTING, _by_level(run, EXECUTING)),
        ("Requests that wait, by priority level", "requests", _QUEUED, _by_level(run, _QUEUED)),
        ("Cores in use", "cores", f"rate of {_CPU}", _rate(_series(run, _CPU))),
    ]
    span = _span([rows for _, _, _, rows in drawn])
    scene = scene_of(span, run.fault_window(node), moments_of(run, node), None)
    return [_chart(title, unit, metric, rows, scene) for title, unit, metric, rows in drawn if len(rows)]


def _span(tables: Sequence[pd.DataFrame]) -> tuple[float, float]:
    times = [rows["t"] for rows in tables if len(rows)]
    return (min(float(t.min()) for t in times), max(float(t.max()) for t in times)) if times else (0.0, 0.0)


def _chart(title: str, unit: str, metric: str, rows: pd.DataFrame, scene: Scene) -> PlaneChart:
    try:
        return PlaneChart(title=title, unit=unit, metric=metric, drawing=lines(rows, scene, None))
    except (ValueError, OverflowError) as error:  # numbers at the edge of floating point
        return PlaneChart(title=title, unit=unit, metric=metric, drawing=None, failure=str(error))


def _series(run: RunFolder, metric: str, scale: float = 1.0) -> pd.DataFrame:
    """Return columns t (seconds since T+0), gpu (the curve's name: the server) and value."""
    rows = run.frames.api_server[run.frames.api_server.metric == metric].sort_values("time")
    return pd.DataFrame({"t": _offsets(run, rows), "gpu": rows.server, "value": rows.value * scale})


def _by_level(run: RunFolder, metric: str) -> pd.DataFrame:
    """Return the same with a curve for each server and level that ever had a request, the busiest first."""
    rows = run.frames.api_server[run.frames.api_server.metric == metric].sort_values("time")
    if rows.empty:
        return pd.DataFrame({"t": [], "gpu": [], "value": []})
    several = rows.server.nunique() > 1
    level = rows.server + " " + rows.priority_level if several else rows.priority_level
    summed = rows.assign(curve=level).groupby(["curve", "time"], as_index=False).value.sum()
    busiest = summed.groupby("curve").value.max().sort_values(ascending=False)
    kept = summed[summed.curve.isin(busiest[busiest > 0].index[:_MOST_CURVES])]
    return pd.DataFrame({"t": _offsets(run, kept), "gpu": kept.curve, "value": kept.value})


def _offsets(run: RunFolder, rows: pd.DataFrame) -> pd.Series:
    zero = pd.Timestamp(run.zero) if run.zero else rows.time.min()
    return (rows.time - zero).dt.total_seconds()


def _rate(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each curve's growth per second between samples; a restarted counter has none."""
    curves = rows.groupby("gpu")
    rate = rows.assign(value=curves.value.diff() / curves.t.diff())
    return rate[rate.value >= 0]
