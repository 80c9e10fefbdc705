"""The parts of a run: its record, its watches, its ledger, and the ways in which it may stop.

The steps (`tasks/`) use this room, which does not know Prefect.
"""
