"""Plan, run, publish: what the command line and the flows share. Never reaches torch.

The names below are looked up when they are asked for: `scripts/bench gpu` uses the plan, the probe and the data of this
package on machines that have torch alone, and not what compares and tracks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laptime.ladder.opening import open_ladder
    from laptime.ladder.prepare import check_plan, check_request, prepare_data
    from laptime.ladder.request import LadderRequest, make_request, settled_preset
    from laptime.ladder.resume import resume_ladder
    from laptime.ladder.run import Ladder
    from laptime.ladder.single import plan_single
    from laptime.ladder.turn import Turn

__all__ = [
    "Ladder",
    "LadderRequest",
    "Turn",
    "check_plan",
    "check_request",
    "make_request",
    "open_ladder",
    "plan_single",
    "prepare_data",
    "resume_ladder",
    "settled_preset",
]

_HOMES = {
    "opening": ("open_ladder",),
    "prepare": ("check_plan", "check_request", "prepare_data"),
    "request": ("LadderRequest", "make_request", "settled_preset"),
    "resume": ("resume_ladder",),
    "run": ("Ladder",),
    "single": ("plan_single",),
    "turn": ("Turn",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"laptime.ladder.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
