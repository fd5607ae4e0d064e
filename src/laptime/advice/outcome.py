"""What a rule says of some signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from laptime.advice.signals import Signals

Klass = Literal["exact", "numeric", "statistical", "model", ""]
T = TypeVar("T")


@dataclass(frozen=True)
class Proposal:
    """A rule fired.

    Attributes:
        id: the rule's name, with one word more where it speaks of several things.
        what: one sentence: what is slow and what to do.
        evidence: sentences with the numbers it rests on.
        gain_ms: low and high end of what should go, of `base_ms`.
        confidence: 0 to 1, before the rule's history.
        remedy: the optimization that does it, as `name:option=value`; empty where laptime has none.
        code: what a user writes in a loop of his own.
        klass: of the remedy where it is no optimization; an optimization's is the catalogue's.
        base_ms: what `gain_ms` is a part of; None for the step. Others are of the whole epoch, by step.
        lines: the user's lines it is about.
    """

    id: str
    what: str
    evidence: tuple[str, ...]
    gain_ms: tuple[float, float]
    confidence: float
    remedy: str = ""
    code: str = ""
    klass: Klass = ""
    base_ms: float | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """Worth knowing, with no step time to promise.

    Attributes:
        timed: whether it holds times of the step, which a machine too noisy to judge does not give.
    """

    text: str
    timed: bool = False


@dataclass(frozen=True)
class Abstain:
    """The rule can't judge, or what it would propose is no use here; `reason` completes a sentence."""

    reason: str


@dataclass(frozen=True)
class Limit:
    """Holds for all other findings: the machine was too noisy, or little is left.

    Attributes:
        verdict: the headline.
        left: share of the step that exact remedies can still take away; 0 withholds every finding.
    """

    verdict: str
    left: float


Outcome: TypeAlias = Proposal | Note | Limit | Abstain | None
Rule = Callable[[Signals], Outcome]


class MissingSignalError(Exception):
    """A rule needs a signal that is not there; its text names the signal."""


def known(value: T | None, what: str) -> T:
    """The value of a signal.

    Raises:
        MissingSignalError: it is not known, so the rule abstains.
    """
    if value is None:
        raise MissingSignalError(what)
    return value


def lines_of(*sources: str) -> tuple[str, ...]:
    """Source lines without the empty ones and doubles, three at most."""
    return tuple(dict.fromkeys(s for s in sources if s))[:3]
