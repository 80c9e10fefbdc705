"""A flow of your own: does the alert fire? Everything else is left out, and the report calls it "not asked".

    gameday rehearsal up                   # in another terminal; set Prefect's variables here as it prints
    python examples/inject_await_alert.py gpu-fell-off-the-bus .rehearsal/profile.yaml

The baseline cannot be left out: it chooses the node and locks it. However the block ends, `undo_at_the_end` takes the
fault out and gives the node back; without QA it does so only because this flow says so.
"""

import sys
from contextlib import suppress
from pathlib import Path

from prefect import flow

import gameday as gd


@flow(persist_result=False, on_cancellation=[gd.reap_flow_run], on_crashed=[gd.reap_flow_run])
def inject_await_alert(plan: str, profile: str, reports: str = "reports") -> gd.RunResult:
    """Break one GPU, wait for its alerts, and put everything back."""
    cluster = gd.load_profile(Path(profile))
    loaded = gd.load_complete_plan(gd.find_plan(plan), cluster.detector_profiles, cluster.detector)
    record = gd.start_record(gd.new_run_id(), loaded, Path(reports))
    with (
        suppress(gd.StopRunError),  # the history holds the reason, and the report shows it
        gd.open_run(record, cluster, gd.invocation("manual", f"python {__file__} {plan} {profile}")) as run,
        gd.undo_at_the_end(run, return_without_qa=True),
        gd.under_guardrails(run),
    ):
        targets = gd.baseline(run)
        gd.approve(run, targets, approved_by=None)
        gd.await_alert(run, gd.inject(run, targets))
    return gd.write_report(record)


if __name__ == "__main__":
    sys.exit(inject_await_alert(*sys.argv[1:]).exit_code)
