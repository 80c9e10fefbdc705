"""What keeps a game-day from becoming the incident: guardrails, preflight (`gameday doctor`), dry run.

A guardrail is one file in `rails/`: a limit and how it is measured. All of
them are looked at before anything is broken, and those that can change again
and again while the fault is in.
"""
