"""The node-health controller: a source brings a signal, the policy decides, and the worker taints the node."""
