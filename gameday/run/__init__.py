"""One run's context: its plan, its cluster, its journal and ledger, and the ways it may stop.

The steps (`tasks/`) are written against this; it knows no Prefect.
"""
