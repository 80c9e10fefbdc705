"""Episodes: a quarantined node's way back to service or to a person, by drain, repair ladder and QA gate.

`policy`, `model` and `transitions` are pure. `store` keeps the record in the cluster, `acts` carries out one step, and
`repairer` opens episodes and has each one worked off. There is no Prefect in here.
"""

DEFAULT_TAINT = "trainy.konduktor.ai/faulty=true:NoSchedule"
"""The taint that the node-health controller sets by default."""
