"""Weights that lie in memory otherwise than torch makes them: fused kernels go through them by address."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run

from laptime.preflight.inspecting import inspect

_NET = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
_STEPPED = ("    def loss(", STEPPED)


def _weight(made: str, more: str = "") -> list[tuple[str, str]]:
    layer = (
        f"\nclass Layer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.weight = nn.Parameter({made})\n        {more or 'pass'}\n\n"
        "    def forward(self, x):\n        return F.linear(x.flatten(1), self.weight)\n\n\nclass Workload:\n"
    )
    return [("\nclass Workload:\n", layer), (_NET, "nn.Sequential(Layer(), nn.Tanh(), nn.Linear(4, 2))"), _STEPPED]


_TURNED = "self.weight.register_post_accumulate_grad_hook(turned)"
_HOOK = ("\nclass Layer(", "\ndef turned(p):\n    p.grad = p.grad.t().contiguous().t()\n\nclass Layer(")
_WAYS = {
    "a part of a larger tensor": (_weight("(torch.randn(4, 200) / 9)[:, :192]"), "lies within a larger tensor"),
    "every second of one": (_weight("(torch.randn(4, 384) / 9)[:, ::2]"), "lies within a larger tensor"),
    "a gradient in another order": (
        [*_weight("torch.randn(4, 192) / 9", _TURNED), _HOOK],
        "in another order of memory (strides (192, 1)) than its gradient",
    ),
}


@pytest.mark.filterwarnings("ignore:grad and param do not obey the gradient layout contract")
@pytest.mark.parametrize(("changes", "said"), _WAYS.values(), ids=_WAYS)
def test_what_a_fused_kernel_would_update_elsewhere_leaves_it_out(changes, said, file, tmp_path):
    data = inspect(write(file, TUPLE, *changes))
    assert said in data.own.refused["fused-optimizer"]
    assert "one of shape (4, 192)" in data.own.refused["fused-optimizer"]
    found = run(own_spec(data, "cpu-optimized", batch_size=64, epochs=1), tmp_path / "optimized")
    assert found.error is None
    assert "fused-optimizer" not in {o.name for o in found.spec.optimizations}


@pytest.mark.parametrize("made", ["(torch.randn(192, 4) / 9).t()", "(torch.randn(4, 200) / 9)[:, :192].contiguous()"])
def test_weights_without_gaps_keep_it_and_train_as_by_hand(made, file, tmp_path):
    data = inspect(write(file, TUPLE, *_weight(made)))
    assert "fused-optimizer" not in data.own.refused
    spec = own_spec(data, "cpu-baseline+fused-optimizer", learning_rate=0.1, epochs=2, warmup_epochs=1)
    found = run(spec, tmp_path / "run")
    assert found.error is None
    assert [e.train_loss for e in found.epochs] == pytest.approx(by_hand(file, 2), rel=1e-6)


_LATER = (
    "return F.linear(x.flatten(1), self.weight)",
    """if self.training:
            self.steps += 1
        if self.steps > 5:  # as Kolmogorov-Arnold nets fit their splines to a new grid now and then
            self.weight.data = torch.cat([self.weight.data, self.weight.data], 1)[:, :192]
        return F.linear(x.flatten(1), self.weight)""",
)


def test_a_weight_that_is_set_so_by_a_step_ends_a_fused_run(file, tmp_path):
    changes = [*_weight("torch.randn(4, 192) / 9", "self.steps = 0"), _LATER]
    data = inspect(write(file, TUPLE, ("batch_size = 16", "batch_size = 8"), *changes))
    assert "fused-optimizer" not in data.own.refused
    fields = {"learning_rate": 0.1, "epochs": 1, "warmup_epochs": 1, "batch_size": 8}
    plain, fused = (
        run(own_spec(data, f"cpu-baseline{more}", **fields), tmp_path / f"run{more}")
        for more in ("", "+fused-optimizer")
    )
    assert plain.error is None
    assert "lies within a larger tensor (strides (384, 1))" in fused.error
    assert fused.error.endswith("or leave fused-optimizer out.")


def test_the_fused_kernels_of_a_cpu_still_go_by_address():
    """Where this fails, torch has been mended, and the first of the reasons may go."""
    moved = []
    for fused in (False, True):
        weight = torch.nn.Parameter(torch.zeros(4, 8)[:, :4])
        weight.grad = torch.arange(16.0).view(4, 4)
        torch.optim.SGD([weight], lr=1.0, fused=fused).step()
        moved.append(weight.detach().clone())
    assert not torch.equal(*moved)
