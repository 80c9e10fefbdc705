"""Scrapes of a rack's exposition, in the form in which promtool takes series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import Exposition
from tests.rehearsal.nodes.conftest import Rack

SCRAPE_S = 15


def exposed(rack: Rack, release: ExporterRelease) -> Exposition:
    return Exposition(rack.cache, ["a", "b"], [machine.gpus for machine in rack.machines], release)


def samples(exposition: Exposition, *metrics: str) -> dict[str, float]:
    """Value by series, as PromQL writes one. The parser adds `_total` to a counter's samples: the family names it."""
    text = b"".join(exposition.render(names=list(metrics))).decode()
    return {
        family.name + "{" + ", ".join(f'{key}="{value}"' for key, value in sample.labels.items()) + "}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(
    rack: Rack,
    release: ExporterRelease,
    metrics: tuple[str, ...],
    scrapes: int,
    happens: Callable[[int], None],
) -> list[dict[str, str]]:
    """Scrape so often, each time after `happens` got the scrape's number, and return promtool's input series."""
    exposition, seen = exposed(rack, release), defaultdict[str, dict[int, float]](dict)
    for scrape in range(scrapes):
        happens(scrape)
        for series, value in samples(exposition, *metrics).items():
            seen[series][scrape] = value
        rack.clock.pass_by(SCRAPE_S)
    return [{"series": series, "values": _values(at, scrapes)} for series, at in seen.items()]


def _values(at: dict[int, float], scrapes: int) -> str:
    """Write samples as promtool reads them; Prometheus marks a series that a scrape lacks as stale."""
    return " ".join(f"{at[n]:g}" if n in at else "stale" if n - 1 in at else "_" for n in range(scrapes))
