"""`python -m laptime` is the console script."""

from laptime.cli import main

main()
