"""The sources of signals beside the kernel log. Each has its own thread, and decides nothing."""
