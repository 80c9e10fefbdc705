"""Each detector's answer to each fault, as data: a plan that names a detector gets its expectations here.

A profile is a YAML file (`profiles/` holds the shipped ones); a detector is
added by adding one. Pure but for reading those files.
"""
