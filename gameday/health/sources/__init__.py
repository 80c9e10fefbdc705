"""The sources of signals beside the kernel log. Each has a thread of its own, and decides nothing."""
