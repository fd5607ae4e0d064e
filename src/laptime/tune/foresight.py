"""What a search would try first, as far as that is known before this machine and the data are probed."""

from __future__ import annotations

import sys

from laptime.catalogue import find_workload
from laptime.compare.quality import Rules
from laptime.durations import in_time
from laptime.host.processes import allowed_cores
from laptime.ladder.climb import Climb, Standing
from laptime.ladder.plan import make_plan, unfit
from laptime.ladder.request import LadderRequest, settled_preset
from laptime.records import ProbeRecord
from laptime.tune.moves import Around, moves_from
from laptime.variants import baseline_of


def too_short(budget_s: float, since: str) -> str:
    """That a budget is too small for any change, without a full stop."""
    return f"the budget of {in_time(budget_s)} holds no change, since {since}: give a larger one (--budget)"


def foreseen(request: LadderRequest, device: str) -> tuple[str, ...]:
    """The changes of the optimized list, in the order in which a search tries them where advice says nothing.

    Raises:
        UsageError: a workload or preset that does not exist.
    """
    entry, preset = find_workload(request.workload), settled_preset(request)
    plan = make_plan(device, preset, None, ProbeRecord(refusals=unfit(entry, device, preset.limit_train)), entry.name)
    whole, _ = Climb(plan, Standing(baseline_of(device)), Rules(0.0, False, 0)).optimized()[0]
    # Nobody knows how many samples a workload of the user's own has before a look into its file.
    samples = preset.limit_train or entry.train_count or sys.maxsize
    around = Around(plan, allowed_cores(), samples, entry.batch_size, entry.name)
    return tuple(move.text for move in moves_from(whole.optimizations, around))
