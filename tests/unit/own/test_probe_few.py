"""What a probe reads of a user's data: bounded by time and bytes, once, whatever a sample takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tests.own_files import TUPLE, write
from torch.utils.data import default_collate

from laptime.catalogue import rung_spec
from laptime.data.own import few as own_few
from laptime.data.own.few import few_in_memory, few_items
from laptime.data.own.opened import OwnData, OwnSplit
from laptime.engine import trial as trials
from laptime.engine.trial import Trial
from laptime.ladder.plan import hopeless, refusal
from laptime.ladder.surroundings import limited
from laptime.preflight import probe as probing
from laptime.preflight.inspecting import inspect
from laptime.preflight.probe import places_of, tried
from laptime.records import Ceilings, ProbeRecord


class Slow:
    """Samples of which each takes a second by a clock that only they move, and some bytes."""

    def __init__(self, count: int, nbytes: int = 4) -> None:
        self.count, self.nbytes, self.now, self.read = count, nbytes, 0.0, list[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        self.now += 1.0
        self.read.append(index)
        return torch.full((self.nbytes // 4,), float(index)), index


def opened(dataset, tmp_path) -> OwnData:
    split = OwnSplit(dataset, default_collate)
    return OwnData(SimpleNamespace(), split, split, tmp_path)  # type: ignore[arg-type]


@pytest.fixture
def clocked(monkeypatch):
    def made(count: int, nbytes: int = 4) -> Slow:
        found = Slow(count, nbytes)
        monkeypatch.setattr(own_few, "time", SimpleNamespace(monotonic=lambda: found.now))
        return found

    return made


def test_samples_are_read_once_and_no_longer_than_the_bound(clocked, tmp_path):
    data = clocked(1000)
    few = few_in_memory(opened(data, tmp_path), 32, 32)
    assert data.read == list(range(6))
    inputs, numbers = few.train.batch(range(32))
    assert inputs.shape == (32, 1)
    assert numbers.tolist() == [i % 6 for i in range(32)]
    assert len(few.train) == 1000
    assert data.read == list(range(6)), "they stand in memory"


def test_large_samples_are_bounded_by_their_bytes(clocked, tmp_path, monkeypatch):
    monkeypatch.setattr(own_few, "_READ_BYTES", 1000)
    monkeypatch.setattr(own_few, "_READ_S", 1e9)
    data = clocked(500, 400)
    few = few_in_memory(opened(data, tmp_path), 8, 8)
    assert len(data.read) == 3
    assert len(few.train) == 8, "a batch of the user's own, and no second"
    with pytest.raises(MemoryError, match="64 samples take"):
        few_in_memory(opened(data, tmp_path), 64, 8)
    assert len(few_in_memory(opened(clocked(500, 4), tmp_path), 64, 8).train) > 64


def test_at_least_one_sample_is_read_and_never_more_than_there_are(clocked):
    data = clocked(3)
    assert [i for _, i in few_items(OwnSplit(data, default_collate))[0]] == [0, 1, 2]
    data.now = -1e9
    assert len(few_items(OwnSplit(clocked(1), default_collate))[0]) == 1


def test_a_trial_of_a_users_training_steps_on_what_was_read(file, monkeypatch):
    monkeypatch.setattr(own_few, "_READ_S", -1.0)
    own = inspect(write(file, TUPLE))
    parts = Trial(own.model_dump_json(), (), rung_spec("bf16"), 4)._parts(())
    batches = [batch.inputs for batch in parts.loader.epoch(0)]
    first = next(iter(torch.utils._pytree.tree_leaves(batches[0])))
    assert len(batches) == -(-min(own.train_count, 128) // 4)
    assert torch.equal(first, first[:1].expand_as(first)), "one sample, in turn"


@pytest.mark.parametrize(("count", "batch", "places"), [(20, 32, [32]), (32, 32, [32]), (100, 32, [32, 100])])
def test_where_all_samples_are_one_batch_there_is_one_place(file, count, batch, places):
    own = inspect(write(file, TUPLE))
    assert own.own is not None
    changed = own.model_copy(update={"train_count": count, "own": own.own.model_copy(update={"batch_size": batch})})
    assert [size for _, size in places_of(changed.model_dump_json(), "cpu", "bf16")] == places


@pytest.mark.parametrize(("limit", "places"), [(None, [16, 64]), (40, [16, 40]), (16, [16])])
def test_the_large_batch_is_tried_as_a_limit_of_the_samples_leaves_it(file, monkeypatch, limit, places):
    own, tried_at = inspect(write(file, TUPLE)).model_dump_json(), list[int]()
    monkeypatch.setattr(trials.Trial, "gain", lambda trial: tried_at.append(trial.batch) or 1.5)
    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(probing, "emulated_here", lambda _: {})
    result = file.parent / "probe.json"
    assert probing.main([own, "cpu", str(result), *limited(limit), "--only=bf16"]) == 0
    assert list(dict.fromkeys(tried_at)) == places, "each beside products, and by itself"
    found = ProbeRecord.model_validate_json(result.read_text())
    assert found.batches == dict(zip(("bf16", "bf16@512"), places, strict=False)), (
        "by the name that the ladder asks for"
    )


@pytest.mark.parametrize(("limit", "places"), [(2000, [32, 512]), (256, [32, 256]), (32, [32])])
def test_a_limit_bounds_the_large_batch_of_laptime_s_own_workloads_too(limit, places):
    assert [size for _, size in places_of("cifar", "cpu", "bf16", limit)] == places


def test_the_batch_that_was_tried_is_told_where_there_are_fewer_samples(file, monkeypatch):
    monkeypatch.setattr(trials.Trial, "gain", lambda trial: 0.9)
    own = inspect(write(file, TUPLE))
    found, _ = tried(own.model_dump_json(), "cpu", "bf16")
    assert found.batches == {"bf16": 16, "bf16@512": 64}
    assert "at the baseline's batch and 0.90x" in refusal("bf16", found)
    assert "at a batch of 64, less than" in refusal("bf16", found)
    assert "at a batch of 64, and the best so far has the large batch" in hopeless("bf16", 512, found)


def test_a_round_begins_no_step_after_its_time_and_tells_the_seconds_of_all(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(trials, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    taken = []

    def step(_, batch):
        taken.append(batch)
        now[0] += 4.0

    class Loader(list):
        def epoch(self, _):
            return iter(self)

    parts = SimpleNamespace(loader=Loader(range(10)), step=step, device=torch.device("cpu"))
    assert trials._steps_s(parts) == pytest.approx(40.0)
    assert taken == [0, 1, 2]
    parts.loader = Loader(range(2))
    assert trials._steps_s(parts) == pytest.approx(8.0)
