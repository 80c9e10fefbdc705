"""A run that never begins: chosen targets and the same looks at the cluster, nothing written to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gameday.cluster.profile import ClusterProfile
from gameday.history.journal import Journal
from gameday.ledger.ledger import stored_ledgers
from gameday.plan.load import LoadedPlan
from gameday.run.connections import Servers
from gameday.run.run import Run
from gameday.run.targets import choose_targets


@contextmanager
def surveying(run_id: str, loaded: LoadedPlan, profile: ClusterProfile) -> Iterator[Run]:
    """A run that holds no lease and no ledger, so that it can do nothing; its history is thrown away.

    Raises AdapterError where no cluster can be spoken to.
    """
    with tempfile.TemporaryDirectory(prefix="gameday-survey-") as folder:
        journal = Journal(Path(folder) / "history.jsonl")
        run = Run(run_id, Path(folder), loaded, profile, journal)
        try:
            run.opened.servers = Servers(profile)
            yield run
        finally:
            run.stop_following()
            if run.opened.servers:
                run.opened.servers.close()
            journal.close()


def choose(run: Run) -> None:
    """Choose the targets as the run would, and follow them. Raises RefusedError and AdapterError."""
    run.dirty_nodes = stored_ledgers(run.kubernetes).dirty_nodes
    chosen = choose_targets(run)
    run.targets = chosen.targets
    run.follow_targets(chosen.snapshots)
