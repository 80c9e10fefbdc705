"""One adapter per API of a cluster: Kubernetes, Prometheus, Alertmanager, Loki and others; and the cluster profile."""
