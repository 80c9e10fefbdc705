from __future__ import annotations

from tests.deploy.test_manifests import _granted


def test_the_post_mortems_account_can_read_its_node_and_events_and_do_nothing_else() -> None:
    assert _granted("gameday-post-mortem") == {
        ("", "", "nodes", "get"),
        ("", "", "namespaces", "get"),
        ("default", "", "events", "list"),
    }
