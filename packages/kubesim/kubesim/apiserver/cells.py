"""The cells of kubectl's tables: durations, labels, selectors and containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubesim.clock import now_utc, parse_time

Json = dict[str, Any]
Cell = str | int | bool
Cells = Callable[[Json], list[Cell]]

NONE = "<none>"
UNSET = "<unset>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Columns:
    """Column titles and the functions that fill the columns.

    A leading + marks a column that only `-o wide` shows; a trailing `:integer`, `:boolean` or `:date` gives its type,
    which is otherwise string.
    """

    titles: tuple[str, ...]
    cells: Cells
    marks: Callable[[Json], Json] = lambda obj: {}
    """Other fields of a row that show its object's state, such as `conditions`."""

    def definitions(self) -> list[Json]:
        """Return the Table's columnDefinitions."""
        return [_definition(title) for title in self.titles]


def _definition(title: str) -> Json:
    name, _, kind = title.lstrip("+").partition(":")
    return {
        "name": name,
        "type": kind or "string",
        "format": "name" if name == "Name" else "",
        "description": "",
        "priority": 1 if title.startswith("+") else 0,
    }


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl shows it: 45s, 3m20s, 5h, 12d."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    # The units shown up to each duration (k8s.io/apimachinery/pkg/util/duration, HumanDuration).
    steps: tuple[tuple[int, str], ...] = (
        (120, f"{whole}s"),
        (600, _pair(minutes, "m", whole % 60, "s")),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, _pair(hours, "h", minutes % 60, "m")),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, _pair(days, "d", hours % 24, "h")),
        (730 * 86400, f"{days}d"),
    )
    return next((text for limit, text in steps if whole < limit), _pair(days // 365, "y", days % 365, "d"))


def _pair(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def age_since(stamp: str | None) -> str:
    """Return the age of a timestamp."""
    if not stamp:
        return UNKNOWN
    return human_duration((now_utc() - parse_time(stamp)).total_seconds())


def age(obj: Json) -> str:
    """Return the cell of an Age column."""
    return age_since(obj["metadata"].get("creationTimestamp"))


def name(obj: Json) -> str:
    """Return the cell of a Name column; a bookmark's object has no name."""
    return str(obj["metadata"].get("name", ""))


def label_pairs(labels: Json | None) -> str:
    """Return labels as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(found: Json | None) -> str:
    """Return a LabelSelector as `a=b,c in (d,e)`."""
    terms = [f"{key}={value}" for key, value in sorted(((found or {}).get("matchLabels") or {}).items())]
    for item in (found or {}).get("matchExpressions") or []:
        match item["operator"]:
            case "Exists":
                terms.append(item["key"])
            case "DoesNotExist":
                terms.append(f"!{item['key']}")
            case operator:
                terms.append(f"{item['key']} {operator.lower()} ({','.join(sorted(item.get('values') or []))})")
    return ",".join(terms) or NONE


def container_names(spec: Json | None) -> tuple[str, str]:
    """Return the names and the images of a pod's containers."""
    found = (spec or {}).get("containers") or []
    return ",".join(item["name"] for item in found), ",".join(item.get("image", "") for item in found)


def condition(obj: Json, kind: str) -> Json:
    """Return the status condition of that type, or {}."""
    for item in (obj.get("status") or {}).get("conditions") or []:
        if item.get("type") == kind:
            found: Json = item
            return found
    return {}
