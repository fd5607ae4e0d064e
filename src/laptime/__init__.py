"""laptime makes PyTorch training faster, proves it, and keeps it fast."""

from laptime.own_loop import epochs

__all__ = ["epochs"]
