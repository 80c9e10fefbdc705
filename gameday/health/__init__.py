"""The node-health controller: detect (follow, recognise) → decide (`gameday.xid.decide`) → quarantine (write)."""
