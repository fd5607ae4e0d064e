"""The gate: does head train slower than base? The verdict alone costs neither torch nor half a second of imports."""

from laptime.gate.decision import Verdict, decide
from laptime.gate.policy import Policy

__all__ = ["Policy", "Verdict", "decide"]
