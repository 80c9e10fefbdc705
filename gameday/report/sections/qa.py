"""QA against its floors, compact: one row per check, one column per GPU."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.history.events import QaChecked
from gameday.report.run_folder import RunFolder

ORDER = 86
TITLE = "Node QA"
GROUP = "GPUs, node and pods"


class QaRow(BaseModel):
    """`cells` follow the table's GPUs; None if that GPU has no result for the check."""

    check: str
    unit: str
    bound: str
    cells: tuple[QaChecked | None, ...]
    seconds: float | None = Field(description="the longest it took on one GPU")


class QaTable(BaseModel):
    node: str
    gpus: tuple[int, ...]
    rows: tuple[QaRow, ...]
    node_wide: tuple[QaChecked, ...]
    passed: int
    failed: int
    unmeasured: int


class QaTables(BaseModel):
    tables: tuple[QaTable, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.tables else "QA was not reached or left no result"


def build(run: RunFolder) -> QaTables:
    results = run.history.of(QaChecked)
    nodes = dict.fromkeys(result.node for result in results)
    return QaTables(tables=tuple(_table(node, [r for r in results if r.node == node]) for node in nodes))


def _table(node: str, results: list[QaChecked]) -> QaTable:
    gpus = tuple(sorted({result.gpu for result in results if result.gpu is not None}))
    newest = {(result.check, result.gpu): result for result in results}
    checks = dict.fromkeys(result.check for result in results if result.gpu is not None)
    rows = []
    for check in checks:
        cells = tuple(newest.get((check, gpu)) for gpu in gpus)
        some = next(cell for cell in cells if cell)
        took = max((cell.seconds for cell in cells if cell and cell.seconds is not None), default=None)
        rows.append(QaRow(check=check, unit=some.unit, bound=some.bound, cells=cells, seconds=took))
    oks = [result.ok for result in newest.values()]
    return QaTable(
        node=node,
        gpus=gpus,
        rows=tuple(rows),
        node_wide=tuple(result for (_, gpu), result in newest.items() if gpu is None),
        passed=oks.count(True),
        failed=oks.count(False),
        unmeasured=oks.count(None),
    )
