"""The free memory of a GPU and its largest piece, as one process can allocate it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class MemoryBlocks(BaseModel):
    """The memory that a process could still allocate, and the largest block that it can get."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    free_bytes: int = Field(gt=0, description="free on the GPU, and unused in the process's own allocator")
    largest_bytes: int = Field(ge=0)

    @property
    def share_percent(self) -> float:
        """The largest block's share of the free memory."""
        return 100 * self.largest_bytes / self.free_bytes
