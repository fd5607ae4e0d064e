"""Remedies that train by turns with what they are measured against; processes with given times."""

import pytest
from tests.unit.ladder.advised import STEPS, a_finding, a_run, make_ladder, seconds_of, the_advice, through

from laptime.ladder import pairs
from laptime.records import EpochRecord, RunRecord, write_json

BASELINE, TAPS, SLOW = "cpu-baseline", "cpu-baseline+dead-taps", "cpu-baseline+keep-pages"
# What a slow minute multiplies both sides of a pair by, one pair after the other.
MINUTES = (1.0, 3.0, 2.0)


def alone(spec) -> RunRecord:
    return a_run(spec).model_copy(update={"peak_memory_mib": 500.0})


class Pairs:
    """Pairs by turns; those of a variant may fail, be wrong, or not hold to their turns."""

    def __init__(self, monkeypatch, trouble=None, seconds=seconds_of) -> None:
        self.trouble, self.seconds, self.ran = trouble or {}, seconds, []
        monkeypatch.setattr(pairs, "launch_by_turns", self)

    def __call__(self, first, second, _hooks):
        self.ran.append((first[0], second[0]))
        status = self.trouble.get(second[0].variant, "done")
        found = []
        for (spec, folder), other in ((first, second), (second, first)):
            slow = MINUTES[spec.repeat] / (1 + 0.5 * spec.repeat)
            epochs = tuple(
                EpochRecord(index=i, epoch_s=self.seconds(spec) * slow * (1 + i), samples=100, steps=STEPS)
                for i in range(spec.epochs)
            )
            mine = status if spec is second[0] and status != "apart" else "done"
            beside = other[0].variant if status == "done" else None
            record = RunRecord(
                status=mine, error="boom", spec=spec, epochs=epochs, beside=beside, peak_memory_mib=500.0
            )
            write_json(folder / "record.json", record)
            found.append(record)
        return tuple(found)


def verified(tmp_path, monkeypatch, trouble=None):
    ran = Pairs(monkeypatch, trouble)
    findings = (a_finding("taps", TAPS), a_finding("slow", SLOW))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}), alone)
    told = [t for t in through(ladder) if "verification" in t]
    return ran, told, {f.id: f.measured for f in ladder.counsel.advice[BASELINE].findings}, ladder


def test_each_round_is_a_pair_of_the_remedy_and_what_it_is_measured_against(tmp_path, monkeypatch):
    ran, told, measured, ladder = verified(tmp_path, monkeypatch)
    both = [f"{TAPS} beside {BASELINE}, by turns", f"{SLOW} beside {BASELINE}, by turns"]
    rounds = [*both, *both[::-1], *both]
    assert told == [f"{pair}, verification, round {i // 2 + 1} of 3" for i, pair in enumerate(rounds)]
    assert measured["taps"].gain == pytest.approx(0.2)
    assert (measured["taps"].gain_low, measured["taps"].n) == (pytest.approx(0.2), 3)
    assert measured["slow"].gain == pytest.approx(-1.0)
    # The middle of all epochs in which the advised variant was measured: 1, 2, 3, 6, 2 and 4 seconds.
    assert measured["taps"].step_ms_before == pytest.approx(2.5 / STEPS * 1000)
    assert measured["taps"].step_ms == pytest.approx(0.8 * 2.5 / STEPS * 1000)
    checked = [(s.variant, s.repeat) for pair in ran.ran for s in pair if s.check]
    assert checked == [(TAPS, 0), (SLOW, 0)]
    assert len(list((ladder.folder / "verify").rglob("record.json"))) == 12


def test_a_remedy_that_is_wrong_is_told_and_the_other_keeps_its_pairs(tmp_path, monkeypatch):
    def run(spec):
        return alone(spec).model_copy(update={"status": "wrong", "error": "boom"} if "taps" in spec.variant else {})

    ran = Pairs(monkeypatch, {TAPS: "wrong"})
    findings = (a_finding("taps", TAPS), a_finding("slow", SLOW))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}), run)
    through(ladder)
    measured = {f.id: f.measured for f in ladder.counsel.advice[BASELINE].findings}
    assert measured["taps"].error == f"{TAPS} wrong: boom"
    assert [second.variant for _, second in ran.ran].count(TAPS) == 1
    assert measured["slow"].n == 3
    assert measured["slow"].gain == pytest.approx(-1.0)


def test_where_they_take_no_turns_the_rounds_go_on_one_after_the_other(tmp_path, monkeypatch):
    ran, told, measured, _ = verified(tmp_path, monkeypatch, {TAPS: "apart"})
    assert len(ran.ran) == 1
    assert [t for t in told if "by turns" not in t][:3] == [
        f"{name}, verification, round 1 of 3" for name in (BASELINE, TAPS, SLOW)
    ]
    assert (measured["taps"].n, measured["slow"].n) == (3, 3)
    assert measured["taps"].gain == pytest.approx(0.2)


@pytest.mark.parametrize("memory_mib", [500.0, None])
def test_a_gain_lies_between_its_ends_by_turns_and_in_rounds(tmp_path, monkeypatch, memory_mib):
    """Where no peak of memory is known, nothing takes turns."""

    def scattered(spec):
        return seconds_of(spec) * (0.9, 1.0, 1.1)[spec.repeat] ** (spec.variant == TAPS)

    def run(spec):
        record = a_run(spec)
        epochs = tuple(epoch.model_copy(update={"epoch_s": scattered(spec)}) for epoch in record.epochs)
        return record.model_copy(update={"epochs": epochs, "peak_memory_mib": memory_mib})

    ran = Pairs(monkeypatch, seconds=scattered)
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (a_finding("taps", TAPS),)}), run)
    through(ladder)
    assert bool(ran.ran) == bool(memory_mib)
    (measured,) = (f.measured for f in ladder.counsel.advice[BASELINE].findings)
    assert measured.gain == pytest.approx(0.2, abs=0.01)
    assert measured.gain_low < 0.1
    assert measured.gain_high > 0.25
