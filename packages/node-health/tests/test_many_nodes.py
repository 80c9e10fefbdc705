"""A controller of a cluster with more nodes than may wait for it begins all the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gameday.cluster.loki import LogStore
from gameday.cluster.profile import KERNEL_LOG_SELECTOR, Endpoint
from gameday_health import inbox
from gameday_health.api import connect
from gameday_health.controller import Controller
from gameday_health.metrics import Metrics
from gameday_health.model import Taint
from gameday_health.policy_files import load_policy
from gameday_health.sources.build import Servers as Sources
from gameday_health.worker import Options
from tests.health.conftest import LOST, TAINT, Servers, a_cluster, eventually, stamped

WITHIN_S = 20.0


def test_more_nodes_than_may_wait_are_all_known(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "_MOST_WAITING", 2)
    with a_cluster(servers) as cluster:
        for number in range(5):
            cluster.add_node(f"n{number}")
        ready = threading.Event()
        options = Options(
            policy=load_policy("default").policy,
            taint=Taint.parse("trainy.konduktor.ai/faulty=true:NoSchedule"),
            log_selector=KERNEL_LOG_SELECTOR,
            node_label="k8s_node_name",
            namespace="gameday",
        )
        api = connect(Path(cluster.apiserver.ready["kubeconfig"]), "gameday")
        sources = Sources(
            logs=LogStore(Endpoint(url=cluster.loki)),
            prometheus=None,
            alertmanager=None,
            webhook=None,
            node_label="k8s_node_name",
            namespace_label="k8s_namespace_name",
        )
        health = Controller(api, sources, options, Metrics(CollectorRegistry()), ready.set)
        thread = threading.Thread(target=health.run, daemon=True)
        thread.start()
        try:
            assert ready.wait(WITHIN_S)
            cluster.push(stamped(LOST), "n4")
            eventually(lambda: TAINT in cluster.taints("n4"))
        finally:
            health.stop()
            thread.join(WITHIN_S)
        assert not thread.is_alive()
