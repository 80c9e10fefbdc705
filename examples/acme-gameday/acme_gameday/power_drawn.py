"""A figure: the highest power that any GPU drew in the run."""

from gameday import Figure, Frames, History, Plan


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    watts = frames.metrics[frames.metrics["metric"] == "DCGM_FI_DEV_POWER_USAGE"]["value"]
    return [] if watts.empty else [Figure(name="highest power of a GPU", unit="W", value=float(watts.max()))]
