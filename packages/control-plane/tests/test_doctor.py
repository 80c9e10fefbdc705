"""`gameday control-plane`: who would hurt the API servers, and what would hold them back."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gameday import cli
from gameday.cluster.prometheus import Sample
from gameday.errors import AdapterError
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday_control_plane import doctor
from gameday_control_plane.flow_control_seats import Account, nominal_seats
from gameday_control_plane.preflight import check_api_servers
from tests.control_plane.flow_control import group, level_object, rule, schema_object, service_account

LISTER = Account.of_service_account("gameday", "lister")
MASTER = Account("root", frozenset({"system:masters", "system:authenticated"}))
EVERYBODY = [group("system:authenticated")]
SHARES = {"catch-all": 5, "workload-low": 100, "others": 140}
LEVELS = [
    {"metadata": {"name": "exempt"}, "spec": {"type": "Exempt"}},
    *(level_object(name, shares, lendable=50) for name, shares in SHARES.items()),
]
SCHEMAS = [
    schema_object("exempt", "exempt", 1, [group("system:masters")], rule()),
    schema_object("service-accounts", "workload-low", 9000, [group("system:serviceaccounts")], rule()),
    schema_object("catch-all", "catch-all", 10000, EVERYBODY, rule()),
]


def sample(value: float, **labels: str) -> Sample:
    return Sample("", labels, datetime.now(UTC), value)


def nominal(total: int) -> list[Sample]:
    return [sample(nominal_seats(total, shares, 245), priority_level=name) for name, shares in SHARES.items()]


def found(
    monkeypatch: pytest.MonkeyPatch,
    metrics: dict[str, list[Sample]],
    *,
    version: str = "v1.37.1",
    account: Account = LISTER,
    schemas: list[dict[str, Any]] = SCHEMAS,
    levels: list[dict[str, Any]] = LEVELS,
) -> dict[str, Prerequisite]:
    """The rows by name; `metrics` answers a query that contains the key."""
    objects = {"flowschemas": schemas, "prioritylevelconfigurations": levels}
    monkeypatch.setattr(doctor, "_items", lambda _, plural: objects[plural])
    kubernetes: Any = SimpleNamespace(identity=lambda: SimpleNamespace(server="https://a", version=version))
    answers = [*metrics.items(), ("", [])]
    prometheus: Any = SimpleNamespace(query=lambda text: next(held for key, held in answers if key in text))
    return {row.name: row for row in doctor.check_control_plane(kubernetes, prometheus, account)}


def test_a_stock_server_gives_three_seats_and_says_what_two_take(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = found(monkeypatch, {"nominal_limit_seats": nominal(600)})
    assert rows["seats of a server"].detail == "599 to 600, by its levels' limits"
    two = rows["exactly 2 LISTs at once"]
    assert two.ok
    assert "3 seats for a new level of 1 share on servers of 600" in two.detail
    assert "54 shares more elsewhere (others 140 to 194, its auto-update off)" in two.detail
    assert "servers of 247 to 492 seats" in two.detail


def test_a_small_server_gives_two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = found(monkeypatch, {"nominal_limit_seats": nominal(300)})
    assert rows["exactly 2 LISTs at once"].detail == "a new level of 1 shares, with nothing else changed"


def test_a_client_is_followed_to_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    row = found(monkeypatch, {"nominal_limit_seats": nominal(600)})[f"LIST of secrets by {LISTER.user}"]
    assert row.ok
    assert row.detail == (
        "flow schema service-accounts, level workload-low: 245 seats of a server, and it may borrow more; "
        "24 of the largest LISTs at once"
    )


def test_nothing_holds_a_master_back(monkeypatch: pytest.MonkeyPatch) -> None:
    row = found(monkeypatch, {}, account=MASTER)["LIST of secrets by root"]
    assert (row.ok, "nothing holds it back" in row.detail) == (False, True)


def test_a_schema_that_misses_the_watch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    two = schema_object("two", "two", 1000, [service_account("gameday", "*")], rule("list", "secrets", ""))
    levels = [*LEVELS, level_object("two", 1, borrowingLimitPercent=0)]
    row = found(monkeypatch, {}, schemas=[*SCHEMAS, two], levels=levels)[f"LIST of secrets by {LISTER.user}"]
    assert row.ok is None
    assert "its WATCH goes to level workload-low" in row.detail
    assert "add the verb watch to the rules of two" in row.fix


@pytest.mark.parametrize(
    ("version", "streams"), [("v1.32.9", False), ("v1.33.0", True), ("v1.37.1-gke.1", True), ("?", None)]
)
def test_lists_are_streamed_from_a_release_on(
    monkeypatch: pytest.MonkeyPatch, version: str, streams: bool | None
) -> None:
    assert found(monkeypatch, {}, version=version)["LISTs are streamed"].ok is streams


def test_memory_and_database_are_held_against_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [sample(9e8, instance="a"), sample(5e8, instance="b"), sample(5e8, instance="c")]
    limits = [sample(1e9, instance="a"), sample(1e9, instance="b"), sample(2.0**63, instance="c")]
    rows = found(
        monkeypatch,
        {
            "process_resident_memory_bytes": used,
            "go_gc_gomemlimit_bytes": limits,
            "etcd_mvcc_db_total_size_in_bytes": [sample(7e9, instance="e")],
            "etcd_server_quota_backend_bytes": [sample(8e9, instance="e")],
        },
    )
    assert {name: rows[name].ok for name in "abce"} == {"a": False, "b": True, "c": None, "e": False}
    assert rows["e"].detail == "7.00 GB, 88% of its quota 8.00 GB"


def test_without_metrics_every_answer_that_needs_them_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = found(monkeypatch, {})
    unknown = {name for name, row in rows.items() if row.ok is None}
    assert unknown == {
        "seats of a server",
        f"LIST of secrets by {LISTER.user}",
        "API servers",
        "database",
        "LISTs",
    }
    assert all(row.fix for row in rows.values() if not row.ok)


def test_a_missing_right_costs_its_own_part_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AdapterError("https://a", "forbidden", status=403)

    monkeypatch.setattr(doctor, "_items", refuse)
    kubernetes: Any = SimpleNamespace(
        identity=lambda: SimpleNamespace(server="https://a", version="v1.37.1"),
        explained=lambda _: contextlib.nullcontext(),
    )
    prometheus: Any = SimpleNamespace(query=lambda _: [])
    rows = list(doctor.check_control_plane(kubernetes, prometheus, LISTER))
    assert [row.area for row in rows if row.ok is False] == ["flow control"]
    assert {row.area for row in rows} >= {"memory", "etcd", "clients"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--send-pod"], "looks at no plan and sends no pod"),
        (["gpu-fell-off-the-bus"], "looks at no plan and sends no pod"),
        (["--account", "lister"], "write NAMESPACE/NAME"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert cli.run(["doctor", "--control-plane", *arguments]) != 0
    assert said in capsys.readouterr().err


def test_before_a_load_the_seats_memory_and_etcd_that_it_meets_are_shown() -> None:
    answers = {
        "nominal_limit_seats": [sample(245, priority_level="workload-low"), sample(13, priority_level="catch-all")],
        "resident_memory": [sample(520e6, instance="kube-apiserver-2"), sample(480e6, instance="kube-apiserver")],
    }
    prometheus = SimpleNamespace(query=lambda text: next((held for key, held in answers.items() if key in text), []))
    run: Any = SimpleNamespace(servers=SimpleNamespace(prometheus=prometheus))
    seats, memory, etcd = check_api_servers(run)
    assert (seats.ok, seats.detail) == (True, "catch-all 13, workload-low 245")
    assert (memory.ok, memory.detail) == (True, "kube-apiserver 480 MB, kube-apiserver-2 520 MB")
    assert (etcd.ok, etcd.detail) == (None, "no sample")
    answers.pop("resident_memory")
    assert [row.ok for row in check_api_servers(run)] == [True, False, None], "a run needs the first two"
