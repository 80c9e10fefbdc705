"""A fleet run whose figures find no room: it is stopped, and what it has begun is taken out as after any other stop."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from gameday.run.abort import Abort
from gameday_fleet.probing import Found, Probing


def test_it_is_stopped_in_words() -> None:
    def full(found: Sequence[Found]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    abort = Abort()
    season: Any = SimpleNamespace(abort=abort, stopped="a person stopped it")
    permission: Any = SimpleNamespace(why_not=lambda: "")
    waiting: Any = SimpleNamespace(who="")
    Probing(season, SimpleNamespace(), SimpleNamespace(), permission, waiting, 1.0, full).run(["n1"], 1)  # type: ignore[arg-type]
    said = "the figures are not written: probes.jsonl: no space left on device; make room there"
    assert str(abort.requested).startswith(said)
