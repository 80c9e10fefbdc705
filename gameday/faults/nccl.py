"""NCCL's variables that a team can get wrong: their values, their cost, and the canary that shows it.

All of it is from NCCL's own documentation (docs/sources.md, NCCL variables).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from gameday.documents.fields import conflict
from gameday.plan.fault import FaultParameters

_LEVEL = r"LOC|NVL|PIX|PXB|PHB|SYS|[0-5]"
_NAMES = r"[\^=]{0,2}[A-Za-z0-9_.:,-]{1,120}"


@dataclass(frozen=True)
class Variable:
    """An environment variable of NCCL."""

    values: str
    """The values that NCCL accepts, as a pattern."""
    example: str
    costs: str
    shows: str
    """The single-node canary that gets slower."""


_BEST = "all-reduce"
_NETWORK = "with path: network"
VARIABLES = {
    "NCCL_IB_DISABLE": Variable("0|1", "1", "no RDMA: sockets instead of InfiniBand", _NETWORK),
    "NCCL_P2P_DISABLE": Variable("0|1", "1", "no NVLink and no PCIe peer to peer: shared memory instead", _BEST),
    "NCCL_P2P_LEVEL": Variable(_LEVEL, "LOC", "LOC: as NCCL_P2P_DISABLE=1", _BEST),
    "NCCL_SHM_DISABLE": Variable(
        "0|1", "1", "no shared memory: the network between GPUs of one node", "with NCCL_P2P_DISABLE=1"
    ),
    "NCCL_IB_HCA": Variable(
        _NAMES, "=mlx5_99", "adapters: none fits, or one rail only (`=` exact, `^` all but, else a prefix)", _NETWORK
    ),
    "NCCL_SOCKET_IFNAME": Variable(_NAMES, "=doesnotexist", "no interface to start on: every job fails", _BEST),
    "NCCL_IB_TIMEOUT": Variable(
        r"[0-9]{1,2}", "1", "4.096 µs × 2^n until a retry (default 20); 0, or 32 and more: a hang without end", _NETWORK
    ),
    "NCCL_IB_RETRY_CNT": Variable("[0-7]", "1", "retries until a transport error (default 7)", _NETWORK),
    "NCCL_IB_GID_INDEX": Variable(r"-1|[0-9]{1,3}", "99", "the wrong address of a RoCE port: connect fails", _NETWORK),
    "NCCL_NET_GDR_LEVEL": Variable(_LEVEL, "LOC", "no GPUDirect RDMA: through host memory", _NETWORK),
    "NCCL_ALGO": Variable(r"\^?[A-Za-z,:]{3,60}", "Tree", "another algorithm, most often a slower one", _BEST),
    "NCCL_PROTO": Variable(r"\^?[A-Za-z0-9,]{2,30}", "LL", "another protocol; LL halves the bandwidth", _BEST),
    "NCCL_MAX_NCHANNELS": Variable(r"[1-9][0-9]?", "1", "fewer channels, less bandwidth", _BEST),
    "NCCL_IB_RETURN_ASYNC_EVENTS": Variable(
        "0|1", "0", "fatal events of the adapter do not reach the job", "nothing, until an adapter fails"
    ),
}


def _as_text(value: object) -> object:
    """Return a number as text: NCCL reads text, and YAML reads 1 as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _are_known(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if name not in VARIABLES:
            near = difflib.get_close_matches(name[:64].upper(), VARIABLES, n=1)
            meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(VARIABLES)}"
            raise conflict((name,), f"NCCL has no variable of this name, and would ignore it; {meant}")
        wanted = VARIABLES[name]
        if not re.fullmatch(wanted.values, value):
            raise conflict((name,), f"NCCL does not take this; write it like {wanted.example!r}")
    return variables


_Value = Annotated[str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "integer"]})]


class NcclParameters(FaultParameters):
    """Base of the parameters of faults that set NCCL variables."""

    variables: Annotated[dict[str, _Value], Field(min_length=1, max_length=14), AfterValidator(_are_known)]
    """NCCL variables and their values; one that NCCL does not know is refused."""


def table() -> str:
    """Return the variables as a Markdown table."""
    head = "| variable | like | what it costs | which canary shows it on one node |\n|---|---|---|---|\n"
    rows = (f"| `{name}` | `{one.example}` | {one.costs} | {one.shows} |\n" for name, one in VARIABLES.items())
    return head + "".join(rows)
