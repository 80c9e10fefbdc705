"""The parts of a run: its record, its watches, its ledger, and the ways it may stop.

The steps (`tasks/`) are written against this room, which knows no Prefect.
"""
