"""A stand-in for kube-state-metrics: the API server's nodes, as metrics."""
