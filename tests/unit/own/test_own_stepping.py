"""A loss that steps an optimizer of its own is refused where that lives on; several nets train in one loss instead."""

import sys
from pathlib import Path

import pytest
import torch
from tests.own_files import IMPORTS, TUPLE, write
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.errors import RunError
from laptime.preflight.inspecting import inspect

_MODEL = "    def model(self):\n        return nn.Sequential("
_KEPT = (
    "    def model(self):\n        self.shift = nn.Parameter(torch.zeros(2))\n"
    "        self.made = torch.optim.KIND([self.shift], lr=0.1)\n        return nn.Sequential("
)
_LOSS = "return F.cross_entropy(scores, y)"
_STEPPED = f"""if model.training:
            F.cross_entropy(scores.detach() + self.shift, y).backward()
            self.made.step()
            self.made.zero_grad()
        {_LOSS}"""
_ANEW = f"""shift = torch.zeros(2, requires_grad=True)
        made = torch.optim.Adam([shift])
        with torch.enable_grad():
            F.cross_entropy(scores.detach() + shift, y).backward()
        made.step()
        {_LOSS.replace("scores", "scores + shift.detach()")}"""


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_one_that_the_workload_keeps_is_refused_with_the_line(file, kind):
    name = write(file, TUPLE, (_MODEL, _KEPT.replace("KIND", kind)), (_LOSS, _STEPPED))
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "def loss" in text)
    with pytest.raises(RunError) as told:
        inspect(name)
    said = f"loss() of {file.name} ({file.name}, line {line}: def loss(self, model, batch)) steps an optimizer of its"
    assert str(told.value).startswith(f"{said} own ({kind}), whose state would go on from the warm-up: give all")


_SELDOM = _STEPPED.replace(
    "            self.made.step()",
    "            self.count = getattr(self, 'count', 0) + 1\n            TIME and self.made.step()",
)


@pytest.mark.parametrize("holder", ["workload", "global", "object"])
def test_one_that_is_stepped_every_few_calls_is_found_where_it_is_held(file, holder):
    """As WGAN steps its generator after five steps of the critic."""
    kept, seldom = _KEPT.replace("KIND", "SGD"), _SELDOM.replace("TIME", "self.count % 5 == 0")
    if holder == "global":
        kept, seldom = (text.replace("self.made", "MADE[0]") for text in (kept, seldom))
    if holder == "object":
        kept = kept.replace("self.made =", "self.held = type('Held', (), {})()\n        self.held.made =")
        seldom = seldom.replace("self.made", "self.held.made")
    name = write(
        file, TUPLE, ("\nclass Workload:", "\nMADE = [None]\n\n\nclass Workload:"), (_MODEL, kept), (_LOSS, seldom)
    )
    with pytest.raises(RunError, match=r"steps an optimizer of its own \(SGD\)"):
        inspect(name)


def test_one_that_the_loss_does_not_step_is_no_matter(file):
    """An optimizer that the file has made for a training of its own, say."""
    name = write(file, TUPLE, (_MODEL, _KEPT.replace("KIND", "SGD")), (_LOSS, _SELDOM.replace("TIME", "False")))
    assert inspect(name).own is not None


def test_one_that_is_made_anew_in_each_step_carries_nothing_along(file):
    assert inspect(write(file, TUPLE, (_LOSS, _ANEW))).notice == ""


_NETS = """
class Nets(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8))
        self.discriminator = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


class Workload:
    batch_size = 16

    def data(self):
        return TensorDataset(X[:64, 0, 0]), TensorDataset(X[64:, 0, 0])

    def model(self):
        return Nets()

"""


def test_the_documented_loss_teaches_each_net_its_own_part(file):
    section = (Path(__file__).parents[3] / "docs/own-workload.md").read_text().partition("## Several nets")[2]
    file.write_text(IMPORTS + _NETS + section.partition("```python\n")[2].partition("```")[0])
    assert inspect(f"{file}:Workload").notice == ""
    workload = sys.modules[file.stem].Workload()
    net, (real,) = workload.model(), workload.data()[0][:16]
    ours, theirs = list(net.generator.parameters()), list(net.discriminator.parameters())
    torch.manual_seed(0)
    both = torch.autograd.grad(workload.loss(net, (real,)), [*ours, *theirs])
    torch.manual_seed(0)
    fake = net.generator(torch.randn(16, 16))
    fooled = torch.autograd.grad(F.softplus(-net.discriminator(fake)).mean(), ours, retain_graph=True)
    found = F.softplus(-net.discriminator(real)) + F.softplus(net.discriminator(fake.detach()))
    torch.testing.assert_close(both, (*fooled, *torch.autograd.grad(found.mean(), theirs)))
