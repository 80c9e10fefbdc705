"""Turn (plan, history, frames) on disk into report.html, report.json and verdicts.json. Pure: no client, clock, socket.

`render` still works a year later without a cluster. A section is a module in `sections/` and a template of the same
name in `templates/report/`.
"""
