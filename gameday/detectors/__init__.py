"""Each detector's answer to each fault, as data: a plan that names a detector gets its expectations here.

A profile is a YAML file, and adding one adds a detector; `profiles/` has the shipped ones. Pure, except for reading
those files.
"""
