"""A stand-in for kube-state-metrics: what the API server says of nodes, as metrics."""
