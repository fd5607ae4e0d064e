"""How many rounds a trial by turns takes: a few of long passes, and as many more of short ones as a moment holds.

The share of a pass that is fixed came out of three rounds of passes of milliseconds with a standard deviation of 0.1 to
1.1, beside other processes (docs/log.md, 2026-11-29).
"""

from __future__ import annotations

_SETTLED_S = 0.4


def worth_another(done: int, enough: int, spent_s: float, budget_s: float) -> bool:
    """Whether one more round is worth its time.

    Args:
        done: rounds that count so far.
        enough: of rounds that take long; short ones go on until all together took a moment.
        spent_s: on them and what came before them.
        budget_s: after which none is begun.
    """
    return spent_s < (budget_s if done < enough else min(budget_s, _SETTLED_S))
