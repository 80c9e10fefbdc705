"""The expectations that a plan may have: a module or folder for each. Pure.

A module here holds a subclass of `Expectation`, with the models of its values; its fields are keys under `expect:` in a
plan. The registry finds it, and packages add theirs (docs/extending.md). An expectation that is more than signals is a
folder: the modules in it judge it, each by a `check` as in `gameday.checks`.
"""
