"""The scripts. A script drives one server through a `Client` and may use nothing that only one of the servers has."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from tests.kubesim.conformance.exchange import Client

Script = Callable[[Client], None]

_SCRIPTS: dict[str, Script] = {}


def script(function: Script) -> Script:
    """Register a script; its name is the function's, its golden lies in golden/<name>.json."""
    name = function.__name__
    if name in _SCRIPTS:
        raise ValueError(f"there are two scripts named {name}")
    _SCRIPTS[name] = function
    return function


def all_scripts() -> dict[str, Script]:
    """Every script by name, from every module beside this one."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_SCRIPTS.items()))
