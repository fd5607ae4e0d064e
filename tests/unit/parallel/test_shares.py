"""How batches are shared out: nothing lost, nothing twice, the same global batches as in one process."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.conftest import make_data, make_spec

from laptime.catalogue import as_checked, class_of, parse_optimization
from laptime.engine.build import build, make_recipe
from laptime.errors import UsageError
from laptime.optimizations.base import batches, permutation, shares
from laptime.optimizations.buckets import candidates
from laptime.optimizations.data import EpochBatches, ItemLoader
from laptime.optimizations.parallel import FlatReduce, dp, flat_reduce
from laptime.optimizations.resident import ResidentLoader
from laptime.world import ALONE, World, opened


@given(ranks=st.integers(1, 6), per_rank=st.integers(2, 9), extra=st.integers(0, 5), count=st.integers(1, 150))
def test_parts_make_up_the_batches_of_one_process(ranks, per_rank, extra, count):
    size = min(ranks * per_rank + extra, count)
    order = permutation(count, seed=1, epoch=2)
    whole = batches(order, size, ranks)
    parts = [shares(order, size, World(rank, ranks)) for rank in range(ranks)]
    for step, batch in enumerate(whole):
        mine = [p[step] for p in parts]
        assert torch.cat([m.indices for m in mine]).equal(batch)
        sizes = [len(m.indices) for m in mine]
        assert max(sizes) - min(sizes) <= 1
        assert sum(m.weight for m in mine) == pytest.approx(ranks)
        if count >= 2 * ranks:
            assert min(sizes) >= 2 or size < 2 * ranks
    assert torch.cat(whole).sort().values.tolist() == list(range(count))


@given(ranks=st.integers(1, 5), count=st.integers(10, 90), epoch=st.integers(0, 3))
def test_the_sampler_of_single_items_shares_alike(ranks, count, epoch):
    seen = []
    for rank in range(ranks):
        sampler = EpochBatches(count, 10, 7, World(rank, ranks))
        sampler.epoch = epoch
        cut = list(sampler)
        assert len(cut) == len(sampler) == len(sampler.weights())
        seen += [i for batch in cut for i in batch]
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize(("normalized", "said"), [(True, "; BatchNorm normalizes by each rank's part"), (False, "")])
def test_a_note_speaks_of_batchnorm_where_there_is_some(recipe, normalized, said):
    model = recipe.model if normalized else torch.nn.Linear(2, 2)
    ranks = replace(recipe, model=model, world=World(0, 2))
    note, *_ = flat_reduce(ranks, {"batchnorm": "local"}).notes
    assert note == f"2 ranks, 16 samples a step in all{said}"


@pytest.mark.parametrize(("count", "rest"), [(64, 0), (65, 0), (66, 2), (67, 3), (68, 0)])
def test_a_note_speaks_of_samples_that_one_process_has_for_themselves(recipe, count, rest):
    ranks = replace(recipe, data=make_data(count), model=torch.nn.Linear(2, 2), world=World(0, 2))
    note, *_ = flat_reduce(ranks, {"batchnorm": "local"}).notes
    assert f"; the last {rest} samples of an epoch join the batch before them" in note if rest else "join" not in note


def test_a_net_without_batchnorm_need_not_be_copied(recipe):
    model = torch.nn.Linear(2, 2)
    model.held = [model.weight * 2]  # of which torch copies none
    ranks = replace(recipe, model=model, world=World(0, 2))
    assert flat_reduce(ranks, {"batchnorm": "sync"}).model is model


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_both_loaders_give_a_rank_the_same_samples(rank):
    recipe = make_recipe(make_spec(batch_size=16), make_data(37), (parse_optimization("flat-reduce"),), World(rank, 3))
    pairs = list(zip(ItemLoader(recipe).epoch(1), ResidentLoader(recipe).epoch(1), strict=True))
    assert [len(one) for one, _ in pairs] == [len(p.indices) for p in shares(permutation(37, 0, 1), 16, World(rank, 3))]
    for one, other in pairs:
        assert one.labels.equal(other.labels)
        assert one.inputs.equal(other.inputs)
        assert one.weight == other.weight


def test_a_batch_too_small_for_its_ranks_is_refused():
    with pytest.raises(UsageError, match="batch of 16 is too small for 9 ranks"):
        make_recipe(make_spec(batch_size=16), make_data(), (parse_optimization("ddp"),), World(0, 9))
    with pytest.raises(UsageError, match="2 ranks: add ddp"):
        make_recipe(make_spec(), make_data(), (), World(0, 2))


def test_weak_scaling_keeps_the_batch_of_each_rank_and_scales_the_rate_by_the_whole():
    weak = make_recipe(
        make_spec(batch_size=8),
        make_data(),
        tuple(map(parse_optimization, ("flat-reduce:scaling=weak", "large-batch:size=12"))),
        World(1, 2),
    )
    strong = make_recipe(make_spec(batch_size=8), make_data(), (parse_optimization("large-batch:size=24"),))
    assert weak.batch_size == strong.batch_size == 24
    assert weak.learning_rate == pytest.approx(strong.learning_rate)


def test_one_process_alone_exchanges_nothing():
    spec = make_spec(batch_size=8)
    alone = make_recipe(spec, make_data(), tuple(map(parse_optimization, ("ddp", "resident"))))
    assert alone.wrappers == ()
    parts = build(alone, mark=lambda _: None)
    assert parts.net is parts.model


@pytest.mark.parametrize(
    ("text", "klass", "checked"),
    [
        ("ddp", "statistical", "exact"),
        ("ddp:batchnorm=sync", "exact", "exact"),
        ("ddp:batchnorm=sync:reduce=bf16", "numeric", "numeric"),
        ("ddp:reduce=bf16", "statistical", "numeric"),
        ("flat-reduce:batchnorm=sync:scaling=weak", "statistical", "statistical"),
    ],
)
def test_the_class_follows_the_options(text, klass, checked):
    chosen = parse_optimization(text)
    assert class_of(chosen) == klass
    assert class_of(as_checked(chosen)) == checked


@pytest.fixture
def group():
    """A group of one: what it sends comes back."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield World(0, 1, True)
    dist.destroy_process_group()


def test_a_flat_reduce_keeps_each_gradient_and_its_own_memory_in_place(group):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 5, 3)).to(memory_format=torch.channels_last)
    net(torch.randn(2, 3, 8, 8)).square().sum().backward()
    before = [p.grad.clone() for p in net.parameters()]
    reduce = FlatReduce(group.size, torch.float32)
    reduce(net)
    pointer = reduce.flat.data_ptr()
    assert all(p.grad.equal(b) for p, b in zip(net.parameters(), before, strict=True))
    reduce(net)
    assert reduce.flat.data_ptr() == pointer
    assert reduce.flat.numel() == sum(p.numel() for p in net.parameters())


def test_a_group_of_one_wraps_the_net_and_says_the_same(group):
    assert group.gathered(3.0) == (3.0,)
    assert group.agreed(("a", 1)) == ("a", 1)
    recipe = make_recipe(make_spec(batch_size=8), make_data(), (parse_optimization("ddp:tuned=true"),), group)
    parts = build(recipe, mark=lambda _: None)
    assert isinstance(parts.net, torch.nn.parallel.DistributedDataParallel)
    assert parts.net.module is parts.model
    assert parts.net.static_graph
    # One rank has nobody to send a part to before the others are there.
    assert recipe.settled["ddp"] == {"bucket_mb": candidates(recipe)[-1]}
    assert parts.net.bucket_bytes_cap >= sum(p.numel() * 4 for p in parts.model.parameters())


def test_sizes_of_buckets_end_with_the_one_that_holds_all_gradients(recipe):
    weights = sum(p.numel() for p in recipe.model.parameters()) * 4
    *others, whole = candidates(recipe)
    assert others == [1, 4, 10, 25]
    assert (whole - 1) * 2**20 < weights <= whole * 2**20
    for parameter in recipe.model.parameters():
        parameter.requires_grad_(False)
    assert candidates(recipe) == (1,)


def test_a_compiled_net_is_wrapped_without_a_static_graph(group):
    chosen = tuple(map(parse_optimization, ("ddp:tuned=true", "compile:backend=eager")))
    recipe = make_recipe(make_spec(batch_size=8), make_data(), chosen, group)
    parts = build(recipe, mark=lambda _: None)
    assert recipe.notes[-1].startswith("buckets of 25 MiB, not tried out: ")
    assert not parts.net.static_graph
    assert parts.net.gradient_as_bucket_view


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_data_parallel_enters_the_number_format_by_itself(recipe, precision, dtype):
    parts = build(dp(replace(recipe, precision=precision), {}), mark=lambda _: None)
    assert isinstance(parts.net, torch.nn.DataParallel)
    assert parts.net(torch.zeros(2, 3, 32, 32)).dtype is dtype
    assert {id(p) for p in parts.net.parameters()} == {id(p) for p in parts.model.parameters()}


def test_an_evaluation_with_more_ranks_than_images_stays_a_number():
    from laptime.engine.evaluate import evaluate

    recipe = make_recipe(make_spec(batch_size=16), make_data(48, 2), (parse_optimization("flat-reduce"),), World(3, 4))
    counts = evaluate(build(recipe, mark=lambda _: None), recipe, recipe.data.test)
    assert (float(counts.loss_sum), counts.correct, counts.count) == (0.0, None, 0)


def test_one_process_cuts_no_batch(monkeypatch):
    """Of 100,000 steps an epoch each cut is a tenth of what else stands around a step."""

    def cut(*_):
        raise AssertionError("a batch of one process is its whole part")

    monkeypatch.setattr(torch.Tensor, "tensor_split", cut)
    found = shares(torch.arange(10), 4, ALONE)
    assert [share.indices.tolist() for share in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [share.weight for share in found] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_ranks_divide_the_cores_whatever_computes(monkeypatch, device):
    """Before they meet, which none does here: nobody says where."""
    monkeypatch.setattr("laptime.world.allowed_cores", lambda: 12)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
    for name, value in zip(names, "08041", strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises((ValueError, RuntimeError), match=r"MASTER_ADDR|NVIDIA|CUDA"), opened(device):
        pass
    assert torch.get_num_threads() == 3
