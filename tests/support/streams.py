"""The labels of the kernel log's streams, as the collector sets them for deploy/dmesg-shipper."""

KERNEL_LOG = {"k8s_namespace_name": "dmesg-logging", "k8s_daemonset_name": "dmesg"}
