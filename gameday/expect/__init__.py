"""The expectations that a plan may have: a module or folder for each. Pure.

A module here holds a subclass of `Expectation`, whose fields are keys under `expect:` in a plan, with the models of
their values. The registry finds it, and packages add theirs (docs/extending.md).
"""
