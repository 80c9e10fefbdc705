"""Xid and SXid: the catalogue, the formats of kernel-log lines, and the decision about each line. Pure."""
