"""Make the summary of a run from its folder."""

from __future__ import annotations

from gameday.report.durations import durations, worst_per_check
from gameday.report.noticed import noticed
from gameday.report.out_of_work import out_of_work
from gameday.report.run_folder import RunFolder
from gameday.report.summary import Summary


def summarise(run: RunFolder) -> Summary | None:
    """Return the run's summary; None for a history without a start, which does not say which run it is."""
    started, records = run.started, run.history.records
    if started is None:
        return None
    return Summary(
        run_id=started.run_id,
        plan=started.plan_name,
        title=run.plan.title if run.plan else started.plan_name,
        plan_sha256=started.plan_sha256,
        cluster=started.cluster_name or started.cluster,
        cluster_id=started.cluster_id or started.cluster_uid,
        rehearsal=run.is_virtual,
        detector=run.named_detector,
        fault=run.plan.fault.type if run.plan else None,
        targets=run.target_names,
        started=records[0].at,
        seconds=(records[-1].at - records[0].at).total_seconds(),
        outcome=run.result.outcome,
        cleanliness=run.result.cleanliness,
        exit_code=run.result.exit_code,
        why=run.result.why,
        noticed=noticed(run),
        numbers=durations(run),
        checks=worst_per_check(run.verdicts),
        out_of_work=out_of_work(run),
    )
