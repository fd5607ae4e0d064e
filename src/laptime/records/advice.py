"""What to try next, as data (`laptime.advice/1`): findings with numbers, and what was held back with the reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from laptime.records.base import Readable

ADVICE_SCHEMA = "laptime.advice/1"


class RuleHistory(Readable):
    """How a rule has fared in past verified runs.

    Attributes:
        tried: proposals that were run.
        faster: of these, those that really made the step faster, and lost no quality.
        last: how many of the newest decide where there were more, since a rule may have changed; 0 where all do.
        last_faster: as `faster`, of these.
        error: median of |predicted gain - measured gain|, as a share of the step; None where nothing was tried.
        ratio: median of the measured gain over the one that the rule itself said, of its last proposals; a slower
            remedy counts as 0. None where none was measured.
        compared: proposals that `ratio` rests on.
        here: whether all of it is of this machine; else of all machines.
    """

    tried: int = 0
    faster: int = 0
    last: int = 0
    last_faster: int = 0
    error: float | None = None
    ratio: float | None = None
    compared: int = 0
    here: bool = False


class Measured(Readable):
    """What became of a finding that was verified.

    Attributes:
        step_ms: median step of the remedy, interleaved with the advised variant.
        step_ms_before: of the advised variant in the same rounds.
        gain: share of the step that went; negative where it became slower. With its interval of 95 %, where known.
        n: rounds.
        quality_kept: None where quality could not be judged, or the interval holds both.
        quality: what that rests on, in words.
        error: why it was not measured.
    """

    step_ms: float | None = None
    step_ms_before: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    n: int = 0
    quality_kept: bool | None = None
    quality: str = ""
    error: str = ""


class Finding(Readable):
    """One piece of advice.

    Attributes:
        id: name of the rule, and where it speaks of several things one word more (`hot-operator/convolution`).
        what: one sentence: what is slow and what to do.
        evidence: sentences with the numbers that it rests on.
        lines: the user's lines it is about, `train.py:31`.
        step_ms_now: the step that is advised on.
        step_ms_expected: low and high end of the step that the remedy should bring.
        gain: share of the step that should go, low and high end; of the whole epoch's time by step.
        own_gain: the same as the rule itself said it, before its history scaled it and the ceilings cut it; None in
            advice of earlier versions, whose `gain` is that.
        confidence: 0 to 1; from the rule, corrected by its history.
        klass: class of the remedy: exact, numeric, statistical, model; empty where it is no optimization.
        variant: the exact variant to run; empty where the remedy is the user's to write.
        command: what to type, or to write where the remedy is the user's.
        measured_by: what to type once the user's code is changed, to see what that brought; empty where `variant` is
            what to run, and where there is no file of the user's own.
        history: how the rule has fared so far.
        measured: after verification.
    """

    id: str
    what: str
    evidence: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    step_ms_now: float
    step_ms_expected: tuple[float, float]
    gain: tuple[float, float]
    own_gain: tuple[float, float] | None = None
    confidence: float = 0.5
    klass: Literal["exact", "numeric", "statistical", "model", ""] = ""
    variant: str = ""
    command: str = ""
    measured_by: str = ""
    history: RuleHistory = RuleHistory()
    measured: Measured | None = None

    @property
    def rule(self) -> str:
        return self.id.partition("/")[0]


class Withheld(Readable):
    """A rule that fired or could not judge, and why nothing is advised: too small, too noisy, a signal is missing."""

    id: str
    reason: str


class Advice(Readable):
    """All that the rules say about one variant or one trace.

    Attributes:
        subject: the variant, or the trace's file name.
        verdict: the headline: what is most worth doing, that little is left and how much, or that the machine was too
            noisy to judge.
        noise: how far off the middle step may be, over it, without its wait for data where that is known; of one
            epoch its quartile range.
        findings: ranked by gain times confidence.
    """

    schema_: str = Field(default=ADVICE_SCHEMA, alias="schema")
    subject: str = ""
    verdict: str = ""
    step_ms: float | None = None
    noise: float | None = None
    findings: tuple[Finding, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    notices: tuple[str, ...] = ()
