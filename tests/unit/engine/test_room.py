"""What the tutorials ask for beside what a machine has: batches are halved, loader processes are fewer."""

from dataclasses import replace

import pytest
import torch
from tests.unit.conftest import make_data, make_spec

from laptime.engine import room
from laptime.engine.build import build, make_recipe
from laptime.engine.room import fitted, halved, kept_bytes, tried
from laptime.optimizations.loader_room import workers_that_fit

GIB = 2**30


def test_a_batch_is_halved_until_it_fits_with_a_note_each():
    assert halved(1024, 10 * 2**20, GIB, 32 * GIB) == (1024, [])
    size, notes = halved(1024, 30 * 2**20, GIB, 24 * GIB)
    assert size == 512
    assert notes == ["a batch of 1024 needs about 37.0 GiB and the device has 24.0: halved to 512"]
    assert halved(1024, 30 * 2**20, GIB, 8 * GIB)[0] == 128
    assert halved(1024, 30 * 2**20, GIB, GIB)[0] == 64
    assert halved(32, 30 * GIB, GIB, GIB) == (32, [])


def test_workers_are_as_many_as_memory_and_shared_memory_hold():
    batch = 50 * 2**20
    assert workers_that_fit(20, batch, 64 * GIB, 32 * GIB) == (20, "")
    few, why = workers_that_fit(20, batch, 64 * GIB, GIB)
    assert few == 8
    assert "8 loader workers instead of 20: 1.0 GiB of shared memory" in why
    few, why = workers_that_fit(20, batch, 8 * GIB, 32 * GIB)
    assert few == 6
    assert "8.0 GiB of memory hold no more" in why
    assert workers_that_fit(20, batch, 64 * GIB, 64 * 2**20)[0] == 0
    assert workers_that_fit(0, batch, 0, 0) == (0, "")


def test_what_autograd_keeps_is_counted_by_sample(recipe):
    small = kept_bytes(recipe)
    assert kept_bytes(replace(recipe, batch_size=1)) == small
    # Convolutions and norms of ResNet-18 keep about 100,000 values of a 32x32 image.
    assert 3e5 < small < 7e5


def test_the_recipe_tells_what_was_cut(recipe, monkeypatch):
    whole = replace(recipe, batch_size=1024)
    sample, fixed = kept_bytes(recipe), 16 * sum(p.numel() for p in recipe.model.parameters())
    monkeypatch.setattr(room, "allowed_memory", lambda: int((1.2 * sample * 300 + fixed) / 0.8))
    found = fitted(whole, 0)
    assert found.batch_size == 256
    assert [note.partition(" needs")[0] for note in found.notes] == ["a batch of 1024", "a batch of 512"]
    assert fitted(recipe, 0).notes == ()


def test_a_step_that_does_not_fit_is_tried_with_half_the_batch(recipe):
    def forward(model, batch):
        if len(batch) > 300:
            torch.empty(1 << 60, dtype=torch.uint8)  # what torch does where memory is out
        return recipe.forward(model, batch)

    starving = replace(recipe, forward=forward, image_size=(32, 32))
    before = {k: v.clone() for k, v in recipe.model.state_dict().items()}
    torch.manual_seed(3)
    drawn = torch.get_rng_state()
    size, notes = tried(starving, 1024)
    assert size == 256
    assert notes == [
        "a batch of 1024 ran out of this machine's memory: halved to 512",
        "a batch of 512 ran out of this machine's memory: halved to 256",
    ]
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(v, before[k]) for k, v in recipe.model.state_dict().items())
    assert all(p.grad is None for p in recipe.model.parameters())
    assert tried(recipe, 128) == (128, [])


@pytest.mark.gpu
def test_a_gpu_without_room_trains_the_baseline_at_half_the_batch(recipe):
    gpu = torch.device("cuda")
    whole = replace(recipe, batch_size=8192, device=gpu)
    sample, fixed = kept_bytes(recipe), 16 * sum(p.numel() for p in recipe.model.parameters())
    total = torch.cuda.get_device_properties(gpu).total_memory
    room_of = {gpu.type: int((1.2 * sample * 8192 + fixed) / 0.7)}
    torch.cuda.set_per_process_memory_fraction(min(1.0, 0.6 * sample * 8192 / total))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "memory_of", lambda device: room_of[device.type])
            found = fitted(whole, 0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert found.batch_size < 8192
    assert any("ran out of" in note for note in found.notes)


def test_the_tutorials_loop_of_eurosat_asks_for_twenty_workers():
    spec = make_spec(workload="eurosat", batch_size=1024)
    found = make_recipe(spec, make_data(train=4, size=64), ())
    assert found.batch_size == 4
    assert found.loading.workers == 20 or any("loader workers instead of 20" in note for note in found.notes)
    few = replace(found, loading=replace(found.loading, workers=2), batch_size=2)
    batches = list(build(few, mark=lambda _: None).loader.epoch(0))
    assert torch.cat([b.labels for b in batches]).tolist() != []
