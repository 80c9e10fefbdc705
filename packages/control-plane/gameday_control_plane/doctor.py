"""Find the client that would hurt a control plane, and what would hold it back; it only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from gameday.cluster.custom_resources import list_call
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.prometheus import Prometheus, Sample
from gameday.guard.doctor.prerequisite import Prerequisite, checked_part
from gameday.observe.api_server_metrics import (
    API_SERVER_JOB,
    ETCD_BYTES,
    ETCD_QUOTA_BYTES,
    MEMORY_LIMIT,
    NOMINAL_SEATS,
    REQUESTS,
    RESIDENT_MEMORY,
    RESPONSE_BYTES,
    SEATS_ASKED,
    SERVER_LABEL,
)
from gameday_control_plane.flow_control_seats import (
    Account,
    ExactSeats,
    FlowSchema,
    PriorityLevel,
    Request,
    classify,
    exact_seats,
    share_sum,
    totals_from,
    widest_request,
)

_API = "flowcontrol.apiserver.k8s.io/v1"
_SCRAPE = "scrape the API servers under the job apiserver"
_STREAMED_FROM = (1, 33)  # StreamingCollectionEncodingToJSON and ToProtobuf are on from this release
_STOCK_SEATS = 600  # --max-requests-inflight 400 and --max-mutating-requests-inflight 200
_WIDEST_LIST = 10  # seats of a LIST from the watch cache, of any size (docs/sources.md, API Priority and Fairness)
_NEAR = 0.8  # of a limit, as in EtcdDatabaseNearQuota
_UNLIMITED = 2**62  # bytes; without GOMEMLIMIT Go reports 2^63 - 1
_SEATS_WANTED = 2  # LISTs of the talk's size that one of its servers could bear at once
_LIST_SECRETS = Request("list", "secrets")
_WATCH_SECRETS = Request("watch", "secrets")


def check_control_plane(kubernetes: Kubernetes, prometheus: Prometheus, account: Account) -> Iterator[Prerequisite]:
    """Yield every finding as soon as it is made.

    Args:
        kubernetes: The cluster; its account has to be allowed to list flow schemas and priority levels.
        prometheus: The cluster's Prometheus.
        account: The client that would LIST all Secrets.
    """
    yield from checked_part("kubernetes", _servers(kubernetes))
    yield from checked_part("flow control", _flow_control(kubernetes, prometheus, account))
    yield from checked_part("memory", _memory(prometheus))
    yield from checked_part("etcd", _etcd(prometheus))
    yield from checked_part("clients", _clients(prometheus))


def _servers(kubernetes: Kubernetes) -> Iterator[Prerequisite]:
    identity = kubernetes.identity()
    yield Prerequisite("kubernetes", "answers", True, f"{identity.server}, {identity.version}")
    found = re.match(r"v(\d+)\.(\d+)", identity.version)
    streams = (int(found[1]), int(found[2])) >= _STREAMED_FROM if found else None
    detail = {
        True: "JSON and protobuf are encoded item by item; YAML and Table are still built in memory as a whole",
        False: f"{identity.version} builds every answer in memory as a whole, several times its size",
        None: f"the version {identity.version} is not of Kubernetes' form",
    }[streams]
    fix = "" if streams else "update to 1.33 or newer, or hold LISTs back by a priority level of their own"
    yield Prerequisite("kubernetes", "LISTs are streamed", streams, detail, fix)


def _flow_control(kubernetes: Kubernetes, prometheus: Prometheus, account: Account) -> Iterator[Prerequisite]:
    schemas = [FlowSchema.model_validate(one) for one in _items(kubernetes, "flowschemas")]
    levels = [PriorityLevel.model_validate(one) for one in _items(kubernetes, "prioritylevelconfigurations")]
    yield Prerequisite(
        "flow control",
        "objects",
        True,
        f"{len(schemas)} flow schemas, {len(levels)} levels, {share_sum(levels)} shares",
    )
    nominal = _nominal_seats(prometheus)
    sizes = totals_from(nominal, levels)
    total = _STOCK_SEATS if not sizes or _STOCK_SEATS in sizes else sizes[-1]
    if sizes:
        yield Prerequisite(
            "flow control", "seats of a server", True, f"{sizes[0]} to {sizes[-1]}, by its levels' limits"
        )
    else:
        why = f"its levels' limits are not scraped, or do not fit the objects; {_STOCK_SEATS} are taken for granted"
        yield Prerequisite("flow control", "seats of a server", None, why, _SCRAPE)
    yield _lands(schemas, levels, nominal, account)
    yield _exactly(exact_seats(_SEATS_WANTED, total=total, levels=levels), total, levels)


def _items(kubernetes: Kubernetes, plural: str) -> list[object]:
    with kubernetes.explained(f"list {plural}"):
        answer = list_call(kubernetes.api, _API, plural)(_preload_content=False)
    items: list[object] = json.loads(answer.data)["items"]
    return items


def _nominal_seats(prometheus: Prometheus) -> dict[str, int]:
    """Return nominal seats by level, from the server that has the fewest."""
    found = prometheus.query(f'min by (priority_level) ({NOMINAL_SEATS.name}{{job="{API_SERVER_JOB}"}})')
    return {sample.labels["priority_level"]: int(sample.value) for sample in found}


def _lands(
    schemas: Sequence[FlowSchema], levels: Sequence[PriorityLevel], nominal: dict[str, int], account: Account
) -> Prerequisite:
    """Show where the account's LIST of all Secrets goes, and how many of them run at once there."""
    landed = classify(schemas, levels, account, _LIST_SECRETS)
    watched = classify(schemas, levels, account, _WATCH_SECRETS)
    level = next(one for one in levels if one.name == landed.level)
    name = f"LIST of secrets by {account.user}"
    where = f"flow schema {landed.flow_schema}, level {landed.level}"
    if level.is_exempt:
        return Prerequisite(
            "flow control", name, False, f"{where}: nothing holds it back", "take it out of system:masters"
        )
    if watched.level != landed.level:
        fix = f"add the verb watch to the rules of {landed.flow_schema}: informers list by WATCH from client-go 1.35 on"
        return Prerequisite("flow control", name, None, f"{where}; its WATCH goes to level {watched.level}", fix)
    seats = nominal.get(level.name)
    if seats is None:
        return Prerequisite("flow control", name, None, f"{where}; its seats are not scraped", _SCRAPE)
    widest = min(widest_request(seats, level.hand_size), _WIDEST_LIST) if level.hand_size else _WIDEST_LIST
    more = ", and it may borrow more" if level.borrows else ""
    detail = f"{where}: {seats} seats of a server{more}; {max(1, seats // widest)} of the largest LISTs at once"
    return Prerequisite("flow control", name, True, detail)


def _exactly(found: ExactSeats, total: int, levels: Sequence[PriorityLevel]) -> Prerequisite:
    """Show what a level with exactly this many seats takes here."""
    name = f"exactly {found.seats} LISTs at once"
    if found.shares is not None:
        return Prerequisite(
            "flow control", name, True, f"a new level of {found.shares} shares, with nothing else changed"
        )
    ways = [f"{found.today} seats for a new level of 1 share on servers of {total}"]
    if found.growth is not None:
        largest = max((one for one in levels if not one.is_exempt), key=lambda one: one.shares)
        grown = f"{largest.name} {largest.shares} to {largest.shares + found.growth}"
        ways.append(f"{found.seats} with {found.growth} shares more elsewhere ({grown}, its auto-update off)")
    if found.totals:
        ways.append(f"{found.seats} on servers of {found.totals[0]} to {found.totals[-1]} seats")
    return Prerequisite("flow control", name, found.growth is not None, "; ".join(ways), "add shares to another level")


def _memory(prometheus: Prometheus) -> Iterator[Prerequisite]:
    used = _by_server(prometheus.query(f'{RESIDENT_MEMORY.name}{{job="{API_SERVER_JOB}"}}'))
    limits = _by_server(prometheus.query(f'{MEMORY_LIMIT.name}{{job="{API_SERVER_JOB}"}}'))
    if not used:
        yield Prerequisite("memory", "API servers", None, f"no series {RESIDENT_MEMORY.name} of them", _SCRAPE)
    for server, held in sorted(used.items()):
        limit = limits.get(server, _UNLIMITED)
        if limit >= _UNLIMITED:
            fix = "set GOMEMLIMIT below the memory that the server may have, and a budget for APIServerMemoryHigh"
            yield Prerequisite("memory", server, None, f"{_size(held)}; no GOMEMLIMIT", fix)
        else:
            yield _share("memory", server, held, limit, "GOMEMLIMIT", "gameday doctor's rows on flow control")


def _etcd(prometheus: Prometheus) -> Iterator[Prerequisite]:
    used, quotas = _by_server(prometheus.query(ETCD_BYTES.name)), _by_server(prometheus.query(ETCD_QUOTA_BYTES.name))
    if not used:
        yield Prerequisite(
            "etcd", "database", None, f"no series {ETCD_BYTES.name}", "scrape etcd's --listen-metrics-urls"
        )
    for server, held in sorted(used.items()):
        if quota := quotas.get(server):
            yield _share("etcd", server, held, quota, "its quota", "docs/runbooks/EtcdDatabaseNearQuota.md")


def _share(area: str, name: str, held: float, limit: float, of: str, fix: str) -> Prerequisite:
    ok = held < _NEAR * limit
    return Prerequisite(area, name, ok, f"{_size(held)}, {held / limit:.0%} of {of} {_size(limit)}", "" if ok else fix)


def _clients(prometheus: Prometheus) -> Iterator[Prerequisite]:
    """Show who lists most. API servers do not count LISTs by flow schema; the seats that requests need come closest."""
    job = f'job="{API_SERVER_JOB}"'
    seats = prometheus.query(f"topk(3, sum by (flow_schema) (rate({SEATS_ASKED.name}_sum{{{job}}}[5m]))) > 0")
    lists = f'{job}, verb="LIST"'
    listed = prometheus.query(f"topk(3, sum by (resource) (rate({RESPONSE_BYTES.name}_sum{{{lists}}}[5m]))) > 0")
    rates = {
        sample.labels.get("resource", ""): sample.value
        for sample in prometheus.query(f"sum by (resource) (rate({REQUESTS.name}{{{lists}}}[5m]))")
    }
    if not seats and not listed:
        yield Prerequisite("clients", "LISTs", None, "no series of the API servers' requests", _SCRAPE)
        return
    asked = ", ".join(f"{one.labels.get('flow_schema', '')} {one.value:.1f}" for one in seats)
    yield Prerequisite("clients", "flow schemas by seats asked a second", True, asked or "none")
    resources = [(one.labels.get("resource", ""), one.value) for one in listed]
    said = ", ".join(f"{name} {_size(size)}/s in {rates.get(name, 0.0):.2f} LISTs/s" for name, size in resources)
    yield Prerequisite("clients", "resources by bytes listed", True, said or "none")


def _by_server(samples: Sequence[Sample]) -> dict[str, float]:
    return {sample.labels.get(SERVER_LABEL, ""): sample.value for sample in samples}


def _size(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
