"""The rehearsal cluster's scheduler and controllers, in one process under two identities.

They follow the behaviour of kube-scheduler and kube-controller-manager closely enough that what a game-day observes
(where pods land, which taints appear, who is evicted when) is what it would observe on a real cluster. Decisions are
pure functions over Kubernetes JSON; the classes around them only watch and write.
"""
