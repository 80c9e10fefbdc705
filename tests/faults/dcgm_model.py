"""Hosts and holds for the faults on DCGM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from gameday.faults.dcgm_field import FIELDS, DcgmFieldParameters
from gameday.host.base import ProgramResult
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

TEMPERATURE, XID, REMAP = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ROW_REMAP_FAILURE"


def of(field: str, value: float | None = None, **more: object) -> DcgmFieldParameters:
    return DcgmFieldParameters.model_validate({"field": field, "value": value} | more)


def cached(host: ModelHost, field: str, gpu: int = 0) -> float | None:
    return host.machine.cache.latest((0, gpu), FIELDS[field].id)


class Held(threading.Event):
    """Ends a hold after some turns, each of which lets time pass and looks at the cache."""

    def __init__(self, turns: int, turn: Callable[[], None]) -> None:
        super().__init__()
        self.turns, self.turn = turns, turn

    def wait(self, timeout: float | None = None) -> bool:
        if not self.turns or timeout is None:
            return True
        self.turns -= 1
        self.turn()
        return False


def answering(answers: dict[str, ProgramResult]) -> FakeHost:
    """A host whose dcgmi answers by the first argument that is a key, or well and nothing; there is no crictl."""
    host = FakeHost()
    answers |= {"crictl": result(["crictl"], 127)}

    def answer(argv: Sequence[str]) -> ProgramResult:
        return next((answers[word] for word in argv if word in answers), result(argv))

    host.programs = answer
    return host
