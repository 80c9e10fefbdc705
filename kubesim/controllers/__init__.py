"""The scheduler and the controllers, in one process under two identities.

They follow the behaviour of kube-scheduler and kube-controller-manager closely enough that where pods land,
which taints appear and who is evicted when is as on a real cluster. Decisions are
pure functions over Kubernetes JSON; the classes around them only watch and write.
"""
