"""A run that never begins: it reads the cluster as a run would, and changes nothing there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gameday.cluster.profile import ClusterProfile
from gameday.ledger.ledger import stored_ledgers
from gameday.plan.load import LoadedPlan
from gameday.run.node_watch import NodeWatch
from gameday.run.record import RunRecord
from gameday.run.run import ReadOnlyRun
from gameday.run.servers import Servers
from gameday.run.targets import Targets, choose_targets


@contextmanager
def read_only_run(run_id: str, loaded: LoadedPlan, profile: ClusterProfile) -> Iterator[ReadOnlyRun]:
    """Open a run without lease and ledger; its history is thrown away.

    Raises:
        AdapterError: The cluster cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="gameday-read-only-") as folder, closing(Servers(profile)) as servers:
        record = RunRecord(run_id, Path(folder), loaded)
        nodes = NodeWatch(servers.kubernetes, run_id, record.note)
        try:
            yield ReadOnlyRun(record, profile, servers, nodes)
        finally:
            nodes.stop()
            record.journal.close()


def choose_and_follow(run: ReadOnlyRun) -> Targets:
    """Choose the targets as the run would, and follow them.

    Raises:
        RefusedError: Too few nodes are fit.
        AdapterError: The cluster does not answer.
    """
    targets = choose_targets(run, stored_ledgers(run.kubernetes).dirty_nodes)
    run.nodes.follow_targets(target.before for target in targets)
    return targets
