"""The form in which answers are recorded loses nothing, and the comparison overlooks nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kubesim.conformance import golden
from tests.kubesim.conformance.differences import compare
from tests.kubesim.conformance.scripts import all_scripts

pytestmark = pytest.mark.conformance
Json = dict[str, Any]

leaves = st.none() | st.booleans() | st.integers(-1, 500) | st.sampled_from(["", "Status", "Failure", "v1", "x"])
keys = st.sampled_from(["kind", "apiVersion", "metadata", "status", "code", "message", "a"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=12)
headers = st.dictionaries(
    st.sampled_from(["Cache-Control", "Content-Type", "Warning"]),
    st.sampled_from(["application/json", "no-cache, private", "x"]),
    min_size=1,
)
failures = st.fixed_dictionaries(
    {"kind": st.just("Status"), "apiVersion": st.just("v1"), "metadata": st.just({}), "status": st.just("Failure"),
     "code": st.sampled_from([404, True, "404"])},
    optional={"message": st.text(max_size=3)},
)  # fmt: skip
responses = st.fixed_dictionaries(
    {"status": st.sampled_from([200, 404])},
    optional={"headers": headers, "body": failures | values, "events": st.lists(values, max_size=2)},
)
exchanges = st.fixed_dictionaries({"step": st.text(max_size=3), "request": st.text(max_size=3), "response": responses})


@given(exchanges)
def test_a_line_expands_to_the_exchange_it_was_made_of(exchange: Json) -> None:
    assert compare([golden.expand(golden.compact(exchange))], [exchange]) == []


def test_recordings_are_written_as_they_were_read(tmp_path: Path) -> None:
    for script in all_scripts():
        golden.write(script, golden.read(script), tmp_path)
        name = f"{script}.jsonl"
        assert (tmp_path / name).read_bytes() == (golden.GOLDEN / name).read_bytes(), name


@pytest.mark.parametrize("script", ["validation_labels", "watched_collections", "kubectl_nodes", "pages", "methods"])
def test_every_change_to_a_recording_is_a_difference(script: str) -> None:
    recorded = golden.read(script)
    changed = list(changes(recorded))
    assert changed and all(compare(recorded, one) for one in changed)


def test_a_lost_an_added_and_a_moved_exchange_are_differences() -> None:
    recorded = golden.read("methods")
    assert compare(recorded, recorded[:-1]) and compare(recorded[1:], recorded)
    assert compare(recorded, [*recorded[1:], recorded[0]])


def test_another_request_is_another_summary() -> None:
    asked = {"method": "POST", "path": "/api", "body": {"a": 1}}
    others = [{**asked, "body": {"a": 2}}, {**asked, "query": {"dryRun": "All"}}, {**asked, "as": "token"}]
    assert len({golden.summarize(one) for one in (asked, *others)}) == 4
    assert golden.summarize(asked).startswith("POST /api #")


def changes(recorded: list[Json]) -> Iterator[list[Json]]:
    """Yield the recording with one part changed or taken out, for every part of it."""
    for index, exchange in enumerate(recorded):
        for path in paths(exchange):
            for change in ("replace", "remove"):
                one = copy.deepcopy(exchange)
                parent = one
                for key in path[:-1]:
                    parent = parent[key]
                if change == "remove":
                    del parent[path[-1]]
                else:
                    parent[path[-1]] = "changed"
                yield [*recorded[:index], one, *recorded[index + 1 :]]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if (*path, key) != ("step",):
            yield (*path, key)
        yield from paths(inner, (*path, key))
