"""Xid and SXid: catalogue, kernel-log line formats, and what each line asks for. Pure; imports nothing of ours."""
