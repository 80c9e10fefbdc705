"""Two controller processes, of which one leads: its death, its end, and its sleep."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.cluster.custom_resources import list_call
from gameday.cluster.watch import Follower
from gameday_health.leading import LEADING_CONTROLLER
from tests.health.conftest import KEY, LOST, Cluster, Process, Servers, a_cluster, await_taint, eventually, stamped
from tests.support.ports import free_ports

pytestmark = pytest.mark.slow
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/gameday/leases/{LEADING_CONTROLLER}"
SHORT_S = 6
"""A claim's duration for tests that wait for its end: longer than a busy machine keeps a process waiting."""


class Standby(Process):
    """A controller that starts while another one leads."""

    def await_lead(self, within_s: float) -> None:
        """Wait until it leads; its `ready` is that of the leader then."""
        assert self.running is not None and self.running.stdout is not None
        stdout, lines = self.running.stdout, list[str]()
        reader = threading.Thread(target=lambda: lines.append(stdout.readline()), daemon=True)
        reader.start()
        reader.join(within_s)
        assert lines and '"ready": true' in lines[0], "the standby did not take the lead in time"


def leader_gauge(process: Process) -> float:
    text = httpx.get(process.ready["metrics"], trust_env=False).text
    (value,) = [line.split()[1] for line in text.splitlines() if line.startswith("gameday_health_leader ")]
    return float(value)


@contextmanager
def two_controllers(
    servers: Servers, nodes: int, *options: str, standby_options: Sequence[str] = ()
) -> Iterator[tuple[Cluster, Standby]]:
    """Yield a cluster with a controller that leads, and a second controller that stands by."""
    with ExitStack() as stack:
        cluster = stack.enter_context(a_cluster(servers, "--leader-election", *options))
        standby = Standby(*cluster.health.command[2:], *standby_options)
        stack.callback(cluster.api.request, "DELETE", LEASE)
        stack.callback(standby.stop, kill=True)
        for number in range(nodes):
            cluster.add_node(f"n{number}")
        cluster.health.start()
        assert "ready" in cluster.health.ready
        standby.start()
        assert "standby" in standby.ready
        yield cluster, standby


@contextmanager
def taintings(cluster: Cluster) -> Iterator[Counter[str]]:
    """Yield how often each node got the taint, by its name in the test."""
    found: Counter[str] = Counter()
    tainted: set[str] = set()
    names = {node: name for name, node in cluster.names.items()}

    def change(_kind: str, node: dict[str, Any]) -> None:
        name = names.get(node["metadata"]["name"], "")
        is_tainted = any(taint["key"] == KEY for taint in node["spec"].get("taints") or [])
        found[name] += is_tainted and name not in tainted
        (tainted.add if is_tainted else tainted.discard)(name)

    with Follower(list_call(cluster.api.client, "v1", "nodes"), change, lambda node: node) as watch:
        assert watch.wait_synced()
        yield found


def give_back(cluster: Cluster, node: str) -> None:
    """Take the taint off as a person does, and wait until the leader has seen it."""
    cluster.patch_node(node, {"spec": {"taints": None}})
    eventually(lambda: cluster.reason(node) is None)


def test_no_line_is_lost_and_no_node_tainted_twice_when_the_leader_is_killed(servers: Servers) -> None:
    with (
        two_controllers(servers, 16, "--claim-seconds", str(SHORT_S)) as (cluster, standby),
        taintings(cluster) as seen,
    ):
        assert (leader_gauge(cluster.health), leader_gauge(standby)) == (1, 0)
        faulty = [f"n{number}" for number in range(8)]
        for node in faulty[:2]:
            cluster.push(stamped(LOST), node)
            await_taint(cluster, node)
        give_back(cluster, faulty[0])
        stop = threading.Event()

        def write_lines() -> None:
            for node in faulty[2:]:
                cluster.push(stamped(LOST), node)
                stop.wait(SHORT_S / 4)

        writer = threading.Thread(target=write_lines)
        writer.start()
        await_taint(cluster, faulty[2])
        cluster.health.stop(kill=True)
        standby.await_lead(4 * SHORT_S)
        writer.join()
        for node in faulty[1:]:
            await_taint(cluster, node)
        assert cluster.taints(faulty[0]) == []
        eventually(lambda: seen.total() == len(faulty))
        assert seen == Counter(faulty)
        assert leader_gauge(standby) == 1


POLICY = """\
kind: HealthPolicy
name: ours
about: What the catalogue calls for, and one alert.
rules:
  - {name: hardware, kernel_log: {catalogue: [quarantine]}, response: quarantine}
  - {name: too-hot, alert: {names: [TooHot], node_label: node}, response: quarantine}
"""


def send_alert(port: int, node: str) -> int:
    alert = {"status": "firing", "labels": {"alertname": "TooHot", "node": node}, "startsAt": f"{datetime.now(UTC)}"}
    url = f"http://127.0.0.1:{port}/alerts"
    return httpx.post(url, json={"alerts": [alert]}, trust_env=False).status_code


def test_a_leader_that_is_stopped_hands_over_before_its_claim_ends(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(POLICY)
    ports = free_ports(2)
    claim = ("--claim-seconds", "120")
    options = [("--policy", str(tmp_path / "ours.yaml"), "--alert-port", str(port), *claim) for port in ports]
    with two_controllers(servers, 3, *options[0], standby_options=options[1]) as (cluster, standby):
        cluster.push(stamped(LOST), "n0")
        await_taint(cluster, "n0")
        give_back(cluster, "n0")
        with pytest.raises(httpx.ConnectError):
            send_alert(ports[1], cluster.named("n2"))
        assert cluster.health.stop() == 0
        cluster.push(stamped(LOST), "n1")
        standby.await_lead(40)
        await_taint(cluster, "n1")
        assert send_alert(ports[1], cluster.named("n2")) == 200
        await_taint(cluster, "n2")
        assert cluster.taints("n0") == []


def test_a_leader_that_slept_past_its_claim_ends_and_writes_nothing(servers: Servers) -> None:
    with two_controllers(servers, 1, "--claim-seconds", str(SHORT_S)) as (cluster, standby):
        sleeper = cluster.health.running
        assert sleeper is not None
        sleeper.send_signal(signal.SIGSTOP)
        cluster.push(stamped(LOST), "n0")
        standby.await_lead(4 * SHORT_S)
        await_taint(cluster, "n0")
        give_back(cluster, "n0")
        before = cluster.node("n0")
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(10) == 75
        assert cluster.node("n0") == before
