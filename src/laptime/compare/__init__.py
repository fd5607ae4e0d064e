"""Speed-ups with intervals, quality parity, plots and reports, from records alone: neither torch nor MLflow.

Names are imported when first used, so that reading a comparison costs no more than pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laptime.compare.comparison import compare, compare_records
    from laptime.compare.model import Comparison
    from laptime.compare.write import write_comparison

__all__ = ["Comparison", "compare", "compare_records", "write_comparison"]

_HOMES = {
    "Comparison": "model",
    "compare": "comparison",
    "compare_records": "comparison",
    "write_comparison": "write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
