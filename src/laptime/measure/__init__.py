"""Time, memory and the machine, measured at a cost that is known."""
