"""Everything that keeps a game-day from becoming the incident: guardrails, doctor, dry run.

A guardrail is one file in `guardrails/`: a limit and how it is measured. All of them are looked at before anything is
broken, and those that can change again and again while the fault is in.
"""
