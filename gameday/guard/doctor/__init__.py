"""The prerequisites of a run, each with the next step if it is missing.

One module for each thing that is looked at; `preflight` puts them in order. They only read, but for the agent's pod,
which is sent to a target if the caller allows it.
"""
