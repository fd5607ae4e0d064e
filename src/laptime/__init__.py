"""laptime makes PyTorch training faster, proves it, and keeps it fast."""

from laptime.own.loop import epochs
from laptime.own.protocol import Workload

__all__ = ["Workload", "epochs"]
