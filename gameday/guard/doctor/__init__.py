"""The prerequisites of a run, each with the next step if it is missing.

There is one module per subject; `preflight` puts them in order. They only read, except for the agent's pod, which is
sent to a target if the caller allows it.
"""
