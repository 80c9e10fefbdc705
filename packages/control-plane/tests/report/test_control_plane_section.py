"""The control plane's section and figures: with data, without any, and with text that is not ours."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from gameday.checks.verdict import Status
from gameday.history.events import ApiServersRestarted, FaultInjected, RunStarted
from gameday.history.frames import SCHEMAS, Frames, conform
from gameday.plan.models import Recovery, ServerRestart
from gameday.report.durations import durations
from gameday.report.figure import figures_of
from gameday.report.run_folder import load_run_folder
from gameday.report.summary import DurationKind
from gameday.values.nodes import NodeRole
from gameday_control_plane.checks.containment import EXECUTING, MEMORY
from gameday_control_plane.events import ApiCanarySampled, FlowControlSet, LoadLogged, LoadMeasured, PodStepsLogged
from gameday_control_plane.expect.control_plane import ExpectedApiCanary
from gameday_control_plane.sections import control_plane
from gameday_control_plane.settings import ControlPlaneSettings, FlowControl
from gameday_control_plane.values.api_loads import MatchedWrite, NodeLeases, Outcome, Paused, Reconnected, WebhookOutage
from gameday_control_plane.values.api_requests import ApiCanarySample, ApiRequest
from gameday_control_plane.values.pod_steps import PodStep
from tests.report.page import drawn
from tests.report.run_builder import NODE, PLAN, Timed, history_of, passing, replacing, write

WRITTEN = next(event.written_at for event in history_of(passing()).of(FaultInjected))
HOSTILE = "<script>alert(1)</script>"


def _sample(after_s: float, **others: Any) -> ApiCanarySample:
    sent = WRITTEN + timedelta(seconds=after_s)
    return ApiCanarySample(**{"kind": "get", "sent_at": sent, "seconds": 0.02, "status": 200, **others})


def _request(client: int, status: int = 200) -> ApiRequest:
    return ApiRequest(
        client=client,
        round=0,
        attempt=1,
        sent_at=WRITTEN,
        start=1.0,
        first_byte=1.5,
        end=3.0,
        status=status,
        bytes=1000,
        priority_level="a-level",
    )


def _row(metric: str, after_s: float, value: float, server: str) -> dict[str, object]:
    blank = dict.fromkeys(SCHEMAS["api_server"], "")
    time = WRITTEN + timedelta(seconds=after_s)
    return blank | {"time": time, "server": server, "metric": metric, "value": value, "priority_level": HOSTILE}


def _loaded() -> list[Timed]:
    samples = (_sample(-2), _sample(0.5), _sample(1, seconds=1.5), _sample(1.5, status=429))
    requests = (_request(0), _request(1), _request(2, status=429))
    flow_control = FlowControlSet(name=HOSTILE, seats=2, shares=1, spare_shares=54, total_seats=600)
    return [
        Timed(0, flow_control),
        Timed(0, ApiCanarySampled(node=NODE, samples=samples)),
        Timed(0, LoadLogged(node=NODE, requests=requests)),
        *passing(),
    ]


def _frames() -> Frames:
    rows = [
        _row(MEMORY, -3, 100 * 2**20, HOSTILE),
        _row(MEMORY, 1, 400 * 2**20, HOSTILE),
        _row(EXECUTING, 1, 2, HOSTILE),
        _row(EXECUTING, 2, 1, HOSTILE),
    ]
    return Frames(api_server=conform("api_server", rows))


def test_the_section_has_the_calls_the_load_and_the_servers(tmp_path: Path) -> None:
    built = control_plane.build(load_run_folder(write(tmp_path, _loaded(), _frames())))
    (call,) = built.calls
    assert call.before is not None
    assert call.during is not None
    assert (call.before.requests, call.during.requests, call.during.failed) == (1, 3, 1)
    (load,) = built.loads
    assert (load.clients, load.requests, load.by_answer[0], load.bytes) == (3, 3, ("200", 2), 3000)
    (server,) = built.servers
    assert server.growth == 300 * 2**20
    assert built.flow_control is not None
    assert {chart.metric for chart in built.charts} >= {MEMORY, EXECUTING}


def test_the_head_shows_the_api_canarys_durations_and_none_of_a_gpu_nodes_way_back(tmp_path: Path) -> None:
    expect = PLAN.expect.model_copy(update={"api_canary": ExpectedApiCanary(longest_gap=timedelta(seconds=5))})
    samples = tuple(_sample(0.2 + number / 10, seconds=0.3) for number in range(25))
    events = [Timed(0, ApiCanarySampled(node=NODE, samples=samples)), *_loaded()]
    events = replacing(events, lambda event: isinstance(event, RunStarted), role=NodeRole.API_CLIENT)
    run = load_run_folder(write(tmp_path, events, _frames(), PLAN.model_copy(update={"expect": expect})))
    found = {one.measure: one for one in durations(run)}
    assert list(found) == [
        DurationKind.ALERT,
        DurationKind.CANARY_UNDER_LOAD,
        DurationKind.CANARY_GAP,
        DurationKind.CANARY_AFTER,
    ]
    assert (found[DurationKind.CANARY_UNDER_LOAD].seconds, found[DurationKind.CANARY_UNDER_LOAD].status) == (
        1.5,
        Status.BROKEN,
    )


def test_what_a_server_or_a_plan_is_called_is_shown_and_never_run(tmp_path: Path) -> None:
    page = drawn(write(tmp_path, _loaded(), _frames()), "control-plane")[0].html
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "54 spare shares that lend all their seats" in page


def test_a_webhook_without_an_endpoint_is_told_of(tmp_path: Path) -> None:
    outage = WebhookOutage(
        failure_policy="fail",
        began_at=WRITTEN,
        ended_at=WRITTEN + timedelta(seconds=45),
        before=(0.003,),
        writes=(MatchedWrite(sent_at=WRITTEN, seconds=0.004, outcome="refused"),) * 2,
        leases=NodeLeases(nodes=3, longest_s=14, node=HOSTILE),
        out_after_s=0.4,
    )
    told = [*_loaded(), Timed(20, LoadMeasured(node=NODE, measured=outage))]
    page = drawn(write(tmp_path, told, _frames()), "control-plane")[0].html
    assert "2 were refused. Their answers took 4 ms in the median" in page
    assert "admitted again after 0.40 s" in page
    assert HOSTILE not in page


def test_a_pause_and_a_restart_are_shown(tmp_path: Path) -> None:
    end = WRITTEN + timedelta(seconds=40)
    back = Reconnected(
        server=HOSTILE,
        keep_up="watch",
        clients=3,
        objects=2000,
        began_at=WRITTEN,
        restarted_at=WRITTEN,
        ended_at=end,
        lists=(1, 1, 0),
        back_after_s=(4.0, 9.0, None),
        outcomes={Outcome.NO_CONNECTION: 5, Outcome.GONE: 2},
        cpu_seconds=1.0,
    )
    resumed = WRITTEN + timedelta(seconds=20)
    paused = Paused(component=HOSTILE, paused_at=WRITTEN, resumed_at=resumed, ended_at=end)
    timed = [*(Timed(0, LoadMeasured(node=NODE, measured=one)) for one in (back, paused)), *passing()]
    (shown,) = control_plane.build(load_run_folder(write(tmp_path, timed))).returns
    assert (shown.back, shown.median_s, shown.last_s, shown.outcomes[0]) == (2, 4.0, 9.0, ("no connection", 5))
    page = drawn(tmp_path, "control-plane")[0].html
    assert HOSTILE not in page
    assert "was paused for 20" in page
    assert "2 of them were connected again at the end" in page
    found = {one.name: one.value for one in figures_of(PLAN, history_of(timed), Frames()).figures}
    assert found["clients after a restart: never back"] == 1
    assert found["clients after a restart: until the last is back"] == 9
    assert found[f"{HOSTILE}: length of its pause"] == 20


def test_a_run_that_loaded_nothing_says_so(tmp_path: Path) -> None:
    built = control_plane.build(load_run_folder(write(tmp_path, passing())))
    assert (built.calls, built.loads, built.servers, built.charts) == ((), (), (), ())
    page = drawn(tmp_path, "control-plane")[0].html
    assert "this game-day loaded no API server" in page


def test_the_figures_are_those_of_the_load_and_absent_without_one() -> None:
    found = {one.name: one.value for one in figures_of(PLAN, history_of(_loaded()), _frames()).figures}
    assert found["load: requests"] == 3
    assert found["load: told to come later (429)"] == 1
    assert found["API server: growth of memory under load"] == 300
    assert found["API canary under load: failed requests"] == 1
    assert "limited level: mean wait in the queue" not in found, "the plan limits nothing"
    without = figures_of(PLAN, history_of(passing()), Frames())
    assert not any(one.name.startswith(("load:", "API server:", "API canary")) for one in without.figures)
    assert without.problems == ()


def test_the_wait_is_that_of_the_plans_level_by_the_servers_own_sums() -> None:
    wait = "apiserver_flowcontrol_request_wait_duration_seconds"
    level = {"priority_level": "gameday-heavy-list", "labels": "execute=true"}
    rows = [
        _row(f"{wait}_{part}", after, value, server) | level
        for server in ("a", "b")
        for part, values in (("sum", (1.0, 30.0)), ("count", (2.0, 10.0)))
        for after, value in zip((1, 2), values, strict=True)
    ]
    rows += [row | {"labels": "execute=false", "value": 999.0} for row in rows]
    plan = PLAN.model_copy(update={"settings": ControlPlaneSettings(flow_control=FlowControl())})
    frames = Frames(api_server=conform("api_server", rows))
    found = {one.name: one.value for one in figures_of(plan, history_of(_loaded()), frames).figures}
    assert found["limited level: mean wait in the queue"] == 3


def test_a_restart_has_a_table_and_its_refused_calls_are_left_out(tmp_path: Path) -> None:
    asked, ready = (WRITTEN + timedelta(seconds=after_s) for after_s in (100, 110))
    samples = (_sample(105, status=0, error="refused"), _sample(115))
    events = [
        Timed(0, ApiServersRestarted(asked_at=asked, ready_at=ready)),
        Timed(0, ApiCanarySampled(node=NODE, samples=samples)),
        *_loaded(),
    ]
    rows = [_row(MEMORY, 95, 400 * 2**20, HOSTILE), _row(MEMORY, 125, 300 * 2**20, HOSTILE)]
    recover = Recovery(restart_api_servers=ServerRestart(settle=timedelta(seconds=20)))
    plan = PLAN.model_copy(update={"recover": recover})
    run = load_run_folder(write(tmp_path, events, Frames(api_server=conform("api_server", rows)), plan=plan))
    built = control_plane.build(run)
    assert built.restarts[HOSTILE].share == 0.25
    (call,) = built.calls
    assert call.after is not None
    assert (call.after.requests, call.after.failed) == (1, 0)
    page = drawn(tmp_path, "control-plane")[0].html
    assert "before and after their restart" in page
    assert HOSTILE not in page


def test_pods_in_steps_have_a_table_and_the_writes_that_each_cost(tmp_path: Path) -> None:
    began = WRITTEN + timedelta(seconds=1)
    step = PodStep(
        step=1,
        created=10,
        bound=10,
        took_s=2.0,
        p50_s=0.1,
        p99_s=0.2,
        began_at=began,
        until=began + timedelta(seconds=5),
    )
    writes = _row("apiserver_request_total", 3, 25, HOSTILE) | {"verb": "POST", "resource": "events", "code": "201"}
    frames = Frames(api_server=conform("api_server", [writes, _row(MEMORY, 2, 300 * 2**20, "kube-apiserver")]))
    timed = [*passing(), Timed(9, PodStepsLogged(node=NODE, steps=(step,), placed=None))]
    page = drawn(write(tmp_path, timed, frames), "control-plane")[0].html
    assert "Each pod cost 2.5 writes of the API: 2.5 of <code>events</code>" in page
    assert "10 of 10" in page
    assert HOSTILE not in page
    found = {one.name: one.value for one in figures_of(PLAN, history_of(timed), frames).figures}
    assert (found["API writes per pod"], found["API server: memory in the last step"]) == (2.5, 300)


def test_a_step_of_churn_is_marked_and_its_wait_is_no_wait_of_a_step(tmp_path: Path) -> None:
    began = WRITTEN + timedelta(seconds=1)
    times = {"began_at": began, "until": began + timedelta(seconds=5)}
    step = PodStep(step=1, created=10, bound=10, took_s=2.0, p50_s=0.1, p99_s=0.2, **times)
    churn = PodStep(step=2, created=3, deleted=3, bound=3, took_s=40.0, p50_s=0.1, p99_s=39.0, **times)
    timed = [*passing(), Timed(9, PodStepsLogged(node=NODE, steps=(step, churn), placed=None))]
    page = drawn(write(tmp_path, timed, Frames()), "control-plane")[0].html
    assert '<th scope="row">2<span class="meta">churn</span></th>' in page
    found = {one.name: one.value for one in figures_of(PLAN, history_of(timed), Frames()).figures}
    assert found["pods: wait for a node, 99th percentile of the slowest step"] == 0.2
    assert found["pods: wait for a node, 99th percentile in churn"] == 39.0
    assert found["pods: bound in a second"] == 5.0
