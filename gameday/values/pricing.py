"""The price of a GPU's time on a cluster, and how long an outage there would last if no machine noticed it."""

from __future__ import annotations

from pydantic import Field

from gameday.values.models import FrozenModel


class OutageTerms(FrozenModel):
    """The cluster profile's figures for outages at the start of the run."""

    price_per_gpu_hour: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="None: nobody set it")
    currency: str = ""
    hours_until_noticed: float = Field(gt=0, allow_inf_nan=False, description="an assumption, never measured")
