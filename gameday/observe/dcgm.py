"""Which dcgm-exporter series a run keeps; the rehearsal at scale scrapes no more than these and the rules'."""

# What a person wants to see of a GPU around a fault; DCGM field names (research/gpu-health.md 7.6).
METRICS = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_XID_ERRORS",
)
