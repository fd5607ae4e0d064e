"""`python -m laptime` is the console script."""

from laptime.console import main

main()
