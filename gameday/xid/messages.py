"""The driver's messages without an Xid that matter to a node, each with a name of ours.

Their sources are in docs/sources.md, Lines of the driver. `asks` is a repair that the message itself asks for; NONE if
it only says what went wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gameday.xid.catalogue import Remedy

PCI = r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.[0-9a-f])?"
"""The address of a GPU or a switch. Without a domain it is in domain 0, as in `NVRM: GPU 18:00.0: GPU has fallen …`"""
# Newer drivers add the GPU, by a number of their own, and the name of the driver's function.
_FROM = r"NVRM: (?:GPU\d{1,3} )?(?:\w{1,80}: )?"
NAME_BYTE = r"(?:\\x[0-9a-f]{2}|\\(?!x[0-9a-f]{2})|[^\\])"
"""A byte in a process's name: any but NUL; /dev/kmsg and `dmesg` may write one as \\xNN."""
_LONGEST_NAME = 15
"""Bytes in a process's name (TASK_COMM_LEN), with which kernel messages may begin."""


@dataclass(frozen=True, slots=True)
class DriverMessage:
    """A kind of message that the driver writes without an Xid."""

    name: str
    about: str
    asks: Remedy
    forms: tuple[re.Pattern[str], ...]


def _message(name: str, about: str, asks: Remedy, *forms: str) -> DriverMessage:
    return DriverMessage(name, about, asks, tuple(re.compile(form, re.IGNORECASE) for form in forms))


MESSAGES = (
    _message(
        "uvm-fatal",
        "the driver's unified memory has met a fatal error, and asks for a reboot",
        Remedy.REBOOT,
        rf"{_FROM}uvm encountered global fatal error 0x[0-9a-f]{{1,8}}, requiring os reboot to recover",
        r"nvidia-uvm: \w{1,40}\.c:\d{1,6} \w{1,80}\[pid:\d{1,10}\] Encountered a global fatal error: ",
    ),
    _message(
        "gpu-needs-reset",
        "the GPU's firmware (GSP) does not answer again and again, and the driver says that the GPU needs a reset",
        Remedy.GPU_RESET,
        rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{PCI} .{{0,80}}The GPU likely needs to be reset",
        rf"{_FROM}\(the GPU (?:is likely|may be) in a bad state and may need to be reset\)",
    ),
    _message(
        "nvswitch-fatal",
        "an NVSwitch has met an error that its driver cannot recover from",
        Remedy.REBOOT,
        r"nvidia-nvswitch: unrecoverable error in ISR",
        r"nvswitch\d{1,3}\[ERROR ?\]: \w{1,80}: Fatal NXBAR error on link \d{1,3}\. Chip reset required",
    ),
    _message(
        "adapter-failed",
        "the driver cannot start the GPU",
        Remedy.NONE,
        rf"NVRM: (?:GPU {PCI}: )?(?:RmInitAdapter failed!|rm_init_adapter(?:\(\d{{1,3}}\))? failed)",
    ),
    _message(
        "gsp-timeout",
        "the GPU's firmware (GSP) did not answer in time, in a message without an Xid",
        Remedy.NONE,
        rf"{_FROM}\*{{5,80}} GSP Timeout \*{{5,80}}",
        rf"{_FROM}Timeout (?:after \d{{1,9}}m?s )?(?:of )?waiting for (?:GSP )?RPC (?:response )?from "
        r"(?:GPU\d{1,3} )?GSP",
        rf"{_FROM}(?:GPU\d{{1,3}} )?sanity check failed 0x[0-9a-f]{{1,8}} waiting for RPC response from GSP",
    ),
    _message(
        "gsp-rpc-failed",
        "a request to the GPU's firmware (GSP) failed",
        Remedy.NONE,
        rf"{_FROM}rpcSendMessage failed with status 0x[0-9a-f]{{1,8}} for fn \d",
    ),
)
"""All of them; a line belongs to the first that matches its beginning."""
MESSAGE_BY_NAME = {message.name: message for message in MESSAGES}

_ADDRESS = r"(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?|[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])"
# The sixteenth byte cannot be part of a name: it is in an address, the rest of a word, or the name of the driver's
# function.
_OF_THE_DRIVER = re.compile(
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? "
    r"|NVRM: GPU\d{1,3} \w{5,80}: |NVRM: \w{10}"
    r"|NVRM: (?:Xid \(|The NVIDIA GPU |None of the NVIDIA |This PCI I/O region assigned to your NVIDIA )"
    r"|nvidia-nvswitch\d{1,4}: |nvidia-modeset: (?:ERROR|WARNING): |nvidia-uvm: \w{1,40}\.c:\d{1,6} "
    r"|nvidia-peermem \w{1,64}:\d{1,6} ",
    re.IGNORECASE,
)
# Texts after a process's name: kernel/signal.c, mm/oom_kill.c, mm/page_alloc.c, arch/x86/mm/fault.c, fs/drop_caches.c.
_BY_A_NAME = re.compile(
    rf"{NAME_BYTE}{{1,{_LONGEST_NAME}}}?"
    r"(?:\[\d{1,10}\]|/\d{1,10}:| ?\(\d{1,10}\)"
    r"| invoked oom-killer|: page allocation failure|: potentially unexpected)"
)
# The driver writes names, too: `NVRM: nvidia_open: NAME[123] was refused`, `NVRM: API mismatch: the client 'NAME' …`.
_NAMES = re.compile(rf"{NAME_BYTE}{{1,{_LONGEST_NAME}}}\[\d{{1,10}}\]|'[^']{{0,{4 * _LONGEST_NAME}}}'")
LEAST_HEAD = _LONGEST_NAME + 1
"""Characters at the start of a message that only the kernel can have chosen completely."""


def begins_with_a_name(message: str) -> bool:
    """Return True for a message that begins with a process's name, which anybody can choose."""
    return _BY_A_NAME.match(message) is not None


def without_names(message: str) -> str:
    """Return a driver's message without the parts that may be a process's name."""
    return _NAMES.sub(" ", message)


def is_of_the_driver(message: str) -> bool:
    """Return True for a message that begins as only the driver's do, so that the rest is the driver's too."""
    return _OF_THE_DRIVER.match(message) is not None and not begins_with_a_name(message)
