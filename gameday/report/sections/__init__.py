"""The report's sections, a module each: `ORDER`, `TITLE` and `build(run) -> model`, drawn by its template.

The template has the module's name and is in `templates/report/`; it sees
the model as `data`. What the model holds is also what report.json says.
"""
