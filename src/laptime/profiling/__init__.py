"""The profiled segment: torch's profiler on steps after the counted epochs, and what becomes of its trace."""
