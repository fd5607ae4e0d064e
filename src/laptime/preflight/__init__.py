"""Looks before a ladder, each in a process of its own: at the machine, at a user's file, at how much fits."""
