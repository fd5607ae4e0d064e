"""Traces that torch exported, read without torch: of any size, and boiled down to a summary."""
