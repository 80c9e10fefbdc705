"""The files of a fleet run: fleet.html, fleet-report.json, frames/fleet.parquet, and each model's file of floors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gameday.plain_file import refuse_link, write_each, written_whole
from gameday.report.markdown import markdown
from gameday.report.page import environment
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass
from gameday_fleet.drift import Drift, drift_since
from gameday_fleet.floors import floors_file, floors_yaml, learned_floors
from gameday_fleet.judge import BINS, FigureSpread, Fleet, ModelFleet, judge_fleet
from gameday_fleet.record import FleetRecord, ProbedGpu, load_probes
from gameday_fleet.spread import FEWEST, OUTLIER_Z, TITLES

PAGE_FILE = "fleet.html"
REPORT_FILE = "fleet-report.json"
FRAME = {
    "time": "datetime64[ns, UTC]",
    "node": "string",
    "gpu": "string",
    "uuid": "string",
    "model": "string",
    "metric": "string",
    "value": "float64",
}
"""Columns of frames/fleet.parquet: one row per GPU and figure, under the name of ProbedGpu's field; time is the run's
start, so that the frames of several runs can be put together."""
_METRICS = (
    "gemm_tflops",
    "memory_gbs",
    "link_gbs",
    "nvlink_gbs",
    "all_reduce_gbs",
    "sm_clock_mhz",
    "temperature_c",
    "power_w",
)
_MOST_NODES = 40
"""Nodes of a class, or of one reason, that the page names; fleet-report.json names all."""
_MOST_GPUS = 100
"""Rows of a table of GPUs on the page, the worst first; fleet-report.json has all. Our own choice, as above."""
_MOST_IN_MARKDOWN = 20
"""The same for the summary in the Prefect UI."""
_WIDTH, _HEIGHT = 480, 44


@dataclass(frozen=True)
class RenderedFleet:
    """A fleet run's page, and its answer in words."""

    html: Path
    fleet: Fleet
    floors: tuple[Path, ...]
    unwritten: str
    """The reason why one of its files is incomplete or missing; empty if all are written."""

    @property
    def markdown(self) -> str:
        """The answer and the stragglers."""
        return markdown("fleet", "fleet.md", fleet=self.fleet, most=_MOST_IN_MARKDOWN)


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram, in the drawing's pixels."""

    x: float
    y: float
    width: float
    height: float
    named: bool
    """True if it holds a GPU that departs."""
    label: str


def render_fleet(folder: Path, rendered_at: datetime) -> RenderedFleet:
    """Judge the folder's probes, and write page, report, frame and floors.

    Raises OSError if the folder cannot be read, and ValueError if fleet.json is not a fleet run's record.
    """
    record, probes = FleetRecord.load(folder), load_probes(folder)
    fleet = judge_fleet(record, probes.gpus, probes.left_out, _drift(record, probes.gpus))
    html = folder / PAGE_FILE
    floors = {
        folder / floors_file(model): floors_yaml(model, record.id, record.started)
        for model in fleet.models
        if learned_floors(model)
    }
    report = fleet.model_dump_json(indent=1) + "\n"
    unwritten = write_each({folder / REPORT_FILE: report, html: _page(fleet, rendered_at), **floors})
    if not unwritten:
        _save_frame(folder / "frames", record, probes.gpus)
    return RenderedFleet(html, fleet, tuple(floors), unwritten)


def _drift(record: FleetRecord, now: tuple[ProbedGpu, ...]) -> Drift | None:
    """Return the comparison with the earlier run, or None if there is none or its folder is gone."""
    if record.against is None:
        return None
    try:
        earlier = FleetRecord.load(Path(record.against))
        return drift_since(earlier.id, load_probes(Path(record.against)).gpus, now)
    except (OSError, ValueError):
        return None


def _save_frame(folder: Path, record: FleetRecord, gpus: tuple[ProbedGpu, ...]) -> None:
    rows = [
        (record.started, gpu.node, str(gpu.gpu), gpu.uuid, gpu.model, metric, value)
        for gpu in gpus
        for metric in _METRICS
        if (value := getattr(gpu, metric)) is not None
    ]
    import pandas as pd  # noqa: PLC0415 - to read a page again needs no frame

    refuse_link(folder)
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame(rows, columns=list(FRAME)).astype(FRAME)
    with written_whole(folder / "fleet.parquet") as file:
        frame.to_parquet(file, index=False)


def bars(figure: FigureSpread) -> list[Bar]:
    """Return a figure's histogram, with marks on bars that hold a departing GPU."""
    low, width = figure.spread.low, (figure.spread.high - figure.spread.low) / BINS
    tallest, step = max(figure.counts), _WIDTH / BINS
    return [
        Bar(
            x=round(index * step, 2),
            y=round(_HEIGHT * (1 - count / tallest), 2),
            width=round(step - 1, 2),
            height=round(max(2.0, _HEIGHT * count / tallest), 2),
            named=named > 0,
            label=f"{count} from {low + index * width:.4g} to {low + (index + 1) * width:.4g} {figure.unit}",
        )
        for index, (count, named) in enumerate(zip(figure.counts, figure.named, strict=True))
        if count
    ]


def _page(fleet: Fleet, rendered_at: datetime) -> str:
    record = fleet.record
    return (
        environment("fleet")
        .get_template("page.html")
        .render(
            fleet=fleet,
            record=record,
            bars=bars,
            width=_WIDTH,
            height=_HEIGHT,
            fewest=FEWEST,
            titles=TITLES,
            outlier=OUTLIER_Z,
            classes=GpuClass,
            class_label=GPU_CLASS_LABEL,
            most=_MOST_NODES,
            most_gpus=_MOST_GPUS,
            floors={model.model: _floors(model, record) for model in fleet.models if learned_floors(model)},
            files={model.model: floors_file(model) for model in fleet.models},
            took=(record.ended - record.started).total_seconds() if record.ended else None,
            rendered_at=rendered_at,
        )
    )


def _floors(model: ModelFleet, record: FleetRecord) -> str:
    return floors_yaml(model, record.id, record.started)
