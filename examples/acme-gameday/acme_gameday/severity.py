"""Every alert that fired must carry a severity, because ours are routed by it."""

from gameday import Frames, History, Plan, Status, Step, Verdict

ORDER = 36


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Judge the alerts table: one row for each scrape of ALERTS, with the columns of docs/report.md."""
    fired = frames.alerts[frames.alerts["state"] == "firing"]
    without = sorted(fired[fired["severity"].fillna("") == ""]["alert"].unique())
    status = Status.UNKNOWN if fired.empty else Status.BROKEN if without else Status.HELD
    return [
        Verdict(
            check="acme-severity",
            expectation="Every alert that fires carries a severity",
            status=status,
            step=Step.AWAIT_ALERT,
            why="no alert was recorded" if fired.empty else ", ".join(without),
        )
    ]
