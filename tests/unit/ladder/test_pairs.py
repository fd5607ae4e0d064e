"""Pairs by turns in a ladder: they decide where one process can't, and tell what each part is worth."""

import itertools

import pytest
from tests.unit.ladder.test_resumed_ladder import WORTH, Cut, Runs, a_ladder, outcome, seconds_of
from tests.unit.ladder.turning import through

from laptime.host.memory import allowed_memory
from laptime.ladder import pairs
from laptime.ladder import run as ladder_module
from laptime.launchers.pair import MOST_MEMORY
from laptime.records import EpochRecord, RunRecord, read_ladder, write_json

# What a slow minute multiplies the times of both sides of a pair by; a process alone is in another minute.
SLOW = 3.0


class Timed(Runs):
    """Processes alone, and pairs by turns; whatever `drift` says of a process alone, a pair's ratio is true."""

    def __init__(self, cut=None, drift=None, peak_mib=900.0, holds=True, scatter=(1.0,)) -> None:
        super().__init__(cut)
        self.drift, self.peak_mib, self.holds, self.pairs = drift or {}, peak_mib, holds, []
        self.scatter = itertools.cycle(scatter)

    def __call__(self, launcher, spec, folder, hooks) -> RunRecord:
        record = super().__call__(launcher, spec, folder, hooks)
        slower = self.drift.get(spec.variant, 1.0)
        epochs = tuple(e.model_copy(update={"epoch_s": e.epoch_s * slower}) for e in record.epochs)
        return self.kept(record.model_copy(update={"epochs": epochs}), folder)

    def by_turns(self, first, second, _hooks):
        if len(self.started) == self.cut:
            raise Cut
        self.started.append((first[0].variant, second[0].variant, second[1].parent.name))
        self.pairs.append((first[0], second[0]))
        return self.side(first, second[0]), self.side(second, first[0], next(self.scatter))

    def side(self, job, other, off=1.0):
        spec, folder = job
        (folder / "checkpoints").mkdir(parents=True)
        seconds = seconds_of(frozenset(o.name for o in spec.optimizations)) * off
        epochs = tuple(
            EpochRecord(index=i, epoch_s=seconds * SLOW * (1 + i), samples=100, ended_at=1000.0 + i)
            for i in range(spec.epochs)
        )
        record = RunRecord(status="done", spec=spec, epochs=epochs, started_at=1000.0, ended_at=1009.0)
        return self.kept(record.model_copy(update={"beside": other.variant if self.holds else None}), folder)

    def kept(self, record, folder):
        record = record.model_copy(update={"peak_memory_mib": self.peak_mib})
        write_json(folder / "record.json", record)
        return record


def ran(monkeypatch, timed):
    monkeypatch.setattr(ladder_module, "launch", timed)
    monkeypatch.setattr(pairs, "launch_by_turns", timed.by_turns)
    return timed


@pytest.mark.parametrize("slow", [{"cpu-threads": 1.15}, {"cpu-threads": 1.5}, {"cpu-resident": 1.1}])
def test_a_slow_minute_of_either_process_decides_nothing_where_a_pair_can_be_had(tmp_path, monkeypatch, slow):
    timed = ran(monkeypatch, Timed(drift=slow))
    ladder = a_ladder(tmp_path)
    told = through(ladder)
    assert told.count("cpu-threads beside cpu-resident, by turns") == 1
    assert not [t for t in told if t.endswith("trial")]
    rung = next(r for r in ladder.record.rungs if r.variant == "cpu-threads")
    assert rung.joined
    assert "by turns" in rung.reason
    assert all(spec.epochs == 2 and not spec.check and spec.profile == "none" for pair in timed.pairs for spec in pair)
    assert all(first.variant != second.variant for first, second in timed.pairs)
    assert all(spec.checkpoints is None for pair in timed.pairs for spec in pair)


def test_a_rung_that_only_a_fast_minute_made_faster_stays_out(tmp_path, monkeypatch):
    ran(monkeypatch, Timed(drift={"cpu-channels-last": 0.45}))  # it takes twice as long
    ladder = a_ladder(tmp_path)
    through(ladder)
    rung = next(r for r in ladder.record.rungs if r.variant == "cpu-channels-last")
    assert rung.joined is False
    assert "slower by turns" in rung.reason


def test_each_part_is_measured_beside_the_whole(tmp_path, monkeypatch):
    ran(monkeypatch, Timed())
    ladder = a_ladder(tmp_path)
    told = through(ladder)
    (dropped,) = ladder.record.dropped
    assert dropped.n == pairs.PAIRS
    assert (dropped.name, dropped.without_s / dropped.with_s) == ("threads", pytest.approx(1 / (1.5 * 0.95)))
    for part, worth in (("bf16", 2.5), ("dead-taps", 1 / 0.6), ("resident", 2.0)):
        name = f"cpu-optimized-without-{part}"
        assert told.count(f"{name} beside cpu-optimized, by turns") == pairs.PAIRS
        assert ladder.record.worths[name] == pytest.approx((worth,) * pairs.PAIRS)
    assert "by turns" not in told[-1]  # nothing is measured twice
    worths = {p.part: p for p in ladder.compare().parts}
    assert worths["resident"].by_turns
    assert (worths["resident"].n, worths["resident"].worth) == (pairs.PAIRS, "earns its place")
    assert worths["resident"].ratio_high == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("worth", "scatter", "stays", "sets"),
    [
        (1.0, (1.0,), False, 1),  # it brings nothing
        (1.02, (1.0, 1.005, 0.995), True, 1),
        (1.0, (0.97, 1.01, 1.02, 1.04, 1.05), False, 2),  # it seems to, and five more pairs don't show it
        (0.98, (1.0,), False, 1),
    ],
)
def test_a_part_stays_where_it_is_shown_to_bring_something(tmp_path, monkeypatch, worth, scatter, stays, sets):
    monkeypatch.setitem(WORTH, "threads", 1 / (1.5 * worth))  # with bf16; alone it joins by more
    ran(monkeypatch, Timed(scatter=scatter))
    ladder = a_ladder(tmp_path)
    told = through(ladder)
    pair = "cpu-optimized-without-threads beside cpu-optimized, by turns"
    assert told.count(pair) == sets * pairs.PAIRS
    assert [d.name for d in ladder.record.dropped] == ([] if stays else ["threads"])
    assert ("threads" in {o.name for o in ladder.variants["cpu-optimized"].optimizations}) is stays
    found = {p.part: p for p in ladder.compare().parts}
    assert found["threads"].worth == ("earns its place" if stays else "left")
    assert found["threads"].n == sets * pairs.PAIRS


def test_what_was_measured_beside_a_part_that_left_is_measured_again(tmp_path, monkeypatch):
    # In the minute of its first process dead-taps seems to bring least, so it is decided on before threads leaves.
    ran(monkeypatch, Timed(drift={"cpu-optimized-without-dead-taps": 0.3}))
    ladder = a_ladder(tmp_path)
    told = through(ladder)
    pair = "cpu-optimized-without-dead-taps beside cpu-optimized, by turns"
    assert told.count(pair) == 2 * pairs.PAIRS
    assert told[-pairs.PAIRS :] == [pair] * pairs.PAIRS
    assert len(ladder.record.worths["cpu-optimized-without-dead-taps"]) == pairs.PAIRS


def test_after_two_that_took_no_turns_all_trials_run_one_after_the_other(tmp_path, monkeypatch):
    timed = ran(monkeypatch, Timed(holds=False))
    ladder = a_ladder(tmp_path)
    told = through(ladder)
    place = told.index("cpu-threads beside cpu-resident, by turns")
    assert told[place + 1 : place + 3] == ["cpu-resident, trial", "cpu-threads, trial"]
    assert len(timed.pairs) == 1
    assert not ladder.record.worths
    assert len([t for t in told if t.endswith("trial")]) >= 4
    assert not any(p.by_turns for p in ladder.compare().parts)


def test_two_that_the_memory_does_not_hold_run_one_after_the_other(tmp_path, monkeypatch):
    timed = ran(monkeypatch, Timed(peak_mib=0.51 * MOST_MEMORY * allowed_memory() / 2**20))
    told = through(a_ladder(tmp_path))
    assert not timed.pairs
    assert [t for t in told if t.endswith("trial")]


def test_where_a_socket_finds_no_place_trials_run_one_after_the_other(tmp_path, monkeypatch):
    timed = ran(monkeypatch, Timed())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 20)))
    assert [t for t in through(a_ladder(tmp_path)) if t.endswith("trial")]
    assert not timed.pairs


def test_wherever_a_ladder_with_pairs_is_cut_off_it_goes_on_to_the_same_end(tmp_path, monkeypatch):
    whole = ran(monkeypatch, Timed())
    reference = a_ladder(tmp_path / "whole")
    told = through(reference)
    assert len(whole.pairs) > pairs.PAIRS
    assert reference.record.turns == len(told) == len(whole.started)
    for cut in range(2, len(told), 5):
        place = tmp_path / str(cut)
        before = ran(monkeypatch, Timed(cut))
        with pytest.raises(Cut):
            through(a_ladder(place))
        after = ran(monkeypatch, Timed())
        ladder = a_ladder(place, read_ladder(place / "ladder" / "ladder.json"))
        assert through(ladder) == told
        assert before.started + after.started == whole.started
        assert outcome(ladder) == outcome(reference)
        assert ladder.record.worths == reference.record.worths
        assert not list(place.rglob("checkpoints"))
