"""Words in braces in a guest's command and environment, which the rehearsal fills in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Placeholder(StrEnum):
    """A value that is known only when the guest starts."""

    NODE = "node"
    """Name of the node that the process watches."""
    KMSG = "kmsg"
    """Pipe that reads like the node's /dev/kmsg."""
    KERNEL_LOG = "kernel_log"
    """The node's kernel log as rsyslog writes it."""
    NVML_CONFIG = "nvml_config"
    """Configuration of NVIDIA's mock NVML library that shows the node's GPUs."""
    PORT = "port"
    """A free port on 127.0.0.1, another one at each start."""
    STATE = "state"
    """A private folder of the process, which is kept while the node reboots."""
    KUBECONFIG = "kubeconfig"
    """Kubeconfig of the guest's own service account."""
    LOKI_URL = "loki_url"
    """The log store."""
    PROMETHEUS_URL = "prometheus_url"
    """Prometheus."""
    METRICS_URL = "metrics_url"
    """The metrics of every node's dcgm-exporter."""
    HOSTS_URL = "hosts_url"
    """The virtual hosts' HTTP address; a node's is below it, under its name."""
    FOLDER = "folder"
    """Folder of the guest's file; for a command line, the folder where gameday was called."""


PER_NODE = frozenset({Placeholder.NODE, Placeholder.KMSG, Placeholder.KERNEL_LOG, Placeholder.NVML_CONFIG})
"""The placeholders with a different value on each node."""


class UnknownPlaceholderError(ValueError):
    """A text has a brace that belongs to no placeholder; the message lists the placeholders."""


def placeholders(text: str) -> Iterator[Placeholder]:
    """Yield the placeholders in a text.

    Raises:
        UnknownPlaceholderError: It has a brace that belongs to none.
    """
    for found in _PART.finditer(text):
        if found[0] in ("{{", "}}"):
            continue
        if found[1] not in list(Placeholder):
            known = " ".join(f"{{{one}}}" for one in Placeholder)
            raise UnknownPlaceholderError(
                f"{found[0]} is not a placeholder; there are {known}; write {{{{ and }}}} for braces of your own"
            )
        yield Placeholder(found[1])


def fill(text: str, values: Mapping[Placeholder, str]) -> str:
    """Return a checked text with its placeholders filled in; those without a value stay."""

    def value(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        return values.get(Placeholder(found[1]), found[0])

    return _PART.sub(value, text)
