"""Everything that keeps a game-day from becoming the incident: guardrails, doctor, dry run.

A guardrail is one file in `guardrails/`: a limit and how it is measured. All of them are checked before anything is
broken; those that can change are checked again and again while the fault is in.
"""
