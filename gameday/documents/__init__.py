"""YAML files read into pydantic models; every problem has a line and a suggestion."""
