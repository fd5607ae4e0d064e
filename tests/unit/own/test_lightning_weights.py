"""A LightningModule whose training loader draws with replacement: its weights are taken, and what can't be is told."""

import sys

import pytest
import torch
from tests.unit.own.test_lightning_module import LOADER, by_hand, lit, opened, trained
from torch.utils.data import DataLoader, WeightedRandomSampler

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect


def loading(sampler):
    return LOADER, f"return DataLoader(self.train, batch_size=32, sampler=torch.utils.data.{sampler})"


WEIGHED = loading("WeightedRandomSampler(1 + 9 * self.train.tensors[1], 256)")


@pytest.mark.parametrize("named", ["resident", "no-reads"])
def test_it_trains_as_by_hand_with_its_own_sampler(file, named):
    found, _, recipe, _ = trained(lit(file, WEIGHED), named, seed=3)

    def batches(points, epoch):
        sampler = points.train_dataloader().sampler
        assert type(sampler) is WeightedRandomSampler
        sampler.generator = torch.Generator().manual_seed(3 * 1_000_003 + epoch)
        return DataLoader(points.train, batch_size=32, sampler=sampler)

    losses, *_ = by_hand(sys.modules[file.stem], batches)
    assert found == pytest.approx(losses, rel=1e-5)
    assert recipe.notes == ()


def test_a_batch_sampler_of_torchs_around_one_and_a_limit_are_followed(file):
    batches = "torch.utils.data.BatchSampler(torch.utils.data.WeightedRandomSampler(range(1, 257), 256), 24, False)"
    name = lit(file, (LOADER, f"return DataLoader(self.train, batch_sampler={batches})"))
    assert inspect(name).own.weighted
    train = open_own(*place_of(name), limits=(9, None)).train
    assert train.weights.tolist() == [1.0 + index for index in train.dataset.indices]


def test_a_random_sampler_with_replacement_draws_all_alike(file):
    data = opened(file, loading("RandomSampler(self.train, replacement=True)"))
    assert data.train.weights.tolist() == [1.0] * 256
    assert data.notes == ()


def test_a_sampler_without_replacement_draws_each_once_and_a_note_says_so(file):
    data = opened(file, loading("WeightedRandomSampler([1.0] * 256, 256, replacement=False)"))
    assert data.train.weights is None
    assert data.notes == (
        "its sampler has no replacement, so it draws each sample once, and laptime draws them without its weights",
    )


EACH = r"give it a weight for each of them and num_samples=256\."
WHOLE = r"make it of the loader's data without num_samples, and these a Subset where some are meant\."


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ("WeightedRandomSampler([1.0] * 256, 99)", f"draws 99 of 256 samples .*: {EACH}"),
        (
            "WeightedRandomSampler([1.0] * 256, 512)",
            f"draws 512 of 256 samples by its WeightedRandomSampler, .*: {EACH}",
        ),
        ("WeightedRandomSampler([1.0] * 99, 99, replacement=False)", f"draws 99 of 256 samples .*: {EACH}"),
        ("RandomSampler(self.train, num_samples=99)", f"draws 99 of 256 samples by its RandomSampler, .*: {WHOLE}"),
        ("RandomSampler(self.train, True, 512)", f"draws 512 of 256 samples .*: {WHOLE}"),
        ("SequentialSampler(range(99))", f"draws 99 of 256 samples by its SequentialSampler, .*: {WHOLE}"),
    ],
)
def test_draws_of_another_number_are_refused_with_their_line(file, sampler, said):
    with pytest.raises(UsageError, match=rf"train_dataloader\(\) \(.*line 14\) {said}"):
        opened(file, loading(sampler))


@pytest.mark.parametrize(
    ("sampler", "counts"),
    [
        ("WeightedRandomSampler([1.0] * 256, num_samples=256)", 256),
        ("WeightedRandomSampler([1.0] * 256, num_samples=256, replacement=False)", 256),
        ("RandomSampler(self.train)", 256),
        ("RandomSampler(self.train, replacement=True)", 256),
    ],
)
def test_what_such_a_refusal_asks_for_is_taken(file, sampler, counts):
    assert len(opened(file, loading(sampler)).train) == counts


@pytest.mark.parametrize(
    ("change", "loader", "part"),
    [
        (LOADER, "DataLoader({}, batch_size=32, sampler={})", "train"),
        (LOADER, "DataLoader({}, batch_sampler=torch.utils.data.BatchSampler({}, 32, False))", "train"),
        ("return DataLoader(self.test, batch_size=64)", "DataLoader({}, batch_size=8, sampler={})", "test"),
    ],
)
def test_a_sampler_of_some_becomes_a_subset_of_the_data_and_no_more_is_drawn(file, change, loader, part):
    """As its refusal says: without the sampler alone all would be drawn, those that are held out to test on, too."""
    said = r"\) draws by SubsetRandomSampler, .*: give it those alone, DataLoader\(Subset\(data, indices\), …\)"
    given = loader.format(f"self.{part}", "torch.utils.data.SubsetRandomSampler(range(3, 40))")
    with pytest.raises(UsageError, match=said):
        opened(file, (change, f"return {given}"))
    subset = f"return DataLoader(torch.utils.data.Subset(self.{part}, range(3, 40)), batch_size=8)"
    data = opened(file.with_name(f"some_{file.name}"), (change, subset))
    assert list(getattr(data, part).dataset.indices) == list(range(3, 40))


def test_weights_that_are_none_are_told_with_the_loaders_line(file):
    said = r"train_dataloader\(\) of .* gave -2 as the weight of training sample 0 \(.*, line 14: def train_dataloader"
    with pytest.raises(UsageError, match=said):
        opened(file, loading("WeightedRandomSampler([-2.0] * 256, 256)"))


def test_what_is_tested_is_not_drawn(file):
    test = "WeightedRandomSampler([1.0] * 64, 64)"
    change = ("batch_size=64)", f"batch_size=64, sampler=torch.utils.data.{test})")
    with pytest.raises(UsageError, match=r"val_dataloader\(\) \(.*\) draws by W.* but the test is on each sample once"):
        opened(file, change)
