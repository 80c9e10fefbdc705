"""The guardrails, one per file; `gameday.guard.registry` finds them."""
