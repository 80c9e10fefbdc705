"""A writer of kernel-log records that needs only sh, cat and sleep: it runs in a pod with an image of somebody else.

The script is always the same. Records reach it as arguments, which no shell parses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gameday.host.kernel_log import encode_record, render_record

PCI_PLACE = "@PCI@"
"""Its first occurrence in a record becomes the address of the node's first GPU, as the driver prints it."""
KMSG, GPUS = "/dev/kmsg", "/proc/driver/nvidia/gpus"
"""The kernel log, and the driver's folder with a folder for each GPU; the driver's /proc is the same in a container."""
NO_GPU = "0000:00:00"
"""The address in the lines of a node where the driver shows no GPU."""

SCRIPT = r"""
kmsg=$1 gpus=$2 mark=$3 pci=0000:00:00 on=
shift 3
for gpu in "$gpus"/*; do
  if [ -e "$gpu" ]; then pci=${gpu##*/} pci=${pci%.*}; break; fi
done
printf 'gpu %s\n' "$pci"
for record in "$mark" "$@"; do
  case $record in *@PCI@*) record=${record%%@PCI@*}$pci${record#*@PCI@} ;; esac
  printf '%s\n' "$record" > "$kmsg" || exit 3
  printf 'wrote %s\n' "$record"
done
{ cat "$kmsg" & reader=$!; sleep 1; kill "$reader"; } 2> /dev/null | while IFS= read -r line; do
  case $line in *"${mark#<*>}"*) on=1 ;; esac
  [ -z "$on" ] || printf 'read %s\n' "$line"
done
"""
"""It writes a mark and then each record, one write(2) each and each ended by a newline, and prints what the kernel log
holds from the mark on. `cat` begins at the oldest record, and waits for new ones at the end, so it is ended after a
second."""


@dataclass(frozen=True)
class Written:
    """The output of the script."""

    gpu: str
    """PCI address of the node's first GPU; NO_GPU if the driver shows none."""
    wrote: tuple[str, ...]
    """Records that were written, without the mark."""
    read: tuple[str, ...]
    """The kernel log from the mark on, as `dmesg` prints it."""

    @property
    def missing(self) -> list[str]:
        """The records that reading did not find."""
        return [one for one in self.wrote if not any(line.endswith(f"] {one.partition('>')[2]}") for line in self.read)]


def writer_command(mark: str, records: Sequence[str]) -> list[str]:
    """Return the command of a container that writes these records, `<N>text` each.

    Args:
        mark: A record that is written first, and that no other line of the kernel log holds.
        records: The records; the first PCI_PLACE in each becomes the GPU's address.

    Raises:
        HostError: The kernel would refuse or split a record.
    """
    for record in (mark, *records):
        encode_record(record.replace(PCI_PLACE, NO_GPU, 1))
    return ["/bin/sh", "-c", SCRIPT, "prove", KMSG, GPUS, mark, *records]


def parse_output(output: str) -> Written:
    """Return what the script printed; lines that it did not print are left out."""
    said = [line.partition(" ") for line in output.splitlines()]
    read = []
    for word, _, rest in said:
        if word == "read":
            try:
                read.append(render_record(rest.encode("utf-8", "replace")))
            except ValueError:
                continue
    return Written(
        gpu=next((rest for word, _, rest in said if word == "gpu"), NO_GPU),
        wrote=tuple(rest for word, _, rest in said if word == "wrote")[1:],
        read=tuple(read),
    )
