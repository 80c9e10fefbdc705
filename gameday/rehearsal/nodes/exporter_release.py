"""dcgm-exporter's releases, by what they write differently (docs/sources.md, dcgm-exporter)."""

from __future__ import annotations

from enum import StrEnum


class ExporterRelease(StrEnum):
    """A release that stands for all that write as it does: those up to it, and after the one named before it."""

    UNCODED = "3.3.5"
    """The last Xid is the value of one series: it has no label for its code."""
    CODED = "4.4.2"
    """Each code of an Xid is a series of its own, with a constant value; a GPU without an Xid has one of code 0."""
    FROM_FIRST_XID = "4.5.3"
    """The same as 4.4.2, but a GPU without an Xid has no such series."""
    LOWER_CASE = "newer"
    """The same as 4.4.2 but for the node, which is in the label `hostname`."""

    @property
    def codes_xids(self) -> bool:
        """Return whether a series of an Xid has the labels `err_code` and `err_msg`."""
        return self is not ExporterRelease.UNCODED

    @property
    def shows_no_xid(self) -> bool:
        """Return whether a GPU that has had no Xid has a series, of the value 0."""
        return self is not ExporterRelease.FROM_FIRST_XID

    @property
    def node_label(self) -> str:
        """The label that holds the node's name."""
        return "hostname" if self is ExporterRelease.LOWER_CASE else "Hostname"
