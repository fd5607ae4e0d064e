"""Pairs by turns of the baseline and what looks fastest, where the rounds leave open whether it is faster."""

from dataclasses import replace

import pytest
from tests.unit.ladder.test_pairs import Timed, ran
from tests.unit.ladder.test_resumed_ladder import FULL, Cut, a_ladder, seconds_of
from tests.unit.ladder.turning import through

from laptime.compare.words import speedup_span
from laptime.ladder import pairs
from laptime.ladder.figures import headline_figures
from laptime.ladder.plan import make_plan
from laptime.records import ProbeRecord, read_ladder

PAIR = "cpu-optimized beside cpu-baseline, by turns"
OPEN, CLEAR = (0.5, 4.0, 1.0), (1.0, 1.01, 0.99)


class Rounds(Timed):
    """What the optimized variant takes in each round is the baseline's times these; a pair says `true`."""

    def __init__(self, rounds, true=0.8, unit=1.0, **options) -> None:
        super().__init__(**options)
        self.rounds, self.true, self.unit = rounds, true, unit

    def __call__(self, launcher, spec, folder, hooks):
        own = seconds_of(frozenset(o.name for o in spec.optimizations))
        took = self.rounds[spec.repeat] if spec.variant == "cpu-optimized" else 1.0
        self.drift = {spec.variant: 100.0 * self.unit / own * took}
        return super().__call__(launcher, spec, folder, hooks)

    def side(self, job, other, off=1.0):
        own = seconds_of(frozenset(o.name for o in job[0].optimizations))
        return super().side(job, other, off * (100.0 / own * self.true if other.variant == "cpu-baseline" else 1.0))


class Lasting(Rounds):
    """Processes of the rounds last ten seconds each, pairs as long as it is said."""

    def __init__(self, pair_s) -> None:
        super().__init__(OPEN)
        self.pair_s = pair_s

    def __call__(self, launcher, spec, folder, hooks):
        record = super().__call__(launcher, spec, folder, hooks)
        return self.kept(record.model_copy(update={"started_at": 1000.0, "ended_at": 1010.0}), folder)

    def side(self, job, other, off=1.0):
        record = super().side(job, other, off)
        return self.kept(record.model_copy(update={"ended_at": record.started_at + self.pair_s}), job[1])


class Named(Timed):
    """What each variant takes in each round is the baseline's time times these, and in pairs times the true ones."""

    def __init__(self, rounds, true) -> None:
        super().__init__()
        self.rounds, self.true = rounds, true

    def __call__(self, launcher, spec, folder, hooks):
        own = seconds_of(frozenset(o.name for o in spec.optimizations))
        self.drift = {spec.variant: 100.0 / own * self.rounds.get(spec.variant, CLEAR)[spec.repeat]}
        return super().__call__(launcher, spec, folder, hooks)

    def side(self, job, other, off=1.0):
        own = seconds_of(frozenset(o.name for o in job[0].optimizations))
        return super().side(job, other, off * 100.0 / own * self.true.get(job[0].variant, 1.0))


def two(tmp_path, before=None, repeats=3):
    """The baseline and the optimized variant, in rounds."""
    ladder = a_ladder(tmp_path, before)
    ladder.plan = replace(ladder.plan, rungs=(), parallel=())
    ladder.preset = replace(ladder.preset, repeats=repeats, ablation=False)
    return ladder


def test_five_pairs_tell_what_the_rounds_leave_open(tmp_path, monkeypatch):
    ran(monkeypatch, Rounds(OPEN, scatter=(1.0, 1.01, 0.99)))
    ladder = two(tmp_path)
    told = through(ladder)
    assert told[-pairs.PAIRS :] == [PAIR] * pairs.PAIRS
    assert told.count(PAIR) == pairs.PAIRS
    assert ladder.record.confirmed == {"cpu-optimized": pytest.approx((0.8, 0.808, 0.792, 0.8, 0.808))}
    found = ladder.compare()
    row = found.row("cpu-optimized")
    assert (row.by_turns, row.speedup_n) == (True, pairs.PAIRS)
    assert row.speedup == pytest.approx(1.25, rel=0.01)
    assert 1.2 < row.speedup_low < row.speedup < row.speedup_high < 1.3
    assert row.contribution == row.speedup  # it is built on the baseline
    told = found.headline("fastest").sentence
    assert "n = 5 pairs by turns, since the rounds left it open), in the rounds 100 s an epoch instead of 100 s" in told
    assert "not shown" not in told
    assert found.processes == 0  # the sentence has them
    assert speedup_span(row).endswith(" by turns")
    assert headline_figures(found)["speedup"] == row.speedup
    page = (ladder.folder / "comparison.html").read_text(encoding="utf-8")
    assert "In the rounds <b>" in page
    assert "pairs of processes took turns" in page


@pytest.mark.parametrize(
    ("rounds", "repeats"),
    [
        (tuple(0.5 * r for r in CLEAR), 3),  # shown to be faster
        (tuple(2.0 * r for r in CLEAR), 3),  # shown to be slower
        (OPEN, 2),  # two rounds have not been asked for certainty
    ],
)
def test_what_the_rounds_show_gets_no_pairs(tmp_path, monkeypatch, rounds, repeats):
    ran(monkeypatch, Rounds(rounds))
    ladder = two(tmp_path, repeats=repeats)
    assert PAIR not in through(ladder)
    assert not ladder.record.confirmed
    assert not ladder.compare().row("cpu-optimized").by_turns


def test_pairs_show_a_gain_of_what_the_rounds_had_made_slower_and_take_one_away(tmp_path, monkeypatch):
    ran(monkeypatch, Rounds((0.6, 5.0, 1.1)))
    ladder = two(tmp_path / "faster")
    through(ladder)
    assert ladder.compare().headline("fastest").speedup == pytest.approx(1.25)
    ran(monkeypatch, Rounds(OPEN, true=1.1))
    ladder = two(tmp_path / "slower")
    through(ladder)
    found = ladder.compare()
    assert found.row("cpu-optimized").speedup == pytest.approx(1 / 1.1)
    assert found.headline("fastest").sentence == "Fastest: no variant is faster than cpu-baseline and not worse."


A, B, C, D = (f"cpu-baseline+{name}" for name in ("dead-taps", "resident", "threads", "channels-last"))


@pytest.mark.parametrize(
    ("true", "paired", "fastest"),
    [
        ({A: 0.5, B: 0.8}, [A, B], A),  # the second headline's, without dead taps, was as open
        ({A: 1.1, B: 0.8}, [A, B], B),  # pairs take the headline from one and give it to the next
        ({A: 1.1, B: 1.2, C: 1.3}, [A, B, C], D),  # and so on, up to three
    ],
)
def test_what_other_headlines_name_gets_pairs_too(tmp_path, monkeypatch, true, paired, fastest):
    at = {A: (0.5, 4.0, 0.7), B: (0.5, 4.0, 0.8), C: (0.5, 4.0, 0.9), D: (0.5, 4.0, 0.95)}
    ran(monkeypatch, Named(at, true))
    ladder = two(tmp_path)
    ladder.plan = make_plan("cpu", FULL, (A, B, C, D), ProbeRecord())
    told = through(ladder)
    pair = [f"{name} beside cpu-baseline, by turns" for name in paired for _ in range(pairs.PAIRS)]
    assert [text for text in told if text.endswith("by turns")] == pair
    assert list(ladder.record.confirmed) == paired
    assert ladder.compare().headline("fastest").variant == fastest


def test_one_pair_has_no_interval_so_the_rounds_stay_what_is_told(tmp_path, monkeypatch):
    ran(monkeypatch, Rounds(OPEN))
    ladder = two(tmp_path)
    through(ladder)
    ladder.record = ladder.record.model_copy(update={"confirmed": {"cpu-optimized": (0.8,)}})
    row = ladder.compare().row("cpu-optimized")
    assert (row.by_turns, row.speedup_n) == (False, 3)


@pytest.mark.parametrize(("epoch_s", "epochs"), [(100.0, 2), (1.0, 4), (0.01, 12)])
def test_short_epochs_are_counted_as_often_as_fits_into_seconds(tmp_path, monkeypatch, epoch_s, epochs):
    timed = ran(monkeypatch, Rounds(OPEN, unit=epoch_s / 100))
    through(two(tmp_path))
    assert [spec.epochs for pair in timed.pairs for spec in pair] == [epochs] * 2 * pairs.PAIRS


@pytest.mark.parametrize(("pair_s", "count"), [(12.0, 5), (16.0, 4), (25.0, 3), (500.0, 3)])
def test_further_pairs_than_three_begin_only_while_all_have_taken_less_than_the_rounds(
    tmp_path, monkeypatch, pair_s, count
):
    ran(monkeypatch, Lasting(pair_s))
    ladder = two(tmp_path)
    assert through(ladder).count(PAIR) == count
    row = ladder.compare().row("cpu-optimized")
    assert (row.by_turns, row.speedup_n) == (True, count)


def test_a_ladder_that_was_cut_off_in_them_goes_on_to_the_same_end(tmp_path, monkeypatch):
    ran(monkeypatch, Rounds(OPEN, scatter=(1.0, 1.02)))
    reference = two(tmp_path / "whole")
    told = through(reference)
    for cut in (len(told) - pairs.PAIRS, len(told) - 2):
        before = ran(monkeypatch, Rounds(OPEN, scatter=(1.0, 1.02), cut=cut))
        with pytest.raises(Cut):
            through(two(tmp_path / str(cut)))
        after = ran(monkeypatch, Rounds(OPEN, scatter=(1.0, 1.02)[:: 1 if len(before.pairs) % 2 == 0 else -1]))
        ladder = two(tmp_path / str(cut), read_ladder(tmp_path / str(cut) / "ladder" / "ladder.json"))
        assert through(ladder) == told
        assert len(before.pairs) + len(after.pairs) == pairs.PAIRS
        assert ladder.record.confirmed == reference.record.confirmed
