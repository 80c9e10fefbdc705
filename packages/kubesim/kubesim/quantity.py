"""Resource quantities in the real server's canonical form: `0.5` is stored as `500m`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

# apimachinery's resource.Quantity: `Ki`… are powers of 1024, the others of 1000; `e3` is kept as an exponent.
_FORM = re.compile(r"^(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+|)$")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: power for power, suffix in _DECIMAL.items()}
MALFORMED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@lru_cache(maxsize=8192)
def value_of(text: str) -> Decimal:
    """Return the number that a quantity means. Raises ValueError."""
    found = _FORM.match(text)
    if found is None:
        raise ValueError(MALFORMED)
    number, suffix = Decimal(found["number"]), found["suffix"]
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY.index(suffix)
    power = int(suffix[1:]) if suffix[0] in "eE" and len(suffix) > 1 else _POWERS[suffix]
    return number.scaleb(power)


def amount(resource: str, text: object) -> int:
    """Return a quantity in the resource's smallest unit: millicores for cpu, bytes or pieces otherwise.

    Raises:
        ValueError: The text is no quantity; the message names it.
    """
    try:
        return math.ceil(value_of(str(text)) * (1000 if resource == "cpu" else 1))
    except ValueError:
        raise ValueError(f"{text!r} is not a Kubernetes quantity") from None


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    return {resource: amount(resource, text) for resource, text in (quantities or {}).items()}


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """Return a quantity as the real server stores and shows it. Raises ValueError."""
    value = value_of(text)
    suffix = text.lstrip("+-.0123456789")
    if suffix.endswith("i") and abs(value) >= 1024:
        return _binary(int(value.to_integral_value("ROUND_UP")))
    # Nothing smaller than a billionth is kept.
    units = int(value.scaleb(9).to_integral_value("ROUND_UP"))
    power = -9
    while units and units % 1000 == 0 and power < 18:
        units, power = units // 1000, power + 3
    if not units:
        return "0"
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return f"{units}e{power}" if power else str(units)
    return f"{units}{_DECIMAL[power]}"


def _binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power + 1 < len(_BINARY):
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"
