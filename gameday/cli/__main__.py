"""`python -m gameday.cli`: the console script without an installed one."""

from gameday.cli import main

main()
