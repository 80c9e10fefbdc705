"""The append-only event log of one run: what was meant, done, seen and undone, and when.

A run that is killed at any instant still leaves a history a report can be
rendered from, so nothing that a check or the report needs may live anywhere
else but here and in the frames.
"""
