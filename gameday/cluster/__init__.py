"""The adapters of a cluster's APIs, such as Kubernetes, Prometheus and Loki, and the cluster profile."""
