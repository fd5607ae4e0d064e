"""The exchange on GPUs; skipped without them."""

import pytest
import torch
import torch.distributed as dist
from tests.unit.conftest import make_data, make_spec

from laptime.catalogue import parse_optimization
from laptime.engine.build import build, make_recipe
from laptime.engine.evaluate import totals
from laptime.engine.loop import train_epoch
from laptime.world import World

GPUS = torch.cuda.device_count()


def losses(*chosen: str, world: World | None = None) -> list[float]:
    specs = tuple(map(parse_optimization, chosen))
    spec = make_spec(device="cuda", batch_size=16)
    recipe = make_recipe(spec, make_data(), specs, *([world] if world else []))
    parts = build(recipe, mark=lambda _: None)
    return [totals(list(train_epoch(parts, epoch)))[0] for epoch in range(2)]


@pytest.mark.gpu
@pytest.mark.skipif(GPUS < 1, reason="no CUDA device")
@pytest.mark.parametrize("name", ["ddp", "ddp:tuned=true", "flat-reduce", "ddp:tuned=true:reduce=bf16"])
def test_one_rank_of_nccl_trains_as_one_process(name):
    place = torch.device("cuda", 0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=place)
    try:
        # cuDNN's kernels need not be deterministic, and bf16 rounds gradients.
        assert losses(name, world=World(0, 1, True, place)) == pytest.approx(losses(), rel=0.05)
    finally:
        dist.destroy_process_group()


@pytest.mark.multigpu
@pytest.mark.skipif(GPUS < 2, reason="fewer than two CUDA devices")
def test_data_parallel_trains():
    assert losses("dp") == pytest.approx(losses(), rel=0.3)
