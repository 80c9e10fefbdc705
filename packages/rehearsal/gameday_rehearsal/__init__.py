"""The embedded cluster: virtual GPU nodes behind a Kubernetes API, with real observability."""
