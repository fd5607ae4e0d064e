"""Nets and losses that read values: a few samples show the maps of their convolutions, and nothing is left of that."""

import random
from functools import partial

import pytest
import torch
from tests.own_files import TUPLE, place, write
from tests.unit.own.test_own_pieces import trained
from tests.unit.script.script_runs import assert_equal, numbers_of, run_laptime, run_scripts

from laptime.data.own.opened import open_own
from laptime.optimizations.dead_taps import conv_sizes
from laptime.optimizations.shapes import passes_of, seen
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve
from laptime.workloads.own import looked_at

_NET = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
_MADE = """Net(
            nn.Conv2d(3, 4, 17, padding=8), nn.BatchNorm2d(4), nn.AvgPool2d(4),
            nn.Conv2d(4, 4, 3, padding=1), nn.Flatten(), nn.Linear(16, 2),
        )"""
_CLASS = """
class Net(nn.Sequential):
    def forward(self, x):
        return super().forward(x)

"""
TEXT = TUPLE.replace(_NET, _MADE).replace("\nclass", f"{_CLASS}\nclass", 1)
_FORWARD = "        return super().forward(x)"
_SCORES = "        scores = model(x)\n"
_BATCH = "    batch_size = 16\n"
# A net of its own for the loss, in training mode, whose BatchNorm counts, and what is made of it.
_INIT = f"{_BATCH}\n    def __init__(self):\n        torch.manual_seed(1)\n        self.teacher = self.model()\n"
_HELD = (_BATCH, _INIT)
_TAUGHT = (_SCORES, f"{_SCORES}        scores = scores + 0.1 * self.teacher(x).detach()\n")
_MOVED = (_SCORES, f"        self.teacher.to(x.device)\n{_SCORES}")
_MEAN = (_SCORES, f"        self.teacher[5].weight.data.mul_(0.9).add_(0.1 * x.mean().cpu())\n{_SCORES}")
_METRIC = (
    (
        _CLASS,
        _CLASS.replace(
            "    def",
            "    def __init__(self, *layers):\n        super().__init__(*layers)\n"
            "        self.__dict__['mean'] = MeanMetric(nan_strategy='error')\n\n    def",
            1,
        ),
    ),
    ("import torch\n", "import torch\nfrom torchmetrics import MeanMetric\n"),
    (_FORWARD, f"        self.mean.update(x.mean())\n{_FORWARD}"),
)
# Each in a way of its own that a pass on shapes can't go: torch's words would be of meta tensors.
WAYS = {
    "a value": [(_FORWARD, f"        assert x.abs().max().item() < 9\n{_FORWARD}")],
    "a branch": [(_FORWARD, "        return super().forward(x if x.sum() < 1e9 else -x)")],
    "numpy": [(_SCORES, f"        x = x * (1.0 if x.numpy().any() else 0.0)\n{_SCORES}")],
    "a metric": _METRIC,
    "a teacher": [_HELD, _TAUGHT],
    "a teacher that goes where its batch is": [_HELD, _TAUGHT, _MOVED],
    "a teacher that follows": [_HELD, _TAUGHT, _MEAN],
}


@pytest.mark.parametrize("way", WAYS)
def test_it_trains_as_it_does_without_what_the_samples_have_shown(file, way):
    name = write(file, TEXT, *WAYS[way])
    assert not {"dead-taps", "products"} & inspect(name).own.refused.keys()
    losses = trained(name)[0].losses
    cropped, *_, recipe = trained(name, "dead-taps")
    assert recipe.notes == ("768 of 3,662 parameters were dead taps",)
    assert cropped.losses == pytest.approx(losses, rel=1e-5)
    product, *_, recipe = trained(name, "products", options={"layers": "all"})
    assert recipe.notes == ("as products: 3",)
    assert product.losses == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("name", ["cpu-baseline+dead-taps", "cpu-baseline+products:layers=all+dead-taps"])
def test_a_printed_script_looks_alike(file, tmp_path, name):
    data = inspect(write(file, TEXT, *WAYS["a teacher"], *WAYS["a value"]))
    text = print_script(resolve(name), "own", data)
    crop = "    crop_dead_taps(model, sizes)\n"
    assert crop in text
    text = text.replace(
        crop, f"{crop}    assert [n for n, m in model.named_modules() if isinstance(m, LiveConv)] == ['0']\n"
    )
    printed = run_scripts(tmp_path, {name: (text, [])})
    assert_equal(printed[name], numbers_of(run_laptime(resolve(name), "own", data, tmp_path / "run")))


def test_maps_whose_size_follows_from_values_are_seen_at_both_ends_of_the_data(file):
    """The first samples go through the net as they are, the last without most of their columns."""
    narrow = ("nn.AvgPool2d(4)", "nn.AdaptiveAvgPool2d(2)")
    first = ("\nclass Net", "\nFIRST = X[0, 0, 0, 0]\n\nclass Net")
    cut = (_FORWARD, "        return super().forward(x if x[0, 0, 0, 0] == FIRST else x[..., :3])")
    refused = inspect(write(file, TEXT, first, narrow, cut)).own.refused
    assert "other taps are dead at other sizes (8x8, 8x3)" in refused["dead-taps"]
    *_, recipe = trained(f"{file}:Workload", "no-reads")
    assert seen(passes_of(recipe), partial(conv_sizes, recipe.model)) == {"0": [(8, 8), (8, 3)], "3": [(2, 2)]}


def test_what_fails_on_a_few_samples_is_told_with_its_line(file):
    name = write(
        file,
        TEXT,
        (_SCORES, f"        if len(x) < 4 and x.sum().item() < 1e9:\n            raise ValueError('few')\n{_SCORES}"),
    )
    for kind, begins in (("dead-taps", "dead taps left in"), ("products", "no layer as product")):
        *_, recipe = trained(name, kind)
        assert recipe.notes[0].startswith(f"{begins}: loss() fails with a few samples on the CPU")
        assert f"(ValueError: few {place(file, 'raise ValueError')}" in recipe.notes[0]
        assert "meta" not in recipe.notes[0]


def test_a_loss_that_takes_gradients_has_its_taps_cropped_and_no_products(file):
    penalty = f"        x = x.requires_grad_(model.training)\n{_SCORES}"
    added = "        slope = torch.autograd.grad(scores.sum(), x, create_graph=True)[0] if model.training else x\n"
    name = write(
        file,
        TEXT,
        (_SCORES, penalty + added),
        ("F.cross_entropy(scores, y),", "F.cross_entropy(scores, y) + slope.square().mean(),"),
    )
    cropped, *_, recipe = trained(name, "dead-taps")
    assert recipe.notes == ("768 of 3,662 parameters were dead taps",)
    assert cropped.losses == pytest.approx(trained(name)[0].losses, rel=1e-4)
    *_, recipe = trained(name, "products")
    assert "and without gradients" in recipe.notes[0]
    assert place(file, "slope = ") in recipe.notes[0]


def test_nothing_is_left_of_a_pass_that_is_looked_at(file):
    user = open_own(file, write(file, TEXT, _HELD).rpartition(":")[2]).workload
    rows, norm = torch.ones(3, 2), user.teacher[1]
    first = norm.running_mean.clone()
    weight, bias = norm.weight, norm.bias
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    with looked_at(user):
        user.teacher(torch.randn(2, 3, 8, 8))
        norm.weight.data.mul_(2)
        torch._foreach_add_([rows, norm.bias.data], 1)
        torch.add(rows, 1, out=rows)
        rows[0].zero_()
        user.teacher.to("meta")
        random.random()
    assert (torch.rand(1), random.random()) == expected
    assert torch.equal(rows, torch.ones(3, 2))
    assert (norm.weight is weight, norm.bias is bias) == (True, True)
    assert torch.equal(weight, torch.ones(4))
    assert torch.equal(bias, torch.zeros(4))
    assert torch.equal(norm.running_mean, first)
    assert int(norm.num_batches_tracked) == 0
