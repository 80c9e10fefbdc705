"""The two halves of a fleet run, as Prefect tasks: probe the idle GPUs, then judge them and show the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gameday.cluster.pods import PodFollower
from gameday.errors import AdapterError
from gameday.ledger.entries import Header
from gameday.ledger.ledger import Ledger
from gameday.runs.play import OpenSeason
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page
from gameday.values.results import Cleanliness
from gameday_fleet.judge import judge_fleet
from gameday_fleet.labels import write_labels
from gameday_fleet.page import RenderedFleet, render_fleet
from gameday_fleet.permission import Permission
from gameday_fleet.probing import Found, Probing, worst
from gameday_fleet.record import FleetRecord, Labelled, add_probes, load_probes
from gameday_fleet.waiting import WaitingWork


@step_task(name="probe the fleet")
def probe_fleet(
    season: OpenSeason, record: FleetRecord, nodes: Sequence[str], header: Header, permission: Permission, folder: Path
) -> Cleanliness:
    """Probe the nodes' idle GPUs, and store the figures of each; return how clean that leaves the cluster.

    Raises:
        AdapterError: The cluster does not answer before the first probe.
        OSError: The folder cannot be written.
    """

    def write_down(found: Sequence[Found]) -> None:
        add_probes(folder, found)

    ledger = Ledger(season.kubernetes, header)
    with PodFollower(season.kubernetes, record.id) as pods, WaitingWork(season.kubernetes) as waiting:
        pods.require_synced()
        probing = Probing(season, ledger, pods, permission, waiting, record.seconds, write_down)
        probing.run(nodes, record.at_once)
    try:
        if ledger.all_clean():
            ledger.delete()
    except AdapterError:
        probing.left.add(Cleanliness.UNKNOWN)
    return worst(probing.left)


@step_task(name="label the nodes")
def label_nodes(season: OpenSeason, header: Header, folder: Path) -> Labelled:
    """Write the class of each completely measured node as its label: all of them or none.

    Raises OSError if the folder cannot be read.
    """
    record, probes = FleetRecord.load(folder), load_probes(folder)
    classes = judge_fleet(record, probes.gpus, probes.left_out, None).classes
    ledger = Ledger(season.kubernetes, header)
    with PodFollower(season.kubernetes, record.id) as pods:
        done = write_labels(season.kubernetes, ledger, classes, pods, lambda: season.stopped)
    try:
        if ledger.all_clean():
            ledger.delete()
    except AdapterError:
        return done.model_copy(update={"cleanliness": Cleanliness.UNKNOWN})
    return done


@step_task(name="judge the fleet")
def judge_probes(folder: Path) -> RenderedFleet:
    """Render the fleet's page, and show it in the Prefect UI. Raises OSError if the folder cannot be written."""
    rendered = render_fleet(folder, datetime.now(UTC))
    show_page("fleet", rendered.markdown, rendered.html.resolve().as_uri(), rendered.fleet.headline)
    return rendered
