"""The message for a container without NVML."""

from __future__ import annotations

NO_LIBRARY_HINT = (
    "the driver's libraries are neither in this container nor where it sees the host; set agent_runtime_class in the "
    "cluster profile or, if the GPU operator uses NRI, allow our namespace (docs/install.md, GPUs in our pods)"
)
