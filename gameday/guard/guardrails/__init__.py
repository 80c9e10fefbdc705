"""One guardrail a file; `gameday.guard.registry` finds them."""
