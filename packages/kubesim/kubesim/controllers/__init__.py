"""The scheduler and the controllers, in one process under two identities.

They follow kube-scheduler and kube-controller-manager closely enough that pods land, taints appear and pods are evicted
as on a real cluster. Decisions are pure functions over Kubernetes JSON; the classes around them only watch and write.
"""
