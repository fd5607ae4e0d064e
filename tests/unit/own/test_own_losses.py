"""One look at the losses of a batch and its parts, which leaves all as it was."""

import pytest
import torch
from tests.own_files import TUPLE, write
from tests.unit.own.test_own_parts import in_parts

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.workloads.own_losses import losses_of

# Rows of all samples one behind the other, which no slice of a batch divides.
_ROWS = """    batch_size = 16

    def collate_fn(self, items):
        x, y = torch.utils.data.default_collate(items)
        return y, x.flatten(0, 1)
"""
_ROWED = [
    ("    batch_size = 16\n", _ROWS),
    ("x, y = batch", "y, rows = batch; x = rows.unflatten(0, (-1, 3))"),
    ("F.cross_entropy(scores, y)", "F.cross_entropy(scores, y, reduction='sum')"),
]
_COUNTING = (
    "scores = model(x)",
    "self.calls += 1; model[0].bias.data += torch.rand(()); scores = model(x)",
)


def looked(file, *changes):
    data = open_own(*place_of(write(file, TUPLE, *changes)))
    model = data.workload.model()
    return losses_of(data, model, data.train.batch(range(8))), data, model


@pytest.mark.parametrize(("changes", "parts"), [([], [4, 4]), ([in_parts(2)], [2] * 4), (_ROWED, [4, 4])])
def test_parts_are_micro_batches_or_halves_of_what_can_be_cut_and_what_can_not(file, changes, parts):
    found, *_ = looked(file, *changes)
    assert [count for _, count in found.parts] == parts
    assert found.again == found.whole
    assert found.summed == (changes is _ROWED)


def test_a_single_sample_shows_nothing(file):
    _, data, model = looked(file)
    found = losses_of(data, model, data.train.batch([0]))
    assert (found.summed, found.apart()) == (False, False)


def test_what_the_losses_change_is_put_back(file):
    torch.manual_seed(1)
    counted = ("    batch_size = 16\n", "    batch_size, calls = 16, 0\n")
    data = open_own(*place_of(write(file, TUPLE, counted, _COUNTING)))
    model, random = data.workload.model(), torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = losses_of(data, model, data.train.batch(range(8)))
    assert found.whole != found.again
    assert data.workload.calls == 0
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
