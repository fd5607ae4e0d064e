"""Out of memory: the largest part of the batch that fits is named."""

import ctypes
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.unit.conftest import make_data, make_spec

from laptime import worker
from laptime.data.own.opened import OwnData
from laptime.engine import fits
from laptime.engine.fits import explain_memory, largest_part, out_of_memory, step_fits, with_room
from laptime.optimizations.graph import GraphStep, eager_record
from laptime.optimizations.samples import stand_in
from laptime.optimizations.sync_batchnorm import synchronized
from laptime.world import World


def test_a_batch_is_halved_until_it_fits():
    asked = []

    def fits(size):
        asked.append(size)
        return size <= 300

    assert largest_part(1000, fits) == 250
    assert asked == [1000, 500, 250]
    assert largest_part(8, lambda size: False) is None


@pytest.mark.parametrize("limit", [0, 5, 16])
def test_the_sentence_names_what_fits(recipe, limit):
    def forward(model, batch):
        if len(batch) > limit:
            torch.empty(1 << 60, dtype=torch.uint8)  # what torch does where memory is out
        return recipe.forward(model, batch)

    sentence = explain_memory(replace(recipe, forward=forward, image_size=(32, 32)))
    if limit == 16:
        assert sentence is None
    elif limit:
        assert "batch 16 does not fit on this machine's memory; 4 is the largest" in sentence
        assert "--set large-batch.size=4" in sentence
    else:
        assert "neither does a single sample" in sentence


def test_a_recording_for_which_there_is_no_room_is_named(recipe):
    step = GraphStep((16, 1.0), eager_record, lambda work: work())
    sentence = explain_memory(replace(starving(recipe, 16), step=step))
    assert sentence.startswith("a step of 16 samples fits, but not beside its recording as a CUDA graph")
    assert "large-batch:size=8)" in sentence
    assert "8 is the largest" in explain_memory(replace(starving(recipe, 8), step=step))


def starving(recipe, limit):
    def forward(model, batch):
        if len(batch) > limit:
            torch.empty(1 << 60, dtype=torch.uint8)
        return recipe.forward(model, batch)

    return replace(recipe, forward=forward, image_size=(32, 32))


def test_a_rank_tries_its_part_and_names_the_whole_batch(recipe):
    two = replace(starving(recipe, 5), world=World(0, 2))
    assert "batch 16 does not fit on this machine's memory; 8 is the largest" in explain_memory(two)
    assert "--set large-batch.size=4" in explain_memory(replace(two, copies=2))
    assert "neither does the smallest batch of 2 ranks" in explain_memory(
        replace(starving(recipe, 1), world=World(0, 2))
    )


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (8, None),
        (5, "a micro batch of 8 does not fit on this machine's memory; 4 is the largest power-of-two part that does: "),
        (0, "a micro batch of 8 does not fit on this machine's memory, and neither does a single sample"),
    ],
)
def test_of_a_batch_in_parts_the_part_that_fits_is_named(recipe, limit, said):
    sentence = explain_memory(replace(starving(recipe, limit), micro_batch=9))
    assert sentence is None if said is None else sentence.startswith(said)
    assert limit != 5 or sentence.endswith("give a micro_batch_size of 4.")
    two = replace(starving(recipe, 2), micro_batch=4, world=World(0, 2))
    assert explain_memory(two).startswith("a micro batch of 4 does not fit"), "of the 8 that are a rank's"


def test_parts_of_a_users_own_batch_are_named(recipe, monkeypatch, tmp_path):
    data = OwnData(None, recipe.data.train, recipe.data.test, tmp_path / "mine.py")
    monkeypatch.setattr(fits, "stand_in", lambda _, size, device: stand_in(recipe, size, device))
    said = explain_memory(replace(starving(recipe, 5), data=data))
    assert said.endswith(", or mine.py a micro_batch_size of 4, which keeps the batch.")


def test_ranks_with_common_statistics_try_nothing(recipe):
    shared = synchronized(recipe.model, torch.device("cuda"))
    assert explain_memory(replace(starving(recipe, 0), model=shared, world=World(0, 2))) is None


def test_only_memory_is_taken_for_memory():
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"))
    assert out_of_memory(RuntimeError("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"))  # a compiler's
    assert out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert out_of_memory(RuntimeError("Last error:\nCuda failure 2 'out of memory'"))  # NCCL's
    assert not out_of_memory(RuntimeError("Last error:\nCuda failure 4 'driver shutting down'"))
    assert not out_of_memory(RuntimeError("shapes differ"))


def test_cudnns_own_names_for_memory_are_known():
    """Asked of the library itself, by the numbers of its header; a plain error of it is something else."""
    found = find_spec("nvidia.cudnn") if find_spec("nvidia") else None
    places = found.submodule_search_locations if found else []
    library = next((file for place in places for file in Path(place).glob("lib/libcudnn.so.9")), None)
    if library is None:
        pytest.skip("no cuDNN 9 beside torch")
    said = ctypes.CDLL(str(library)).cudnnGetErrorString
    said.restype = ctypes.c_char_p
    names = [said(status).decode() for status in (4003, 4004, 4000)]
    assert [out_of_memory(RuntimeError(f"cuDNN error: {name}")) for name in names] == [True, True, False]


def test_a_step_is_tried_beside_what_a_run_holds(recipe):
    held = []

    class Noted(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            held.append(args[0].numel()) if func is torch.empty_like else None
            return func(*args, **(kwargs or {}))

    recipe.model.fc.bias.requires_grad_(False)
    with Noted():
        assert step_fits(replace(recipe, image_size=(32, 32)), 2)
    counts = {p.requires_grad: 0 for p in recipe.model.parameters()}
    for p in recipe.model.parameters():
        counts[p.requires_grad] += p.numel()
    assert sum(held) == 3 * counts[True] + counts[False]


def test_another_error_is_not_hidden(recipe):
    def forward(model, batch):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        explain_memory(replace(recipe, forward=forward))


def test_the_record_of_a_run_names_what_fits(monkeypatch, tmp_path):
    plain = worker.make_recipe

    def starving(*given):
        recipe = plain(*given)

        def forward(model, batch):
            if len(batch) > 5:
                torch.empty(1 << 60, dtype=torch.uint8)
            return recipe.forward(model, batch)

        return replace(recipe, forward=forward)

    monkeypatch.setattr(worker, "make_recipe", starving)
    monkeypatch.setattr(worker, "open_data", lambda spec: make_data(train=16, test=3))
    record = worker.run(make_spec(), tmp_path)
    assert record.status == "failed"
    assert "batch 16 does not fit" in record.error
    assert "large-batch.size=4" in record.error


@pytest.mark.parametrize(("most", "ranks", "expected"), [(16, 1, [16]), (5, 1, [16, 8, 4]), (5, 2, None), (1, 1, None)])
def test_work_for_which_there_is_no_room_takes_a_part_of_the_batch(recipe, most, ranks, expected):
    asked = []

    def work(size):
        asked.append(size)
        if size > most:
            raise torch.OutOfMemoryError
        return -size

    recipe = replace(recipe, world=World(size=ranks))
    if expected is None:  # ranks wait for each other, and BatchNorm takes no single sample
        with pytest.raises(torch.OutOfMemoryError):
            with_room(recipe, work)
    else:
        assert with_room(recipe, work) == (expected[-1], -expected[-1])
    assert asked == (expected or ([16] if ranks > 1 else [16, 8, 4, 2]))
    with pytest.raises(RuntimeError, match="size"):
        with_room(recipe, lambda size: torch.ones(2) @ torch.ones(3) if size else None)


def test_a_rank_without_memory_has_lost_no_other_one():
    ranks = World(0, 2)
    worker._pass_on(dist.DistBackendError("NCCL error\nLast error:\nCuda failure 2 'out of memory'"), ranks)
    with pytest.raises(worker.PeerLostError):
        worker._pass_on(dist.DistBackendError("NCCL error: remote process exited"), ranks)
