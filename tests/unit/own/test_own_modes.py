"""Optimizers that train other weights than they judge, as those without a schedule do, and hooks that they set."""

import sys
from typing import Any

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import by_hand, run

from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect
from laptime.values.draws import seed_all

STILL = ("nn.Dropout(), ", "")
# Gradients at y, between the weights z of SGD and their mean x, by which the net is judged.
FREE = (
    "\nclass Workload:\n",
    """
class Free(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "training": False, "steps": 0})

    def train(self):
        self._turn(True, 0.1)

    def eval(self):
        self._turn(False, -1 / 9)

    @torch.no_grad()
    def _turn(self, training, share):
        for group in self.param_groups:
            if group["training"] is not training:
                group["training"] = training
                for p in group["params"]:
                    if p in self.state:
                        p.lerp_(self.state[p]["z"], share)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if not group["training"]:
                raise RuntimeError("step() in another mode than that of training")
            group["steps"] += 1
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                x = p.lerp(z, -1 / 9)
                z.sub_(p.grad, alpha=group["lr"])
                p.copy_(x.lerp_(z, 1 / group["steps"]).lerp_(z, 0.1))

class Workload:
    learning_rate = 0.1

    def optimizer(self, parameters, lr):
        return Free(parameters, lr)
""",
)


# Lower layers at lower rates, by hooks on their gradients.
HOOKED = (
    "    def loss(",
    """\
    def optimizer(self, model, lr):
        for place, p in enumerate(model.parameters()):
            p.register_hook(lambda grad, share=0.5 ** (3 - place): share * grad)
        model[-1].register_full_backward_hook(lambda layer, given, taken: (given[0] / 2,))
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def loss(""",
)


def _by_hand(path, epochs: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses on the test data behind each epoch, and the weights that are judged."""
    sys.modules.pop(path.stem, None)
    seed_all(0)
    user: Any = __import__(path.stem).Workload()
    (train, test), losses = user.data(), []
    seed_all(0)
    net = user.model()
    optimizer = user.optimizer(list(net.parameters()), 0.1)
    for epoch in range(epochs):
        optimizer.train()
        for chosen in permutation(64, 0, epoch).split(16):
            optimizer.zero_grad()
            user.loss(net, train[chosen])[0].backward()
            optimizer.step()
        optimizer.eval()
        losses.append(user.loss(net, test[:])[0].item())
    sys.modules.pop(path.stem, None)
    return losses, net.state_dict()


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-resident"])
def test_a_net_is_judged_and_saved_with_the_weights_that_its_optimizer_judges(file, variant, tmp_path):
    data = inspect(write(file, TUPLE, STILL, FREE))
    losses, weights = _by_hand(file, 3)
    spec = own_spec(data, variant, learning_rate=0.1, epochs=3, warmup_epochs=1, save_model=True)
    found = run(spec, tmp_path / "run")
    assert found.error is None
    assert [e.test_loss for e in found.epochs] == pytest.approx(losses, rel=1e-6)
    for name, saved in torch.load(tmp_path / "run" / "model.pt").items():
        torch.testing.assert_close(saved, weights[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-baseline+resident+fused-optimizer"])
def test_hooks_that_an_optimizer_sets_are_set_once(file, variant, tmp_path):
    data = inspect(write(file, TUPLE, STILL, HOOKED))
    for name in ("dead-taps", "ddp", "flat-reduce"):
        assert data.own.refused[name] == "its optimizer() sets hooks for whole gradients"
    _assert_as_by_hand(data, file, variant, tmp_path)


def _assert_as_by_hand(data, file, variant, tmp_path):
    losses = by_hand(file, 2, by_name=True)
    found = run(own_spec(data, variant, learning_rate=0.1, epochs=2, warmup_epochs=1), tmp_path / "run")
    assert found.error is None
    assert [e.train_loss for e in found.epochs] == pytest.approx(losses, rel=1e-6)


_PROJECTING = (
    "\nclass Workload:\n",
    """
class Projecting(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.by = [torch.rand_like(p) for p in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        for p, by in zip(self.param_groups[0]["params"], self.by):
            p.grad.mul_(by)
        return super().step(closure)

class Workload:
    def optimizer(self, model, lr):
        return Projecting(list(model.parameters()), lr)

""",
)
_NOISE = "p.add_(p.grad, alpha=-group['lr']).add_(torch.randn_like(p), alpha=0.01)"
_PROJECTED = "p.add_(self.state[p].setdefault('by', torch.rand_like(p)) * p.grad, alpha=-group['lr'])"
_STILL = "p.add_(p.grad, alpha=-group['lr'])"


@pytest.mark.parametrize(("moved", "draws"), [(_NOISE, True), (_PROJECTED, True), (_STILL, False)])
def test_an_optimizer_that_draws_is_not_stepped_by_several_ranks(file, moved, draws):
    steps = f"""
class Drawing(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {{"lr": lr}})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                {moved}

class Workload:
    def optimizer(self, parameters, lr):
        return Drawing(parameters, lr)

"""
    refused = inspect(write(file, TUPLE, STILL, ("\nclass Workload:\n", steps))).own.refused
    told = "its Drawing draws random numbers, which each rank would draw otherwise"
    assert [refused.get(name) for name in ("ddp", "flat-reduce")] == [told if draws else None] * 2


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-baseline+resident+no-reads"])
def test_an_optimizer_that_draws_when_it_is_made_begins_anew_as_it_began(file, variant, tmp_path):
    _assert_as_by_hand(inspect(write(file, TUPLE, STILL, _PROJECTING)), file, variant, tmp_path)
