"""The closer look's trials of remedies: in the record, for whom they are, and never a failed run."""

from dataclasses import replace

import pytest
from tests.unit.conftest import make_spec
from tests.unit.profiling.profiling_examples import tiny

from laptime.measure import batches, precision
from laptime.profiling.closer import Findings, look_closer
from laptime.records import EpochRecord, ProfileRecord
from laptime.spec import OptimizationSpec
from laptime.world import World


class Waiting(World):
    """One of two ranks, whose other one is always there in time."""

    def barrier(self):
        """Both are here."""

    def agreed(self, value):
        """The other one thinks alike."""
        return value


@pytest.fixture
def looked(tmp_path, monkeypatch):
    """Looks closer at a run of batches of 4, which may grow to 8."""
    monkeypatch.setattr("laptime.catalogue.LARGE_BATCHES", {"cpu": 8})

    def look(*optimizations, world=None, **changes):
        parts, recipe = tiny(train=40)
        recipe = recipe if world is None else replace(recipe, world=world)
        chosen = tuple(OptimizationSpec(name=name) for name in optimizations)
        spec = make_spec(optimizations=chosen, epochs=1, profile_schedule="0,1,1,1", **{"profile": "full", **changes})
        epochs = [EpochRecord(index=0, epoch_s=0.02, samples=40, step_ms_median=2.0)]
        found = Findings()
        look_closer(spec, (parts, recipe), epochs, tmp_path, found)
        return found

    return look


def test_trials_of_remedies_stand_in_the_profile(looked):
    found = looked(ceilings={"copy_gb_s": 9.0})
    assert found.notes == []
    assert found.profile.updates.own_ms > 0
    assert [p.batch_size for p in found.profile.passes] == [4, 8] * 2
    assert found.profile.layout is not None
    assert ProfileRecord.model_validate_json(found.profile.model_dump_json()) == found.profile


def test_what_is_there_already_or_refused_is_not_tried(looked):
    found = looked("fused-optimizer", "large-batch", ceilings={"copy_gb_s": 9.0})
    assert (found.profile.updates, found.profile.passes) == (None, ())
    assert found.notes == []


def test_of_several_ranks_what_is_local_is_tried_and_the_rest_has_its_reason(looked):
    found = looked(world=Waiting(size=2), ceilings={"copy_gb_s": 9.0})
    assert found.profile.updates.own_ms > 0
    assert found.profile.passes == ()
    assert [note for note in found.notes if "exchange gradients" in note] == found.notes


def test_a_trial_that_fails_is_a_note(looked, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("fused does not take complex numbers")

    monkeypatch.setattr("laptime.measure.updates.measure_updates", fails)
    monkeypatch.setattr("laptime.measure.batches.measure_batches", fails)
    found = looked(ceilings={"copy_gb_s": 9.0})
    assert (found.profile.updates, found.profile.passes) == (None, ())
    assert [note.partition(":")[0] for note in found.notes] == [
        "the fused optimizer was not timed",
        "no other batch was timed",
    ]
    assert found.profile.layout is not None


def test_other_trials_stand_between_the_two_of_a_larger_batch_and_a_failure_leaves_the_first(looked, monkeypatch):
    order, plain = [], batches.measure_batches

    def timed(*given, before=()):
        order.append("again" if before else "batch")
        if before and "fails" in order:
            raise RuntimeError("of the second moment")
        return plain(*given, before=before)

    monkeypatch.setattr(batches, "measure_batches", timed)
    monkeypatch.setattr(precision, "measure_bf16", lambda *_: order.append("bf16"))
    looked(ceilings={"copy_gb_s": 9.0})
    assert order == ["batch", "bf16", "again"]
    order.append("fails")
    found = looked(ceilings={"copy_gb_s": 9.0})
    assert [p.batch_size for p in found.profile.passes] == [4, 8]
    assert [note.partition(":")[0] for note in found.notes] == ["no other batch was timed again"]


def test_without_a_profile_nothing_is_tried(looked, monkeypatch):
    monkeypatch.setattr("laptime.measure.updates.measure_updates", None)
    monkeypatch.setattr("laptime.measure.batches.measure_batches", None)
    assert looked(profile="simple").notes == []
