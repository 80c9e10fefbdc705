from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.host.cpus import format_cpus, parse_cpus


@pytest.mark.parametrize(
    ("text", "cpus"), [("", ()), ("\n", ()), ("3\n", (3,)), ("0-2,8,10-11\n", (0, 1, 2, 8, 10, 11))]
)
def test_a_list_in_sysfs_format_is_parsed(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus
    assert format_cpus(cpus) == text.strip()


@given(st.sets(st.integers(0, 500)))
def test_a_formatted_list_is_parsed_back(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(sorted(cpus))) == tuple(sorted(cpus))


def test_text_that_is_no_list_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpus("0-x")
