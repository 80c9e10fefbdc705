"""A stand-in for Loki: push, query_range and tail, with the part of LogQL that detectors use.

Differences from Loki, on purpose: pushes are JSON only; queries are log queries without parsers or formatters; there
is one tenant; patterns are Python's `re` instead of RE2 (see `logql`).
"""
