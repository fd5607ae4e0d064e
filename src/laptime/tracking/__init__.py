"""Where runs are recorded: one interface, a journal that loses nothing, MLflow and TensorBoard behind it.

Importing this package costs milliseconds: MLflow (2 s) is imported by `laptime.tracking.mlflow` alone, TensorBoard's
writer inside the function that writes.
"""

from __future__ import annotations

from laptime.tracking.base import Tracker
from laptime.tracking.journal import Journal, replay
from laptime.tracking.uri import check_uri, masked

__all__ = ["Journal", "Tracker", "check_uri", "masked", "replay"]
