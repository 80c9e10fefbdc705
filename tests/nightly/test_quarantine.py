"""tests/quarantine.txt: its form, its length, that what it lists exists, and that only the nightly plays that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

import tests.conftest
from tests.nightly.suites import ROOT
from tests.support.quarantine import MOST, PLAY_VARIABLE, Quarantined, is_listed, parse, quarantined

HERE = "tests/nightly/test_quarantine.py"
ONE = Quarantined("tests/x/test_y.py::TestZ::test_a[b 2026]", date(2026, 11, 27), "two clocks")


def unknown(listed: Sequence[Quarantined]) -> list[str]:
    """Return the tests that do not exist; a parameter is not looked for."""
    return [one.test for one in listed if not _exists(*one.test.partition("[")[0].split("::"))]


def _exists(file: str, *names: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else ""
    defined = (rf"^ *(class|(async )?def) {re.escape(name)}\b" for name in names)
    return bool(text) and all(re.search(pattern, text, re.MULTILINE) for pattern in defined)


def test_the_list_is_well_formed_short_and_of_tests_that_exist() -> None:
    assert unknown(quarantined()) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    here = [
        f"{HERE}::test_a_test_that_does_not_exist_is_found",
        f"{HERE}::test_only_the_nightly_plays_what_is_listed[1]",
    ]
    gone = [f"{HERE}::test_gone", "tests/gone.py::test_gone"]
    assert unknown([Quarantined(test, date(2026, 11, 27), "none") for test in here + gone]) == gone


def test_a_line_is_an_id_a_date_and_a_cause() -> None:
    assert parse(f"# about it\n\n{ONE.test}  2026-11-27  two clocks \n") == (ONE,)


@pytest.mark.parametrize(
    "line",
    [
        "tests/x/test_y.py::test_a 2026-11-27",
        "tests/x/test_y.py::test_a a cause",
        "tests/x/test_y.py 2026-11-27 a whole file",
        "test_a 2026-11-27 no file",
        "tests/x/test_y.py::test_a 2026-13-27 no month",
    ],
)
def test_any_other_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 2 is not|month must be"):
        parse(f"# about it\n{line}\n")


def test_more_than_ten_are_an_error() -> None:
    lines = [f"tests/x/test_y.py::test_{number} 2026-11-27 a clock" for number in range(MOST + 1)]
    assert len(parse("\n".join(lines[:MOST]))) == MOST
    with pytest.raises(ValueError, match="11 tests are listed, and 10 may be"):
        parse("\n".join(lines))


def test_an_id_without_parameters_holds_all_of_them_and_no_longer_name() -> None:
    listed = [Quarantined("tests/x.py::test_a", date(2026, 11, 27), "a clock")]
    assert [is_listed(f"tests/x.py::{name}", listed) for name in ("test_a", "test_a[1]", "test_ab")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("is_nightly", [True, False])
def test_only_the_nightly_plays_what_is_listed(is_nightly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLAY_VARIABLE, raising=False)
    if is_nightly:
        monkeypatch.setenv(PLAY_VARIABLE, "1")
    monkeypatch.setattr(tests.conftest, "quarantined", lambda: (ONE,))
    ids = [ONE.test, "tests/x/test_y.py::test_b"]
    items = [SimpleNamespace(nodeid=id, get_closest_marker=lambda _: None, path=Path("x.py")) for id in ids]
    left_out: list[SimpleNamespace] = []
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda *, items: left_out.extend(items)))
    tests.conftest.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == (ids if is_nightly else ids[1:])
    assert [item.nodeid for item in left_out] == ([] if is_nightly else ids[:1])
