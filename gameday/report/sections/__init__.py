"""One module per section of the report: `ORDER`, `TITLE` and `build(run) -> model`, drawn by its template.

The template has the module's name and stands in `templates/report/`; it sees
the model as `data`. What the model holds is also what report.json says.
"""
