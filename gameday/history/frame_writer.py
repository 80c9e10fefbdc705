"""Write a run's frames in a separate process, so that the game-day itself imports neither Arrow nor pandas.

It uses only Arrow, because the import of pandas takes longer than all the rest.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path

from gameday import child_process
from gameday.history.frames import SCHEMAS, SORTED_BY, Columns, columns_of
from gameday.plain_file import refuse_link, written_whole


def write_frames(tables: Mapping[str, Columns], folder: Path) -> None:
    """Write <name>.parquet for every frame, empty if there is no table. Raises the errors of `child_process.ask`."""
    child_process.ask(__name__, pickle.dumps((tables, folder)))


def _write(request: bytes) -> bytes:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {
        "datetime64[ns, UTC]": arrow.timestamp("ns", "UTC"),
        "string": arrow.string(),
        "float64": arrow.float64(),
        "Int64": arrow.int64(),
    }
    tables, folder = pickle.loads(request)  # noqa: S301 - from the game-day that started this process
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in SCHEMAS.items():
        columns = tables.get(name) or columns_of(name)
        table = arrow.table({column: arrow.array(columns[column], types[dtype]) for column, dtype in schema.items()})
        if name in SORTED_BY:
            table = table.sort_by([(column, "ascending") for column in SORTED_BY[name]])
        with written_whole(folder / f"{name}.parquet") as file:
            parquet.write_table(table, file)
    return b""


class _WithoutPandas(MetaPathFinder):
    """Hides pandas from Arrow, which would import it for half of the time only to see that a list is not a Series."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not needed here")


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas())
    child_process.answer(_write)
