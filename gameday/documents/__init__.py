"""YAML files read into pydantic models; every problem has a line and, if possible, a suggestion."""
