"""A fleet run's own files: fleet.json, and probes.jsonl, which gets each node's figures as soon as they are known.

So even a run that is killed has a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from gameday.agent.task import ProbedNote
from gameday.plain_file import open_plain, open_to_append
from gameday.report.summary import virtual_words
from gameday.runs.record import GroupRecord
from gameday.runs.run_list import FLEET_FILE
from gameday.values.models import FrozenModel
from gameday.values.results import Cleanliness, Trigger

PROBES_FILE = "probes.jsonl"


class ProbedGpu(FrozenModel):
    """A GPU under full load. A figure that was not measured is None."""

    kind: Literal["gpu"] = "gpu"
    node: str
    gpu: int = Field(description="NVML's index")
    uuid: str
    model: str
    gemm_tflops: float | None = None
    memory_gbs: float | None = None
    link_gbs: float | None = None
    nvlink_gbs: float | None = None
    all_reduce_gbs: float | None = Field(default=None, description="of the probe's GPUs of this node together")
    all_reduce_gpus: int = 0
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    slowed_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: str, note: ProbedNote) -> ProbedGpu:
        """Return the figures that an agent on this node measured."""
        return cls(node=node, **note.model_dump(exclude={"note", "why_not"}))

    def __str__(self) -> str:
        return f"{self.node} GPU {self.gpu}"


class NodeLeftOut(FrozenModel):
    """A node, or some of its GPUs, without figures, and why."""

    kind: Literal["left-out"] = "left-out"
    node: str
    gpus: int = Field(description="number of GPUs; 0 if unknown")
    why: str


_LINE: TypeAdapter[ProbedGpu | NodeLeftOut] = TypeAdapter(ProbedGpu | NodeLeftOut)


class Labelled(FrozenModel):
    """The result of writing nodes' GPU classes as labels, or of removing them."""

    changed: dict[str, str] = Field(default={}, description="new label by node, if it changed; empty: taken off")
    unchanged: tuple[str, ...] = Field(default=(), description="nodes that had the right label already")
    left_alone: dict[str, str] = Field(default={}, description="label by node that somebody else has set")
    stopped: str = Field(default="", description="why none was written, or none stayed; empty if all were")
    cleanliness: Cleanliness = Cleanliness.CLEAN


class FleetRecord(GroupRecord):
    """The settings of a fleet run, and how it ended."""

    FILE = FLEET_FILE

    trigger: Trigger
    at_once: int
    seconds: float = Field(description="time for which each GPU was loaded")
    nodes: int = Field(default=0, description="nodes that opted in")
    virtual_nodes: int = Field(default=0, description="those of them that no machine is behind")
    cleanliness: Cleanliness = Cleanliness.UNKNOWN
    against: str | None = Field(default=None, description="folder of the earlier fleet run; None: none was found")

    labels: Labelled | None = Field(default=None, description="None if the profile asks for none, or it ended early")

    @property
    def virtual(self) -> str:
        """A note that GPUs of its nodes are virtual; empty if none are."""
        return virtual_words([at < self.virtual_nodes for at in range(self.nodes)], "nodes")

    def as_ended(self, stopped: str, cleanliness: Cleanliness, labels: Labelled | None) -> FleetRecord:
        """Return the record of the run as it ends now."""
        return self.model_copy(
            update={"ended": datetime.now(UTC), "stopped": stopped, "cleanliness": cleanliness, "labels": labels},
        )


class Probes(FrozenModel):
    """Everything that a fleet run measured, and what it left out."""

    gpus: tuple[ProbedGpu, ...]
    left_out: tuple[NodeLeftOut, ...]
    end: int = Field(description="bytes of probes.jsonl up to the end of the last whole line")


def add_probes(folder: Path, found: Iterable[ProbedGpu | NodeLeftOut]) -> None:
    """Add lines to probes.jsonl; raises OSError."""
    lines = "".join(f"{one.model_dump_json()}\n" for one in found)
    with open_to_append(folder / PROBES_FILE) as file:
        file.write(lines.encode())


def load_probes(folder: Path, start: int = 0) -> Probes:
    """Load probes.jsonl from a byte on; empty if there is no such file.

    A damaged line is left out, and so is a last line without an end. Raises OSError.
    """
    content = b""
    with suppress(FileNotFoundError), open_plain(folder / PROBES_FILE) as file:
        file.seek(start)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    found: list[ProbedGpu | NodeLeftOut] = []
    for line in whole.split(b"\n"):
        with suppress(ValidationError):
            found.append(_LINE.validate_json(line))
    gpus = tuple(one for one in found if isinstance(one, ProbedGpu))
    left_out = tuple(one for one in found if isinstance(one, NodeLeftOut))
    return Probes(gpus=gpus, left_out=left_out, end=start + len(whole))


def last_run_before(reports: Path, record: FleetRecord) -> Path | None:
    """Return the folder of the newest earlier fleet run of this cluster that measured something."""
    earlier: list[tuple[datetime, Path]] = []
    for file in reports.glob(f"*/{FLEET_FILE}"):
        with suppress(OSError, ValueError):
            one = FleetRecord.load(file.parent)
            if one.cluster == record.cluster and one.id != record.id and one.started < record.started:
                earlier.append((one.started, file.parent))
    return next((path for _, path in sorted(earlier, reverse=True) if load_probes(path).gpus), None)
