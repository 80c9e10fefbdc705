"""Hints for a person about refusals of the API server."""

from __future__ import annotations

import json

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster.kube_errors import explained
from gameday.errors import KubernetesError


@pytest.mark.parametrize(
    ("message", "hint"),
    [("etcdserver: mvcc: database space exceeded", "A full etcd"), ("etcdserver: request timed out", "")],
)
def test_a_full_etcd_says_what_helps_and_no_other_500_does(message: str, hint: str) -> None:
    error = ApiException(status=500, reason="Internal Server Error")
    error.body = json.dumps({"message": message})
    with pytest.raises(KubernetesError) as failed, explained("https://fake", "create lease x"):
        raise error
    assert message in failed.value.cause
    assert hint in failed.value.hint
    assert bool(failed.value.hint) == bool(hint)
