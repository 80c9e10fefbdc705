"""The node-health controller: a source brings a signal, the policy decides, the worker taints the node."""
