"""The faults, one file each, and what they share; `registry` finds every `Fault` in here."""
