"""The fleet's variability: probes of idle GPUs, what they measure, who is slow, and what that costs."""
