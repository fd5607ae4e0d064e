"""What holds for all findings: a machine too noisy to judge on, and a step with little left to gain."""

from __future__ import annotations

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Abstain, Limit, MissingSignalError, Outcome, known
from laptime.advice.rules.loading import LEAST_WAIT
from laptime.advice.signals import Signals
from laptime.records import busy

MOST_NOISE = 0.10
_HELP = "What helps is a quieter machine, more epochs (--epochs) or, in a ladder, more rounds (--repeats)."
_HELP_BUSY = "What helps is to run it again when nothing else runs here."
_HELP_TRACE = "What helps is a quieter machine or more recorded steps (active=20 in the profiler's schedule)."
_NEAR = 0.70
_NO_WAIT = 0.02


def too_noisy(s: Signals) -> Outcome:
    """All numbers are withheld where steps scatter, or where others used the machine.

    Steps that wait for data scatter by the loader's doing, so their wait is no part of it where it was told apart.
    """
    if s.noise is not None and s.noise > MOST_NOISE:
        within = f"{_above(s.noise, MOST_NOISE)} (advice needs {percent(MOST_NOISE)} or less)"
        return Limit(
            f"The machine was too noisy to judge: steps scatter so that the middle one is known to within "
            f"{within}{_waits_too(s)}. {_HELP_TRACE if s.foreign else _HELP}",
            0.0,
        )
    if busy(s.load, s.cores):
        return Limit(
            f"The machine was too busy to judge: its load was {s.load:.1f} on {s.cores} cores before the run"
            f"{'' if s.noise is None else f' (the middle step is known to within {percent(s.noise)})'}. {_HELP_BUSY}",
            0.0,
        )
    if s.noise is None and (s.load is None or not s.cores):
        raise MissingSignalError("how much steps scatter")
    return None


def _above(share: float, limit: float) -> str:
    """A share above a limit in percent, with a digit more where a whole number would be the limit's own."""
    text = percent(share)
    return text if text != percent(limit) else f"{max(100 * share, 100 * limit + 0.1):.1f} %"


def _waits_too(s: Signals) -> str:
    if s.step_ms is None or s.wait_ms is None or s.wait_quartiles_ms is not None:
        return ""
    if s.wait_ms < LEAST_WAIT * s.step_ms:
        return ""
    return f", of which the wait for data, {ms(s.wait_ms)} of {ms(s.step_ms)} ms, is not told apart here"


def near_the_roof(s: Signals) -> Outcome:
    """Most of the step is what the machine's ceilings allow at best."""
    share, step = known(s.floor_share, "the step at the machine's ceilings"), known(s.step_ms, "the step's time")
    wait = known(s.wait_ms, "the exposed data wait")
    known(s.noise, "how much steps scatter")  # of a few steps, the last of which is shorter, no share holds
    if busy(s.ceilings_load, s.cores):
        return Abstain(
            f"the ceilings were measured on a busy machine (load {s.ceilings_load:.1f} on {s.cores} cores), so they "
            "are too low to judge by"
        )
    if share <= _NEAR or wait > _NO_WAIT * step:
        return None
    if share > 1:
        raise MissingSignalError("a ceiling that holds (this one is exceeded, so it is underestimated)")
    return Limit(
        f"Stop here: the step is at {percent(share)} of what this machine's ceilings allow and waits for no data, so "
        f"at most {percent(1 - share)} is left without fewer operations or another precision, trajectory or net.",
        1 - share,
    )
