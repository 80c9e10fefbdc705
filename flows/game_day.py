"""Run one game-day.

The life of a run, from the plan to the exit code:

1. Read the cluster profile and the plan, and make the run's folder with its history; a mistake in either is refused
   before the cluster is asked anything.
2. Connect, refuse a dangerous fault that the profile does not allow, take the cluster's lease, undo what dead runs
   left, and begin the ledger, which records every change and its undo before the change is made.
3. Baseline: choose and lock the target nodes, check guardrails, alerts, signals and log path, measure a window
   without a fault, and ask a person for approval if plan or profile require it.
4. Inject: start an agent's pod on each target; the fault is in as soon as the pod is Ready.
5. Await alert: wait for each expected alert, and time every hop from the log line to Alertmanager.
6. Verify taint: check that the node is quarantined, and that new work stays away; a negative control must get no taint.
7. Recover: undo the fault, repair the node or wait for the cluster to repair it, and wait until the alerts are silent.
8. QA node: prove each node good, take its quarantine off, and see a GPU pod run on it.
9. Undo what is still open, newest first, however the steps ended; then judge the history, render the report, and
   derive Prefect's state and the exit code from the outcome.

Guardrails are checked before the fault, and again and again while it is in; one that trips ends the steps. If the
process dies before its undo, Prefect's hooks (flows/hooks.py), the agents' own deadlines and the reaper undo the run.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.cluster.profile import load_profile
from gameday.errors import DocumentError, ProfileError, RefusedError, StopRunError
from gameday.exit_codes import ExitCode
from gameday.flows.approval import approve
from gameday.flows.attempts import played_before, refuse_attempt, stop_when_suspended
from gameday.flows.choices import GivenPlan, PlanChoice, plan_to_play, source_of
from gameday.flows.hooks import reap_flow_run
from gameday.flows.invocation import invocation, run_command
from gameday.flows.judged_state import judged_state, log_no_judgement_as_a_crash
from gameday.flows.live_log import LiveLog
from gameday.flows.live_progress import LiveProgress
from gameday.flows.run_page import describe_flow_run, plan_name
from gameday.flows.schedule import refuse_overdue
from gameday.guard.check import under_guardrails
from gameday.history.room import refused_where_not_written
from gameday.lifecycle.opening import open_run
from gameday.lifecycle.undo import undo_at_the_end
from gameday.run.record import HISTORY_FILE, new_run_id, start_record
from gameday.run.season_member import SeasonMember
from gameday.tasks.await_alert import await_alert
from gameday.tasks.baseline import baseline
from gameday.tasks.inject import inject
from gameday.tasks.publish import publish_run
from gameday.tasks.qa_node import qa_node
from gameday.tasks.recover import recover
from gameday.tasks.report import report
from gameday.tasks.verify_taint import verify_taint
from gameday.values.results import Cleanliness, Trigger


@flow(
    name="game-day",
    flow_run_name=plan_name,
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[reap_flow_run],
    on_crashed=[reap_flow_run],
)
def game_day(
    plan: PlanChoice = "gpu-fell-off-the-bus",
    profile: str | None = None,
    profiles: dict[str, str] | None = None,
    reports: str = "reports",
    trigger: Trigger = "manual",
    run_id: str | None = None,
    command: str | None = None,
    approved_by: str | None = None,
    member: SeasonMember | None = None,
    given: GivenPlan | None = None,
) -> State[RunResult]:
    """Break one GPU on purpose, and measure whether anything notices and whether the node comes back by itself.

    Args:
        plan: A shipped plan's name, or the path of a plan file.
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        profiles: Profiles by the clusters' names that a form offers; `gameday deploy` sets it.
        reports: Folder the run's own folder is made in.
        trigger: The reason why this run is made.
        run_id: Name of the run; none: from the time.
        command: Shell line that runs the same again, for the report.
        approved_by: Your name, if you approve now what this run will break. Empty: the run's page asks for it before
            anything is broken.
        member: Set by a season for its own runs; leave it empty.
        given: The plan, or the arm of one, as a program has read it; leave it empty.
    """
    log_no_judgement_as_a_crash()
    if why := played_before(Path(reports)):
        return refuse_attempt(why)
    profile = source_of(profile, profiles)
    try:
        cluster = load_profile(profile)
        loaded = plan_to_play(given, plan, cluster).of_arm(None)
        with refused_where_not_written(Path(reports)):
            record = start_record(run_id or new_run_id(), loaded, Path(reports), member)
    except (DocumentError, ProfileError, RefusedError) as error:
        refused, clean, code = RunOutcome.REFUSED, Cleanliness.CLEAN, ExitCode.REFUSED
        result = RunResult(outcome=refused, cleanliness=clean, exit_code=code, why=str(error), has_report=False)
        return judged_state(code, result.why, result)
    stop_when_suspended(record.abort)
    with (
        LiveLog(record.folder / HISTORY_FILE),
        LiveProgress(record.folder / HISTORY_FILE),
        suppress(StopRunError),  # the history holds the reason, and the report shows it
        open_run(record, cluster, invocation(trigger, command or run_command(plan, profile))) as run,
        undo_at_the_end(run),
        under_guardrails(run),
    ):
        refuse_overdue(trigger)
        targets = baseline(run)
        describe_flow_run(record, cluster.name, targets)
        approve(run, targets, approved_by)
        faults = inject(run, targets)
        await_alert(run, faults)
        verify_taint(run, faults)
        repairs = recover(run, faults)
        qa_node(run, repairs)
    # A second Ctrl-C comes now as often as in the undo, and must not cost the report.
    with record.abort.on_signals():
        result = report(record)
    if result.has_report:
        publish_run(cluster, record.folder)
    return judged_state(result.exit_code, result.why, result)
