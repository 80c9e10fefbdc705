"""The figures of a run, one module each: `figures(plan, history, frames) -> list[Figure]`, pure.

`gameday.report.figure` finds them.
"""
