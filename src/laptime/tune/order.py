"""In which order a search tries its moves: first what the profile advises, by the gain that it promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laptime.compare.statistics import mean_ratio
from laptime.ladder.advising import first_done, mine_of, over_rounds, the_rules
from laptime.records import Finding, SearchMove
from laptime.tune.moves import Around, Chosen, Move, advised_move, same

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder

Gain = tuple[float, float]


class Order:
    """What the rules say about the variant that a search begins with, as moves.

    Without the rules' record in past runs: that grows, and a search that is gone on with is to try the same again.

    Args:
        ladder: with the variant's first process.
        start: the variant's name.
    """

    def __init__(self, ladder: Ladder, start: str) -> None:
        self.proposed: dict[str, Gain] = {}
        for finding in _findings(ladder, start):
            text = finding.variant.rpartition("+")[2]
            if text and text not in self.proposed:
                self.proposed[text] = finding.gain

    def ordered(self, moves: Sequence[Move], chosen: Chosen, around: Around) -> list[tuple[Move, Gain | None]]:
        """Advised moves by the gain that advice promises, then the others as they came; each with that gain."""
        advised: dict[str, tuple[Move, Gain]] = {}
        for text, gain in sorted(self.proposed.items(), key=lambda item: -sum(item[1])):
            move = advised_move(text, chosen, around)
            if move is not None:
                advised[move.text] = (move, gain)
        known = [move.after for move, _ in advised.values()]
        rest = [(move, None) for move in moves if not any(same(move.after, after, around) for after in known)]
        return [*advised.values(), *rest]


def close_ones(moves: Sequence[SearchMove]) -> set[str]:
    """The changes that seemed to bring something, and were not shown to before the list was what it is now."""
    last = {move.change: place for place, move in enumerate(moves)}
    changed = max((place for place, move in enumerate(moves) if move.adopted), default=0)
    before = (m for place, m in enumerate(moves) if place == last[m.change] and place < changed)
    return {m.change for m in before if m.outcome == "not shown" and m.ratios and mean_ratio(m.ratios).point < 1}


def _findings(ladder: Ladder, start: str) -> tuple[Finding, ...]:
    record = first_done(ladder.runs, start)
    if record is None:
        return ()
    rules = ladder.counsel.rules or the_rules()
    trace = ladder.counsel.trace_of(start)
    try:
        advice = rules.advise(over_rounds(record, mine_of(ladder.runs, start)), trace, {}, ladder.record.probe)
    except Exception as error:  # as in `Counsel`: a rule is arithmetic on foreign figures
        ladder.say(f"NOTICE: the search goes without advice: {type(error).__name__}: {error}")
        return ()
    return advice.findings
