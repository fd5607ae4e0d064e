"""A ladder that is gone on with repeats nothing, decides as it had decided, and refuses what would not compare."""

from __future__ import annotations

import pytest
from tests.unit.conftest import make_data_spec, make_ladder_record
from tests.unit.ladder.turning import through
from tests.unit.tracking.tracking_samples import MemoryStore

from laptime.catalogue import find_preset, find_workload
from laptime.ladder import run as ladder_module
from laptime.ladder.plan import make_plan
from laptime.ladder.request import LadderRequest, kept_request
from laptime.ladder.resume import ANEW
from laptime.ladder.run import Ladder
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.records import EpochRecord, LadderRecord, ProbeRecord, RunRecord, read_ladder, write_json
from laptime.tracking import replay
from laptime.tracking.events import Filed, Started, read_journal
from laptime.tracking.journal import state_path

FULL = find_preset(find_workload("cifar"), "full")
# threads helps when it joins, and is in the way once bf16 is there: the ablation drops it and runs variants again.
WORTH = {"resident": 0.5, "dead-taps": 0.6, "bf16": 0.4, "threads": 0.95}
REQUEST = LadderRequest(preset="full", epochs=3, repeats=2)


def seconds_of(names) -> float:
    seconds = 150.0 if {"threads", "bf16"} <= names else 100.0
    for name in names:
        seconds *= WORTH.get(name, 2.0)
    return seconds


class Cut(BaseException):
    """What ends a ladder in the middle, as a kill does."""


class Runs:
    """The processes of a ladder; the one of a number is cut off."""

    def __init__(self, cut: int | None = None, failing: str = "", at: float = 1000.0) -> None:
        self.cut, self.failing, self.at, self.started = cut, failing, at, []

    def __call__(self, _launcher, spec, folder, _hooks) -> RunRecord:
        if len(self.started) == self.cut:
            raise Cut
        self.started.append((spec.variant, spec.repeat, folder.parent.name))
        (folder / "checkpoints").mkdir(parents=True)
        names = frozenset(o.name for o in spec.optimizations)
        epochs = tuple(
            EpochRecord(index=i, epoch_s=seconds_of(names), samples=100, test_accuracy=0.8, ended_at=self.at + i)
            for i in range(spec.epochs)
        )
        broken = bool(self.failing) and spec.variant.endswith(self.failing)
        record = RunRecord(
            status="failed" if broken else "done",
            error="it broke" if broken else None,
            spec=spec,
            epochs=epochs,
            started_at=self.at,
            ended_at=self.at + 9.0,
        )
        write_json(folder / "record.json", record)
        return record


def a_ladder(tmp_path, before: LadderRecord | None = None) -> Ladder:
    plan = make_plan("cpu", FULL, None, ProbeRecord(gains={"bf16": 1.5}))
    record = before or make_ladder_record(
        data=make_data_spec(train=1000, test=500),
        **{"epochs": 3, "repeats": 2, "quality_floor": 0.6, "request": kept_request(REQUEST)},
    )
    again = record.model_copy(update={**ANEW, "left_out": plan.left_out})
    ladder = Ladder(REQUEST, again, plan, Places(tmp_path / "home"))
    ladder.folder = tmp_path / "ladder"
    if before is not None:
        ladder.before = before.turns
    ladder.start()
    return ladder


def outcome(ladder: Ladder):
    runs = [(r.spec.variant, r.spec.repeat, r.spec.digest(), r.status) for r in (*ladder.runs, *ladder.trials)]
    return runs, ladder.record.rungs, ladder.record.dropped, ladder.record.left_out


def test_wherever_a_ladder_is_cut_off_it_goes_on_to_the_same_end_and_repeats_nothing(tmp_path, monkeypatch):
    whole = Runs(failing="channels-last")
    monkeypatch.setattr(ladder_module, "launch", whole)
    reference = a_ladder(tmp_path / "whole")
    told = through(reference)
    assert reference.record.dropped, "the case holds a part that leaves, and retractions"
    assert reference.record.turns == len(told) == len(whole.started)
    for cut in range(1, len(told), 3):
        place = tmp_path / str(cut)
        before = Runs(cut, failing="channels-last")
        monkeypatch.setattr(ladder_module, "launch", before)
        with pytest.raises(Cut):
            through(a_ladder(place))
        after = Runs(failing="channels-last")
        monkeypatch.setattr(ladder_module, "launch", after)
        ladder = a_ladder(place, read_ladder(place / "ladder" / "ladder.json"))
        assert through(ladder) == told
        last = before.started[-1:]  # tried again where it failed, since the ladder may have ended of the same
        tried = last if last[0][0].endswith("channels-last") else []
        assert before.started + after.started == whole.started[:cut] + tried + whole.started[cut:]
        assert outcome(ladder) == outcome(reference)
        assert not list(place.rglob("checkpoints"))


def test_a_baseline_that_failed_ends_its_ladder_at_once_and_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs(failing="baseline"))
    ladder = a_ladder(tmp_path)
    assert through(ladder) == ["cpu-baseline, round 1 of 2"]
    assert ladder.exit_code() == 1
    assert "nothing else was tried" in ladder.complaint()
    ladder.runs[0] = ladder.runs[0].model_copy(update={"error": "it broke; see log.txt."})
    assert ladder.complaint().endswith(f"cpu-baseline: it broke; see {ladder.folder}/cpu-baseline-0/log.txt.")
    left = {o.variant for o in ladder.record.left_out if "the baseline failed" in o.reason}
    assert left > {"cpu-resident", "cpu-bf16", "cpu-optimized"}
    monkeypatch.setattr(ladder_module, "launch", Runs())
    again = a_ladder(tmp_path, read_ladder(ladder.folder / "ladder.json"))
    assert again.record.left_out == ladder.plan.left_out
    assert len(through(again)) > 20
    assert again.exit_code() == 0


@pytest.mark.parametrize(("named", "ran"), [("cpu-resident", 2), ("cpu-baseline,cpu-resident", 1)])
def test_variants_that_were_named_without_a_baseline_are_tried_where_that_fails(tmp_path, monkeypatch, named, ran):
    runs = Runs(failing="baseline")
    monkeypatch.setattr(ladder_module, "launch", runs)
    ladder = a_ladder(tmp_path)
    ladder.request = ladder.request.model_copy(update={"variants": tuple(named.split(","))})
    ladder.plan = make_plan("cpu", FULL, ladder.request.variants, ProbeRecord())
    through(ladder)
    assert len({variant for variant, _, _ in runs.started}) == ran


def stored(ladder: Ladder, times: int = 1) -> MemoryStore:
    store = MemoryStore()
    assert ladder.journal is not None
    for _ in range(times):
        replay(ladder.journal.path, store, str)
        state_path(ladder.journal.path).unlink()
    return store


def test_each_process_is_told_when_it_ends_and_what_is_taken_back_has_a_run_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs(7))
    ladder = a_ladder(tmp_path / "cut")
    with pytest.raises(Cut):
        through(ladder)
    told = stored(ladder)
    assert told.created == ["l", *(f"l/{name}" for name in dict.fromkeys(r.spec.variant for r in ladder.runs))]
    statuses = {key: told.runs[f"id-{key}"]["status"] for key in told.created}
    assert statuses == {key: "RUNNING" if key == "l" else "FINISHED" for key in told.created}
    assert {name for name, *_ in told.runs["id-l/cpu-baseline"]["metrics"]} >= {"epoch_s", "epoch_s_median"}
    monkeypatch.setattr(ladder_module, "launch", Runs())
    ladder = a_ladder(tmp_path / "whole")
    through(ladder)
    found = stored(ladder)
    kinds = {key: found.runs[f"id-{key}"]["tags"].get("laptime.kind", "variant") for key in found.created}
    assert kinds["l/cpu-optimized"] == "retracted"
    assert kinds["l/cpu-optimized/again-1"] == "variant"
    dropped = f"l/cpu-optimized-without-{ladder.record.dropped[0].name}"
    assert kinds[dropped] == "retracted"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")
def test_what_arrives_is_the_same_however_often_it_was_broken_off_and_sent(tmp_path, monkeypatch):
    stores = []
    for cuts in ((), (2, 3, 5)):
        place = tmp_path / str(len(cuts))
        for number, cut in enumerate((*cuts, None)):
            monkeypatch.setattr(ladder_module, "launch", Runs(cut))
            ladder = a_ladder(place, read_ladder(place / "ladder" / "ladder.json") if number else None)
            try:
                for turn in ladder.turns():
                    ladder.run(turn, Hooks())
                ladder.close("done")
            except Cut:
                ladder.close("interrupted")
            ladder.journal.close()
        stores += [stored(ladder), stored(ladder, times=2)]
    fields = ("metrics", "files", "status")
    first, *others = [{key: [run[f] for f in fields] for key, run in store.runs.items()} for store in stores]
    assert all(other == first for other in others)


def test_what_failed_last_is_tried_again_and_an_earlier_failure_stands(tmp_path, monkeypatch):
    for cut, tried in ((4, True), (6, False)):
        place = tmp_path / str(cut)
        monkeypatch.setattr(ladder_module, "launch", Runs(cut, failing="resident"))
        with pytest.raises(Cut):
            through(a_ladder(place))
        after = Runs(1)
        monkeypatch.setattr(ladder_module, "launch", after)
        ladder = a_ladder(place, read_ladder(place / "ladder" / "ladder.json"))
        with pytest.raises(Cut):
            through(ladder)
        assert (after.started == [("cpu-resident", 0, "ladder")]) is tried
        assert tellings(ladder, "l/cpu-resident") == 1 + tried


def tellings(ladder: Ladder, key: str) -> int:
    return sum(isinstance(e, Started) and e.run.key == key for e in read_journal(ladder.journal.path)[1])


def test_a_process_that_runs_again_for_a_lost_record_is_told_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs(3))
    with pytest.raises(Cut):
        through(a_ladder(tmp_path))
    (tmp_path / "ladder" / "cpu-baseline-0" / "record.json").write_text("{")
    monkeypatch.setattr(ladder_module, "launch", Runs())
    ladder = a_ladder(tmp_path, read_ladder(tmp_path / "ladder" / "ladder.json"))
    ladder.run(next(ladder.turns()), Hooks())
    ladder.journal.close()
    assert tellings(ladder, "l/cpu-baseline") == 2


def test_a_launcher_that_breaks_is_no_turn_that_ended(tmp_path, monkeypatch):
    def launch(*_):
        raise OSError("no room")

    monkeypatch.setattr(ladder_module, "launch", launch)
    ladder = a_ladder(tmp_path)
    with pytest.raises(OSError, match="no room"):
        through(ladder)
    assert (ladder.finished, ladder.record.turns) == (0, 0)
    assert len(ladder.runs) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")
def test_a_process_that_was_cut_off_is_told_without_facts_that_it_has_not(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs(0))
    ladder = a_ladder(tmp_path)
    turn = next(ladder.turns())
    with pytest.raises(Cut):
        ladder.run(turn, Hooks())
    ladder.close("interrupted")
    assert not list((tmp_path / "ladder").glob("*/machine.json"))
    monkeypatch.setattr(ladder_module, "launch", Runs())
    ladder = a_ladder(tmp_path, read_ladder(tmp_path / "ladder" / "ladder.json"))
    ladder.run(next(ladder.turns()), Hooks())
    ladder.close("interrupted")
    starts = [e.run for e in read_journal(ladder.journal.path)[1] if isinstance(e, Started) and e.run.parent]
    assert [s.params.get("precision") for s in starts] == [None, "fp32", "fp32"]
    assert [s.tags["laptime.error"] for s in starts] == ["interrupted", "", ""]
    assert starts[0].started_at > 1e9


def test_what_is_sent_late_of_a_retracted_process_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs())
    ladder = a_ladder(tmp_path)
    through(ladder)
    name = f"cpu-optimized-without-{ladder.record.dropped[0].name}"
    filed = [e for e in read_journal(ladder.journal.path)[1] if isinstance(e, Filed)]
    assert all(e.path.is_file() for e in filed)
    for key, folder in ((f"l/{name}", "trials"), ("l/cpu-optimized/again-1", "ladder")):
        (place,) = {e.path.parent.parent.name for e in filed if e.key == key}
        assert place == folder


def test_a_retraction_that_was_not_told_is_told_later(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs())
    monkeypatch.setattr(ladder_module, "variant_retracted", cut_off)
    with pytest.raises(Cut):
        through(a_ladder(tmp_path))
    monkeypatch.undo()
    monkeypatch.setattr(ladder_module, "launch", Runs())
    ladder = a_ladder(tmp_path, read_ladder(tmp_path / "ladder" / "ladder.json"))
    through(ladder)
    tags = stored(ladder).runs[f"id-l/cpu-optimized-without-{ladder.record.dropped[0].name}"]["tags"]
    assert tags["laptime.kind"] == "retracted"


def cut_off(*_) -> None:
    raise Cut


def test_a_record_of_another_process_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs(2))
    with pytest.raises(Cut):
        through(a_ladder(tmp_path))
    path = tmp_path / "ladder" / "cpu-baseline-0" / "record.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))
    after = Runs(1)
    monkeypatch.setattr(ladder_module, "launch", after)
    with pytest.raises(Cut):
        through(a_ladder(tmp_path, read_ladder(tmp_path / "ladder" / "ladder.json")))
    assert after.started == [("cpu-baseline", 0, "ladder")]
