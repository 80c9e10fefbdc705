"""The ways to repair a node, one file each; `registry` finds every `Remediation` in here."""
