"""NVML's reasons for a GPU's clock, bits of a mask (nvml.h, nvmlClocksEventReasons), and which of them mean heat."""

from __future__ import annotations

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
"""Clocks at half or less: because of heat, the power brake, or too much power."""
SW_THERMAL = 0x20
"""The driver lowers the clocks: GPU or memory is above its maximum operating temperature."""
HW_THERMAL = 0x40
"""The hardware lowers the clocks: the GPU is at its slowdown temperature."""
HW_POWER_BRAKE = 0x80

THERMAL_SLOWDOWN = SW_THERMAL | HW_THERMAL
"""Reasons that mean heat and nothing else; GPUThermalThrottling fires on these."""
THERMAL_MASK = HW_SLOWDOWN | THERMAL_SLOWDOWN
"""Reasons that may mean heat."""
SLOWDOWNS = {
    HW_SLOWDOWN: "HW slowdown",
    SW_THERMAL: "SW thermal slowdown",
    HW_THERMAL: "HW thermal slowdown",
    HW_POWER_BRAKE: "HW power brake",
}
"""Words for the reasons that are a defect, or a sign of one."""
SLOWDOWN_MASK = sum(SLOWDOWNS)
"""All slowdowns: 0xE8 (docs/sources.md, Pass criteria)."""


def named(mask: int) -> str:
    """Return the words for a mask's slowdowns, separated by commas; empty if there are none."""
    return ", ".join(words for bit, words in SLOWDOWNS.items() if mask & bit)
