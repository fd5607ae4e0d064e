"""Reads traces that torch's profiler exported, of any size, without torch."""

from laptime.trace.summary import summarize

__all__ = ["summarize"]
