"""An API server's message that etcd has reached its quota, and the remedy."""

from __future__ import annotations

_SAID_BY_ETCD = "database space exceeded"
"""Part of etcd's error "etcdserver: mvcc: database space exceeded" (etcd, api/v3rpc/rpctypes)."""
ETCD_FULL_HINT = (
    "etcd is full, and takes nothing but deletions: give it room (docs/control-plane.md, A full etcd), then run "
    "`gameday reap`"
)


def is_etcd_full(message: str) -> bool:
    """Return True for an API server's message about a write that etcd refused for lack of space."""
    return _SAID_BY_ETCD in message
