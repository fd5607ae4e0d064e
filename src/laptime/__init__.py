"""laptime makes PyTorch training faster, proves it, and keeps it fast."""

from laptime.own_loop import epochs
from laptime.protocol import Workload

__all__ = ["Workload", "epochs"]
