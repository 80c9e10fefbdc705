"""The append-only event log of one run: everything intended, done, seen and undone, and when.

A killed run still leaves a history from which a report can be rendered, so checks and the report read nothing but the
history and the frames.
"""
