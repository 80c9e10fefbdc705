"""The report's sections, one module each: `ORDER`, `TITLE` and `build(run) -> model`, drawn by its template.

The template has the module's name and is in `templates/report/`; it sees the model as `data`. report.json has the same
content as the model.
"""
