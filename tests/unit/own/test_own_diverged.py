"""A training whose loss becomes nan: since which step, what its batch holds, and what helps in whose training."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write

from laptime import worker
from laptime.compare.quality import without_quality
from laptime.data.own.finite import unfinite
from laptime.data.own.opened import open_own
from laptime.errors import LaptimeError
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect

MAKES = "return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])"
LOSES = "return F.cross_entropy(scores, y), "
GAP = (MAKES, f"X[40, 0, 0, 0] = torch.nan\n        {MAKES}")
# The logarithm of 0 with that item, whose numbers are all finite.
AT_ZERO = (
    (MAKES, f"X[40, 0, 0, 0] = 123.0\n        {MAKES}"),
    (LOSES, "return F.cross_entropy(scores, y) + (1 - (x > 99).float().amax()).log(), "),
)
# A mask of -inf in batches of several items alone, as padding brings one.
MASKED = """

def masked(items):
    x, y = torch.utils.data.default_collate(items)
    return x, y, torch.full((len(items),), -torch.inf if len(items) > 8 else 0.0)
"""
EARLY = permutation(64, 0, 0)[20].item()  # in the second step of the first epoch
BOUNDED = ("    batch_size = 16\n", "    batch_size = 16\n    clip_norm = 1.0\n")


def failed(name: str, tmp_path, *chosen: str, **changes) -> str:
    spec = own_spec(inspect(name), "+".join(("cpu-baseline", *chosen)), epochs=2, check=False, **changes)
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "failed"
    assert without_quality(record, "loss")
    return record.error


def step_of(item: int, samples: int = 64) -> int:
    """In which step of the first epoch, counted from 1, an item is trained on."""
    return permutation(samples, 0, 0).tolist().index(item) // 16 + 1


def test_the_item_that_holds_nan_is_named_with_the_line_of_the_data(file, tmp_path):
    error = failed(write(file, TUPLE, GAP), tmp_path)
    assert f"the training loss became nan in epoch 0 at step {step_of(40)} of 4" in error
    assert (
        f"whose batch holds nan in item 40 of the training data: leave that out in data() ({file.name}, line " in error
    )
    assert "learning_rate" not in error
    assert "--weights" not in error


def test_the_item_has_the_number_of_the_whole_data_under_a_limit(file, tmp_path):
    name = write(file, TUPLE, (MAKES, f"X[56:64] = torch.inf\n        {MAKES}"))
    error = failed(name, tmp_path, limit_train=48)
    named = error.partition("holds inf in item")[2].partition(" of the training")[0].removeprefix("s").replace(",", "")
    assert named
    assert all(56 <= int(number) < 64 for number in named.split())


def test_values_of_the_batch_before_whose_gradient_was_no_number_are_named(file, tmp_path):
    # exp(-inf) is 0, and its gradient 0 times inf: the loss of that step is a number, and the weights behind it none.
    odd = "torch.exp(-(1 + next(model.parameters()).abs().max()) * x.abs().max())"
    infinite = (MAKES, f"X[ITEM, 0, 0, 0] = torch.inf\n        {MAKES}".replace("ITEM", str(EARLY)))
    error = failed(write(file, TUPLE, infinite, ("model(x)", f"model(x.clamp(-9, 9)) + {odd}")), tmp_path)
    assert f"became nan in epoch 0 at step {step_of(EARLY) + 1} of 4" in error
    assert f"and the batch of the step before holds inf in item {EARLY} of the training data" in error


@pytest.mark.parametrize("chosen", [(), ("no-reads",)])
def test_a_training_as_the_user_wrote_it_is_told_what_fits_it(file, tmp_path, chosen):
    error = failed(write(file, TUPLE, *AT_ZERO), tmp_path, *chosen)
    assert f"became -inf in epoch 0 at step {step_of(40)} of 4" in error
    assert "lower learning_rate (0.001), bound the gradient (clip_norm), or look for a logarithm, a root or a" in error
    assert f"in loss() of {file.name}" in error
    assert ("this is the training as you wrote it" in error) == (not chosen)
    assert "--weights" not in error
    assert "leave out" not in error


def test_what_an_optimization_may_have_done_is_told_to_be_left_out(file, tmp_path):
    error = failed(write(file, TUPLE, *AT_ZERO), tmp_path, "no-reads", "linear-decay")
    assert "lower learning_rate (0.001), bound the gradient (clip_norm), or leave out linear-decay." in error
    assert "as you wrote it" not in error


def test_a_gradient_that_is_bounded_needs_no_bound(file, tmp_path):
    assert "clip_norm" not in failed(write(file, TUPLE, BOUNDED, *AT_ZERO), tmp_path)


def test_the_first_batch_is_looked_at_before_a_ladder(file):
    with pytest.raises(LaptimeError, match=r"gave nan on the first batch, which holds nan in items 2, 3: leave"):
        inspect(write(file, TUPLE, (MAKES, f"X[2:4, 0] = torch.nan\n        {MAKES}")))


def test_of_a_first_batch_of_numbers_the_loss_is_named(file):
    never = (LOSES, "return F.cross_entropy(scores, y) * torch.nan, ")
    with pytest.raises(LaptimeError, match=r"gave nan on the first batch: look for a logarithm, a root or a division"):
        inspect(write(file, TUPLE, never))


def test_what_the_first_samples_hold_and_what_a_collate_fn_adds_is_no_fault_of_a_batch(file):
    usual = ("Y = (X", "X[:, 0, 0, 0] = -torch.inf\nX[40, 1] = torch.nan\nY = (X")
    masked = (
        "    batch_size = 16\n",
        "    batch_size = 16\n    collate_fn = staticmethod(lambda items: masked(items))\n",
    )
    write(file, TUPLE + MASKED, usual, masked)
    train = open_own(file, "Workload").train
    assert torch.isinf(torch.cat([t.flatten() for t in train.batch(range(16))])).any()
    assert unfinite(train, range(16)).values == ""
    assert unfinite(train, [*range(16), 40]).told == "nan in item 40"
    assert unfinite(train, range(16), known=False).told == "inf in items 0, 1, 2, 3, 4 and 11 more"
