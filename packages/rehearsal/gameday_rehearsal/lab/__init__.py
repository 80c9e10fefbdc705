"""The lab: a real etcd, kube-apiserver, kube-controller-manager and kube-scheduler on this machine's loopback."""
