"""Every prerequisite of a plan's run, in order.

If a part fails, the next one is still checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from gameday.errors import AdapterError, RefusedError
from gameday.guard.doctor.admission import check_canaries
from gameday.guard.doctor.agent import check_agent_by_pod, check_agent_by_reading
from gameday.guard.doctor.alertmanager import check_alertmanager
from gameday.guard.doctor.cluster import check_cluster
from gameday.guard.doctor.detectors import check_detectors
from gameday.guard.doctor.guardrails import check_guardrails
from gameday.guard.doctor.logs import check_logs
from gameday.guard.doctor.prerequisite import Prerequisite, checked_part, failed_part
from gameday.guard.doctor.prometheus import check_prometheus
from gameday.guard.doctor.rights import check_rights
from gameday.guard.doctor.targets import check_gpus, check_targets
from gameday.guard.doctor.workload import check_workload
from gameday.guard.preflight import preflight_modules
from gameday.guard.read_only_run import choose_and_follow
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.nodes import NodeRole


def check_prerequisites(run: ReadOnlyRun, *, send_pod: bool) -> Iterator[Prerequisite]:
    """Yield every prerequisite as it is checked.

    Args:
        run: A run before its targets are chosen.
        send_pod: Send the agent to a target, which is the only change; False: change nothing.
    """
    yield from checked_part("kubernetes", check_cluster(run))
    yield from checked_part("rights", check_rights(run))
    loads_api_servers = run.plan.fault.runs_on is NodeRole.API_CLIENT
    if not loads_api_servers:
        yield from checked_part("kubernetes", check_canaries(run))
    yield from checked_part("prometheus", check_prometheus(run))
    for module in preflight_modules("prerequisites"):
        yield from checked_part(module.__name__.partition(".")[0], module.prerequisites(run))
    yield from checked_part("alertmanager", check_alertmanager(run))
    targets: Targets = ()
    try:
        targets = choose_and_follow(run)
    except (RefusedError, AdapterError) as error:
        yield failed_part("targets", error)
    yield from checked_part("targets", check_targets(run, targets))
    if not loads_api_servers:
        yield from checked_part("gpus", check_gpus(run, targets))
    yield from checked_part("workload", check_workload(run, targets))
    yield from checked_part("detectors", check_detectors(run, targets))
    yield from checked_part("guardrails", check_guardrails(run, targets))
    if not loads_api_servers:
        yield from checked_part("logs", check_logs(run, targets))
    by_pod = send_pod and not loads_api_servers  # its line in the kernel log is for GPU nodes
    yield from checked_part("agent", (check_agent_by_pod if by_pod else check_agent_by_reading)(run, targets))
