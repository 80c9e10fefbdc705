"""(plan, history, frames) on disk -> report.html, report.json, verdicts.json. Pure: no client, no clock, no socket.

`render` works a year later with no cluster. A section is a module in
`sections/` and a template of the same name in `templates/report/`.
"""
