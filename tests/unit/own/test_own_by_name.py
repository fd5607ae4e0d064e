"""A user's optimizer(model, lr): groups by the names of the plain net, trained as by hand whatever changes the net."""

import copy
import io
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tests.own_files import IMPORTS, place, write
from tests.plain_states import plain_optimizer_state
from tests.unit.own.test_own_pieces import EPOCHS, trained
from tests.unit.script.script_runs import assert_equal, numbers_of, run_laptime, run_scripts
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.engine.build import build
from laptime.engine.check import check_one_step
from laptime.engine.loop import train_epoch
from laptime.engine.plain import plain_state
from laptime.engine.reset import reset, snapshot
from laptime.engine.state import put_back, state_of
from laptime.errors import RunError, UsageError
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve
from laptime.workloads.own import takes_model

# Taps that meet padding alone in the first layer, a convolution on a small map behind it.
TEXT = (
    IMPORTS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(3, 4, 17, padding=8, bias=False)
        self.body = nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(4))
        self.neck = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.neck(self.body(x)).flatten(1))

class Workload:
    batch_size = 16
    learning_rate = 0.01

    def data(self):
        return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])

    def model(self):
        return Net()

    def loss(self, model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    def optimizer(self, model, lr):
        named = dict(model.named_parameters())
        bare = [p for name, p in named.items() if name.endswith("bias") or name == "body.1.weight"]
        head = [named["head.weight"]]
        rest = [p for p in named.values() if all(p is not other for other in bare + head)]
        groups = [
            {"params": bare, "weight_decay": 0.0},
            {"params": rest, "weight_decay": 2.0},
            {"params": head, "lr": 10 * lr},
        ]
        return torch.optim.AdamW(groups, lr=lr, weight_decay=0.5)
"""
)
GROUPS = "torch.optim.AdamW(groups, lr=lr, weight_decay=0.5)"
ALL = {"options": {"layers": "all"}}
# As a printed script has them.
CHANGED = "cpu-baseline+dead-taps+products:layers=all+fused-optimizer+channels-last"


def by_hand(module):
    """The same two epochs in torch's own words, with the groups of the same parameters."""
    torch.manual_seed(0)
    net = module.Net()
    (conv, norm, *_), neck, head = net.body, net.neck, net.head
    groups = [
        {"params": [norm.weight, norm.bias, neck.bias, head.bias], "weight_decay": 0.0},
        {"params": [conv.weight, neck.weight], "weight_decay": 2.0},
        {"params": [head.weight], "lr": 0.1},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.5)
    losses = []
    for epoch in range(EPOCHS):
        for chosen in permutation(64, 0, epoch).split(16):
            loss = F.cross_entropy(net(module.X[:64][chosen]), module.Y[:64][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, net, optimizer


@pytest.mark.parametrize(
    "names",
    [
        *((), ("fused-optimizer",), ("dead-taps",), ("graph",), ("lightning",), ("products",)),
        ("dead-taps", "fused-optimizer", "channels-last", "no-reads"),
    ],
)
def test_it_trains_as_by_hand(file, names):
    lap, spec, opened, recipe = trained(write(file, TEXT), *names, **(ALL if "products" in names else {}))
    losses, net, _ = by_hand(sys.modules[file.stem])
    assert lap.losses == pytest.approx(losses, rel=1e-3)
    whole = plain_state(lap.parts.model)
    assert all(torch.allclose(whole[name], value, rtol=1e-3, atol=1e-4) for name, value in net.state_dict().items())
    assert not names or check_one_step(spec, opened, 16).passed
    assert ("dead-taps" in names) == any(note.startswith("768 of ") for note in recipe.notes)
    assert ("products" in names) == any(note == "as products: neck" for note in recipe.notes)


def test_a_plain_optimizer_of_the_same_groups_goes_on_from_it(file):
    lap, *_ = trained(write(file, TEXT), "dead-taps", "fused-optimizer")
    _, _, plain = by_hand(sys.modules[file.stem])
    own = lap.parts.optimizer
    assert len(own.param_groups[1]["params"]) == 3  # with the factor of what was cropped
    moments = [state["exp_avg"].clone() for state in plain.state.values()]
    plain.load_state_dict(plain_optimizer_state(lap.parts.model, own))
    found = [state["exp_avg"] for state in plain.state.values()]
    assert all(torch.allclose(a, b, rtol=1e-2, atol=1e-4) for a, b in zip(found, moments, strict=True))
    assert [g["weight_decay"] for g in plain.param_groups] == [0.0, 2.0, 0.5]


@pytest.mark.parametrize("name", ["cpu-baseline", CHANGED])
def test_a_printed_script_groups_alike(file, tmp_path, name):
    data = inspect(write(file, TEXT))
    assert data.own.by_name
    text = print_script(resolve(name), "own", data)
    assert "optimizer = workload.optimizer(model, LEARNING_RATE)" in text
    printed = run_scripts(tmp_path, {name: (text, [])})
    assert_equal(printed[name], numbers_of(run_laptime(resolve(name), "own", data, tmp_path / "run")))


@pytest.mark.parametrize(
    ("optimizer", "by_name"),
    [
        (lambda model, lr: None, True),
        (partial(lambda decay, model, lr: None, 0.1), True),
        (lambda net, model: None, False),
        (lambda *given: None, False),
        (torch.optim.SGD, False),
        (None, False),
    ],
)
def test_its_first_argument_says_whether_the_net_is_wanted(optimizer, by_name):
    assert takes_model(SimpleNamespace(optimizer=optimizer)) is by_name


def test_without_one_no_net_is_wanted():
    assert not takes_model(SimpleNamespace())


NAMED = "torch.optim.AdamW(list(model.named_parameters()), lr=lr, weight_decay=0.5)"


@pytest.mark.parametrize("made", [GROUPS, NAMED])
@pytest.mark.parametrize("warm", [True, False])
def test_it_goes_on_from_a_checkpoint(file, made, warm):
    """By names of torch's own in the groups, too, beside which the factors of dead taps have none."""
    lap, _, _, recipe = trained(write(file, TEXT, (GROUPS, made)), "dead-taps", "fused-optimizer")
    kept = io.BytesIO()
    torch.save(state_of(lap.parts), kept)
    kept.seek(0)
    first = [float(counts.loss_sum) for counts in train_epoch(lap.parts, EPOCHS)]
    parts = build(replace(recipe, model=copy.deepcopy(recipe.model)), mark=lambda _: None)
    saved = snapshot(parts)
    if warm:
        list(train_epoch(parts, 0))
    reset(parts, recipe, saved)
    put_back(parts, torch.load(kept, weights_only=True), 0)
    assert [float(counts.loss_sum) for counts in train_epoch(parts, EPOCHS)] == first


@pytest.mark.parametrize(
    ("change", "error", "said", "line"),
    [
        (
            ('"params": rest', '"params": rest + bare'),
            RunError,
            "appear in more than one parameter group",
            "return torch",
        ),
        (("dict(model.named_parameters())", "model.layers"), RunError, "no attribute 'layers'", "named = model.layers"),
        ((GROUPS, "None"), UsageError, "gave NoneType, which has no step", "def optimizer"),
        (("(self, model, lr)", "(self, model)"), RunError, "takes 2 positional arguments", "def optimizer"),
    ],
)
def test_a_mistake_in_groups_is_told_with_its_line(file, change, error, said, line):
    with pytest.raises(error, match=said) as told:
        inspect(write(file, TEXT, change))
    assert place(file, line) in str(told.value)


def test_what_no_group_has_is_told_and_stays_as_it_is(file):
    name = write(file, TEXT, ('            {"params": rest, "weight_decay": 2.0},\n', ""))
    assert "optimizer() leaves 2 of 7 parameters out (body.0.weight, neck.weight), which" in inspect(name).notice
    lap, *_ = trained(name, "fused-optimizer")
    torch.manual_seed(0)
    start = sys.modules[file.stem].Net()
    assert torch.equal(lap.parts.model.neck.weight, start.neck.weight)
    assert not torch.equal(lap.parts.model.head.weight, start.head.weight)


def test_what_the_net_has_frozen_may_be_left_out(file):
    frozen = ("return Net()", "net = Net()\n        net.neck.requires_grad_(False)\n        return net")
    trained_alone = ("dict(model", "dict((n, p) for n, p in model")
    some = (".named_parameters())", ".named_parameters() if p.requires_grad)")
    name = write(file, TEXT, frozen, trained_alone, some)
    assert inspect(name).notice == ""


def test_groups_by_what_a_variant_changes_are_refused(file):
    """A kernel without its dead taps is smaller: it would be decayed in the baseline alone."""
    by_size = ('name.endswith("bias") or name == "body.1.weight"', 'p.numel() < 3000 and "head.weight" not in name')
    name = write(file, TEXT, by_size)
    trained(name, "fused-optimizer")
    with pytest.raises(
        UsageError, match=r"puts body\.0\.weight into another group than in the plain net.*p\.ndim"
    ) as told:
        trained(name, "dead-taps")
    assert place(file, "def optimizer") in str(told.value)


def test_an_optimizer_that_freezes_comes_too_late_for_ddp(file):
    freezing = ("        named =", "        model.neck.requires_grad_(False)\n        named =")
    refused = inspect(write(file, TEXT, freezing)).own.refused
    assert "changes which parameters are trained" in refused["ddp"]
