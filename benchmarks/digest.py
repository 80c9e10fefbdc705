"""The time and memory that the season digest and the index of runs take: 50 runs of 500 nodes each.

`python -m benchmarks.digest [--runs 50] [--nodes 500] [--plans 20] [--folder F]` builds the season from one run (its
report.json holds the run's own summary and, in place of the sections, its whole history, which is larger), and then
measures `gameday digest`, twice, and `gameday index` as processes. With `--killed` no run left a report, a coverage row
or frames: every history is read and judged by each of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
from pydantic_core import to_json

from gameday.history.events import (
    RECORD,
    AlertSeen,
    FaultInjected,
    HopSeen,
    NodeReturned,
    NodeSeen,
    QaChecked,
    Record,
    Remediated,
    RunStarted,
    TaintSeen,
    TargetsChosen,
)
from gameday.history.frames import Frames, conform
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.runs.matrix import CoverageMatrix, matrix_of
from gameday.runs.run_row import ROW_FILE
from gameday.values.nodes import Target
from tests.report import run_builder


def wide(nodes: int) -> list[run_builder.Timed]:
    """Return the tests' passing run with all events of its node repeated for `nodes` nodes, QA rows included."""
    per_node = (FaultInjected, HopSeen, AlertSeen, TaintSeen, NodeSeen, QaChecked, Remediated, NodeReturned)
    names = [_name(i) for i in range(nodes)]
    made: list[run_builder.Timed] = []
    for timed in run_builder.passing():
        event = timed.event
        if isinstance(event, TargetsChosen):
            chosen = tuple(Target(node=name, gpu=5) for name in names)
            made.append(dataclasses.replace(timed, event=event.model_copy(update={"targets": chosen})))
        elif isinstance(event, per_node):
            made += [dataclasses.replace(timed, event=_of(event, name)) for name in names]
        else:
            made.append(timed)
    return made


def _of(event: object, name: str) -> object:
    if isinstance(event, FaultInjected):
        return event.model_copy(update={"target": Target(node=name, gpu=5)})
    if isinstance(event, NodeSeen):
        return event.model_copy(update={"snapshot": event.snapshot.model_copy(update={"node": name})})
    return event.model_copy(update={"node": name})  # type: ignore[attr-defined]


def wide_frames(nodes: int) -> Frames:
    """Eight GPUs' metrics of every node, one sample in five seconds."""
    metrics = run_builder.frames(every=5.0).metrics
    return Frames(metrics=conform("metrics", pd.concat(metrics.assign(node=_name(i)) for i in range(nodes))))


def _name(number: int) -> str:
    return f"gpu-node-{number:03d}"


def season(folder: Path, runs: int, nodes: int, plans: int, killed: bool) -> None:
    first = folder / "first"
    run_builder.write(first, wide(nodes), wide_frames(nodes))
    plan = json.loads((first / "plan.json").read_bytes())
    plan["fault"]["xid"] = 79  # the tests' plan knows no fault's parameters, and such a row has nothing to judge
    (first / "plan.json").write_text(json.dumps(plan))
    started = time.monotonic()
    run = load_run_folder(first)
    print(f"one run of {nodes} nodes read and judged in {time.monotonic() - started:.1f} s")
    report = {"format": 1, "summary": summarise(run), "sections": {"history": run.history.records}}
    (first / "report.json").write_bytes(to_json(report, indent=1))
    began = time.process_time()
    (first / ROW_FILE).write_text(matrix_of(run).model_dump_json(indent=1))
    print(f"its coverage row judged and left in {time.process_time() - began:.2f} s CPU")
    for name in ("history.jsonl", "report.json", ROW_FILE):
        print(f"  {name}: {(first / name).stat().st_size / 1e6:.1f} MB")
    now = datetime.now(UTC)
    for i in range(runs):
        begun = now - timedelta(hours=3 * (runs - i))
        _copy(first, folder / begun.strftime("%Y%m%d-%H%M%S"), f"plan-{i % plans:02d}", begun, killed)
    shutil.rmtree(first)


def _copy(first: Path, copy: Path, plan: str, begun: datetime, killed: bool) -> None:
    shutil.copytree(first, copy, copy_function=os.link)
    for name in ("history.jsonl", "report.json", "plan.json", ROW_FILE):
        (copy / name).unlink()
    lines = (first / "history.jsonl").read_bytes().split(b"\n", 1)
    record = RECORD.validate_json(lines[0])
    assert isinstance(record, Record) and isinstance(record.event, RunStarted)
    event = record.event.model_copy(update={"run_id": copy.name, "plan_name": plan})
    head = RECORD.dump_json(dataclasses.replace(record, event=event, at=begun))
    (copy / "history.jsonl").write_bytes(head + b"\n" + lines[1])
    content = json.loads((first / "plan.json").read_bytes()) | {"name": plan}
    (copy / "plan.json").write_text(json.dumps(content))
    if killed:
        shutil.rmtree(copy / "frames")
        return
    report = json.loads((first / "report.json").read_bytes())
    report["summary"] |= {"run_id": copy.name, "plan": plan, "started": begun.isoformat()}
    (copy / "report.json").write_text(json.dumps(report, indent=1))
    matrix = CoverageMatrix.model_validate_json((first / ROW_FILE).read_bytes())
    row = matrix.rows[0].model_copy(update={"run_id": copy.name, "plan": plan, "started": begun})
    (copy / ROW_FILE).write_text(matrix.model_copy(update={"rows": (row,)}).model_dump_json(indent=1))


def measure(*command: str) -> None:
    """Wall time and the peak of resident memory, as the kernel counted it for that process."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "gameday.cli", *command], stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    taken = time.monotonic() - started
    cpu = usage.ru_utime + usage.ru_stime
    print(f"gameday {command[0]}: {taken:.1f} s, {cpu:.1f} s CPU, {usage.ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--plans", type=int, default=20)
    parser.add_argument("--killed", action="store_true", help="no run left more than its history")
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gameday-season-") as made:
        folder = chosen.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        # A process of its own: the kernel counts a child's peak from its parent's size on.
        builder = multiprocessing.Process(
            target=season, args=(folder, chosen.runs, chosen.nodes, chosen.plans, chosen.killed)
        )
        builder.start()
        builder.join()
        for command in ("digest", "digest", "index"):
            measure(command, str(folder))


if __name__ == "__main__":
    main()
