"""The training itself: a spec becomes parts, parts run epochs."""
